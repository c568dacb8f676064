"""Tames HTML whose tree would take the square of its length to build, or far more memory than its length.

Owns three bounds, none of which a book comes near: elements nested deeper than 512 (where browsers stop as well), more
than 100 attributes of one element, and formatting elements that are never closed and that the HTML rules would open
again in every paragraph. Text is never touched; whatever is simplified is said in a warning.
"""

import re
from collections import Counter
from dataclasses import dataclass, field

from connectors.markup_names import BLOCKS, ENTRIES, HEADINGS, VOID
from connectors.markup_tokens import Token, tokens

_DEEPEST = 512
_MOST_ATTRIBUTES = 100
# Formatting elements that would be opened again, over the whole document; a book has a few hundred of them.
_MOST_REOPENED = 500_000
# Shorter documents cannot do harm.
_HARMLESS = 16_384
# `a` and `nobr` end the one before, so they do not pile up.
_FORMATTING = frozenset(
    {"b", "big", "code", "em", "font", "i", "s", "small", "strike", "strong", "tt", "u"}
)  # fmt: skip
# Not counted as depth: their end tags may be missing, and what begins behind them, or the next one, ends them.
_ENDS_ITSELF = frozenset(HEADINGS) | frozenset(
    {"a", "body", "button", "dd", "dt", "head", "html", "li", "nobr", "option", "p", "rp", "rt", "tbody", "td", "tfoot",
     "th", "thead", "tr"}
)  # fmt: skip
_FIRST_ATTRIBUTES = re.compile(
    rb"<[^\t\n\f\r />]++(?>[\t\n\f\r /]++[^\t\n\f\r />][^\t\n\f\r />=]*+"
    rb"(?>[\t\n\f\r ]*+=[\t\n\f\r ]*+(?>\"[^\"]*+\"|'[^']*+'|[^\t\n\f\r >\"'][^\t\n\f\r >]*+))?+){0,%d}"
    % _MOST_ATTRIBUTES
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tame:
    """The HTML to parse, and what was simplified in it."""

    text: str = field(repr=False)
    warnings: tuple[str, ...] = ()


def tame(text: str) -> Tame:
    """The document itself, or a simpler one with the same text where its tree would grow without bound."""
    if len(text) < _HARMLESS:
        return Tame(text=text)
    source = text.encode("utf-8")
    measured = _measure(source)
    if not measured.warnings:
        return Tame(text=text)
    return Tame(text=b"".join(_rebuild(source, measured)).decode("utf-8"), warnings=tuple(measured.warnings))


@dataclass(slots=True, kw_only=True)
class _Measured:
    """How wild a document is."""

    is_deep: bool = False
    has_attributes: bool = False
    is_reopening: bool = False

    @property
    def warnings(self) -> list[str]:
        deep = f"Elements are nested deeper than {_DEEPEST}: deeper ones are read as lines."
        attributes = f"An element has more than {_MOST_ATTRIBUTES} attributes: the others are not read."
        reopening = "Formatting elements are never closed: they are left out, their text is not."
        found = ((self.is_deep, deep), (self.has_attributes, attributes), (self.is_reopening, reopening))
        return [warning for is_so, warning in found if is_so]


def _measure(source: bytes) -> _Measured:
    measured = _Measured()
    depth = formatting = reopened = 0
    for kind, start, stop, name, *_ in tokens(source, is_xml=False):
        if kind == "start":
            if stop - start > 2 * _MOST_ATTRIBUTES and not measured.has_attributes:
                measured.has_attributes = _attributes_stop(source[start:stop]) is not None
            if name in _FORMATTING:
                formatting += 1
                measured.is_reopening |= formatting > _DEEPEST
            elif name in _ENDS_ITSELF or name in BLOCKS:
                reopened += formatting
            if name not in VOID and name not in _ENDS_ITSELF and name not in _FORMATTING:
                depth += 1
                measured.is_deep |= depth > _DEEPEST
        elif kind == "end":
            if name in _FORMATTING:
                formatting = max(0, formatting - 1)
            elif name not in _ENDS_ITSELF:
                depth = max(0, depth - 1)
    measured.is_reopening |= reopened > _MOST_REOPENED
    return measured


def _attributes_stop(tag: bytes) -> int | None:
    """Where the last attribute that is kept ends, in a tag with more; None for other tags."""
    match = _FIRST_ATTRIBUTES.match(tag)
    return match.end() if match and tag[match.end() :].strip(b"\t\n\f\r />") else None


@dataclass(slots=True)
class _Stack:
    """The open elements that are kept, and how many of each name are not."""

    names: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)

    def start(self, name: str) -> bool:
        """Whether an element that begins is kept."""
        if name in VOID or name in _ENDS_ITSELF or name in _FORMATTING:
            return True
        if len(self.names) >= _DEEPEST:
            self.dropped[name] += 1
            return False
        self.names.append(name)
        self.counts[name] += 1
        return True

    def end(self, name: str) -> bool:
        """Whether an end tag is kept."""
        if self.dropped[name]:
            self.dropped[name] -= 1
            return False
        while self.counts[name] and self.names:
            last = self.names.pop()
            self.counts[last] -= 1
            if last == name:
                break
        return True


def _rebuild(source: bytes, measured: _Measured) -> list[bytes]:
    stack = _Stack()
    return [
        _simpler(source[token.start : token.stop], token, stack, measured) for token in tokens(source, is_xml=False)
    ]


def _simpler(raw: bytes, token: Token, stack: _Stack, measured: _Measured) -> bytes:
    """A token as it is kept: whole, without some attributes, as a line break, or not at all."""
    if token.kind not in ("start", "end"):
        return raw
    name = token.name
    if measured.is_reopening and name in _FORMATTING:
        return b""
    is_start = token.kind == "start"
    if not (stack.start(name) if is_start else stack.end(name)):
        return b"<br>" if name in BLOCKS or name in ENTRIES or name in HEADINGS or name == "table" else b""
    if is_start and measured.has_attributes and (stop := _attributes_stop(raw)) is not None:
        return raw[:stop] + b">"
    return raw
