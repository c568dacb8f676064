"""Reads one HTML or XHTML document into a flow: the door for every format that holds such documents.

    decoded = decode_markup(raw)
    entry = ledger.add("file", len(raw), num_bytes_content=len(raw), encoding=decoded.encoding)
    flow.source(entry, transform=f"html; charset={decoded.encoding}", num_bytes=len(raw))
    page = parse_markup(decoded.text, is_xml=looks_like_xml(decoded.text))
    add_markup(ledger, decoded, parent=entry, is_xml=page.is_xml)     # of markup_scan
    walk(page.events(), flow, notes=page.note_ids())                  # of markup_walk

Owns the choice of the parser. XHTML is parsed as XML first, because the HTML parser takes `<title/>` or `<script/>` for
an element that never ends and empties the page; what is not well-formed is read as HTML, with a warning.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from connectors.decode import Decoded, decode_bytes
from connectors.html_limits import tame
from connectors.markup_events import Event, html_events, xml_events
from connectors.markup_walk import note_targets
from connectors.xml_tree import Element, XmlError, parse_xml

_XHTML = "http://www.w3.org/1999/xhtml"
_HEAD = 4_096
# https://html.spec.whatwg.org/#prescan-a-byte-stream-to-determine-its-encoding, and XML 1.0, 4.3.3
_XML_ENCODING = re.compile(rb"<\?xml[^>]*?\sencoding\s*=\s*[\"']([A-Za-z0-9._:-]+)[\"']")
_META = re.compile(rb"<meta\b[^>]*?charset\s*=\s*[\"']?\s*([A-Za-z0-9._:-]+)", re.IGNORECASE)
# XML 1.0, appendix F: UTF-16 without a mark.
_UTF_16 = ((b"<\0?\0", "utf-16-le"), (b"\0<\0?", "utf-16-be"), (b"<\0!\0", "utf-16-le"), (b"\0<\0!", "utf-16-be"),
           (b"<\0h\0", "utf-16-le"), (b"\0<\0h", "utf-16-be"))  # fmt: skip


def decode_markup(raw: bytes) -> Decoded:
    """The text of an HTML or XML document: its mark, strict UTF-8, what it declares, a guess, latin-1."""
    for start, codec in _UTF_16:
        if raw.startswith(start):
            try:
                return Decoded(text=raw.decode(codec), encoding=codec, encoding_source="declared")
            except UnicodeDecodeError:
                break
    head = raw[:_HEAD]
    found = _XML_ENCODING.match(head.lstrip()) or _META.search(head)
    return decode_bytes(raw, declared=found[1].decode("ascii") if found else None)


def looks_like_xml(text: str) -> bool:
    """Whether a document presents itself as XHTML: an XML declaration, or the namespace."""
    head = text[:_HEAD]
    return head.lstrip().startswith("<?xml") or _XHTML in head


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A parsed document. `is_xml` says by which rules its tokens are cut."""

    is_xml: bool
    warnings: tuple[str, ...] = ()
    _root: Element = field(default=None, repr=False)
    _html: str = field(default="", repr=False)
    _has_note_links: bool = True

    def events(self) -> Iterator[Event]:
        """The elements and texts of the document, in order; may be asked for again."""
        return xml_events(self._root) if self.is_xml else html_events(self._html)

    def note_ids(self) -> frozenset[str]:
        """Ids that links inside the document call notes."""
        if not self._has_note_links:
            return frozenset()
        return frozenset(target[1:] for target in note_targets(self.events()) if target.startswith("#"))


def parse_markup(text: str, *, is_xml: bool) -> Page:
    """Parse a document as XML if it is to be XML and can be, else as HTML. Raises `XmlError` for an unsafe one."""
    warnings: tuple[str, ...] = ()
    has_note_links = "noteref" in text
    if is_xml:
        try:
            return Page(is_xml=True, _root=parse_xml(text), _has_note_links=has_note_links)
        except XmlError as error:
            if error.reason == "unsafe":
                raise
            warnings = (f"Read as HTML, not as XML: {error}.",)
    simple = tame(text)
    return Page(is_xml=False, warnings=(*warnings, *simple.warnings), _html=simple.text, _has_note_links=has_note_links)
