"""Finds the chapters of a plain-text book by its heading lines. Changes no character; it only says where to cut.

Owns what a heading line looks like and how a table of contents is told from the chapters it names. Refuses to guess
from layout alone: bare digits (page numbers), centred lines and capitals without a known word are not headings.

A *heading* is a line at the start of a block of lines, such as `CHAPTER I. Down the Rabbit-Hole`, `BOOK ONE: 1805`,
`PART 2`, `Epilogue`, `FIRST EPILOGUE: 1813`, or, where no chapters are named so, `II` and `II. The Period` in order.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

SectionKind = Literal["part", "chapter", "section"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """Where a part, chapter or section begins: the offset of its heading line in characters, and that line."""

    char_start: int
    title: str
    kind: SectionKind


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A heading line and what stands below it. Smaller levels contain larger ones. `number` is a bare numeral's."""

    char_start: int
    title: str
    level: int
    bare: bool
    number: int = 0
    has_body: bool = False


_VOLUME, _BOOK, _PART, _NAMED, _CHAPTER, _SCENE, _NUMERAL = range(7)

_LEVELS = {
    "volume": _VOLUME, "vol.": _VOLUME, "book": _BOOK, "buch": _BOOK, "livre": _BOOK, "libro": _BOOK,
    "part": _PART, "act": _PART, "teil": _PART, "partie": _PART, "parte": _PART,
    "chapter": _CHAPTER, "chap.": _CHAPTER, "canto": _CHAPTER, "stave": _CHAPTER, "letter": _CHAPTER,
    "kapitel": _CHAPTER, "chapitre": _CHAPTER, "capítulo": _CHAPTER, "capitolo": _CHAPTER, "hoofdstuk": _CHAPTER,
    "scene": _SCENE,
}  # fmt: skip

_ORDINALS = "first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|last"
_CARDINALS = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|"
    "eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred"
)
_NUMBER = rf"(?:\d{{1,4}}|[IVXLCDM]+|(?:{_CARDINALS})(?:[- ](?:{_CARDINALS}))?|(?:the )?(?:{_ORDINALS}))"
_WORD = "|".join(re.escape(word) for word in _LEVELS)
# What may follow the number: nothing, a title that begins like one, or a dash or colon and any title.
_TITLE = r"(?P<title>|\.|(?:[.:)\]]\s*|\s+)[-–—.:]{0,3}\s*[\"'“‘(\[_*¿¡]*(?-i:[^\W_a-z]).*|\s*[-–—:]+\s*\S.*)"
_KEYWORD = re.compile(rf"(?P<word>{_WORD})\s+{_NUMBER}{_TITLE}", re.IGNORECASE)
_ORDINAL_FIRST = re.compile(
    rf"(?:the )?(?:{_ORDINALS}) (?P<word>{_WORD}|epilogue|prologue)(?P<title>|\.|\s*[.:–—-]\s*\S.*)", re.IGNORECASE
)
_NAMED_LINE = re.compile(
    r"(?:prologue|epilogue|preface|foreword|introduction|afterword|interlude|conclusion|appendix|glossary|"
    r"etymology|extracts|dedication|bibliography)(?: [IVX]+| [A-Z])?(?P<title>|\.|\s*[.:–—-]\s*\S.*|\.? ?\(.*\)\.?)",
    re.IGNORECASE,
)
_NUMERAL_LINE = re.compile(r"(?P<number>[IVXLCDM]+)(?P<title>\.?|[.:]\s+[\"'“‘]?[A-Z].*)")
_ROMAN = re.compile(r"M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})")
_ROMAN_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}

_LONGEST_LINE = 120
# A first line this long was wrapped, so that the lines under it may belong to the title.
_WRAPPED = 50
#: Characters and lines of a title; what is longer is prose that looks like one.
LONGEST_TITLE = 200
MOST_TITLE_LINES = 3

Line = tuple[int, str]


def find_headings(text: str) -> list[Heading]:
    """The headings of a plain-text book, in order; entries of a table of contents are not among them."""
    real = _without_contents(_with_bodies(text))
    if sum(found.level in (_CHAPTER, _SCENE) for found in real) >= 2:
        real = [found for found in real if found.level != _NUMERAL]
    real = _in_sequence(real)
    return [
        Heading(char_start=found.char_start, title=found.title, kind=_kind(found, is_last=index + 1 == len(real)))
        for index, found in enumerate(real)
    ]


def kind_of_title(title: str) -> SectionKind | None:
    """What a line that is a heading says of itself (`CHAPTER II. ...`, `Epilogue`); None for other words."""
    found = _classify(0, title)
    if found is None or found.level == _NUMERAL:
        return None
    return _kind(replace(found, has_body=True), is_last=False)


def _kind(found: _Found, *, is_last: bool) -> SectionKind:
    if found.level in (_CHAPTER, _SCENE, _NUMERAL):
        return "chapter"
    if found.level == _NAMED:
        # An epilogue that is nothing but a title above its own chapters contains them.
        return "section" if found.has_body or is_last else "part"
    return "part"


def _blocks(text: str) -> Iterator[list[Line]]:
    """Runs of lines that are not blank, each line with its offset and stripped of white space and emphasis."""
    block: list[Line] = []
    offset = 0
    for line in text.split("\n"):
        if stripped := line.strip():
            block.append((offset, stripped))
        elif block:
            yield block
            block = []
        offset += len(line) + 1
    if block:
        yield block


