"""Walks the events of an HTML or XHTML document and feeds a `Flow`: the one reading of HTML for every format.

Owns what each element does to the text. Everything that a reader sees is in: lists, tables, captions, notes, alt texts,
ruby readings, forms' labels, the fallbacks of media. What is never shown is left out (`markup_names.UNREAD`, hidden
elements); nothing that a style sheet makes (list numbers, quotation marks of `<q>`) is put in.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from connectors.event_walk import DEEPEST_PLACE, EventWalk
from connectors.gutenberg import split_at_markers
from connectors.markup_events import Attributes, Event, Start
from connectors.markup_names import (
    BLOCKS,
    ENTRIES,
    EXACT,
    HEADINGS,
    LISTS,
    UNREAD,
    VOID,
    is_hidden,
    is_note,
    is_note_link,
)
from connectors.prose import Flow

_ALONE = frozenset({"html", "head", "body"})
# Elements whose text is put aside, and as what. Those of SVG describe a picture.
_ASIDES = {"rt": "ruby", "rtc": "ruby", "desc": "alt_text"}


@dataclass(slots=True)
class _Open:
    """An element that is open: its name and place, how many children of each name it has, what its end does."""

    name: str
    place: str
    depth: int
    block_place: str
    children: dict[str, int] = field(default_factory=dict)
    at_end: Callable[[], None] | None = None


def walk(events: Iterable[Event], flow: Flow, *, notes: Collection[str] = ()) -> None:
    """Feed a document to `flow`, whose source is the present one. `notes` are ids of elements that links call notes."""
    _Walk(flow=flow, notes=frozenset(notes)).play(events)


def note_targets(events: Iterable[Event]) -> frozenset[str]:
    """What links to notes lead to: `href`s, of which those inside the document begin with `#`."""
    return frozenset(
        event.attributes["href"]
        for event in events
        if isinstance(event, Start) and "href" in event.attributes and is_note_link(event.attributes)
    )


@dataclass(slots=True, kw_only=True)
class _Walk(EventWalk[_Open]):
    """Where the walk is: the open elements, and the states that change what text does."""

    notes: frozenset[str]
    exact: int = 0
    lists: int = 0
    pictures: int = 0
    tables: list[bool] = field(default_factory=list)
    aside: list[str] | None = None
    in_heading: bool = False

    def text(self, text: str) -> None:
        """Text of the innermost open element."""
        if self.unread:
            return
        if self.aside is not None:
            self.aside.append(text)
        elif self.exact:
            # One <pre> may hold a whole old book, with what Project Gutenberg put around it.
            first, *others = split_at_markers(text) or [""]
            self.flow.exact(first)
            for piece in others:
                self.flow.block(self.stack[-1].block_place, 1)
                self.flow.exact(piece)
        else:
            self.flow.text(text)

    def start(self, name: str, attributes: Attributes) -> None:
        """An element begins."""
        element = self._open(name)
        if self.unread:
            self.unread += 1
            return
        if (name in UNREAD and not (name == "title" and self.pictures)) or is_hidden(name, attributes):
            self.unread = 1
            return
        self._anchor(name, attributes)
        if self.aside is None:
            self._begin(element, attributes)
        if alt := attributes.get("alttext" if name == "math" else "alt"):
            self.flow.aside("alt_text", alt, element.place)

    def _open(self, name: str) -> _Open:
        if not self.stack:
            element = _Open(name, f"/{name}", 1, f"/{name}")
        else:
            parent = self.stack[-1]
            number = parent.children[name] = parent.children.get(name, 0) + 1
            deeper = parent.depth < DEEPEST_PLACE
            step = name if name in _ALONE else f"{name}[{number}]"
            element = _Open(
                name, f"{parent.place}/{step}" if deeper else parent.place, parent.depth + 1, parent.block_place
            )
        self.stack.append(element)
        return element

    def _anchor(self, name: str, attributes: Attributes) -> None:
        if anchor := attributes.get("id"):
            self.flow.anchor(anchor)
        if name == "a" and (anchor := attributes.get("name")):
            self.flow.anchor(anchor)

    def _begin(self, element: _Open, attributes: Attributes) -> None:
        """What an element that is read does to the flow."""
        name = element.name
        if is_note(name, attributes) or (self.notes and self._is_target(name, attributes)):
            self._begin_label("note", element)
        if name == "br":
            self.flow.line_break()
        elif name in HEADINGS and not self.in_heading:
            self._begin_heading(element)
        elif name in _ASIDES or (self.pictures and name == "title"):
            self._begin_aside(element)
        elif name == "svg":
            self.pictures += 1
            self._at_end(element, self._end_picture)
        elif name in ("figcaption", "caption"):
            self._begin_label("caption", element)
        elif name in ("table", "tr", "td", "th"):
            self._begin_table_part(element)
        elif (
            name in BLOCKS or name in ENTRIES or name in EXACT or name in HEADINGS or (self.pictures and name == "text")
        ):
            self._begin_block(element)

    def _is_target(self, name: str, attributes: Attributes) -> bool:
        return attributes.get("id") in self.notes and (name in BLOCKS or name in ENTRIES)

    def _at_end(self, element: _Open, action: Callable[[], None]) -> None:
        """Do `action` when the element ends, before what is to be done already."""
        before = element.at_end

        def both() -> None:
            action()
            if before is not None:
                before()

        element.at_end = both

    def _begin_block(self, element: _Open) -> None:
        name = element.name
        is_line = name in ENTRIES or (name in LISTS and self.lists > 0) or name in ("textarea", "text")
        newlines = 1 if is_line else 2
        around = element.block_place
        element.block_place = element.place
        self.flow.block(element.place, newlines)
        if name in VOID:
            self.flow.block(around, newlines)
            return
        self.lists += name in LISTS
        self.exact += name in EXACT

        def end() -> None:
            self.lists -= name in LISTS
            self.exact -= name in EXACT
            self.flow.block(around, newlines)

        self._at_end(element, end)

    def _begin_heading(self, element: _Open) -> None:
        around = element.block_place
        element.block_place = element.place
        self.in_heading = True
        self.flow.heading(HEADINGS[element.name], element.place)

        def end() -> None:
            self.in_heading = False
            self.flow.end_heading()
            self.flow.block(around)

        self._at_end(element, end)

    def _begin_label(self, label: str, element: _Open) -> None:
        around = element.block_place
        element.block_place = element.place
        self.flow.begin(label, element.place)

        def end() -> None:
            self.flow.end()
            self.flow.block(around)

        self._at_end(element, end)

    def _begin_aside(self, element: _Open) -> None:
        texts: list[str] = []
        label = _ASIDES.get(element.name, "alt_text")
        self.aside = texts

        def end() -> None:
            self.aside = None
            self.flow.aside(label, "".join(texts), element.place)

        self._at_end(element, end)

    def _end_picture(self) -> None:
        self.pictures -= 1

    def _begin_table_part(self, element: _Open) -> None:
        """Rows outside a table, and cells outside a row, are blocks: XHTML that nobody checked has them."""
        name = element.name
        if name == "table":
            self._begin_table(element)
        elif not self.tables:
            element.block_place = element.place
            self.flow.block(element.place, 1)
        elif name == "tr":
            self.tables[-1] = True
            element.block_place = element.place
            self.flow.row(element.place)
        else:
            if not self.tables[-1]:
                self.tables[-1] = True
                self.flow.row(element.place)
            element.block_place = element.place
            self.flow.cell(element.place)

    def _begin_table(self, element: _Open) -> None:
        around = element.block_place
        element.block_place = element.place
        self.tables.append(False)
        self.flow.begin_table(element.place)

        def end() -> None:
            self.tables.pop()
            self.flow.end_table()
            self.flow.block(around)

        self._at_end(element, end)
