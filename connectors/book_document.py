"""The end of every book reader: what a book says of itself, and the finished, checked document.

Owns what all books have in common: their address, and the file's name as the title of last resort.
"""

from dataclasses import dataclass
from pathlib import Path

from connectors.building import Tiles
from longdoc.records import Document, LedgerEntry, SourceRange, display


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """What a book says of itself, in its own order; `date` as it is stated."""

    title: str | None = None
    authors: tuple[str, ...] = ()
    language: str | None = None
    identifiers: tuple[str, ...] = ()
    publisher: str | None = None
    date: str | None = None


def book_document(
    path: Path,
    *,
    num_bytes_source: int,
    metadata: Metadata,
    tiles: Tiles,
    ledger: tuple[LedgerEntry, ...] = (),
    source_map: tuple[SourceRange, ...] = (),
    warnings: tuple[str, ...] = (),
) -> Document:
    """The document of the book at `path`. Raises `AssertionError` where segments or ledger do not add up."""
    document = Document(
        kind="book",
        source_uri=path.resolve().as_uri(),
        title=metadata.title or display(path.stem),
        authors=metadata.authors,
        language=metadata.language,
        identifiers=metadata.identifiers,
        publisher=metadata.publisher,
        date=metadata.date,
        warnings=warnings,
        num_bytes_source=num_bytes_source,
        text=tiles.text(),
        segments=tuple(tiles.segments),
        ledger=ledger,
        source_map=source_map,
    )
    document.check()
    return document
