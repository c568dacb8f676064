"""One page of an EPUB, a content document: decoded, parsed as what it is, and looked over for what it links to.

XHTML is parsed as XML first; a page that is not well-formed is read as browsers read HTML, with a warning. Refuses XML
that expands without bound or wants files from elsewhere. Makes no text; `connectors.markup_walk` does.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from connectors.archive_layout import Member
from connectors.decode import Decoded, decode_unless_binary
from connectors.epub_package import resolve
from connectors.html_limits import tame
from connectors.markup import decode_markup
from connectors.markup_events import Event, Start, html_events, xml_events
from connectors.markup_names import is_note_link
from connectors.xml_repair import as_html, parse_repaired
from connectors.xml_tree import XmlError
from longdoc.records import display

# Elements whose `epub:type` says what a page or a part of it is.
_CONTAINERS = frozenset({"article", "aside", "body", "div", "html", "nav", "section", "svg"})
_MOST_TYPES = 10_000


@dataclass(slots=True, kw_only=True)
class Page:
    """A content document. `links` and `notes` are (member, fragment) that its links and its links to notes lead to.

    `types` are the structural types of the page itself, `types_at` those of its elements by their ids.
    """

    name: str
    member: Member
    decoded: Decoded
    num_bytes: int
    sha256: str
    is_xml: bool
    links: list[tuple[str, str]] = field(default_factory=list)
    notes: set[tuple[str, str]] = field(default_factory=set)
    types: frozenset[str] = frozenset()
    types_at: dict[str, frozenset[str]] = field(default_factory=dict)

    def events(self, warn: Callable[[str], None]) -> Iterator[Event]:
        """The page's events; each call parses it anew, because a tree takes many times the memory of its text."""
        if self.is_xml:
            try:
                return xml_events(parse_repaired(self.decoded.text, self.name, warn))
            except XmlError as error:
                if error.reason == "unsafe":
                    raise
                warn(f"{display(self.name)}: {error}. Read as HTML.")
                self.is_xml = False
        tamed = tame(as_html(self.decoded.text))
        for warning in tamed.warnings:
            warn(f"{display(self.name)}: {warning}")
        return html_events(tamed.text)

    def look_over(self, warn: Callable[[str], None]) -> None:
        """Find what the page links to and what it says that it is. Raises `XmlError` of reason `unsafe`."""
        types: set[str] = set()
        is_typed = False
        for event in self.events(warn):
            if not isinstance(event, Start) or not event.attributes:
                continue
            found = _types(event)
            if found and event.name in _CONTAINERS:
                # The page is what its body is, and what the first section in it is.
                types |= found if not is_typed else frozenset()
                is_typed = is_typed or event.name not in ("body", "html")
            if found and (anchor := event.attributes.get("id")) and len(self.types_at) < _MOST_TYPES:
                self.types_at.setdefault(anchor, found)
            self._link(event)
        self.types = frozenset(types)

    def _link(self, start: Start) -> None:
        target = resolve(self.name, start.attributes.get("href", "")) if start.name in ("a", "area") else None
        if target is None or not start.attributes.get("href"):
            return
        if is_note_link(start.attributes):
            self.notes.add(target)
        if target[0] != self.name:
            self.links.append(target)


def open_page(member: Member, name: str, content: bytes) -> Page | None:
    """A page, or None where its content is no text. `content` is the member's."""
    import hashlib

    decoded = decode_markup(content)
    is_sure = decoded.encoding_source not in ("guess", "latin-1") and "\0" not in decoded.text
    if not is_sure and decode_unless_binary(content) is None:
        return None
    return Page(
        name=name,
        member=member,
        decoded=decoded,
        num_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        is_xml=True,
    )


def _types(start: Start) -> frozenset[str]:
    """EPUB structural types and the ARIA roles that mean the same: https://www.w3.org/TR/epub-ssv-11/"""
    attributes = start.attributes
    types = attributes.get("epub:type", "").lower().split()
    roles = attributes.get("role", "").lower().split()
    return frozenset([*types, *(role.removeprefix("doc-") for role in roles if role.startswith("doc-"))])
