"""Builds the text of a book whose format transforms it: HTML, XHTML, EPUB, FB2, DOCX, PDF. Reads no format.

Owns how blocks, lines, rows and cells are set apart, how white space collapses, and where notes, captions, alt texts
and ruby readings stand. A reader walks its own tree and feeds a `Flow` in reading order:

    flow = Flow()
    flow.source(entry, path=b"c1.xhtml", transform="epub", num_bytes=120)  # what follows comes from this ledger entry
    flow.unit("chapter", "I. Down")         # a unit (chapter, page) begins here; the first one may be left out
    flow.block("/html/body/h2[1]")          # what follows begins a new block, there in the source
    flow.text("Down  the\n hole")           # white space collapses as in HTML ...
    flow.exact("  kept\n")                  # ... or is kept
    flow.line_break()
    flow.block("/html/body/ul[1]/li[1]", newlines=1)  # a list entry: on a new line, not after a blank one
    flow.row("/html/body/table[1]/tr[1]"); flow.cell("…/td[1]"); flow.text("a"); flow.cell("…/td[2]"); flow.text("b")
    flow.begin("note", place); flow.text("1. See below."); flow.end()      # also "caption"; may nest
    flow.heading(2, place); flow.text("II"); flow.end_heading()            # a block that is a heading of level 2
    flow.aside("alt_text", "A rabbit", place)                              # or "ruby": stands at the end of its unit
    flow.anchor("ch2")                      # the next block is what the fragment #ch2 leads to
    flow.textless("image", path=b"a.png", reason="image", num_bytes=9)     # source bytes that are no text

Afterwards `flow.headings()` and `flow.anchors` give block numbers, `flow.unit_at(block, kind, title)` begins units at
them, and `flow.lay_out()` gives the segments (as `Tiles`) and the source map. Blocks are set apart by a blank line,
entries and rows by a newline, cells by a tab; what sets apart belongs to the segment before it. Every unit has one
`is_content` segment, its first; other segments of the unit are labelled by their kind, and stretches of the flow behind
one carry the unit's own kind. The bytes of a source stand on the first segment that holds text of it, or, where there
is none, on a segment without text whose reason is `no_text`.
"""

import re
from dataclasses import dataclass, field

from connectors.assembly import ASIDES, Block, PartBegins, Piece, SourcePart, Textless, Unit, lay_out
from connectors.building import Tiles
from longdoc.records import SourceRange

