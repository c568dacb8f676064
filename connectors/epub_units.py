"""Names the units of an EPUB: which chapter, part or page begins at which block. Cuts and names; moves nothing.

Owns the rules. A page of the spine is a unit, and so is every stretch of a page that the table of contents names by a
fragment. Titles are the labels of the table of contents, and headings where it is silent. Kinds come from what a page
says of itself (`epub:type`, ARIA roles), then from landmarks or the guide, and then from the table's nesting.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from connectors.chapters import kind_of_title
from connectors.epub_navigation import NavPoint
from connectors.epub_pages import Page
from connectors.headings import find_body_blocks
from connectors.prose import Flow, FoundHeading

# https://www.w3.org/TR/epub-ssv-11/ and the guide's types (OPF 2.0.1, 2.6); the first row that fits counts.
_KINDS: tuple[tuple[str, frozenset[str]], ...] = (
    ("chapter", frozenset({"chapter"})),
    ("part", frozenset({"part", "volume", "division"})),
    (
        "section",
        frozenset(
            {"abstract", "acknowledgements", "acknowledgments", "afterword", "appendix", "bibliography", "conclusion",
             "dedication", "epigraph", "epilogue", "errata", "foreword", "glossary", "introduction", "preamble",
             "preface", "prologue"}
        ),
    ),
    ("back_matter", frozenset({"backmatter"})),
    ("front_matter", frozenset({"frontmatter"})),
    (
        "front_matter",
        frozenset(
            {"copyright-page", "cover", "credits", "frontispiece", "halftitlepage", "imprimatur", "imprint",
             "landmarks", "loa", "loi", "lot", "lov", "seriespage", "title-page", "titlepage", "toc"}
        ),
    ),
    ("back_matter", frozenset({"colophon", "endnotes", "footnotes", "index", "notes", "rearnotes"})),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPage:
    """A page that was fed to the flow: its entry in the ledger and its blocks."""

    page: Page
    entry_index: int
    first_block: int
    stop_block: int
    is_auxiliary: bool


@dataclass(slots=True, kw_only=True)
class _Place:
    """A block where a unit begins. `labels` are those of the table of contents, outer ones first."""

    types: frozenset[str]
    labels: list[tuple[int, str]] = field(default_factory=list)
    has_inner: bool = False

    @property
    def title(self) -> str | None:
        """Of nested labels for one place all, outer ones first; of labels side by side the first."""
        titles: list[str] = []
        depth = -1
        for each, label in self.labels:
            if each > depth:
                titles.append(label)
                depth = each
        return ": ".join(titles) or None


def begin_units(
    flow: Flow, pages: Sequence[PlacedPage], points: Sequence[NavPoint], landmarks: Mapping[tuple[str, str], str]
) -> int:
    """Begin all units of `flow`; gives how many entries of the table of contents lead nowhere."""
    headings = flow.headings()
    by_name = {placed.page.name: placed for placed in pages}
    places = {each.first_block: _Place(types=_landmark(each, "", landmarks) | each.page.types) for each in pages}
    num_lost = 0
    for index, point in enumerate(points):
        block = _block(flow, by_name, point)
        if block is None:
            num_lost += point.target is not None
            continue
        name, fragment = point.target or ("", "")
        types = by_name[name].page.types_at.get(fragment, frozenset()) | _landmark(by_name[name], fragment, landmarks)
        place = places.setdefault(block, _Place(types=types))
        place.types |= types
        place.labels.append((point.depth, point.title))
        place.has_inner = _has_inner(points, index)
    if not points:
        for placed, block in _headed(pages, headings):
            places[placed.first_block].has_inner = True
            places.setdefault(block, _Place(types=frozenset())).has_inner = False
    _begin(flow, pages, places, headings)
    return num_lost


def _has_inner(points: Sequence[NavPoint], index: int) -> bool:
    """Whether entries below this one lead to other pages: then it is a part, and no chapter with sections."""
    following = points[index + 1] if index + 1 < len(points) else None
    if following is None or following.depth <= points[index].depth:
        return False
    return following.target is not None and following.target[0] != (points[index].target or ("", ""))[0]


def _headed(pages: Sequence[PlacedPage], headings: Sequence[FoundHeading]) -> Iterator[tuple[PlacedPage, int]]:
    """Where nothing names the places: the headings of each page's first level with two that head something."""
    for placed in pages:
        levels: dict[int, list[int]] = {}
        inside = _between(headings, placed.first_block, placed.stop_block)
        for heading, following in zip_longest(inside, inside[1:]):
            if heading.has_body or (following is not None and following.level > heading.level):
                levels.setdefault(heading.level, []).append(heading.block)
        blocks = next((blocks for _, blocks in sorted(levels.items()) if len(blocks) > 1), [])
        yield from ((placed, block) for block in blocks)


