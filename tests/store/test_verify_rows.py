"""verify against rows that were committed wrong: the files are sound, what they hold contradicts itself."""

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
from synthetic_output import IDENTITY, Synthetic, commit_document, make_document
from verify_actions import KEY, change_document, change_rows, faults_of, is_told

import longdoc.checks.texts
import longdoc.checks.tiles
import longdoc.checks.tokens
import longdoc.store.parts
from longdoc.store.commit import OutputStore


def swap_token_ids(document: Synthetic) -> None:
    first, second = document.tables["tokens"][3:5]
    first["token_id"], second["token_id"] = second["token_id"], first["token_id"]


def move_span_border(document: Synthetic) -> None:
    """The last span of the first file takes a token of the next."""
    spans, tokens = document.tables["spans"], document.tables["tokens"]
    place = next(place for place, span in enumerate(spans) if span["segment_index"] == 5)
    token, byte = spans[place]["token_start"] + 1, tokens[spans[place]["token_start"] + 1]["text_byte_start"]
    text = spans[place]["text"].encode()
    cut = byte - spans[place]["text_byte_start"]
    spans[place - 1] |= {
        "token_stop": token,
        "text_byte_stop": byte,
        "text": spans[place - 1]["text"] + text[:cut].decode(),
    }
    spans[place] |= {"token_start": token, "text_byte_start": byte, "text": text[cut:].decode()}