# White space as HTML collapses it: https://www.w3.org/TR/css-text-3/#white-space-phase-1. No-break spaces are text.
_WHITE = " \t\n\f\r"
_WHITE_RUN = re.compile(f"[{_WHITE}]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundHeading:
    """A heading of the source: the number of its first block, its level (1 is the highest) and its text on one line.

    `has_body` says whether anything but headings stands between it and the next heading.
    """

    block: int
    level: int
    title: str
    has_body: bool


@dataclass(slots=True)
class _Table:
    """How far a table has come: whether it, and its present row, hold text; whether the row has a cell."""

    has_text: bool = False
    row_has_text: bool = False
    row_has_cell: bool = False


@dataclass(slots=True)
class Flow:
    """The text of one book, fed in reading order; see the module's description."""

    anchors: dict[tuple[int, str], int] = field(default_factory=dict)
    _pieces: list[Piece] = field(default_factory=list)
    _parts: list[SourcePart] = field(default_factory=list)
    _units: list[Unit] = field(default_factory=list)
    _levels: list[int] = field(default_factory=list)
    _labels: list[str] = field(default_factory=list)
    _tables: list[_Table] = field(default_factory=list)
    _texts: list[str] = field(default_factory=list)
    _place: str = ""
    _heading: int | None = None
    _newlines: int = 0
    _tabs: int = 0
    _is_set: bool = False
    _at_space: bool = True
    _is_exact: bool = False
    _ends_with: str = ""

    def source(
        self, entry_index: int, *, transform: str, num_bytes: int, path: bytes | None = None, sha256: str | None = None
    ) -> None:
        """What follows comes from this entry of the ledger; its bytes go to the first segment with text of it."""
        self._close()
        self._pieces.append(PartBegins(part=len(self._parts)))
        self._parts.append(
            SourcePart(entry_index=entry_index, path=path, transform=transform, num_bytes=num_bytes, sha256=sha256)
        )
        self._need(2)

    def unit(self, kind: str, title: str | None = None) -> None:
        """A chapter, page or the like begins with what follows."""
        self.unit_at(self.num_blocks, kind, title)

    def unit_at(self, block: int, kind: str, title: str | None = None) -> None:
        """A unit begins at a block that `headings`, `anchors` or `num_blocks` named; of two at one block the last."""
        self._units.append(Unit(start=block, kind=kind, title=title))

    @property
    def num_blocks(self) -> int:
        """How many blocks there are: the number of the next one. Ends the present block."""
        self._close()
        return len(self._pieces)

    def block(self, place: str, newlines: int = 2) -> None:
        """What follows begins a new block, `newlines` after what stands before it."""
        self._close()
        self._place = place
        self._need(newlines)

    def text(self, text: str) -> None:
        """Text whose white space collapses."""
        collapsed = _WHITE_RUN.sub(" ", text)
        if self._at_space and collapsed.startswith(" "):
            collapsed = collapsed[1:]
        if collapsed:
            self._texts.append(collapsed)
            self._at_space = collapsed.endswith(" ")

    def exact(self, text: str) -> None:
        r"""Text whose white space is kept; "\r\n" and "\r" are "\n" as in every format that has such text."""
        if text:
            kept = text.replace("\r\n", "\n").replace("\r", "\n")
            self._texts.append(kept)
            self._at_space = kept[-1] in _WHITE
            self._is_exact = True

    def line_break(self) -> None:
        """A new line inside the block; one at its start or end makes no line."""
        if self._texts:
            if not self._is_exact:
                self._texts[-1] = self._texts[-1].rstrip(" ")
            self._texts.append("\n")
        self._at_space = True

    def heading(self, level: int, place: str) -> None:
        """A heading begins, of level 1 to 6; `end_heading` ends it."""
        self.block(place)
        self._heading = len(self._levels)
        self._levels.append(level)

    def end_heading(self) -> None:
        """The heading ends."""
        self._close()
        self._heading = None
        self._need(2)

    def begin(self, label: str, place: str) -> None:
        """A labelled stretch begins where it stands: `note` or `caption`."""
        self.block(place)
        self._labels.append(label)

    def end(self) -> None:
        """The stretch that began last ends."""
        self._close()
        self._labels.pop()
        if self._tables:
            self._tables[-1].has_text = False
        self._is_set = False
        self._need(2)

    def begin_table(self, place: str) -> None:
        """A table begins; `row` and `cell` follow. Tables may stand in cells."""
        self.block(place)
        self._tables.append(_Table())

    def end_table(self) -> None:
        """The table that began last ends."""
        self._close()
        inner = self._tables.pop()
        if self._tables and inner.has_text:
            self._tables[-1].has_text = self._tables[-1].row_has_text = True
        self._tabs, self._is_set = 0, False
        self._need(2)

    def row(self, place: str) -> None:
        """A row of the table begins."""
        self._close()
        table = self._tables[-1]
        self._place = place
        self._newlines = 1 if table.has_text else self._newlines
        self._tabs, self._is_set = 0, True
        table.row_has_text = table.row_has_cell = False

    def cell(self, place: str) -> None:
        """A cell of the row begins."""
        self._close()
        table = self._tables[-1]
        self._place = place
        self._newlines = 0 if table.row_has_text else self._newlines
        self._tabs += table.row_has_cell
        self._is_set = table.row_has_cell = True

    def aside(self, label: str, text: str, place: str) -> None:
        """A text beside the flow, `alt_text` or `ruby`: it stands at the end of its unit, on lines of its own."""
        if label not in ASIDES:
            raise ValueError(f"{label} does not stand aside")
        if kept := _WHITE_RUN.sub(" ", text).strip(_WHITE):
            block = self._block(kept, glue="", label=label, place=place)
            # The present block goes on behind it, so it is not ended: asides are laid out elsewhere.
            self._pieces.append(block)

    def anchor(self, name: str) -> None:
        """The present block, or the next one, is what the fragment `name` of the present source leads to."""
        self.anchors.setdefault((self._parts[-1].entry_index, name), len(self._pieces))

    def textless(
        self,
        kind: str,
        *,
        reason: str,
        num_bytes: int = 0,
        path: bytes | None = None,
        title: str | None = None,
        place: str | None = None,
        sha256: str | None = None,
    ) -> None:
        """Source bytes that are no text: a segment of its own behind the present unit."""
        self._pieces.append(
            Textless(kind=kind, reason=reason, path=path, title=title, place=place, num_bytes=num_bytes, sha256=sha256)
        )

    def texts(self) -> list[tuple[int, str]]:
        """The number and text of every block of the flow; what is labelled or stands aside is not among them."""
        self._close()
        return [(n, each.text) for n, each in enumerate(self._pieces) if isinstance(each, Block) and each.label is None]

    def headings(self) -> list[FoundHeading]:
        """The headings, in order; one that is only an image is named by its alt text."""
        self._close()
        firsts, titles, bodies = self._heading_texts()
        return [
            FoundHeading(
                block=firsts[number],
                level=self._levels[number],
                title=" ".join(" ".join(titles[number]).split()),
                has_body=number in bodies,
            )
            for number in sorted(firsts)
        ]

    def _heading_texts(self) -> tuple[dict[int, int], dict[int, list[str]], set[int]]:
        """By heading: its first block, its texts; and the headings with a body."""
        firsts: dict[int, int] = {}
        titles: dict[int, list[str]] = {}
        alts: dict[int, list[str]] = {}
        bodies: set[int] = set()
        last = None
        for index, block in enumerate(self._pieces):
            if not isinstance(block, Block):
                continue
            if block.heading is None:
                if last is not None and block.label not in ASIDES:
                    bodies.add(last)
                continue
            last = block.heading
            firsts.setdefault(last, index)
            if block.label != "ruby":
                (alts if block.label == "alt_text" else titles).setdefault(last, []).append(block.text)
        return firsts, {number: titles.get(number) or alts.get(number, []) for number in firsts}, bodies

    def lay_out(self, *, kind: str = "text", first_kind: str = "front_matter") -> tuple[Tiles, tuple[SourceRange, ...]]:
        """The segments and the source map.

        `kind` is that of a book without units, `first_kind` that of what stands before the first one.
        """
        self._close()
        units = sorted(self._units, key=lambda unit: unit.start)
        if not units or units[0].start > 0:
            units.insert(0, Unit(start=0, kind=first_kind if units else kind, title=None))
        return lay_out(self._pieces, self._parts, units)

    def _need(self, newlines: int) -> None:
        if not self._is_set:
            self._newlines = max(self._newlines, newlines)

    def _close(self) -> None:
        """End the present block; one without a visible character leaves no trace."""
        text = "".join(self._texts)
        if not self._is_exact:
            text = text.rstrip(" \n")
        self._texts, self._at_space, self._is_exact = [], True, False
        if not text.strip(_WHITE):
            return
        behind = len(self._ends_with) - len(self._ends_with.rstrip("\n"))
        glue = "\n" * max(0, self._newlines - behind) + "\t" * self._tabs
        self._pieces.append(self._block(text, glue=glue, label=self._labels[-1] if self._labels else None))
        self._newlines, self._tabs, self._is_set, self._ends_with = 0, 0, False, text[-2:]
        if self._tables:
            self._tables[-1].has_text = self._tables[-1].row_has_text = True

    def _block(self, text: str, *, glue: str, label: str | None, place: str | None = None) -> Block:
        return Block(
            text=text,
            glue=glue,
            label=label,
            place=self._place if place is None else place,
            part=len(self._parts) - 1,
            heading=self._heading,
        )
