"""FictionBook 2: one XML file, bare or in a ZIP archive. Its bodies are text, its binaries have a reason.

Owns the description (title, authors, language, identifiers, publisher, date) and the ledger of the file; the text is
the walk's (`connectors.fb2_walk`). Refuses XML that is not well-formed and has no single remedy, because a book that
ends in its middle is not the book.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from connectors.archive import Archive, MemberError, open_archive, reason_of
from connectors.archive_layout import Member
from connectors.book_document import Metadata, book_document
from connectors.fb2_scan import count_fb2
from connectors.fb2_walk import walk_fb2
from connectors.ledger import Ledger
from connectors.markup import decode_markup
from connectors.markup_events import xml_events
from connectors.markup_scan import add_counts
from connectors.prose import Flow
from connectors.xml_repair import parse_repaired
from connectors.xml_tree import Element, XmlError
from longdoc.errors import DocumentError
from longdoc.records import Document, display


def read_fb2(raw: bytes, *, path: Path) -> Document:
    """A FictionBook file; `path` gives its address and, failing all else, its title. Raises `DocumentError`."""
    book = _Book(subject=str(path))
    book.read(raw, parent=None, num_bytes=len(raw), member=None)
    return book.document(path, len(raw))


def read_fb2_zip(raw: bytes, *, path: Path) -> Document:
    """A ZIP archive with a FictionBook in it; of several the first is read. Raises `DocumentError`."""
    archive = open_archive(raw, str(path))
    book = _Book(subject=str(path))
    member = _first_book(archive)
    try:
        content = archive.read(member)
    except MemberError as error:
        raise error.fault(str(path), "Get a whole copy of it, without a password.") from error
    entry = archive.add_member(book.ledger, member, num_bytes_content=len(content))
    book.read(content, parent=entry, num_bytes=member.num_bytes, member=member)
    archive.add_rest(book.ledger, book.flow, lambda each: "other_book" if _is_book(each) else reason_of(each.name))
    book.warnings += archive.warnings
    return book.document(path, len(raw))


def _is_book(member: Member) -> bool:
    return member.name.lower().endswith(".fb2")


def _first_book(archive: Archive) -> Member:
    books = [member for member in archive.members if _is_book(member)]
    if not books:
        message = f"{display(archive.subject)} is a ZIP archive without a FictionBook (.fb2) in it."
        raise DocumentError(f"{message} Unpack it and name what it holds.", stage="read", reason="unknown_format")
    if len(books) > 1:
        archive.warn(f"The archive holds {len(books):,} books: only {display(books[0].path)} is read.")
    return next((member for member in books if member.fault is None), books[0])


@dataclass(slots=True, kw_only=True)
class _Book:
    """One FictionBook while it is read."""

    subject: str
    ledger: Ledger = field(default_factory=Ledger)
    flow: Flow = field(default_factory=Flow)
    warnings: list[str] = field(default_factory=list)
    root: Element = None

    def read(self, content: bytes, *, parent: int | None, num_bytes: int, member: Member | None) -> None:
        """Feed the flow and the ledger. `num_bytes` is what the source has of it, `parent` the entry it lies in."""
        decoded = decode_markup(content)
        try:
            self.root = parse_repaired(decoded.text, self.subject, self.warnings.append)
        except XmlError as error:
            raise error.fault(self.subject, "Get another copy of the book.") from error
        measured = count_fb2(decoded)
        inside = measured.num_bytes_document
        entry = self.ledger.add("document", inside, parent=parent, num_bytes_content=inside, encoding=decoded.encoding)
        add_counts(self.ledger, decoded, measured.counts, parent=entry)
        self.flow.source(
            entry,
            path=member.path if member else None,
            transform="fb2",
            num_bytes=num_bytes if member else inside,
            sha256=hashlib.sha256(content).hexdigest() if member else None,
        )
        walk_fb2(xml_events(self.root), self.flow)
        self._add_binaries(measured.binaries, parent)

    def _add_binaries(self, sizes: tuple[int, ...], parent: int | None) -> None:
        """Pictures and the like, in base64. Inside an archive the member carries their bytes."""
        elements = [each for each in _all(self.root, "binary") if not any(map(_is_binary, each.iterancestors()))]
        for element, num_bytes in zip(elements, sizes, strict=True):
            name = element.get("id", "")
            reason = reason_of(name, element.get("content-type", ""))
            self.ledger.add("binary", num_bytes, parent=parent, reason=reason, detail=name or None)
            carried = num_bytes if parent is None else 0
            self.flow.textless("binary", reason=reason, title=name or None, num_bytes=carried)

    def document(self, path: Path, num_bytes_source: int) -> Document:
        """The finished document. Raises `DocumentError` where there is no text."""
        tiles, source_map = self.flow.lay_out()
        if not tiles.num_bytes:
            raise self._without_text()
        facts = dict(_facts(self.root))
        metadata = Metadata(
            title=_first(facts, "title"),
            authors=tuple(dict.fromkeys(facts.get("author", ()))),
            language=_first(facts, "language"),
            identifiers=tuple(dict.fromkeys(facts.get("identifier", ()))),
            publisher=_first(facts, "publisher"),
            date=_first(facts, "date"),
        )
        return book_document(
            path,
            num_bytes_source=num_bytes_source,
            metadata=metadata,
            tiles=tiles,
            ledger=self.ledger.entries(),
            source_map=source_map,
            warnings=tuple(self.warnings),
        )

    def _without_text(self) -> DocumentError:
        """Why there is nothing to read: pictures of pages, or nothing at all."""
        subject = display(self.subject)
        if any(entry.reason == "image" for entry in self.ledger.entries()):
            message = f"{subject} has no text: it holds pictures only. Get an edition with text, or run OCR."
            return DocumentError(message, stage="read", reason="no_text_layer")
        message = f"{subject} is empty: it holds no text. Leave it out, or check that it is whole."
        return DocumentError(message, stage="read", reason="empty")


def _first(facts: Mapping[str, list[str]], name: str) -> str | None:
    return next(iter(facts.get(name, ())), None)


def _facts(root: Element) -> Iterator[tuple[str, list[str]]]:
    """The description's fields. What was published comes before what was digitised."""
    about = ("description", "title-info")
    published = ("description", "publish-info")
    yield "title", _texts(root, *about, "book-title")
    yield "author", [name for element in _at(root, *about, "author") if (name := _author(element))]
    yield "language", _texts(root, *about, "lang")
    isbns = [f"ISBN {isbn.removeprefix('ISBN').strip()}" for isbn in _texts(root, *published, "isbn")]
    yield "identifier", isbns + _texts(root, "description", "document-info", "id")
    yield "publisher", _texts(root, *published, "publisher")
    written = [element.get("value") or _text(element) for element in _at(root, *about, "date")]
    yield "date", _texts(root, *published, "year") + [date for date in written if date]


def _author(element: Element) -> str:
    """First, middle and last name, or else the nickname."""
    parts = [text for name in ("first-name", "middle-name", "last-name") for text in _texts(element, name)]
    return " ".join(parts) or " ".join(_texts(element, "nickname")[:1])


def _at(parent: Element, *names: str) -> list[Element]:
    """The elements at a path of names, in any namespace."""
    found = [parent]
    for name in names:
        found = [child for each in found for child in each if isinstance(child.tag, str) and _local(child) == name]
    return found


def _texts(parent: Element, *names: str) -> list[str]:
    return [text for element in _at(parent, *names) if (text := _text(element))]


def _text(element: Element) -> str:
    return " ".join("".join(element.itertext()).split())


def _all(root: Element, name: str) -> Iterator[Element]:
    return (each for each in root.iter() if isinstance(each.tag, str) and _local(each) == name)


def _is_binary(element: Element) -> bool:
    return _local(element) == "binary"


def _local(element: Element) -> str:
    tag: str = element.tag
    return tag.rpartition("}")[2].lower()
