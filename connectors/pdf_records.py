"""What pdfium says about a PDF, as plain records that travel from the process that runs pdfium to the one that asked.

Owns their form on the wire, one JSON object a line. Knows neither pdfium nor what becomes of the records.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple


class Line(NamedTuple):
    """A line of a page's text: where it begins in characters, how it is set, how high it stands (points).

    `weight` is the font's (400 is regular, 700 bold). `level` is 1 to 6 where the file tags the line as a heading, and
    `heading` then numbers the heading on its page, which may have several lines.
    """

    start: int
    size: float
    weight: int
    top: float
    level: int | None = None
    heading: int | None = None


class Bookmark(NamedTuple):
    """An entry of the outline: its level (0 is the highest), title, page (from 0) and height there, where known."""

    level: int
    title: str
    page: int | None
    top: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """What the file says of itself. `info` holds Title, Author and CreationDate where they are not empty."""

    num_pages: int
    info: dict[str, str]
    language: str
    is_rebuilt: bool
    bookmarks: tuple[Bookmark, ...]
    attachments: tuple[str, ...]
    is_xfa: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page. Lines of `text` end in a newline; `hyphens` are the characters that stood for hyphens at line ends.

    `num_unmapped` counts glyphs that the file gives no character for: U+FFFD, private use, a font without a map.
    `has_marks` is whether anything but text is painted, `is_interleaved` whether columns seem to be read across.
    `fault` is set where the page cannot be loaded.
    """

    index: int
    label: str = ""
    text: str = ""
    lines: tuple[Line, ...] = ()
    hyphens: tuple[int, ...] = ()
    num_unmapped: int = 0
    has_marks: bool = False
    is_interleaved: bool = False
    alt_texts: tuple[str, ...] = ()
    form_fields: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why pdfium does not give the file: a stable word, and what it said."""

    reason: str
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """All pages were sent."""


Record = FileFacts | Page | Fault | End
_KINDS: dict[str, type[Record]] = {"file": FileFacts, "page": Page, "fault": Fault, "end": End}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def to_wire(record: Record) -> bytes:
    """One line, ASCII only."""
    return json.dumps([_NAMES[type(record)], asdict(record)]).encode("ascii") + b"\n"


def from_wire(line: bytes) -> Record:
    """What `to_wire` was given."""
    name, fields = json.loads(line)
    known: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
    if "lines" in known:
        known["lines"] = tuple(Line(*line) for line in known["lines"])
    if "bookmarks" in known:
        known["bookmarks"] = tuple(Bookmark(*bookmark) for bookmark in known["bookmarks"])
    return _KINDS[name](**known)
