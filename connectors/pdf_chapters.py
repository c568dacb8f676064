"""Where the chapters of a PDF begin: by its outline, else by tagged headings, else by lines that look like headings.

Owns how an entry of the outline finds its line on the page, and how the way lines are set sets them apart for the rules
that `connectors.chapters` has for plain text. Changes no character.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from statistics import median
from typing import NamedTuple

from connectors.chapters import LONGEST_TITLE, find_headings
from connectors.pdf_records import Bookmark, Line, Page

# A heading is this much larger than the text.
_LARGER = 1.15
_BOLD = 600
# Lines further apart than this many lines are apart.
_GAP = 1.35
_MOST_TITLE_LINES = 4
# What may stand before a title in its line, such as `Chapter XII`.
_LONGEST_NUMBER = 12
_NOT_LETTERS = re.compile(r"[\W_]+")


class Beginning(NamedTuple):
    """A chapter begins on a page (its place in the sequence of pages), at a character of the page's text."""

    page: int
    start: int
    title: str


def find_beginnings(pages: Sequence[Page], bookmarks: Iterable[Bookmark]) -> list[Beginning]:
    """The beginnings of chapters in the order of the text; of several at one place the titles are joined."""
    found = list(_by_outline(pages, bookmarks)) or _by_tags(pages) or _by_lines(pages)
    in_order = sorted(found, key=lambda each: each[:2])
    return [
        Beginning(*place, title=": ".join(dict.fromkeys(each.title for each in same)))
        for place, same in groupby(in_order, key=lambda each: (each.page, each.start))
    ]


def _by_outline(pages: Sequence[Page], bookmarks: Iterable[Bookmark]) -> Iterator[Beginning]:
    at = {page.index: number for number, page in enumerate(pages)}
    said: dict[int, list[str]] = {}
    for bookmark in bookmarks:
        title = " ".join(bookmark.title.replace("\0", " ").split())
        if title and bookmark.page in at:
            number = at[bookmark.page]
            page = pages[number]
            if number not in said:
                said[number] = [_letters(_text_of(page, line)) for line in range(len(page.lines))]
            yield Beginning(number, _start_on(page.lines, said[number], _letters(title), bookmark.top), title)


def _start_on(lines: Sequence[Line], said: Sequence[str], wanted: str, top: float | None) -> int:
    """The line that says the title, of several the nearest to where the outline leads; else the line there."""
    named = [number for number in range(len(lines)) if wanted and _says(said, number, wanted)]
    if named:
        return lines[min(named, key=lambda number: 0.0 if top is None else abs(lines[number].top - top))].start
    if top is not None:
        # A line that is cut by the height belongs below it.
        below = [line.start for line in lines if line.top - line.size / 2 <= top]
        return min(below, default=0)
    return 0


def _says(said: Sequence[str], number: int, wanted: str) -> bool:
    """Whether a title begins in this line: alone, behind its number, or going on in the lines below."""
    so_far = ""
    for line in said[number : number + _MOST_TITLE_LINES]:
        so_far += line
        if so_far == wanted or (
            so_far is line and line.endswith(wanted) and len(line) <= len(wanted) + _LONGEST_NUMBER
        ):
            return True
        if len(so_far) >= len(wanted):
            return False
    return False


def _text_of(page: Page, number: int) -> str:
    start = page.lines[number].start
    stop = page.text.find("\n", start)
    return page.text[start : stop if stop >= 0 else len(page.text)]


def _letters(text: str) -> str:
    return _NOT_LETTERS.sub("", text).casefold()


def _by_tags(pages: Sequence[Page]) -> list[Beginning]:
    """Headings that the file tags; one alone is the title of the book."""
    found: list[Beginning] = []
    for number, page in enumerate(pages):
        tagged = [(line.heading, place) for place, line in enumerate(page.lines) if line.heading is not None]
        for _, same in groupby(tagged, key=lambda each: each[0]):
            places = [place for _, place in same]
            title = " ".join(" ".join(_text_of(page, place) for place in places).split())
            if 0 < len(title) <= LONGEST_TITLE:
                found.append(Beginning(number, page.lines[places[0]].start, title))
    return found if len(found) >= 2 else []


def _by_lines(pages: Sequence[Page]) -> list[Beginning]:
    """Lines that the rules for plain text call headings, once lines that are set alike stand together."""
    body = _usual(line.size for page in pages for line in page.lines)
    leading = _usual(drop for page in pages for drop in _drops(page) if drop > 0)
    texts: list[str] = []
    where: dict[int, tuple[int, int]] = {}
    length = 0
    for number, page in enumerate(pages):
        for start, text in _blocks(page, body, leading):
            where[length] = (number, start)
            texts.append(text + "\n\n")
            length += len(text) + 2
    headings = find_headings("".join(texts))
    return [Beginning(*where[each.char_start], each.title) for each in headings if each.char_start in where]


def _blocks(page: Page, body: float, leading: float) -> Iterator[tuple[int, str]]:
    """Where lines begin that stand together and are set alike, and their text; those of a heading are one line."""
    block: list[int] = []
    drops = _drops(page)
    settings = [_setting(line, body) for line in page.lines]
    for number, setting in enumerate(settings):
        is_apart = number > 0 and not 0 <= drops[number - 1] <= _GAP * max(leading, setting[0])
        if block and (is_apart or setting != settings[number - 1]):
            yield _block(page, block, is_heading=_is_heading(settings[block[0]], block, body))
            block = []
        block.append(number)
    if block:
        yield _block(page, block, is_heading=_is_heading(settings[block[0]], block, body))


def _block(page: Page, numbers: Sequence[int], *, is_heading: bool) -> tuple[int, str]:
    texts = [_text_of(page, number).strip() for number in numbers]
    return page.lines[numbers[0]].start, (" " if is_heading else "\n").join(texts)


def _is_heading(setting: tuple[float, bool], block: Sequence[int], body: float) -> bool:
    return (setting[0] > body or setting[1]) and len(block) <= _MOST_TITLE_LINES


def _setting(line: Line, body: float) -> tuple[float, bool]:
    """How a line is set, as far as it sets headings apart: larger than the text, bold."""
    return (line.size if line.size > body * _LARGER else body, line.weight >= _BOLD)


def _drops(page: Page) -> list[float]:
    """How much lower each line stands than the one before it."""
    return [above.top - line.top for above, line in pairwise(page.lines)]


def _usual(numbers: Iterable[float]) -> float:
    """What most of the text has."""
    found = list(numbers)
    return float(median(found)) if found else 0.0
