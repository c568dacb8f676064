"""HTML and XHTML books: one file that a browser would show, as a document made of chapters.

Owns what the head of the page says (title, authors, language, identifiers, publisher, date) and the ledger of the file.
The text is the walk's (`markup_walk`), the chapters are the headings' (`headings`). Refuses a page without text.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from connectors.book_document import Metadata, book_document
from connectors.headings import label_units
from connectors.ledger import Ledger
from connectors.markup import Page, decode_markup, looks_like_xml, parse_markup
from connectors.markup_events import End, Event, Start
from connectors.markup_scan import add_markup
from connectors.markup_walk import walk
from connectors.prose import Flow
from connectors.xml_tree import XmlError
from longdoc.errors import DocumentError
from longdoc.records import Document, display

# Names of <meta>, in lower case, and the field each one fills. Dublin Core comes with either prefix.
_META = {
    "author": "author",
    "citation_author": "author",
    "dc.creator": "author",
    "dcterms.creator": "author",
    "dc.title": "title",
    "dcterms.title": "title",
    "dc.language": "language",
    "dcterms.language": "language",
    "dc.identifier": "identifier",
    "dcterms.identifier": "identifier",
    "dcterms.source": "identifier",
    "dc.publisher": "publisher",
    "dcterms.publisher": "publisher",
    "dc.date": "date",
    "dcterms.date": "date",
    "dcterms.issued": "date",
    "date": "date",
}


def read_html(raw: bytes, *, path: Path) -> Document:
    """An HTML or XHTML book; `path` gives its address, and `.xhtml` says that it is XML.

    Raises `DocumentError`: `empty` for a page without text, `unsafe` for entities that expand without bound or reach
    outside.
    """
    decoded = decode_markup(raw)
    ledger = Ledger()
    entry = ledger.add("file", len(raw), num_bytes_content=len(raw), encoding=decoded.encoding)
    is_xml = looks_like_xml(decoded.text) or path.suffix.lower() in (".xhtml", ".xht")
    page = _parse(decoded.text, is_xml=is_xml, path=path)
    add_markup(ledger, decoded, parent=entry, is_xml=page.is_xml)
    flow = Flow()
    flow.source(
        entry,
        transform=f"html; charset={decoded.encoding}",
        num_bytes=len(raw),
        sha256=hashlib.sha256(raw).hexdigest(),
    )
    walk(page.events(), flow, notes=page.note_ids())
    header = label_units(flow)
    tiles, source_map = flow.lay_out()
    if not tiles.num_bytes:
        message = f"{display(str(path))} holds no text that a reader sees. Leave it out, or check that it is whole."
        raise DocumentError(message, stage="read", reason="empty")
    head = read_head(page.events())
    # Gutenberg's own header comes first: its page's title has the author in it.
    metadata = replace(
        head,
        title=header.title or head.title or _first_title(flow),
        authors=header.authors or head.authors,
        language=header.language or head.language,
    )
    return book_document(
        path,
        num_bytes_source=len(raw),
        metadata=metadata,
        tiles=tiles,
        ledger=ledger.entries(),
        source_map=source_map,
        warnings=page.warnings,
    )


def _parse(text: str, *, is_xml: bool, path: Path) -> Page:
    try:
        return parse_markup(text, is_xml=is_xml)
    except XmlError as error:
        raise error.fault(str(path), "Leave it out, or remove the entities from it.") from error


@dataclass(slots=True)
class _Fields:
    """The fields of a head as they are found."""

    values: dict[str, list[str]] = field(default_factory=dict)

    def add(self, name: str, value: str) -> None:
        if (text := " ".join(value.split())) and text not in self.values.setdefault(name, []):
            self.values[name].append(text)

    def first(self, *names: str) -> str | None:
        return next((self.values[name][0] for name in names if self.values.get(name)), None)


def read_head(events: Iterable[Event]) -> Metadata:
    """The metadata of a page: `<title>`, `<meta>`, and the language of its root."""
    fields = _Fields()
    for event in _head_events(events):
        if isinstance(event, str):
            fields.add("page_title", event)
        elif isinstance(event, Start) and event.name == "html":
            fields.add("root_language", event.attributes.get("lang", ""))
        elif isinstance(event, Start) and event.name == "meta":
            name = event.attributes.get("name", event.attributes.get("property", "")).lower()
            if name in _META:
                fields.add(_META[name], event.attributes.get("content", ""))
    return Metadata(
        title=fields.first("title", "page_title"),
        authors=tuple(fields.values.get("author", ())),
        language=fields.first("language", "root_language"),
        identifiers=tuple(fields.values.get("identifier", ())),
        publisher=fields.first("publisher"),
        date=fields.first("date"),
    )


def _head_events(events: Iterable[Event]) -> Iterator[Event]:
    """Elements up to the body, and the text of titles among them."""
    is_title = False
    for event in events:
        if isinstance(event, Start):
            if event.name == "body":
                return
            is_title = event.name == "title"
            yield event
        elif isinstance(event, End):
            is_title = False
        elif is_title:
            yield event


def _first_title(flow: Flow) -> str | None:
    return next((heading.title for heading in flow.headings() if heading.title), None)
