"""Which headings of a transformed book begin its parts and chapters, and where Project Gutenberg's own text stands.

Owns the choice for HTML and for whatever else has headings with levels but nobody to say which of them are chapters.
Names units; changes no text.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from connectors.chapters import kind_of_title
from connectors.gutenberg import Header, find_body, read_header
from connectors.prose import Flow, FoundHeading


def label_units(flow: Flow) -> Header:
    """Begin the units of a book: boilerplate, front matter, parts, chapters. Gives what a Gutenberg header says.

    Chapters are the headings of the level at which most name themselves one (`CHAPTER I`), or, where fewer than two do,
    of the shallowest level with two that have text of their own. Shallower ones are parts, but for
    one alone above the first chapter, the book's title; deeper ones stay inside their chapter.
    """
    first, stop, header = find_body_blocks(flow)
    headings = [heading for heading in flow.headings() if first <= heading.block < stop]
    if first > 0:
        flow.unit_at(0, "boilerplate")
        flow.unit_at(first, "front_matter" if headings else "text")
    for heading, kind in _units(headings):
        flow.unit_at(heading.block, kind, heading.title or None)
    if stop < flow.num_blocks:
        flow.unit_at(stop, "boilerplate")
    return header


def find_body_blocks(flow: Flow) -> tuple[int, int, Header]:
    """The blocks between Gutenberg's markers, as a half-open range, and what its header says."""
    blocks = flow.texts()
    text = "\n\n".join(block for _, block in blocks)
    char_start, char_stop = find_body(text)
    first, stop, position = 0, flow.num_blocks, 0
    for index, block in blocks:
        if position < char_start:
            first = index + 1
        if position + len(block) > char_stop:
            stop = index
            break
        position += len(block) + 2
    return first, max(first, stop), read_header(text[:char_start])


def _units(headings: Sequence[FoundHeading]) -> list[tuple[FoundHeading, str]]:
    """The headings that begin a unit, and its kind."""
    if not headings:
        return []
    named = {heading.block: kind_of_title(heading.title) for heading in headings}
    level = _chapter_level(headings, named)
    at_level = [heading for heading in headings if heading.level == level]
    are_named = sum(named[heading.block] == "chapter" for heading in at_level) >= 2
    first = next(
        (each.block for each in at_level if (named[each.block] is not None if are_named else each.has_body)),
        at_level[0].block,
    )
    repeats = Counter(heading.level for heading in headings)
    units: list[tuple[FoundHeading, str]] = []
    for heading in headings:
        name = named[heading.block]
        if heading.level == level and heading.block >= first:
            units.append((heading, name or ("section" if are_named else "chapter")))
        elif heading.level < level and (name is not None or repeats[heading.level] > 1 or heading.block >= first):
            units.append((heading, name or "part"))
    return units


def _chapter_level(headings: Sequence[FoundHeading], named: Mapping[int, str | None]) -> int:
    chapters = Counter(heading.level for heading in headings if named[heading.block] == "chapter")
    if chapters and max(chapters.values()) >= 2:
        return max(chapters, key=lambda level: (chapters[level], -level))
    levels = sorted({heading.level for heading in headings})
    for level in levels:
        if sum(heading.level == level and heading.has_body for heading in headings) >= 2:
            return level
    return levels[0]
