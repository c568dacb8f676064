"""What a PDF says of the book: title, authors, language, identifiers, publisher, date. Reads no page.

Owns the rules: the file's XMP packet (ISO 16684-1, Dublin Core) goes before its Info dictionary (ISO 32000-1, 14.3),
because only it holds authors one by one. A packet that is compressed or broken is passed over; pictures have packets
too, and theirs say that they are pictures.
"""

import re
from collections.abc import Iterator

from connectors.book_document import Metadata
from connectors.pdf_records import FileFacts
from connectors.xml_tree import Element, XmlError, parse_xml

_OPEN, _CLOSE = b"<x:xmpmeta", b"</x:xmpmeta>"
_LONGEST_PACKET = 1 << 20
_DC = "{http://purl.org/dc/elements/1.1/}"
_RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"
_MEDIA_TYPE = "application/pdf"
# ISO 32000-1, 7.9.4: D:YYYYMMDDHHmmSSOHH'mm'
_DATE = re.compile(
    r"(?:D:)?(\d{4})(\d\d)?(\d\d)?(?:(\d\d)(\d\d)(\d\d)?(?:(Z)|([+-])(\d\d)'?(\d\d)?)?)?(?:'|00'00'?)?\s*"
)
_SEVERAL = re.compile(r"\s*;\s*")


def read_metadata(raw: bytes, facts: FileFacts) -> Metadata:
    """XMP first, Info for what it does not say; the language of the whole document stands in its catalogue."""
    packet = _packet(raw)
    titles, creators, languages, identifiers, publishers, dates = (
        () if packet is None else tuple(_values(packet, name))
        for name in ("title", "creator", "language", "identifier", "publisher", "date")
    )
    info = facts.info
    stated = _one_line(info.get("Author", ""))
    authors = creators or tuple(filter(None, _SEVERAL.split(stated)))
    return Metadata(
        title=next(iter(titles), None) or _one_line(info.get("Title", "")) or None,
        authors=authors,
        language=_one_line(facts.language) or next(iter(languages), None),
        identifiers=identifiers,
        publisher=", ".join(publishers) or None,
        date=next(iter(dates), None) or _date(info.get("CreationDate", "")),
    )


def _packet(raw: bytes) -> Element | None:
    """The last packet that describes a PDF: a file that was changed holds its older ones too."""
    stop = len(raw)
    while (start := raw.rfind(_OPEN, 0, stop)) >= 0:
        end = raw.find(_CLOSE, start, start + _LONGEST_PACKET)
        stop = start
        if end < 0:
            continue
        try:
            root = parse_xml(raw[start : end + len(_CLOSE)].decode("utf-8"))
        except (XmlError, UnicodeDecodeError):
            continue
        if any(value == _MEDIA_TYPE for value in _values(root, "format")):
            return root
    return None


def _values(root: Element, name: str) -> Iterator[str]:
    """The values of a property: entries of its list, its own text, or the short form as an attribute."""
    for description in root.iter(f"{_RDF}Description"):
        if short := _one_line(description.get(f"{_DC}{name}", "")):
            yield short
    for stated in root.iter(f"{_DC}{name}"):
        entries = [entry.text for entry in stated.iter(f"{_RDF}li")] or [stated.text]
        yield from filter(None, (_one_line(text or "") for text in entries))


def _date(stated: str) -> str | None:
    """A PDF date as ISO 8601, as exact as it is; any other text stays as it is."""
    match = _DATE.fullmatch(stated.strip())
    if match is None:
        return _one_line(stated) or None
    year, month, day, hour, minute, second, utc, sign, zone_hour, zone_minute = match.groups()
    date = "-".join(part for part in (year, month, day) if part)
    if hour is None or day is None:
        return date
    zone = "Z" if utc else "" if sign is None else f"{sign}{zone_hour}:{zone_minute or '00'}"
    return f"{date}T{hour}:{minute}:{second or '00'}{zone}"


def _one_line(text: str) -> str:
    return " ".join(text.replace("\0", " ").split())
