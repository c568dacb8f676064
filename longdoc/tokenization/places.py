"""From a token or a byte back to segment and line. Owns nothing but the arithmetic on a `TokenSequence`.

A line ends with its newline (`\\n`) and nowhere else; lines are counted from 1 within a segment, as editors do.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from longdoc.records import Int64s, Segment, TokenSequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a token starts: `text_byte` in the document's text, `segment_byte` and `line` (from 1) in its segment."""

    segment_index: int
    text_byte: int
    segment_byte: int
    line: int


def newline_offsets(text: bytes) -> Int64s:
    """The byte offsets of all newlines of a text, ascending."""
    return np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == ord("\n")).astype(np.int64)


def lines_of_bytes(newlines: Int64s, starts: Int64s, text_bytes: Int64s) -> Int64s:
    """The lines, from 1, that hold bytes, counted from `starts`. All three in bytes of the text; arrays broadcast."""
    before_byte = np.searchsorted(newlines, text_bytes)
    before_start = np.searchsorted(newlines, starts)
    return (1 + before_byte - before_start).astype(np.int64)


def locate_byte(segments: Sequence[Segment], newlines: Int64s, text_byte: int) -> Place:
    """The segment and line that hold a byte of the text. Raises `IndexError` for a byte outside it."""
    if not segments or not 0 <= text_byte < segments[-1].text_byte_stop:
        raise IndexError(f"no byte {text_byte} in a text of {segments[-1].text_byte_stop if segments else 0}")
    low, high = 0, len(segments)
    while low < high:  # the first segment that stops behind the byte; those without text never hold one
        middle = (low + high) // 2
        low, high = (middle + 1, high) if segments[middle].text_byte_stop <= text_byte else (low, middle)
    start = segments[low].text_byte_start
    line = lines_of_bytes(newlines, np.array(start), np.array(text_byte))
    return Place(segment_index=low, text_byte=text_byte, segment_byte=text_byte - start, line=int(line))


def locate_token(sequence: TokenSequence, segments: Sequence[Segment], newlines: Int64s, token: int) -> Place:
    """The place of a token's first byte. Raises `IndexError` for a token outside the sequence."""
    if not 0 <= token < sequence.num_tokens:
        raise IndexError(f"no token {token} in a sequence of {sequence.num_tokens}")
    return locate_byte(segments, newlines, int(sequence.byte_starts[token]))
