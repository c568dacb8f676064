"""Cuts a document into spans: the stretches of tokens that get one embedding and one set of scores each.

Owns where they start. Spans tile the tokens and the text, start on character boundaries and never cross a unit (a file,
chapter or page with its header and padding). Lines are those of the unit's content, from 1.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np

from longdoc.errors import DocumentError
from longdoc.records import Document, Int64s, Segment, Span, TokenSequence
from longdoc.tokenization.places import lines_of_bytes, newline_offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    """Neighbouring segments with one number: their tokens, and the segment that names their spans."""

    owner: Segment
    token_start: int
    token_stop: int


def plan_spans(document: Document, sequence: TokenSequence, span_tokens: int) -> tuple[Span, ...]:
    """Spans of at most `span_tokens` tokens, in the order of the text; a document without tokens has none.

    A span ends early where the next would start inside a character; one that would then be empty ends after that
    character, and only such a span is longer than `span_tokens`. `segment_index` is the unit's content. `line_start` is
    the line of the content that holds the span's first byte, `line_stop` the one after the line of its last byte; a
    span with no byte of the content (inside a long header) has `line_stop == line_start`.
    Raises `ValueError` for `span_tokens` below 1 and `DocumentError` where spans do not tile the tokens.
    """
    if span_tokens < 1:
        raise ValueError(f"spans of {span_tokens} tokens")
    units = list(_units(document, sequence))
    borders, owners = _borders(units, _character_starts(document, sequence), span_tokens)
    _check_tiling(document, sequence, borders)
    bytes_at = sequence.byte_starts[borders]
    line_start, line_stop = _lines(document, bytes_at, owners)
    columns = zip(
        (segment.segment_index for segment in owners),
        pairwise(borders.tolist()),
        pairwise(bytes_at.tolist()),
        line_start.tolist(),
        line_stop.tolist(),
        strict=True,
    )
    return tuple(
        Span(
            span_index=index,
            segment_index=segment_index,
            token_start=tokens[0],
            token_stop=tokens[1],
            text_byte_start=text_bytes[0],
            text_byte_stop=text_bytes[1],
            line_start=first,
            line_stop=stop,
        )
        for index, (segment_index, tokens, text_bytes, first, stop) in enumerate(columns)
    )


def _units(document: Document, sequence: TokenSequence) -> Iterator[_Unit]:
    starts = sequence.segment_starts.tolist()
    for _, group in groupby(document.segments, key=lambda segment: segment.unit):
        segments = list(group)
        owner = next((segment for segment in segments if segment.is_content), segments[0])
        first, last = segments[0].segment_index, segments[-1].segment_index
        if starts[last + 1] > starts[first]:
            yield _Unit(owner=owner, token_start=starts[first], token_stop=starts[last + 1])


def _character_starts(document: Document, sequence: TokenSequence) -> Int64s:
    """The tokens that start on a character boundary, ascending, and the end: UTF-8 continues with 0b10xxxxxx."""
    text = np.frombuffer(document.text, dtype=np.uint8)
    starts_inside = (text[sequence.byte_starts[:-1]] & 0xC0) == 0x80
    return np.append(np.flatnonzero(~starts_inside), sequence.num_tokens).astype(np.int64)


def _borders(units: list[_Unit], allowed: Int64s, span_tokens: int) -> tuple[Int64s, list[Segment]]:
    """Where spans start, and at last the end; and each span's segment. `allowed` are the tokens they may start at."""
    num_tokens = int(allowed[-1])
    last_allowed = np.zeros(num_tokens + 1, dtype=np.int64)
    last_allowed[allowed] = allowed
    back = np.maximum.accumulate(last_allowed).tolist()
    borders: list[int] = []
    owners: list[Segment] = []
    for unit in units:
        start = unit.token_start
        while start < unit.token_stop:
            borders.append(start)
            owners.append(unit.owner)
            stop = min(start + span_tokens, unit.token_stop)
            start = back[stop] if back[stop] > start else int(allowed[np.searchsorted(allowed, stop)])
    return np.array([*borders, num_tokens], dtype=np.int64), owners


def _lines(document: Document, bytes_at: Int64s, owners: list[Segment]) -> tuple[Int64s, Int64s]:
    newlines = newline_offsets(document.text)
    content_start = np.array([segment.text_byte_start for segment in owners], dtype=np.int64)
    content_stop = np.array([segment.text_byte_stop for segment in owners], dtype=np.int64)
    first = np.clip(bytes_at[:-1], content_start, content_stop)
    stop = np.clip(bytes_at[1:], content_start, content_stop)
    line_start = lines_of_bytes(newlines, content_start, first)
    line_last = lines_of_bytes(newlines, content_start, np.maximum(stop - 1, first))
    return line_start, np.where(stop > first, line_last + 1, line_start)


def _check_tiling(document: Document, sequence: TokenSequence, borders: Int64s) -> None:
    if borders[0] != 0 or borders[-1] != sequence.num_tokens or (np.diff(borders) < 1).any():
        raise DocumentError(
            f"{document.source_uri}: its spans do not tile its {sequence.num_tokens} tokens; report this with the file",
            stage="plan",
            reason="spans_do_not_tile",
        )