CONTENT: list[tuple[Callable[[Synthetic], None], str]] = [
    (swap_token_ids, "tokens: .*: their ids hash to"),
    (change_rows("tokens", 3, token_id=-1), "position 3 has a negative token id"),
    (change_rows("tokens", 7, position=6), "position 6 is there twice|is not sorted by position"),
    (change_rows("tokens", 45, position=46), "position 45 is missing"),
    (
        change_rows("tokens", 4, text_byte_start=3),
        "position 4 does not start after the one before it|starts at another byte",
    ),
    (change_rows("tokens", 45, text_byte_start=4000), "a token starts at byte 4000, the text ends at"),
    (change_rows("tokens", 0, segment_index=1), "position 0 names another segment than 0, which holds it"),
    (change_rows("tokens", 6, text_byte_start=11), "segment 1 starts at another byte than its first token"),
    (change_rows("tokens", 5, logprob=0.5), "position 5 has a logprob that is not finite or above 0"),
    (change_rows("tokens", 5, logprob=float("nan")), "position 5 has a logprob that is not finite"),
    (change_rows("tokens", 5, logprob=float("-inf")), "position 5 has a logprob that is not finite"),
    (change_rows("tokens", 5, logprob=None), "position 5 has no logprob"),
    (change_rows("tokens", 0, logprob=-1.0), "position 0 has a logprob"),
    (change_document(prefix_token_ids=[1]), "position 0 has no logprob"),
    (change_rows("tokens", 5, entropy=-1.0), "position 5 has an entropy that is not finite or below 0"),
    (change_rows("tokens", 5, entropy=None), "position 5 has no entropy"),
    (change_rows("tokens", 5, rank_in_vocabulary=0), "position 5 has a rank below 1"),
    (change_rows("tokens", 5, logprob=-0.75), "documents: .*: mean_logprob is .*, its tokens' is"),
    (change_rows("tokens", 9, doc_key="0" * 64), f"tokens: tokens/.*: has rows of doc_key 0{{64}}, not {KEY}"),
    (change_rows("tokens", 9, attempt_id="x"), "tokens: tokens/.*: has rows of attempt_id x, not [0-9a-f]{32}"),
    (change_rows("spans", 3, doc_id="x"), "spans: spans/.*: has rows of doc_id x"),
    (change_rows("segments", 3, doc_id="x"), "segments: segments/.*: has rows of doc_id x"),
    (
        change_rows("segments", 0, segment_index=2),
        "segments: .*segment_index 2 is there twice|not sorted by segment_index",
    ),
    (
        change_rows("segments", 1, text_byte_start=13),
        "segment 1 holds text_byte 13 to .*, the one before it ended at 12",
    ),
    (change_rows("segments", 1, char_start=10), "segment 1 holds char 10 to .*, the one before it ended at 11"),
    (change_rows("segments", 5, token_stop=99), "the last of segments ends at token 99, the document at 46"),
    (change_rows("segments", 5, char_stop=99), "segments: .*: segment 5 has 45 characters, its text has"),
    (change_rows("segments", 1, num_bytes_source=35), r"segments: .*: account for \d+ bytes of a source of \d+"),
    (change_rows("segments", 3, reason=None), "has a segment with bytes of the source, no text and no reason"),
    (change_rows("segments", 1, embedding=None), "has a segment with tokens and no embedding, or the reverse"),
    (change_rows("segments", 3, embedding=[0.0] * 4), "has a segment with tokens and no embedding, or the reverse"),
    (change_rows("segments", 1, embedding=[0.0] * 3), "has an embedding that does not have 4 numbers"),
    (
        change_rows("segments", 1, embedding=[0.0, 0.0, 0.0, float("nan")]),
        "segments: .*has an embedding that is not finite",
    ),
    (change_rows("spans", 2, embedding=[0.0, 0.0, float("inf"), 0.0]), "spans: .*has an embedding that is not finite"),
    (change_rows("spans", 2, token_stop=16), "spans: .*: span 3 holds token 15 to 20, the one before it ended at 16"),
    (change_rows("spans", 2, text="x"), "span 2 has a text of another length than its bytes"),
    (change_rows("spans", 2, text="0123456789"), "spans: .*: their texts hash to|of another length"),
    (change_rows("spans", 2, text=None), "some spans have a text and some have none"),
    (change_rows("spans", 2, segment_index=5), "span 2 is named after a segment of another file, chapter or page"),
    (change_rows("spans", 2, segment_index=77), "span 2 is named after a segment of another file, chapter or page"),
    (change_rows("spans", 2, line_start=0), "span 2 has lines 0 to 3 of a segment of 3"),
    (change_rows("spans", 2, line_start=3, line_stop=3), "spans: .*: span 2 has lines 3 to 3, its text 1 to 3"),
    (change_rows("spans", 2, line_stop=5), "span 2 has lines 1 to 5 of a segment of 3"),
    (change_rows("spans", 2, display_path="x"), "span 2 has the display_path 'x', its segment 'dir/0"),
    (change_rows("spans", 2, display_path=None), "span 2 has the display_path None, its segment 'dir/0"),
    (change_rows("spans", 2, title="x"), "span 2 has the title 'x', its segment None"),
    (
        change_rows("spans", 2, segment_index=0),
        "span 2 is named after a segment that is not its file's",
    ),
    (change_rows("segments", 1, num_lines=2), "segments: .*: segment 1 has 2 lines, its text has 3"),
    (change_rows("segments", 0, num_lines=-1), "segments: .*: segment 0 has -1 lines in 12 bytes of text"),
    (change_rows("segments", 3, num_lines=1), "segments: .*: segment 3 has 1 lines in 0 bytes of text"),
    (change_rows("segments", 1, is_content=False), "segments: .*: unit 0 has 0 segments of content, not 1"),
    (change_rows("segments", 2, is_content=True), "segments: .*: unit 0 has 2 segments of content, not 1"),
    (change_rows("segments", 2, unit=2), "segments: .*: one unit is in two places"),
    (change_rows("segments", 1, reason="binary"), "segments/.*: has a segment with text and a reason why it is none"),
    (
        change_rows("segments", 1, encoding="utf-99"),
        "the encoding 'utf-99', found by 'utf-8', which does not exist",
    ),
    (change_rows("segments", 1, encoding="rot13"), "has the encoding 'rot13', found by 'utf-8', which does not exist"),
    (change_rows("segments", 1, encoding_source="bom"), "the encoding 'utf-8', found by 'bom', which does not exist"),
    (change_rows("segments", 1, encoding_source=None), "has the encoding utf-8, found by None"),
    (change_rows("segments", 1, encoding="ascii"), "segments: .*: segment 1 has text that ascii cannot hold"),
    (change_rows("segments", 1, encoding="utf-16-le"), r"segment 1 has \d+ bytes of the source, its text gives \d+"),
    (
        change_rows("segments", 1, source_sha256="0" * 64),
        "segment 1 has source_sha256 0{64}, its text gives",
    ),
    (change_rows("segments", 1, source_sha256="x"), "segment 1 has a source_sha256 that is none"),
    (change_rows("segments", 1, source_sha256=None), "segment 1 has an encoding and no source_sha256"),
    (change_rows("segments", 1, blob_id="0" * 40), "segment 1 has blob_id 0{40}, its text gives [0-9a-f]{40}"),
    (change_rows("segments", 1, transform="html"), "segment 1 has an encoding and a transform"),
    (
        change_rows("segments", 1, encoding=None, encoding_source=None),
        "segment 1 has text from the source and neither an encoding nor a transform",
    ),
    (change_rows("segments", 1, blob_id="HEAD"), "segment 1 has a blob_id that is none"),
    (
        change_rows("segments", 1, display_path="dir/\xff"),
        "has the display_path 'dir/ÿ' and the path b'dir/0",
    ),
    (change_rows("segments", 1, path=None), "segment 1 has the display_path 'dir/0.*' and the path None"),
    (change_rows("spans", 2, mean_logprob=-0.5), "spans: .*: span 2 has mean_logprob -0.5, its tokens give"),
    (change_rows("spans", 2, mean_logprob=None), "spans: .*: span 2 has mean_logprob nan, its tokens give"),
    (change_rows("spans", 2, max_surprisal=9.0), r"spans: .*: span 2 has max_surprisal 9\.0, its tokens give"),
    (move_span_border, "crosses into another file, chapter or page"),
    (change_document(mean_logprob=-1.0), r"documents: .*: mean_logprob is -1\.0, its tokens' is"),
    (change_document(mean_logprob=None), "mean_logprob is None and perplexity .* with 45 scored tokens"),
    (change_document(perplexity=2.0), r"perplexity is 2\.0, exp"),
    (change_document(tokens_sha256="x"), "tokens_sha256 is not a SHA-256"),
    (change_document(text_sha256="0" * 64), "their texts hash to .*, the document's to 0{64}"),
    (change_document(num_bytes_text=200), "the last of (segments|spans) ends at text_byte .*, the document at 200"),
    (change_document(num_bytes_source=-1), "num_bytes_source is -1"),
    (change_document(model="b", model_digest="f" * 64), "was made by model b, the output holds arithmetic"),
    (change_document(embedding=[float("nan")] * 4), "documents: .*: its embedding is not finite"),
    (change_document(ring_size=0), "ring_size is 0"),
    (change_document(kind="film"), "documents: .*: kind is 'film'"),
    (change_document(context_extension="rope"), "documents: .*: context_extension is 'rope'"),
    (change_document(context_extension_factor=0.5), "documents: .*: context_extension_factor is 0.5"),
    (change_document(attention_direction="up"), "documents: .*: attention_direction is 'up'"),
    (change_document(run_id="run7"), "its footer has longdoc.run_id = 'run1', not 'run7'"),
]