def _begin(
    flow: Flow, pages: Sequence[PlacedPage], places: dict[int, _Place], headings: Sequence[FoundHeading]
) -> None:
    of_page = {placed.first_block: placed for placed in pages}
    boilerplate = _label_boilerplate(flow, pages, places)
    starts = sorted(places)
    placed = None
    for start, stop in zip(starts, [*starts[1:], flow.num_blocks], strict=True):
        placed = of_page.get(start, placed)
        place = places[start]
        title = place.title or _title(_between(headings, start, stop))
        if start in boilerplate:
            flow.unit_at(start, "boilerplate")
        elif placed is not None and placed.is_auxiliary:
            flow.unit_at(start, "auxiliary", title)
        else:
            flow.unit_at(start, _kind(place, title), title)


def _label_boilerplate(flow: Flow, pages: Sequence[PlacedPage], places: dict[int, _Place]) -> frozenset[int]:
    """Make what Project Gutenberg puts around a book units of their own; gives where they begin."""
    first, stop, _ = find_body_blocks(flow)
    last = max((placed.stop_block for placed in pages if not placed.is_auxiliary), default=0)
    found: set[int] = set()
    if first > 0:
        before = max((block for block in places if block <= first), default=0)
        body = places.get(before, _Place(types=frozenset()))
        for block in [block for block in places if block < first]:
            del places[block]
        places.setdefault(first, body)
        found.add(0)
    if first < stop < last:
        for block in [block for block in places if stop <= block < last]:
            del places[block]
        found.add(stop)
    for block in found:
        places[block] = _Place(types=frozenset())
    return frozenset(found)


def _kind(place: _Place, title: str | None) -> str:
    for kind, types in _KINDS:
        if not types.isdisjoint(place.types):
            return kind
    if title is None:
        return "text"
    own = place.labels[-1][1] if place.labels else title
    return kind_of_title(own) or ("part" if place.has_inner else "chapter")


def _between(headings: Sequence[FoundHeading], start: int, stop: int) -> Sequence[FoundHeading]:
    return headings[bisect_left(headings, start, key=_block_of) : bisect_left(headings, stop, key=_block_of)]


def _block_of(heading: FoundHeading) -> int:
    return heading.block


def _title(headings: Iterable[FoundHeading]) -> str | None:
    """The first heading of a unit, with those directly below it: `CHAPTER I`, then its name."""
    titles: list[str] = []
    for heading in headings:
        titles.append(heading.title)
        if heading.has_body:
            break
    return " ".join(filter(None, titles)) or None


def _block(flow: Flow, by_name: Mapping[str, PlacedPage], point: NavPoint) -> int | None:
    """The block that an entry leads to: a page's first, where the fragment is not in the page."""
    placed = by_name.get(point.target[0]) if point.target else None
    if placed is None or point.target is None:
        return None
    block = flow.anchors.get((placed.entry_index, point.target[1]), placed.first_block)
    return block if placed.first_block <= block < placed.stop_block else placed.first_block


def _landmark(placed: PlacedPage, fragment: str, landmarks: Mapping[tuple[str, str], str]) -> frozenset[str]:
    return frozenset(landmarks.get((placed.page.name, fragment), "").lower().split())


def linked_names(pages: Iterable[Page], points: Iterable[NavPoint]) -> Iterator[str]:
    """The members that pages and the table of contents lead to, in order."""
    for page in pages:
        yield from (name for name, _ in page.links)
    yield from (point.target[0] for point in points if point.target)
