"""verify names every fault, from the files alone, and never falls over."""

import copy
import dataclasses
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from synthetic_output import (
    IDENTITY,
    Synthetic,
    arrow_rows,
    commit_document,
    make_document,
    make_output,
    sha256,
    write_parts,
)

import longdoc.checks.tiles
import longdoc.checks.tokens
import longdoc.store.parts
from longdoc.cli.verify import verify as verify_command
from longdoc.errors import CheckFailed, OutputError
from longdoc.store.commit import OutputStore
from longdoc.store.schemas import OutputIdentity
from longdoc.verify import verify

KEY = make_document(1).doc_key


@pytest.fixture(scope="module")
def sound_output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("sound") / "out"
    make_output(output)
    return output


@pytest.fixture
def output(sound_output: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound_output, tmp_path / "out"))


def faults_of(output: Path) -> list[str]:
    return [str(fault) for fault in verify(str(output)).faults]


def part(output: Path, table: str, unit: str = KEY, number: int = 0) -> Path:
    (path,) = output.glob(f"{table}/*/{unit}-p{number:03d}.parquet")
    return path


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """The same file with other rows, by a writer that knows nothing of the store."""
    rows = pq.ParquetFile(path).read()
    pq.write_table(change(rows), path)


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_a_sound_output_has_no_fault_and_everything_is_counted(output: Path) -> None:
    report = verify(str(output))
    documents = [make_document(1), make_document(2)]
    assert report.faults == ()
    bytes_of_parts = sum(
        path.stat().st_size for table in ("tokens", "spans", "segments") for path in output.glob(f"{table}/*/*")
    )
    assert report.counts == {
        "documents": 2,
        "parts": 12,
        "bytes": bytes_of_parts,
        "segments": sum(len(document.tables["segments"]) for document in documents),
        "spans": sum(len(document.tables["spans"]) for document in documents),
        "tokens": sum(len(document.tables["tokens"]) for document in documents),
        "quarantine": 1,
        "runs": 1,
    }


def add_part_of_another_attempt(output: Path) -> None:
    store = OutputStore.read(str(output))
    attempt = store.begin(KEY)
    (tokens, *_) = [part for part in write_parts(attempt, make_document(1)) if part.table == "tokens"]
    shutil.copy(attempt.staging / tokens.path, (output / tokens.path).with_name(f"{KEY}-p002.parquet"))
    store.discard(attempt)


def put_part_of_another_attempt_in_place(output: Path) -> None:
    store = OutputStore.read(str(output))
    attempt = store.begin(KEY)
    for written in write_parts(attempt, make_document(1)):
        if written.table == "spans":
            shutil.copy(attempt.staging / written.path, output / written.path)
    store.discard(attempt)


