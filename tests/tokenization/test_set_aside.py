"""Files that a vocabulary cannot express are set aside, and nothing else of their repository changes."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trained_tokenizers import change, ordinary, texts

from connectors.building import Origin, Tiles
from longdoc.errors import DocumentError
from longdoc.records import Document, Segment
from longdoc.tokenization.cache import TokenCache
from longdoc.tokenization.encode import encode_document, encode_setting_aside
from longdoc.tokenization.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def lacking(trained_folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    """A vocabulary without tokens for 0x04 and 0xC3, which begins é."""
    vocab = {token: at for token, at in ordinary(trained_folders["gpt2"]).get_vocab().items() if token not in "ĄÃ"}
    merges = {"vocab": {token: at for token, at in vocab.items() if len(token) == 1}, "merges": []}
    folder = change(trained_folders["gpt2"], tmp_path_factory.mktemp("lacking"), model=merges, post_processor=None)
    vocabulary = Vocabulary.load(folder)
    assert vocabulary.missing_bytes == b"\x04\xc3"
    return vocabulary


def repository(*files: tuple[str, str], name: str = "r") -> Document:
    """A document laid out as the repositories connector does."""
    tiles = Tiles()
    tiles.add(f"Repository: {name}\n\n", kind="repository_header", unit=0, is_content=True)
    for unit, (path, text) in enumerate(files, start=1):
        raw = text.encode()
        beside = Origin(path=path.encode())
        origin = replace(
            beside, encoding="utf-8", encoding_source="utf-8", num_bytes=len(raw),
            sha256=hashlib.sha256(raw).hexdigest(), blob_id=f"{unit:040x}",
        )  # fmt: skip
        tiles.add(f"File: {path}\n", kind="file_header", unit=unit, origin=beside)
        tiles.add(text, kind="file", unit=unit, is_content=True, origin=origin)
        if text and not text.endswith("\n"):
            tiles.add("\n", kind="padding", unit=unit, origin=beside)
    num_bytes = sum(segment.num_bytes_source for segment in tiles.segments)
    return Document(
        kind="repository", source_uri="m", num_bytes_source=num_bytes, text=tiles.text(), segments=tuple(tiles.segments)
    )


FILES = (("a", "fine\n"), ("b", "x\ny \x04 \x04"), ("café", "fine"), ("d", "中文"), ("e", "é"), ("f", "the end"))


def contents(document: Document) -> dict[bytes, Segment]:
    return {s.path: s for s in document.segments if s.is_content and s.path is not None}


def test_a_file_with_a_byte_that_has_no_token_becomes_a_segment_with_a_reason(lacking: Vocabulary) -> None:
    document = repository(*FILES)
    with pytest.raises(DocumentError):
        encode_document(document, lacking)
    remaining, sequence = encode_setting_aside(document, lacking)
    remaining.check()
    assert remaining.text.decode() == "Repository: r\n\nFile: a\nfine\nFile: d\n中文\nFile: f\nthe end\n"
    assert lacking.decode(sequence.token_ids) == remaining.text
    assert [s.unit for s in remaining.segments] == [0, 1, 1, 2, 3, 4, 4, 4, 5, 6, 6, 6]
    before, after = contents(document), contents(remaining)
    assert {path: (s.reason, s.title) for path, s in after.items() if s.reason} == {
        b"b": ("byte_without_token", "byte 0x04 in line 2"),
        "café".encode(): ("byte_without_token", "byte 0xc3 in file_header"),
        b"e": ("byte_without_token", "byte 0xc3 in line 1"),
    }
    assert list(after) == list(before)
    for path, segment in after.items():
        kept = ("unit", "kind", "num_bytes_source", "source_sha256", "blob_id")
        assert [getattr(segment, name) for name in kept] == [getattr(before[path], name) for name in kept]
        if segment.reason:
            assert (segment.text_byte_start, segment.char_start) == (segment.text_byte_stop, segment.char_stop)
            assert (segment.encoding, segment.num_lines) == (None, 0)
        else:
            assert remaining.segment_text(segment) == document.segment_text(before[path])


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(texts, st.sampled_from(["\x04", "é", "a\n\x04"])), max_size=5))
def test_what_remains_is_the_repository_without_those_files(lacking: Vocabulary, bodies: list[str]) -> None:
    files = [(f"f{number}", body) for number, body in enumerate(bodies)]
    remaining, sequence = encode_setting_aside(repository(*files), lacking)
    spoken = [(path, body) for path, body in files if not {4, 0xC3} & set(body.encode())]
    assert remaining.text == repository(*spoken).text
    assert sequence.token_ids.tolist() == encode_document(repository(*spoken), lacking).token_ids.tolist()
    for segment in remaining.segments:
        text = remaining.text.decode()[segment.char_start : segment.char_stop]
        assert text.encode() == remaining.segment_text(segment)


def test_a_repository_that_can_be_encoded_is_not_touched(lacking: Vocabulary, tmp_path: Path) -> None:
    document = repository(("a", "fine\n"), ("b", ""))
    assert encode_setting_aside(document, lacking)[0] is document
    broken = repository(("a", "fine\n"), ("b", "\x04"))
    handed: list[str] = []

    def encode(pieces: object) -> list[object]:
        handed.extend(pieces)  # type: ignore[arg-type, call-overload]
        return [lacking.encode(piece) for piece in pieces]  # type: ignore[attr-defined]

    with TokenCache(tmp_path / "c") as cache:
        encode_document(document, lacking, cache=cache)
        remaining, _ = encode_setting_aside(broken, lacking, cache=cache, encode_pieces=encode)  # type: ignore[arg-type]
    assert sorted(handed) == ["File: a\n", "Repository: r\n\n"], "the file itself came from the cache"
    assert remaining.text == b"Repository: r\n\nFile: a\nfine\n"


def test_books_and_the_name_of_a_repository_cannot_be_set_aside(lacking: Vocabulary) -> None:
    book = replace(repository(*FILES), kind="book")
    for document in (book, repository(("a", "x"), name="café")):
        with pytest.raises(DocumentError) as refusal:
            encode_setting_aside(document, lacking)
        assert refusal.value.reason == "byte_without_token"
