"""Finds what Project Gutenberg puts around a book and what its header says. Labels; deletes and changes nothing.

Owns the two marker lines, `*** START OF ...` and `*** END OF ...`, and the header's fields. A file without the markers
has no boilerplate: nothing is guessed, because heuristics for it have been known to swallow whole books.
"""

import re
from dataclasses import dataclass

_START = re.compile(r"^\*{3} ?START OF (?:THIS|THE) PROJECT GUTENBERG[^\n]*\n?", re.MULTILINE | re.IGNORECASE)
_END = re.compile(r"^\*{3} ?END OF (?:THIS|THE) PROJECT GUTENBERG[^\n]*", re.MULTILINE | re.IGNORECASE)
# Older files announce the end once more, in words, just above the marker.
_ANNOUNCED = re.compile(
    r"^End of (?:the )?Project Gutenberg[^\n]*(?:\n[^\n]+){0,2}\n\s*\Z", re.MULTILINE | re.IGNORECASE
)
_ANNOUNCED_WITHIN = 400
# A value may go on in indented lines.
_FIELD = re.compile(r"^(Title|Author|Authors|Language): *([^\n]*(?:\n[ \t]+[^\s][^\n]*)*)", re.MULTILINE)
_HEADER_WITHIN = 8_000

_LANGUAGES = {
    "chinese": "zh",
    "danish": "da",
    "dutch": "nl",
    "english": "en",
    "esperanto": "eo",
    "finnish": "fi",
    "french": "fr",
    "german": "de",
    "greek": "el",
    "hungarian": "hu",
    "italian": "it",
    "japanese": "ja",
    "latin": "la",
    "norwegian": "no",
    "polish": "pl",
    "portuguese": "pt",
    "russian": "ru",
    "spanish": "es",
    "swedish": "sv",
    "tagalog": "tl",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What the header says. `language` is an ISO 639-1 code where the name is known, else the header's own word."""

    title: str | None = None
    authors: tuple[str, ...] = ()
    language: str | None = None


def find_body(text: str) -> tuple[int, int]:
    """The characters between the two markers, as a half-open range; an absent marker leaves its side open."""
    start = _START.search(text)
    body_start = start.end() if start else 0
    # The last one: the book itself may quote the marker.
    end = max((m.start() for m in _END.finditer(text, body_start)), default=None)
    if end is None:
        return body_start, len(text)
    announced = _ANNOUNCED.search(text, max(body_start, end - _ANNOUNCED_WITHIN), end)
    return body_start, announced.start() if announced else end


def split_at_markers(text: str) -> list[str]:
    """The text in pieces that are wholly inside or outside of the markers; joined they are the text."""
    start, stop = find_body(text)
    return [piece for piece in (text[:start], text[start:stop], text[stop:]) if piece]


def read_header(text: str) -> Header:
    """The fields of a header. `text` is what stands before the body; other text gives an empty header."""
    fields: dict[str, list[str]] = {}
    for name, value in _FIELD.findall(text[:_HEADER_WITHIN]):
        if value.strip():
            fields.setdefault(name.removesuffix("s"), []).append(" ".join(value.split()))
    language = fields.get("Language", [None])[0]
    return Header(
        title=fields.get("Title", [None])[0],
        authors=tuple(fields.get("Author", ())),
        language=None if language is None else _LANGUAGES.get(language.casefold(), language),
    )