def add_part_of_an_unknown_document(output: Path) -> None:
    store = OutputStore.read(str(output))
    attempt = store.begin(make_document(5).doc_key)
    for written in write_parts(attempt, make_document(5)):
        (output / written.path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(attempt.staging / written.path, output / written.path)
    store.discard(attempt)


def move_to_another_bucket(output: Path) -> None:
    path = part(output, "tokens")
    other = path.parent.with_name("bucket=00")
    other.mkdir()
    path.rename(other / path.name)


def copy_documents_row(output: Path, name: str) -> None:
    path = part(output, "documents")
    shutil.copy(path, path.with_name(name))


TAMPERED: list[tuple[str, Callable[[Path], Any], str]] = [
    ("part deleted", lambda out: part(out, "spans").unlink(), rf"spans: spans/.*{KEY}-p000\.parquet: is missing"),
    (
        "byte flipped",
        lambda out: flip(part(out, "tokens"), 100),
        r"tokens: .*-p000.*: its bytes changed since it was comm",
    ),
    (
        "token row removed",
        lambda out: rewrite(part(out, "tokens"), lambda rows: rows.slice(1)),
        r"tokens: .*-p000.*: its bytes changed since it was committed \(\d+ bytes, not \d+; 21 rows, not 22\)",
    ),
    (
        "documents row doubled in its file",
        lambda out: rewrite(part(out, "documents"), lambda rows: pa.concat_tables([rows, rows])),
        rf"documents: documents/.*: holds document {KEY}, of which there are 2 rows in all",
    ),
    (
        "documents row doubled in a second file",
        lambda out: copy_documents_row(out, f"{KEY}-p001.parquet"),
        rf"-p001\.parquet: holds document {KEY}, of which there are 2 rows in all",
    ),
    (
        "documents file under another unit",
        lambda out: copy_documents_row(out, "copy.parquet"),
        r"documents: .*/copy\.parquet: does not have a path of the form <table>/bucket=",
    ),
    (
        "part of another attempt added",
        add_part_of_another_attempt,
        r"tokens: tokens/.*-p002\.parquet: is a part of attempt [0-9a-f]{32}, not [0-9a-f]{32}, which was committed",
    ),
    ("part of another attempt in place", put_part_of_another_attempt_in_place, r"spans: spans/.*: its bytes changed"),
    (
        "part of no document",
        add_part_of_an_unknown_document,
        r"segments: segments/.*: is a part of attempt [0-9a-f]{32}, no committed document",
    ),
    (
        "part in another bucket",
        move_to_another_bucket,
        r"tokens: tokens/bucket=00/.*: does not have a path of the form",
    ),
    (
        "decision missing",
        lambda out: (out / "_longdoc" / "decisions" / KEY).unlink(),
        rf"documents: documents/.*: belongs to no decision: _longdoc/decisions/{KEY} is missing",
    ),
    (
        "decision damaged",
        lambda out: (out / "_longdoc" / "decisions" / KEY).write_bytes(b"PAR1"),
        rf"documents: _longdoc/decisions/{KEY}: cannot be read",
    ),
    (
        "documents row not published",
        lambda out: part(out, "documents").unlink(),
        rf"documents: {KEY}: was decided, but its row is not published",
    ),
    (
        "attempt mark missing",
        lambda out: [path.unlink() for path in (out / "_longdoc" / "attempts").iterdir()],
        rf"documents: {KEY}: its attempt [0-9a-f]+ is not marked as committed",
    ),
    (
        "attempt marked as abandoned",
        lambda out: [path.write_text("abandoned") for path in (out / "_longdoc" / "attempts").iterdir()],
        "is not marked as committed",
    ),
    (
        "file that is not Parquet",
        lambda out: part(out, "tokens").with_suffix(".json").touch(),
        r"tokens: tokens/.*\.json: is not a Parquet file",
    ),
    (
        "dangling link",
        lambda out: (out / "spans" / "x.parquet").symlink_to("nowhere"),
        "spans: spans/x.parquet: is no file",
    ),
    (
        "quarantine row unpublished",
        lambda out: [path.unlink() for path in out.glob("quarantine/*/*")],
        r"quarantine: _longdoc/rows/quarantine/.*: is not published",
    ),
    (
        "quarantine row that nobody kept",
        lambda out: [path.unlink() for path in out.glob("_longdoc/rows/quarantine/*")],
        r"quarantine: quarantine/.*: no run wrote it",
    ),
    (
        "quarantine row rewritten",
        lambda out: [rewrite(path, lambda rows: pa.concat_tables([rows, rows])) for path in out.glob("quarantine/*/*")],
        r"quarantine: quarantine/.*: has 2 rows, not 1",
    ),
    (
        "run row rewritten",
        lambda out: [rewrite(path, lambda rows: rows) for path in out.glob("runs/*/*")],
        r"runs: runs/.*: differs from _longdoc/rows/runs/run1-p000\.parquet",
    ),
    (
        "run row of another run",
        lambda out: [
            shutil.copy(path, path.parents[1] / "bucket=76" / "run2-p000.parquet")
            for path in list(out.glob("runs/*/*"))
            if (path.parents[1] / "bucket=76").mkdir() is None
        ],
        r"runs: runs/.*run2.*: (is run run1, its file name says run2|does not have a path)",
    ),
]


@pytest.mark.parametrize(("tamper", "fault"), [case[1:] for case in TAMPERED], ids=[case[0] for case in TAMPERED])
def test_what_was_tampered_with_is_named(output: Path, tamper: Callable[[Path], Any], fault: str) -> None:
    tamper(output)
    found = faults_of(output)
    assert any(pytest.RaisesExc(AssertionError, match=fault).matches(AssertionError(line)) for line in found), found


def test_a_flipped_byte_anywhere_in_any_file_is_found(output: Path) -> None:
    """Every kind of file, its first, last and some other bytes; never a traceback."""
    chance = random.Random(0)
    paths = sorted(output.glob("*/bucket=*/*")) + sorted(output.glob("_longdoc/rows/*/*"))
    paths += sorted((output / "_longdoc" / "decisions").iterdir())
    for path in paths:
        content = path.read_bytes()
        for place in (0, len(content) - 1, *chance.sample(range(len(content)), 3)):
            flip(path, place)
            name = path.name if "decisions" not in path.parts else f"decisions/{path.name}"
            assert any(name in fault for fault in faults_of(output)), (path, place)
            path.write_bytes(content)
    assert faults_of(output) == []


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1PAR1PAR1", bytes(300), b"text"])
def test_files_that_are_no_longer_parquet_are_faults(output: Path, content: bytes) -> None:
    for table in ("documents", "tokens", "quarantine", "runs"):
        path = sorted(output.glob(f"{table}/*/*"))[0]
        path.write_bytes(content)
        assert any(fault.startswith(f"{table}: ") and path.name in fault for fault in faults_of(output))


def change_rows(table: str, place: int, **values: Any) -> Callable[[Synthetic], None]:
    def change(document: Synthetic) -> None:
        document.tables[table][place] |= values

    return change


def change_document(**values: Any) -> Callable[[Synthetic], None]:
    return lambda document: document.row.update(values)


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
    (change_rows("segments", 5, char_stop=99), "segments: .*: end at char 99, the text has"),
    (change_rows("segments", 1, num_bytes_source=30), "segments: .*: account for 578 bytes of a source of 577"),
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
    (change_rows("spans", 2, line_start=0), "span 2 has lines that cannot be"),
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
    assert any(pytest.RaisesExc(AssertionError, match=fault).matches(AssertionError(line)) for line in found), found
    kinds = {line.split(": ", 2)[2] for line in found}
    assert len(kinds) <= 4, "one mistake should not be told many times"


@pytest.mark.parametrize("rows", [1, 2, 7, 46, 47])
def test_windows_of_any_size_find_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(longdoc.checks.tiles, "WINDOW_ROWS", rows)
    monkeypatch.setattr(longdoc.checks.tiles, "TEXT_WINDOW_ROWS", rows)
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


OTHER_OUTPUTS = [
    dataclasses.replace(IDENTITY, outputs=("logprobs",), embedding_size=0),
    dataclasses.replace(IDENTITY, outputs=("embeddings",)),
    dataclasses.replace(IDENTITY, outputs=(), embedding_size=0),
]


@pytest.mark.parametrize("identity", OTHER_OUTPUTS, ids=[",".join(other.outputs) or "none" for other in OTHER_OUTPUTS])
def test_outputs_without_embeddings_or_scores_are_sound(tmp_path: Path, identity: OutputIdentity) -> None:
    document = make_document(1, with_text=False)
    if "logprobs" not in identity.outputs:
        for row in document.tables["tokens"]:
            row |= {"logprob": None, "entropy": None, "rank_in_vocabulary": None}
        for row in document.tables["spans"]:
            row |= {"mean_logprob": None, "max_surprisal": None}
        document.row.update({"mean_logprob": None, "perplexity": None})
    if not identity.embedding_size:
        document.row.update({"embedding": None, "pooling": None})
    commit_document(OutputStore.open(str(tmp_path), identity), document)
    assert faults_of(tmp_path) == []


def test_a_document_of_one_token_has_no_scores_and_is_sound(tmp_path: Path) -> None:
    document = copy.deepcopy(make_document(1))
    segment, token, span = (document.tables[table][0] for table in ("segments", "tokens", "spans"))
    segment |= {"text_byte_stop": 2, "char_stop": 2, "token_stop": 1, "num_bytes_source": 2, "is_content": True}
    span |= {
        "segment_index": 0,
        "token_stop": 1,
        "text_byte_stop": 2,
        "text": "Fi",
        "mean_logprob": None,
        "max_surprisal": None,
    }
    document.tables.update({"segments": [segment], "tokens": [token], "spans": [span]})
    hashes = {
        "text_sha256": sha256(b"Fi"),
        "tokens_sha256": sha256(token["token_id"].to_bytes(4, "little")),
    }
    counts = {"num_tokens": 1, "num_bytes_text": 2, "num_bytes_source": 2}
    document.row.update(hashes | counts | {"mean_logprob": None, "perplexity": None})
    commit_document(OutputStore.open(str(tmp_path), IDENTITY), document)
    assert faults_of(tmp_path) == []


def test_an_empty_output_is_sound(tmp_path: Path) -> None:
    OutputStore.open(str(tmp_path), IDENTITY)
    report = verify(str(tmp_path))
    assert (report.faults, sum(report.counts.values())) == ((), 0)


def test_an_attempt_in_progress_is_no_fault(output: Path) -> None:
    store = OutputStore.open(str(output), IDENTITY)
    attempt = store.begin(make_document(3).doc_key)
    write_parts(attempt, make_document(3))
    assert faults_of(output) == []
    store.discard(attempt)


def test_the_command_says_that_all_is_well(output: Path) -> None:
    done = CliRunner().invoke(verify_command, [str(output)])
    assert done.exit_code == 0
    assert done.output.splitlines()[-1] == "Everything is as promised."
    assert "checked 2 documents, 12 segments, " in done.output


def test_the_command_names_faults_and_fails(output: Path) -> None:
    part(output, "spans").unlink()
    done = CliRunner().invoke(verify_command, [str(output)])
    assert isinstance(done.exception, CheckFailed)
    assert done.exception.exit_code == 1
    assert str(done.exception) == f"{output} does not hold what was promised: 1 fault."
    assert "is missing; a committed document names it" in done.output


def test_the_command_reports_as_json(output: Path) -> None:
    part(output, "spans").unlink()
    report = json.loads(CliRunner().invoke(verify_command, [str(output), "--json"]).stdout)
    assert [fault["table"] for fault in report["faults"]] == ["spans"]
    assert report["counts"]["documents"] == 2


def test_the_command_refuses_what_is_no_output(tmp_path: Path) -> None:
    done = CliRunner().invoke(verify_command, [str(tmp_path)])
    assert isinstance(done.exception, OutputError)
    assert done.exception.exit_code == 2


def test_a_part_with_another_schema_is_named(tmp_path: Path) -> None:
    """Committed by a writer that changed a type: the bytes are as committed, the schema is not."""
    store = OutputStore.open(str(tmp_path), IDENTITY)
    document = make_document(1)
    attempt = store.begin(document.doc_key)
    parts = write_parts(attempt, document)
    changed = []
    for written in parts:
        path = attempt.staging / written.path
        if written.table == "tokens":
            rows = pq.ParquetFile(path).read()
            place = rows.schema.get_field_index("position")
            pq.write_table(rows.set_column(place, "position", rows["position"].cast(pa.int32())), path)
            digest = sha256(path.read_bytes())
            written = dataclasses.replace(written, num_bytes=path.stat().st_size, sha256=digest)
        changed.append(written)
    assert store.commit(attempt, document_row=document.row, parts=changed)
    assert any("tokens: " in fault and "does not have the table's schema" in fault for fault in faults_of(tmp_path))


def test_the_helper_writes_what_it_says() -> None:
    """The tests above rest on it: its rows fit the schemas and its document is consistent by its own definition."""
    document = make_document(1)
    text = "".join(row["text"] for row in document.tables["spans"]).encode()
    assert len(text) == document.row["num_bytes_text"]
    assert [row["position"] for row in document.tables["tokens"]] == list(range(46))
    identity = {"doc_id": "a", "doc_key": "b", "attempt_id": "c"}
    for table, rows in document.tables.items():
        assert arrow_rows(table, [identity | row for row in rows]).num_rows == len(rows)
