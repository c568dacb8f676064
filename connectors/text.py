"""Text books: `.txt`, `.text`, `.md` and `.markdown` files as documents made of chapters.

Owns how a file becomes segments: `boilerplate` (what Project Gutenberg puts around a book), `front_matter` (what stands
before the first heading, its table of contents included), `part`, `chapter`, `section` (prologue, epilogue, appendix
and the like), and `text` for a book in which no heading was found. Each is a unit of its own, and together they are
the file. Refuses a file without a character; anything else is text in some encoding.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from connectors.book_document import Metadata, book_document
from connectors.building import Origin, Tiles
from connectors.chapters import Heading, find_headings
from connectors.decode import Decoded, decode_bytes
from connectors.gutenberg import find_body, read_header
from connectors.markdown import find_markdown_headings
from longdoc.encodings import encode_pieces
from longdoc.errors import DocumentError
from longdoc.records import Document, display

MARKDOWN_EXTENSIONS = (".md", ".markdown")


def read_book(raw: bytes, *, path: Path) -> Document:
    """A text or Markdown book; `path` gives its address, which of the two it is and, failing all else, its title."""
    decoded = decode_bytes(raw)
    if not decoded.text:
        message = f"{display(str(path))} is empty: it holds no character of text. Leave it out, or fill it."
        raise DocumentError(message, stage="read", reason="empty")
    body_start, body_stop = find_body(decoded.text)
    header = read_header(decoded.text[:body_start])
    title, sections = _sections(
        decoded.text, body_start, body_stop, is_markdown=path.suffix.lower() in MARKDOWN_EXTENSIONS
    )
    tiles = _tiles(decoded, sections)
    metadata = Metadata(title=header.title or title, authors=header.authors, language=header.language)
    return book_document(path, num_bytes_source=len(raw), metadata=metadata, tiles=tiles)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    """A stretch of the text that becomes one segment."""

    kind: str
    title: str | None
    char_start: int
    char_stop: int


def _sections(text: str, body_start: int, body_stop: int, *, is_markdown: bool) -> tuple[str | None, list[_Section]]:
    """The book's title, where its format has one, and the sections that tile the text."""
    body = text[body_start:body_stop]
    title, headings = find_markdown_headings(body) if is_markdown else (None, find_headings(body))
    cuts = [("boilerplate", None, 0), *_cuts(body, body_start, headings), ("boilerplate", None, body_stop)]
    stops = [start for _, _, start in cuts[1:]] + [len(text)]
    sections = [
        _Section(kind=kind, title=heading, char_start=start, char_stop=stop)
        for (kind, heading, start), stop in zip(cuts, stops, strict=True)
        if start < stop
    ]
    return title, sections


def _cuts(body: str, body_start: int, headings: list[Heading]) -> Iterator[tuple[str, str | None, int]]:
    """Where each section of the body starts. White space before the first heading belongs to what the heading opens."""
    if not headings:
        yield "text", None, body_start
        return
    if body[: headings[0].char_start].strip():
        yield "front_matter", None, body_start
        first_start = headings[0].char_start
    else:
        first_start = 0
    yield headings[0].kind, headings[0].title, body_start + first_start
    for heading in headings[1:]:
        yield heading.kind, heading.title, body_start + heading.char_start


def _tiles(decoded: Decoded, sections: list[_Section]) -> Tiles:
    tiles = Tiles()
    texts = [decoded.text[section.char_start : section.char_stop] for section in sections]
    slices = encode_pieces(texts, decoded.encoding, decoded.encoding_source)
    for unit, (section, text, raw) in enumerate(zip(sections, texts, slices, strict=True)):
        tiles.add(
            text,
            kind=section.kind,
            unit=unit,
            is_content=True,
            title=section.title,
            origin=Origin(
                encoding=decoded.encoding,
                encoding_source=decoded.encoding_source,
                num_bytes=len(raw),
                sha256=hashlib.sha256(raw).hexdigest(),
            ),
        )
    return tiles