def _classify(char_start: int, line: str) -> _Found | None:
    if len(line) > _LONGEST_LINE or not line.strip("_*= ")[:1].isupper():
        return None
    bare_line = line.strip("_*= ")
    for pattern in (_KEYWORD, _ORDINAL_FIRST, _NAMED_LINE, _NUMERAL_LINE):
        if match := pattern.fullmatch(bare_line):
            level, number = _level(pattern, match)
            if level is None:
                return None
            bare = match["title"] in ("", ".")
            return _Found(char_start=char_start, title=line, level=level, bare=bare, number=number)
    return None


def _level(pattern: re.Pattern[str], match: re.Match[str]) -> tuple[int | None, int]:
    if pattern is _NAMED_LINE:
        return _NAMED, 0
    if pattern is _NUMERAL_LINE:
        number = _roman(match["number"])
        return (_NUMERAL if number else None), number
    return _LEVELS.get(match["word"].casefold(), _NAMED), 0


def _roman(numeral: str) -> int:
    """The value of a Roman numeral in its usual form, 0 for anything else."""
    if not _ROMAN.fullmatch(numeral):
        return 0
    values = [_ROMAN_VALUES[letter] for letter in numeral]
    return sum(-v if v < following else v for v, following in zip(values, [*values[1:], 0], strict=True))


def _with_bodies(text: str) -> list[_Found]:
    """All lines that look like headings, each knowing whether anything but headings stands before the next one."""
    found: list[_Found] = []
    for block in _blocks(text):
        headings, has_body = _headings_of(block)
        if headings:
            found += headings
        if has_body and found:
            found[-1] = replace(found[-1], has_body=True)
    return found


def _headings_of(block: list[Line]) -> tuple[list[_Found], bool]:
    """The headings of one block, and whether it ends in something else."""
    first = _classify(*block[0])
    if first is None:
        return [], True
    entries = [(first, [block[0][1]])]
    for offset, line in block[1:]:
        if following := _classify(offset, line):
            entries.append((following, [line]))
        else:
            entries[-1][1].append(line)
    headings: list[_Found] = []
    for heading, lines in entries:
        num_title_lines = _title_lines(heading, lines)
        if num_title_lines == 0:
            return headings, True
        headings.append(replace(heading, title=" ".join(" ".join(lines[:num_title_lines]).split())))
        if num_title_lines < len(lines):
            return headings, True
    return headings, False


def _title_lines(heading: _Found, lines: list[str]) -> int:
    """How many lines of an entry are its title; 0 where it is prose that happens to begin like a heading."""
    if len(lines) == 1:
        return 1
    is_short = len(lines) <= MOST_TITLE_LINES and sum(map(len, lines)) <= LONGEST_TITLE
    if len(lines[0]) >= _WRAPPED:
        return len(lines) if is_short else 0
    if heading.level == _NUMERAL and not heading.bare:
        return 0
    if heading.bare and is_short and " ".join(lines[1:]).isupper():
        return len(lines)
    return 1


def _without_contents(found: list[_Found]) -> list[_Found]:
    """Drop the entries of tables of contents: headings with nothing between them but other headings.

    In a run of them only the last has a body. It is real, with those directly above it that contain it (`BOOK ONE`,
    then `CHAPTER I`), unless the run is a table whose last entry stands before something else: then it has not been
    named before in the run, and the real one of that name is elsewhere.
    """
    real: list[_Found] = []
    outside = _count_keys(found)
    for run in _runs(found):
        table, chain = _split_run(run)
        in_table = _count_keys(table)
        if len(table) == 1 and _key(table[0]) not in _count_keys(chain):
            # One heading alone is no table: a chapter without text.
            table, chain = [], run
        elsewhere = outside[_key(run[-1])] - in_table.get(_key(run[-1]), 0) > 1
        if len(table) >= 2 and _key(run[-1]) not in in_table and elsewhere:
            continue
        real += chain
    return real


def _runs(found: list[_Found]) -> Iterator[list[_Found]]:
    run: list[_Found] = []
    for heading in found:
        run.append(heading)
        if heading.has_body:
            yield run
            run = []
    if run:
        yield run


def _split_run(run: list[_Found]) -> tuple[list[_Found], list[_Found]]:
    """A run without and with its last heading and those directly above it that contain it."""
    start = len(run) - 1
    while start > 0 and run[start - 1].level < run[start].level:
        start -= 1
    return run[:start], run[start:]


def _key(found: _Found) -> str:
    """What makes two headings the same: their letters and digits."""
    return "".join(c for c in found.title.casefold() if c.isalnum())


def _count_keys(found: list[_Found]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for heading in found:
        counts[_key(heading)] = counts.get(_key(heading), 0) + 1
    return counts


def _in_sequence(found: list[_Found]) -> list[_Found]:
    """Keep numerals only where they count: I, II, III ..., from I again in a new part. One alone is not a chapter."""
    kept: list[_Found] = []
    due = 1
    for heading in found:
        if heading.level != _NUMERAL:
            kept.append(heading)
        elif heading.number in (1, due):
            kept.append(heading)
            due = heading.number + 1
    if sum(heading.level == _NUMERAL for heading in kept) < 2:
        kept = [heading for heading in kept if heading.level != _NUMERAL]
    return kept
