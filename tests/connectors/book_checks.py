"""What every book reader is held to: a document that balances, or a fault that a person understands."""

import re
from collections import Counter
from itertools import groupby
from pathlib import Path

from hypothesis import strategies as st

from connectors.books import read_book
from longdoc.errors import DocumentError
from longdoc.records import Document

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "connectors.md").read_text()


def documented_reasons() -> dict[str, set[str]]:
    """By word of the table of reasons in docs/connectors.md: what it stands on, `document` or `bytes`."""
    section = PAGE.partition("\n## Reasons\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*`) \|[^|]*\| ([a-z, ]+) \|$", section, re.MULTILINE)
    return {word: set(on.split(", ")) for words, on in rows for word in re.findall(r"`([a-z_]+)`", words)}


REASONS = {
    on: frozenset(word for word, where in documented_reasons().items() if on in where) for on in ("document", "bytes")
}


def read_or_refuse(raw: bytes, name: str) -> Document | DocumentError:
    """The document of a file, checked in full, or the fault, whose message is checked."""
    try:
        document = read_book(raw, path=Path(name))
    except DocumentError as error:
        check_fault(error)
        return error
    check_document(document, raw)
    return document


def check_fault(error: DocumentError) -> None:
    """A stable reason, and a message that can be written anywhere."""
    assert error.stage == "read"
    assert error.reason in REASONS["document"], error.reason
    assert len(str(error).encode("utf-8")) > 20


def check_document(document: Document, raw: bytes) -> None:
    """Everything that holds for any book, whatever its format."""
    document.check()
    check_reasons(document)
    assert document.num_bytes_source == len(raw)
    document.text.decode("utf-8")
    for _, unit in groupby(document.segments, key=lambda segment: segment.unit):
        segments = list(unit)
        assert [segment.is_content for segment in segments] == [True] + [False] * (len(segments) - 1)
    units = [segment.unit for segment in document.segments]
    assert units == sorted(units)
    for segment in document.segments:
        is_text = segment.text_byte_start < segment.text_byte_stop
        assert is_text or segment.reason or not segment.num_bytes_source
        assert not (segment.encoding and segment.transform)
        if is_text and segment.num_bytes_source:
            assert segment.encoding or segment.transform
    check_top_of_ledger(document)


def check_reasons(document: Document) -> None:
    """Every reason is a word that the documentation has for bytes."""
    given = {each.reason for each in (*document.segments, *document.ledger) if each.reason is not None}
    assert given <= REASONS["bytes"], given - REASONS["bytes"]


def check_top_of_ledger(document: Document) -> None:
    """Every entry at the top of the ledger stands with its bytes on one segment."""
    if document.ledger:
        top = Counter(entry.num_bytes for entry in document.ledger if entry.parent is None and entry.num_bytes)
        assert Counter(s.num_bytes_source for s in document.segments if s.num_bytes_source) == top


def texts(document: Document) -> list[tuple[str, str]]:
    """Kind and text of each segment that has one."""
    return [(s.kind, document.segment_text(s).decode()) for s in document.segments if s.num_lines]


def mapped(document: Document) -> list[tuple[str, str]]:
    """Place and text of each range of the source map."""
    return [
        (each.place, document.text[each.text_byte_start : each.text_byte_stop].decode()) for each in document.source_map
    ]


def shingles(text: str, size: int = 5) -> set[tuple[str, ...]]:
    """Runs of five words, of letters and digits only, in lower case."""
    words = re.sub(r"[^a-z0-9]+", " ", text.lower()).split()
    return {tuple(words[start : start + size]) for start in range(len(words) - size + 1)}


def story(text: str) -> str:
    """Alice from its first words to its last."""
    start = text.index("Alice was beginning")
    return text[start : text.index("THE END", start) + len("THE END")]


@st.composite
def mutations(draw: st.DrawFn, raw: bytes, boundaries: tuple[int, ...] = ()) -> bytes:
    """A file that was damaged: cut off, bytes changed, stretches removed, doubled or moved, most at `boundaries`."""
    places = st.integers(0, len(raw))
    if boundaries:
        places = st.one_of(st.sampled_from(boundaries), places)
    for _ in range(draw(st.integers(1, 3))):
        start, stop = sorted((min(draw(places), len(raw)), min(draw(places), len(raw))))
        kind = draw(st.sampled_from(["cut", "change", "remove", "double", "insert"]))
        if kind == "cut":
            raw = raw[:stop]
        elif kind == "change":
            raw = raw[:start] + draw(st.binary(min_size=1, max_size=4)) + raw[start + 1 :]
        elif kind == "remove":
            raw = raw[:start] + raw[stop:]
        elif kind == "double":
            raw = raw[:stop] + raw[start:stop][:50_000] + raw[stop:]
        else:
            raw = raw[:start] + draw(st.binary(min_size=1, max_size=20)) + raw[start:]
    return raw
