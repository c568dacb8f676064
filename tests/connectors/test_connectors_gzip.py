"""Books in gzip files: read as what is inside, every part of the file measured, bounded, and refused where damaged."""

import gzip
import io
import zlib
from pathlib import Path

import pytest
from book_checks import check_document, check_fault, mutations, read_or_refuse
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.books import read_book
from longdoc.errors import DocumentError
from longdoc.records import Document

BOOK = "CHAPTER I\n\nÉté.\n\nCHAPTER II\n\nAutomne.\n"


def read(raw: bytes, name: str = "book.txt.gz") -> Document:
    document = read_book(raw, path=Path(name))
    check_document(document, raw)
    return document


def refused(raw: bytes, name: str = "book.txt.gz") -> DocumentError:
    with pytest.raises(DocumentError) as caught:
        read_book(raw, path=Path(name))
    check_fault(caught.value)
    assert name in str(caught.value)
    return caught.value


def member(content: bytes, *, flags: int = 0, fields: bytes = b"") -> bytes:
    """One member by the letter of RFC 1952."""
    compressor = zlib.compressobj(wbits=-15)
    data = compressor.compress(content) + compressor.flush()
    header = b"\x1f\x8b\x08" + bytes([flags]) + b"\0" * 4 + b"\0\xff" + fields
    return header + data + zlib.crc32(content).to_bytes(4, "little") + len(content).to_bytes(4, "little")


def test_a_book_in_gzip_is_the_book_and_its_bytes_are_the_files() -> None:
    content = BOOK.encode("cp1252")
    plain = read_book(content, path=Path("book.txt"))
    raw = member(content)
    document = read(raw)
    assert document.text == plain.text
    assert [(s.kind, s.title) for s in document.segments[:2]] == [(s.kind, s.title) for s in plain.segments]
    assert [(s.kind, s.reason, s.num_bytes_source) for s in document.segments] == [
        ("chapter", None, len(raw) - 18),
        ("chapter", None, 0),
        ("gzip_header", "container", 10),
        ("gzip_trailer", "container", 8),
    ]
    assert [(e.kind, e.parent, e.num_bytes, e.num_bytes_content) for e in document.ledger] == [
        ("gzip_data", None, len(raw) - 18, len(content)),
        ("text", 0, len(content), None),
        ("gzip_header", None, 10, None),
        ("gzip_trailer", None, 8, None),
    ]
    assert document.segments[0].transform == f"gzip; charset={plain.segments[0].encoding}"
    assert document.segments[0].encoding is None
    assert [each.place for each in document.source_map] == ["byte 0", f"byte {content.index(b'CHAPTER II')}"]
    assert document.source_uri == Path("book.txt.gz").resolve().as_uri()
    assert document.title == "book"


def test_every_field_of_a_header_is_measured() -> None:
    fields = b"\x03\0abc" + b"name.txt\0" + b"comment\0" + b"\x12\x34"
    document = read(member(BOOK.encode(), flags=2 | 4 | 8 | 16, fields=fields))
    assert document.text.decode() == BOOK
    assert document.segments[-2].num_bytes_source == 10 + len(fields)


def test_members_that_follow_each_other_are_one_book_and_what_is_behind_them_has_a_reason() -> None:
    content = BOOK.encode()
    for stop in (0, 1, 11, len(content)):  # 11 is inside a character
        document = read(member(content[:stop]) + member(content[stop:]) + b"junk\0")
        assert document.text == content
        assert document.ledger[0].detail == "2 members"
        assert [(s.kind, s.reason, s.num_bytes_source) for s in document.segments[-3:]] == [
            ("gzip_header", "container", 20),
            ("gzip_trailer", "container", 16),
            ("trailing_bytes", "trailing_bytes", 5),
        ]


def test_a_page_in_gzip_keeps_its_ledger_and_source_map_inside() -> None:
    page = b"<!DOCTYPE html><title>T</title><h2>A</h2><p>a<!-- c --><h2>B</h2><p>b"
    document = read(member(page), "book.html.gz")
    assert [(s.kind, s.title) for s in document.segments[:2]] == [("chapter", "A"), ("chapter", "B")]
    assert [(e.kind, e.parent, e.reason) for e in document.ledger[:3]] == [
        ("gzip_data", None, None), ("file", 0, None), ("text", 1, None),
    ]  # fmt: skip
    assert {each.entry_index for each in document.source_map} == {1}
    assert document.segments[0].transform == "gzip; html; charset=utf-8"


