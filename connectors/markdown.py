"""Finds the chapters of a Markdown book by its headings. Changes no character; it only says where to cut.

Owns ATX (`# Title`) and setext (underlined) headings as CommonMark 0.31 defines them, outside fenced code, indented
code and a YAML block at the top. Refuses to render: what is inside a chapter stays as it was written. Refuses headings
of more than three lines or 200 characters, which CommonMark allows: a rule under a page of prose makes no title of it.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from connectors.chapters import LONGEST_TITLE, MOST_TITLE_LINES, Heading

_ATX = re.compile(r" {0,3}(?P<marks>#{1,6})(?P<title>[ \t].*)?")
_SETEXT = re.compile(r" {0,3}(?:=+|-+)[ \t]*")
_FENCE = re.compile(r" {0,3}(?P<fence>`{3,}(?=[^`]*$)|~{3,})")
# A line that cannot be the text of an underlined heading: quotes, lists, tables, indented code, HTML.
_NOT_A_PARAGRAPH = re.compile(r"(?: {4}|\t| {0,3}(?:>|[-+*][ \t]|\d{1,9}[.)][ \t]|\||<))")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A heading and whether anything stands between it and the next one."""

    char_start: int
    title: str
    level: int
    has_body: bool


def find_markdown_headings(text: str) -> tuple[str | None, list[Heading]]:
    """The book's title, which is its first heading, and where its parts and chapters begin.

    Chapters are the headings of the shallowest level at which two or more have text of their own; deeper headings
    stay inside their chapter. Shallower ones that repeat are parts; one that stands alone above the first chapter is
    the book's title and belongs to the front matter.
    """
    found = list(_headings(text))
    if not found:
        return None, []
    chapter_level = _chapter_level(found)
    first_chapter = min(heading.char_start for heading in found if heading.level == chapter_level)
    num_of_level = Counter(heading.level for heading in found)
    headings = []
    for heading in found:
        alone = num_of_level[heading.level] == 1
        if heading.level == chapter_level:
            headings.append(Heading(char_start=heading.char_start, title=heading.title, kind="chapter"))
        elif heading.level < chapter_level and not (alone and heading.char_start < first_chapter):
            headings.append(Heading(char_start=heading.char_start, title=heading.title, kind="part"))
    return found[0].title or None, headings


def _chapter_level(found: list[_Found]) -> int:
    levels = sorted({heading.level for heading in found})
    for level in levels:
        if sum(heading.level == level and heading.has_body for heading in found) >= 2:
            return level
    return levels[0]


def _headings(text: str) -> Iterator[_Found]:
    starts = list(_heading_lines(text))
    for index, (char_start, body_start, title, level) in enumerate(starts):
        body_stop = starts[index + 1][0] if index + 1 < len(starts) else len(text)
        has_body = bool(text[body_start:body_stop].strip())
        yield _Found(char_start=char_start, title=title, level=level, has_body=has_body)


def _heading_lines(text: str) -> Iterator[tuple[int, int, str, int]]:
    """Each heading: where its line starts, where what follows it starts, its title, its level."""
    fence = ""
    paragraph: list[tuple[int, str]] = []
    for start, stop, line in _lines(text, _after_yaml(text)):
        if fence:
            fence = "" if _closes(line, fence) else fence
        elif opening := _FENCE.match(line):
            fence, paragraph = opening["fence"], []
        elif atx := _ATX.fullmatch(line):
            paragraph = []
            title = _atx_title(atx["title"] or "")
            if len(title) <= LONGEST_TITLE:
                yield start, stop, title, len(atx["marks"])
        elif paragraph and _SETEXT.fullmatch(line):
            if underlined := _setext_title(paragraph):
                yield paragraph[0][0], stop, underlined, 1 if "=" in line else 2
            paragraph = []
        elif not line.strip() or (not paragraph and _NOT_A_PARAGRAPH.match(line)):
            paragraph = []
        elif paragraph or not _follows_open_block(text, start):
            paragraph.append((start, line))


def _atx_title(text: str) -> str:
    """What stands between the marks: a closing run of `#` counts as one only behind white space, or alone."""
    title = text.strip()
    before = title.rstrip("#")
    return before.rstrip() if not before or before[-1] in " \t" else title


def _setext_title(paragraph: list[tuple[int, str]]) -> str:
    """The lines above the underline as one; nothing where they are too many or too long for a title."""
    if len(paragraph) > MOST_TITLE_LINES:
        return ""
    title = " ".join(line.strip() for _, line in paragraph)
    return title if len(title) <= LONGEST_TITLE else ""


def _follows_open_block(text: str, start: int) -> bool:
    """Whether the line above goes on with this one as a quote or a list entry (CommonMark's lazy continuation)."""
    above_stop = start - 1
    if above_stop <= 0:
        return False
    above = text[text.rfind("\n", 0, above_stop) + 1 : above_stop]
    return bool(_NOT_A_PARAGRAPH.match(above)) and bool(above.strip())


def _closes(line: str, fence: str) -> bool:
    stripped = line.strip()
    return len(stripped) >= len(fence) and set(stripped) == {fence[0]} and len(line) - len(line.lstrip(" ")) <= 3


def _after_yaml(text: str) -> int:
    """Where the text begins below a block of metadata that `---` opens on the first line."""
    lines = _lines(text, 0)
    if next(lines, (0, 0, ""))[2].rstrip() != "---":
        return 0
    return next((stop for _, stop, line in lines if line.rstrip() in ("---", "...")), 0)


def _lines(text: str, start: int) -> Iterator[tuple[int, int, str]]:
    """Each line without its end, and its half-open range with it."""
    while start < len(text):
        newline = text.find("\n", start)
        stop = len(text) if newline < 0 else newline + 1
        yield start, stop, text[start:stop].rstrip("\r\n")
        start = stop
