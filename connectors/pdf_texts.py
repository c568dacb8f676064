"""Texts as pdfium hands them over: which of its characters are none, and where its offsets lie in ours.

Owns the two things that pdfium writes U+FFFE for (hyphens at line ends, glyphs without a character), lone surrogates,
and the step from "\\r\\n" to "\\n". Runs where pdfium runs, see `connectors.pdfium`.
"""

import ctypes
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pypdfium2.raw as c

_MARKER = "\ufffe"
# What FPDFText_GetUnicode gives for the hyphen that ends a line, the word going on behind it.
_HYPHEN = 2
_UNKNOWN = "\ufffd"
_SURROGATE = re.compile("[\ud800-\udfff]")
# U+FFFD, the private use areas, and control characters that are no white space.
_UNMAPPED = re.compile("[\ufffd\ue000-\uf8ff\U000f0000-\U0010ffff\\x00-\\x08\\x0b\\x0e-\\x1f]")


@dataclass(frozen=True, slots=True)
class PageText:
    r"""A page's text, with pdfium's line ends "\r\n". Offsets are characters.

    `hyphens` are the characters `-` that pdfium had its marker for; `num_unmapped` counts glyphs without a character.
    """

    text: str = ""
    hyphens: tuple[int, ...] = ()
    num_unmapped: int = 0


def wide_text(call: Callable[..., int], *arguments: Any) -> str:
    """A text that pdfium gives in UTF-16, its length asked first; lone surrogates become U+FFFD."""
    num_bytes = call(*arguments, None, 0)
    if num_bytes <= 2:
        return ""
    buffer = ctypes.create_string_buffer(num_bytes)
    call(*arguments, ctypes.cast(buffer, call.argtypes[-2]), num_bytes)  # type: ignore[attr-defined]  # ctypes' own
    return buffer.raw[: num_bytes - 2].decode("utf-16-le", errors="replace")


def read_text(text_page: Any) -> PageText:
    """The text of a whole page in pdfium's order."""
    count = c.FPDFText_CountChars(text_page)
    if count <= 0:
        return PageText()
    text = _raw_text(text_page, count)
    hyphens: list[int] = []
    if _MARKER in text:
        chars = list(text)
        for offset, unit in _markers(text):
            char_index = c.FPDFText_GetCharIndexFromTextIndex(text_page, unit)
            is_hyphen = c.FPDFText_GetUnicode(text_page, char_index) == _HYPHEN
            chars[offset] = "-" if is_hyphen else _UNKNOWN
            hyphens += [offset] * is_hyphen
        text = "".join(chars)
    text = _SURROGATE.sub(_UNKNOWN, text)
    num_errors = sum(c.FPDFText_HasUnicodeMapError(text_page, index) == 1 for index in range(count))
    return PageText(text, tuple(hyphens), max(num_errors, len(_UNMAPPED.findall(text))))


def _raw_text(text_page: Any, count: int) -> str:
    buffer = (ctypes.c_ushort * (count + 1))()
    num_units = c.FPDFText_GetText(text_page, 0, count, buffer) - 1
    units = memoryview(buffer).cast("B")[: 2 * max(0, num_units)]
    return bytes(units).decode("utf-16-le", errors="surrogatepass")


def _markers(text: str) -> Iterator[tuple[int, int]]:
    """Each of pdfium's markers: its offset in characters, and in UTF-16 units, which is how pdfium counts."""
    offset = unit = 0
    while (found := text.find(_MARKER, offset)) >= 0:
        unit += num_units(text[offset:found])
        yield found, unit
        offset, unit = found + 1, unit + 1


def num_units(text: str) -> int:
    """The length of a text in UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", errors="surrogatepass")) // 2


class Shift:
    r"""Offsets in a text with "\r\n" to offsets in the same text with "\n"."""

    def __init__(self, text: str) -> None:
        self._returns = [match.start() for match in re.finditer("\r\n", text)]

    def __call__(self, offset: int) -> int:
        """Where `offset` lies once every "\\r" before a "\\n" is gone."""
        return offset - bisect_left(self._returns, offset)