def test_content_decides_over_both_names() -> None:
    document = read(member(b"<html><p>a"), "book.txt")
    assert document.warnings == (
        "The name book.txt promises plain text, but its content is gzip: read as that.",
        "The name book.txt promises plain text, but its content is HTML: read as that.",
    )
    assert read(member(b"words"), "book.gz").text == b"words"


def test_what_gzip_itself_writes_is_read() -> None:
    file = io.BytesIO()
    with gzip.GzipFile("name.txt", "wb", fileobj=file) as writer:
        writer.write(BOOK.encode())
    assert read(file.getvalue()).text.decode() == BOOK


@pytest.mark.parametrize("stop", [2, 5, 9, 11, -9, -8, -1])
def test_a_file_that_ends_early_is_damaged(stop: int) -> None:
    error = refused(member(BOOK.encode())[:stop])
    assert error.reason == "damaged"
    assert "is a damaged gzip file: it" in str(error)
    assert "Get a whole copy of it." in str(error)


def test_content_that_is_not_what_was_compressed_is_damaged() -> None:
    raw = bytearray(member(BOOK.encode()))
    raw[-8] ^= 1
    assert "its content does not give its own checksum" in str(refused(bytes(raw)))
    raw = bytearray(member(BOOK.encode()))
    raw[3] = 0xE0
    assert "a header has method 8 and flags 0xe0" in str(refused(bytes(raw)))


def test_a_bomb_is_refused_before_it_is_expanded() -> None:
    zeros = zlib.compressobj(9, wbits=-15)
    data = b"".join(zeros.compress(b"a" * (1 << 20)) for _ in range(80)) + zeros.flush()
    raw = b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + data + b"\0" * 8
    error = refused(raw)
    assert error.reason == "too_large_when_expanded"
    assert "67,108,864" in str(error)


def test_many_bombs_in_a_row_are_one() -> None:
    one = member(b"a" * (1 << 20))
    assert refused(one * 80).reason == "too_large_when_expanded"
    assert len(read(one * 3).text) == 3 << 20


@pytest.mark.parametrize(
    ("content", "name", "reason"),
    [
        (b"", "a.txt.gz", "empty"),
        (member(b"a"), "a.txt.gz", "unsafe"),
        (b"a" * 257 + b"ustar" + b"\0" * 250, "a.gz", "unknown_format"),
        (bytes(range(256)) * 4, "a.gz", "unknown_format"),
        (b"\x89PNG\r\n\x1a\n", "a.gz", "unknown_format"),
        (b"\xef\xbb\xbf", "a.txt.gz", "empty"),
        (b"<title>x</title>", "a.html.gz", "empty"),
    ],
)
def test_content_that_is_no_book_has_a_reason(content: bytes, name: str, reason: str) -> None:
    assert refused(member(content), name).reason == reason


RAW = member(BOOK.encode()[:20]) + member(BOOK.encode()[20:], flags=8, fields=b"n\0")


@settings(max_examples=150)
@given(raw=mutations(RAW, (0, 3, 10, len(member(BOOK.encode()[:20])), len(RAW) - 8, len(RAW))))
def test_damaged_files_balance_or_have_a_reason(raw: bytes) -> None:
    read_or_refuse(raw, "a.txt.gz")


@settings(max_examples=60)
@given(
    pieces=st.lists(st.text(st.characters(codec="utf-8"), max_size=30), min_size=1, max_size=5),
    junk=st.binary(max_size=3),
)
def test_generated_files_give_their_text(pieces: list[str], junk: bytes) -> None:
    content = "".join(pieces).encode()
    raw = b"".join(member(piece.encode()) for piece in pieces) + junk
    outcome = read_or_refuse(raw, "a.txt.gz")
    plain = read_or_refuse(content, "a.txt")
    if isinstance(outcome, Document) and isinstance(plain, Document):
        assert outcome.text == plain.text
    else:
        assert type(outcome) is type(plain)