@pytest.mark.parametrize(("change", "fault"), CONTENT, ids=[case[1][:40] for case in CONTENT])
def test_rows_that_were_committed_wrong_are_named(
    tmp_path: Path, change: Callable[[Synthetic], None], fault: str
) -> None:
    """The files are as committed; what they hold contradicts itself. In windows of a few rows, as in large ones."""
    document = copy.deepcopy(make_document(1))
    change(document)
    assert commit_document(OutputStore.open(str(tmp_path), IDENTITY), document)
    found = faults_of(tmp_path)
    assert is_told(fault, found), found
    kinds = {line.split(": ", 2)[2] for line in found}
    assert len(kinds) <= 4, "one mistake should not be told many times"


@pytest.mark.parametrize("rows", [1, 2, 7, 46, 47])
def test_windows_of_any_size_find_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(longdoc.checks.tiles, "WINDOW_ROWS", rows)
    monkeypatch.setattr(longdoc.checks.texts, "TEXT_WINDOW_ROWS", rows)
    monkeypatch.setattr(longdoc.checks.tokens, "WINDOW_ROWS", rows)
    monkeypatch.setattr(longdoc.store.parts, "MAX_GROUP_ROWS", 5)
    store = OutputStore.open(str(tmp_path), IDENTITY)
    commit_document(store, make_document(1))
    assert faults_of(tmp_path) == []
    wrong = copy.deepcopy(make_document(2))
    swap_token_ids(wrong)
    move_span_border(wrong)
    commit_document(store, wrong)
    found = "\n".join(faults_of(tmp_path))
    assert "their ids hash to" in found
    assert "crosses into another file" in found
