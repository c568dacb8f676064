"""Walks the events of a FictionBook and feeds a `Flow`: what each element does to the text, and where units begin.

Owns the reading of the schema (http://www.gribuser.ru/xml/fictionbook/2.0): bodies, nested sections and their titles,
poems, citations, epigraphs, tables, pictures, and bodies of notes. The book's annotation is text; the rest of its
description is metadata, and style sheets and binaries are no text.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from connectors.event_walk import DEEPEST_PLACE, EventWalk
from connectors.markup_events import Attributes, Event
from connectors.prose import Flow

#: Bodies of notes, by the names that programs give them.
NOTE_BODIES = frozenset({"notes", "footnotes", "comments", "endnotes"})
#: Elements whose text is not the book's, and the reason that their bytes carry.
UNREAD = {"binary": "binary", "stylesheet": "style", "description": "metadata"}
#: What of a description is read all the same, below `title-info`.
READ_AGAIN = "annotation"
# Blocks, and how many newlines set them apart from what stands before.
_BLOCKS = {
    "p": 2, "epigraph": 2, "cite": 2, "poem": 2, "stanza": 2, "subtitle": 2, "annotation": 2, "empty-line": 2,
    "v": 1, "text-author": 1, "date": 1,
}  # fmt: skip


@dataclass(slots=True)
class _Open:
    """An element that is open. `level` counts the sections around its text, `block_place` is where that stands.

    Of a section or body: its `title`, once known, the block that it begins with, and whether sections follow in it.
    """

    name: str
    place: str
    block_place: str
    level: int
    children: dict[str, int] = field(default_factory=dict)
    at_end: Callable[[], None] | None = None
    start_block: int = 0
    title: str | None = None


def walk_fb2(events: Iterable[Event], flow: Flow) -> None:
    """Feed a FictionBook to `flow`, whose source is the present one, and begin its units."""
    _Walk(flow=flow).play(events)


@dataclass(slots=True, kw_only=True)
class _Walk(EventWalk[_Open]):
    """Where the walk is. `unit_level` is the level of the section that the present unit belongs to."""

    unit_level: int = 0
    in_notes: bool = False
    title: list[str] | None = None
    tables: int = 0

    def text(self, text: str) -> None:
        """Text of the innermost open element."""
        if self.unread:
            return
        self.flow.text(text)
        if self.title is not None:
            self.title.append(text)

    def start(self, name: str, attributes: Attributes) -> None:
        """An element begins."""
        element = self._open(name)
        if self.unread:
            if name == READ_AGAIN and self._is_of_book():
                self._begin_annotation(element)
            else:
                self.unread += 1
            return
        if name in UNREAD:
            self.unread = 1
            return
        if anchor := attributes.get("id"):
            self.flow.anchor(anchor)
        self._begin(element, attributes)

    def _open(self, name: str) -> _Open:
        if not self.stack:
            element = _Open("fictionbook", "/FictionBook", "/FictionBook", 0)
        else:
            parent = self.stack[-1]
            number = parent.children[name] = parent.children.get(name, 0) + 1
            place = f"{parent.place}/{name}[{number}]" if len(self.stack) < DEEPEST_PLACE else parent.place
            element = _Open(name, place, parent.block_place, parent.level)
        self.stack.append(element)
        return element

    def _is_of_book(self) -> bool:
        """Whether the element that was opened last stands in the description of this book, not of its original."""
        return [each.name for each in self.stack[1:-1]] == ["description", "title-info"]

    def _begin_annotation(self, element: _Open) -> None:
        around = self.unread
        self.unread = 0
        self.flow.unit("front_matter")
        self.flow.block(element.place)

        def end() -> None:
            self.unread = around

        element.at_end = end

    def _begin(self, element: _Open, attributes: Attributes) -> None:
        name = element.name
        around = self.stack[-2] if len(self.stack) > 1 else element
        is_first = sum(around.children.values()) == 1
        if around.name == "section" and name != "title" and is_first and not self.in_notes:
            self._begin_untitled(around)
        if name == "body":
            self._begin_body(element, attributes)
        elif name == "section":
            self._begin_section(element)
        elif name == "title":
            self._begin_title(element)
        elif name == "image":
            alt = attributes.get("alt") or attributes.get("title") or ""
            self.flow.aside("alt_text", alt, element.place)
        elif name == "table":
            self.tables += 1
            self.flow.begin_table(element.place)
            element.at_end = self._end_table
        elif name == "tr" and self.tables:
            self.flow.row(element.place)
        elif name in ("td", "th") and self.tables:
            self.flow.cell(element.place)
            element.block_place = element.place
        elif name in _BLOCKS:
            self._begin_block(element)

    def _begin_body(self, element: _Open, attributes: Attributes) -> None:
        self.in_notes = attributes.get("name", "").lower() in NOTE_BODIES
        self.unit_level = 0
        element.start_block = self.flow.num_blocks
        kind = "notes" if self.in_notes else "front_matter"
        self.flow.unit(kind)
        self.flow.block(element.place)

        def end() -> None:
            if element.title:
                self.flow.unit_at(element.start_block, kind, element.title)

        element.at_end = end

    def _begin_section(self, element: _Open) -> None:
        element.level += 1
        element.block_place = element.place
        if self.in_notes:
            if element.level == 1:
                self.flow.begin("note", element.place)
                element.at_end = self.flow.end
            return
        element.start_block = self.flow.num_blocks
        self.flow.block(element.place)

        def end() -> None:
            # Only here it is known whether other sections stand in it.
            if element.title:
                kind = "part" if "section" in element.children else "chapter"
                self.flow.unit_at(element.start_block, kind, element.title)

        element.at_end = end

    def _begin_untitled(self, section: _Open) -> None:
        """A section without a title belongs to the unit around it, unless another section's unit came between."""
        if section.level == 1 or self.unit_level >= section.level:
            self.flow.unit_at(section.start_block, "section")
            self.unit_level = section.level - 1

    def _begin_title(self, element: _Open) -> None:
        """Titles of bodies and sections are headings and name units; those of poems and notes are blocks."""
        around = self.stack[-2]
        if around.name not in ("body", "section") or (self.in_notes and around.name == "section"):
            self._begin_block(element)
            return
        self.unit_level = around.level
        texts: list[str] = []
        self.title = texts
        self.flow.heading(min(6, around.level + 1), element.place)
        element.block_place = element.place

        def end() -> None:
            self.title = None
            around.title = around.title or " ".join("".join(texts).split())
            self.flow.end_heading()
            self.flow.block(around.block_place)

        element.at_end = end

    def _begin_block(self, element: _Open) -> None:
        newlines = _BLOCKS.get(element.name, 2)
        if element.name == "p" and self.stack[-2].name == "title":
            newlines = 1
        around = element.block_place
        element.block_place = element.place
        self.flow.block(element.place, newlines)

        def end() -> None:
            if self.title is not None:
                self.title.append(" ")
            self.flow.block(around, newlines)

        element.at_end = end

    def _end_table(self) -> None:
        self.tables -= 1
        self.flow.end_table()
