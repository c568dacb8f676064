"""Spans tile a document, start on characters, stay within their unit, and know the lines of its content."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.building import Tiles
from longdoc.outputs.spans import plan_spans
from longdoc.records import Document, TokenSequence

Case = tuple[Document, TokenSequence]


def document_of(tiles: Tiles) -> Document:
    return Document(kind="book", source_uri="m", num_bytes_source=0, text=tiles.text(), segments=tuple(tiles.segments))


def sequence_of(document: Document, token_lengths: list[list[int]]) -> TokenSequence:
    """Tokens of given lengths in bytes, segment by segment."""
    lengths = [length for segment in token_lengths for length in segment]
    return TokenSequence(
        token_ids=np.zeros(len(lengths), dtype=np.int32),
        byte_starts=np.cumsum([0, *lengths], dtype=np.int64),
        segment_starts=np.cumsum([0, *(len(segment) for segment in token_lengths)], dtype=np.int64),
    )


def files(*contents: str, header: str = "File: f\n") -> Document:
    tiles = Tiles()
    for unit, content in enumerate(contents):
        tiles.add(header, kind="header", unit=unit)
        tiles.add(content, kind="file", unit=unit, is_content=True)
        tiles.add("" if content.endswith("\n") else "\n", kind="padding", unit=unit)
    return document_of(tiles)


def each_byte(document: Document) -> TokenSequence:
    return sequence_of(document, [[1] * len(document.segment_text(segment)) for segment in document.segments])


@st.composite
def documents(draw: st.DrawFn) -> Case:
    """Up to five units of up to three segments, cut into tokens of one to five bytes wherever bytes may be cut."""
    tiles = Tiles()
    text = st.text(st.sampled_from("ab \né中😀"), max_size=12)
    for unit in range(draw(st.integers(0, 5))):
        content = draw(st.integers(-1, 2))
        for part in range(draw(st.integers(1, 3))):
            tiles.add(draw(text), kind="part", unit=unit, is_content=part == content)
    document = document_of(tiles)
    lengths = []
    for segment in document.segments:
        num_bytes = segment.text_byte_stop - segment.text_byte_start
        cuts = draw(st.sets(st.integers(1, num_bytes - 1))) if num_bytes > 1 else set()
        lengths.append(np.diff([0, *sorted(cuts), num_bytes]).tolist() if num_bytes else [])
    return document, sequence_of(document, lengths)


many = settings(deadline=None, max_examples=300)


@many
@given(case=documents(), span_tokens=st.integers(1, 8))
def test_spans_tile_tokens_and_text_in_order(case: Case, span_tokens: int) -> None:
    document, sequence = case
    spans = plan_spans(document, sequence, span_tokens)
    assert [span.span_index for span in spans] == list(range(len(spans)))
    assert [t for span in spans for t in range(span.token_start, span.token_stop)] == list(range(sequence.num_tokens))
    assert b"".join(document.text[s.text_byte_start : s.text_byte_stop] for s in spans) == document.text
    for span in spans:
        assert span.token_stop > span.token_start
        assert sequence.byte_starts[span.token_start] == span.text_byte_start
        assert sequence.byte_starts[span.token_stop] == span.text_byte_stop


@many
@given(case=documents(), span_tokens=st.integers(1, 8))
def test_every_span_is_whole_characters(case: Case, span_tokens: int) -> None:
    document, sequence = case
    for span in plan_spans(document, sequence, span_tokens):
        document.text[span.text_byte_start : span.text_byte_stop].decode("utf-8")


@many
@given(case=documents(), span_tokens=st.integers(1, 8))
def test_spans_stay_within_a_unit_and_bear_its_content_segment(case: Case, span_tokens: int) -> None:
    document, sequence = case
    for span in plan_spans(document, sequence, span_tokens):
        tokens = range(span.token_start, span.token_stop)
        (unit,) = {document.segments[sequence.segment_of_token(token)].unit for token in tokens}
        members = [segment for segment in document.segments if segment.unit == unit]
        content = [segment for segment in members if segment.is_content] or members
        assert span.segment_index == content[0].segment_index


@many
@given(case=documents(), span_tokens=st.integers(1, 8))
def test_spans_are_as_long_as_characters_and_units_allow(case: Case, span_tokens: int) -> None:
    document, sequence = case
    spans = plan_spans(document, sequence, span_tokens)
    boundaries = {len(document.text[:at].decode("utf-8", errors="ignore").encode()) for at in range(len(document.text))}
    starts = [t for t in range(sequence.num_tokens) if int(sequence.byte_starts[t]) in boundaries]
    unit_of = [document.segments[sequence.segment_of_token(t)].unit for t in range(sequence.num_tokens)]
    for span in spans:
        later = [t for t in (*starts, sequence.num_tokens) if t > span.token_start]
        unit_stop = max(t for t in range(sequence.num_tokens) if unit_of[t] == unit_of[span.token_start]) + 1
        fitting = [t for t in later if t <= min(span.token_start + span_tokens, unit_stop)]
        assert span.token_stop == (max(fitting) if fitting else min(later))


def test_one_token_a_span_keeps_a_character_of_several_tokens_whole() -> None:
    document = files("a😀b", header="")
    spans = plan_spans(document, each_byte(document), 1)
    assert [document.text[s.text_byte_start : s.text_byte_stop].decode() for s in spans] == ["a", "😀", "b", "\n"]


def test_a_span_ends_before_a_character_that_would_be_cut() -> None:
    document = files("abc😀def", header="")
    spans = plan_spans(document, each_byte(document), 5)
    assert [document.text[s.text_byte_start : s.text_byte_stop].decode() for s in spans] == ["abc", "😀d", "ef\n"]


def test_header_and_padding_belong_to_the_first_and_last_span_and_lines_to_the_content() -> None:
    document = files("one\ntwo\nthree")
    (span,) = plan_spans(document, each_byte(document), 100)
    assert (span.segment_index, span.line_start, span.line_stop) == (1, 1, 4)
    assert (span.text_byte_start, span.text_byte_stop) == (0, len(document.text))


def test_lines_are_those_of_the_first_and_last_byte_of_the_content() -> None:
    document = files("1\n2\n3\n4\n5\n")
    spans = plan_spans(document, each_byte(document), 5)
    # The header has eight bytes, so the spans are "File:", " f\n1\n", "2\n3\n4", "\n5\n".
    assert [(span.line_start, span.line_stop) for span in spans] == [(1, 1), (1, 2), (2, 5), (4, 6)]


def test_a_span_of_padding_alone_has_no_lines() -> None:
    document = files("a\nb", header="")
    spans = plan_spans(document, each_byte(document), 3)
    assert [(span.line_start, span.line_stop) for span in spans] == [(1, 3), (2, 2)]


def test_lines_start_anew_in_every_file() -> None:
    document = files("a\nb\n", "c\nd\n")
    spans = plan_spans(document, each_byte(document), 100)
    assert [(span.segment_index, span.line_start, span.line_stop) for span in spans] == [(1, 1, 3), (4, 1, 3)]


def test_units_without_tokens_have_no_span() -> None:
    tiles = Tiles()
    tiles.add("a", kind="file", unit=0, is_content=True)
    tiles.add("", kind="file", unit=1, is_content=True, reason="binary")
    tiles.add("b", kind="file", unit=2, is_content=True)
    document = document_of(tiles)
    assert [span.segment_index for span in plan_spans(document, each_byte(document), 9)] == [0, 2]


def test_a_document_without_tokens_has_no_spans() -> None:
    document = document_of(Tiles())
    assert plan_spans(document, each_byte(document), 9) == ()


def test_spans_of_nothing_are_refused() -> None:
    document = files("a")
    with pytest.raises(ValueError, match="spans of 0 tokens"):
        plan_spans(document, each_byte(document), 0)
