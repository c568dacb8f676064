"""Lays the blocks of a transformed book out as segments and a source map. Reads no format and makes no block.

Owns where each kind of text stands within its unit, which segment carries the bytes of a part of the source, and the
range of text that every block became. `connectors.prose` makes the blocks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from connectors.building import Origin, Tiles
from longdoc.records import SourceRange

#: Labels of what stands at the end of its unit, in this order, so that the flow stays what a reader reads.
ASIDES = ("alt_text", "ruby")
_BLANK_LINE = "\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePart:
    """A part of the source as its reader announced it. `entry_index` is its place in the ledger."""

    entry_index: int
    path: bytes | None
    transform: str
    num_bytes: int
    sha256: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A stretch of text from one place, and what sets it apart from the text before it.

    `label` is None in the flow; `part` and `heading` are numbers of the flow's source parts and headings.
    """

    text: str
    glue: str
    label: str | None
    place: str
    part: int
    heading: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Textless:
    """Source bytes that are no text."""

    kind: str
    reason: str
    path: bytes | None = None
    title: str | None = None
    place: str | None = None
    num_bytes: int = 0
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartBegins:
    """Where in the order of the blocks a part of the source begins."""

    part: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A chapter or page: the number of its first block."""

    start: int
    kind: str
    title: str | None


Piece = Block | Textless | PartBegins


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """A segment that is not laid out yet: more text, and what sets the next one apart, may still join it.

    `blocks` are the indices into `texts` of what is a block's own, and the block's place.
    """

    kind: str
    title: str | None
    is_content: bool
    part: int
    place: str
    texts: list[str] = field(default_factory=list)
    blocks: list[tuple[int, str]] = field(default_factory=list)

    def append(self, glue: str, block: Block) -> None:
        self.texts.append(glue)
        self.blocks.append((len(self.texts), block.place))
        self.texts.append(block.text)


def lay_out(
    pieces: Sequence[Piece], parts: Sequence[SourcePart], units: Sequence[Unit]
) -> tuple[Tiles, tuple[SourceRange, ...]]:
    """The segments and the source map. `units` are in order, and the first one starts at 0."""
    plan = _Plan(parts=parts, with_text={piece.part for piece in pieces if isinstance(piece, Block)})
    stops = [unit.start for unit in units[1:]] + [len(pieces)]
    for unit, stop in zip(units, stops, strict=True):
        plan.add_unit(unit, pieces[unit.start : stop])
    return plan.tiles()


@dataclass(slots=True, kw_only=True)
class _Plan:
    """The segments in their order, before their offsets are known."""

    parts: Sequence[SourcePart]
    with_text: set[int]
    segments: list[_Planned | Textless] = field(default_factory=list)
    last_text: _Planned | None = None

    def add_unit(self, unit: Unit, inside: Sequence[Piece]) -> None:
        """One unit: its flow with notes and captions, then what stands aside, then what is no text."""
        first = True
        for glue, block in _in_order(inside):
            kind = block.label or unit.kind
            last = self.last_text
            if not first and last is not None and (last.kind, last.part) == (kind, block.part):
                last.append(glue, block)
                continue
            self._open(unit, kind, block, self._apart(glue) if first else glue, is_content=first)
            first = False
        for piece in inside:
            if isinstance(piece, Textless):
                self.segments.append(piece)
            elif isinstance(piece, PartBegins) and piece.part not in self.with_text:
                self.segments.append(_without_text(self.parts[piece.part]))

    def _apart(self, glue: str) -> str:
        """What sets a unit apart: at least a blank line."""
        before = self.last_text.texts[-1] if self.last_text is not None else ""
        behind = len(before) - len(before.rstrip("\n"))
        return "\n" * (len(_BLANK_LINE) - behind - glue.count("\n")) + glue

    def _open(self, unit: Unit, kind: str, block: Block, glue: str, *, is_content: bool) -> None:
        if self.last_text is not None:
            self.last_text.texts.append(glue)
        title = unit.title if is_content else None
        segment = _Planned(kind=kind, title=title, is_content=is_content, part=block.part, place=block.place)
        segment.append("", block)
        self.segments.append(segment)
        self.last_text = segment

    def tiles(self) -> tuple[Tiles, tuple[SourceRange, ...]]:
        """Every segment at its place in the text, and the bytes of each part of the source on one of them."""
        tiles = Tiles()
        ranges: list[SourceRange] = []
        carried: set[int] = set()
        unit = -1
        for segment in self.segments:
            unit += isinstance(segment, Textless) or segment.is_content
            if isinstance(segment, Textless):
                _add_textless(tiles, segment, unit)
                continue
            part = self.parts[segment.part]
            ranges += _ranges(segment, part.entry_index, tiles.num_bytes)
            _add_text(tiles, segment, unit, part, carries=segment.part not in carried)
            carried.add(segment.part)
        return tiles, tuple(ranges)


def _in_order(inside: Sequence[Piece]) -> Iterator[tuple[str, Block]]:
    """The blocks of a unit as they stand in the text, with what sets each one apart from the one before."""
    for piece in inside:
        if isinstance(piece, Block) and piece.label not in ASIDES:
            yield piece.glue, piece
    for label in ASIDES:
        glue = _BLANK_LINE
        for piece in inside:
            if isinstance(piece, Block) and piece.label == label:
                yield glue, piece
                glue = "\n"


def _without_text(part: SourcePart) -> Textless:
    return Textless(
        kind="file" if part.path is None else "member",
        reason="no_text",
        path=part.path,
        num_bytes=part.num_bytes,
        sha256=part.sha256,
    )


def _add_textless(tiles: Tiles, segment: Textless, unit: int) -> None:
    origin = Origin(path=segment.path, num_bytes=segment.num_bytes, sha256=segment.sha256, place=segment.place)
    tiles.add(kind=segment.kind, unit=unit, is_content=True, title=segment.title, reason=segment.reason, origin=origin)


def _add_text(tiles: Tiles, segment: _Planned, unit: int, part: SourcePart, *, carries: bool) -> None:
    origin = Origin(
        path=part.path,
        transform=part.transform,
        place=segment.place,
        num_bytes=part.num_bytes if carries else 0,
        sha256=part.sha256 if carries else None,
    )
    tiles.add(
        "".join(segment.texts),
        kind=segment.kind,
        unit=unit,
        is_content=segment.is_content,
        title=segment.title,
        origin=origin,
    )


def _ranges(segment: _Planned, entry_index: int, start: int) -> Iterator[SourceRange]:
    """The range of the text that each block became. `start` is the segment's own first byte."""
    places = dict(segment.blocks)
    for index, text in enumerate(segment.texts):
        stop = start + len(text.encode("utf-8"))
        if index in places:
            yield SourceRange(text_byte_start=start, text_byte_stop=stop, entry_index=entry_index, place=places[index])
        start = stop
