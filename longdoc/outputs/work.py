"""What one rank needs to know of a document: its shard, the rows it writes, the pieces it pools.

Built where the document was read and encoded, shipped to the rank once, and never seen by the driver.
A row of the tokens table is made by the rank that owns the place *before* the token, which predicts it, so that
scores never cross a border; labels are rolled before sharding for the same reason.
"""

from dataclasses import dataclass, field

import numpy as np

from longdoc.outputs.pieces import Partition, RankPieces, pieces_of_rank
from longdoc.records import Document, Int32s, Int64s, Segment, Span, TokenSequence
from longdoc.ring.layout import Layout

#: A place whose next token is none of the document's: nothing is predicted there.
NO_LABEL = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One rank's tokens as the model sees them. All arrays have one entry a local token.

    token_ids: int32; labels: int32, the next text token of the document or NO_LABEL; positions: int64, global.
    text_tokens: int64, the text positions among the local tokens, ascending; text_places: int64, where they stand.
    """

    layout: Layout
    rank: int
    token_ids: Int32s = field(repr=False)
    labels: Int32s = field(repr=False)
    positions: Int64s = field(repr=False)
    text_tokens: Int64s = field(repr=False)
    text_places: Int64s = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRows:
    """The rows of the tokens table that one rank writes, ascending by position.

    `predictor` is the local place that predicts the token, or -1 where nothing precedes it.
    """

    position: Int64s
    token_id: Int32s
    text_byte_start: Int64s
    segment_index: Int32s
    predictor: Int64s


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFacts:
    """A segment with its place among the document's tokens."""

    segment: Segment
    token_start: int
    token_stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWork:
    """Everything one rank gets of one document. `spans`, `span_texts` and `segments` are those it writes."""

    num_prefix: int
    shard: Shard
    rows: TokenRows
    span_pieces: RankPieces
    segment_pieces: RankPieces
    document_pieces: RankPieces
    spans: tuple[Span, ...] = field(repr=False)
    span_segments: tuple[Segment, ...] = field(repr=False)
    span_texts: tuple[bytes, ...] | None = field(repr=False)
    segments: tuple[SegmentFacts, ...] = field(repr=False)


def build_work(
    document: Document, sequence: TokenSequence, spans: tuple[Span, ...], layout: Layout, *, with_text: bool
) -> list[RankWork]:
    """Cut one document into the work of each rank. Every token, row, span and segment goes to exactly one rank."""
    if layout.num_tokens != sequence.num_model_tokens:
        raise ValueError(f"a layout of {layout.num_tokens} tokens for {sequence.num_model_tokens}")
    span_starts = np.asarray([span.token_start for span in spans] + [sequence.num_tokens], dtype=np.int64)
    num_prefix = len(sequence.prefix_token_ids)
    partitions = [
        Partition.of(span_starts, layout, num_prefix=num_prefix),
        Partition.of(sequence.segment_starts, layout, num_prefix=num_prefix),
        Partition.whole(sequence.num_tokens, layout, num_prefix=num_prefix),
    ]
    token_ids, labels = model_tokens(sequence)
    works = []
    for rank in range(layout.num_ranks):
        shard = build_shard(sequence, token_ids, labels, layout, rank)
        rows = build_rows(sequence, shard)
        pieces = [
            pieces_of_rank(partition, rank, tokens=shard.text_tokens, rows=rows.position) for partition in partitions
        ]
        mine = [spans[index] for index in pieces[0].owned_indices]
        works.append(
            RankWork(
                num_prefix=num_prefix,
                shard=shard,
                rows=rows,
                span_pieces=pieces[0],
                segment_pieces=pieces[1],
                document_pieces=pieces[2],
                spans=tuple(mine),
                span_segments=tuple(document.segments[span.segment_index] for span in mine),
                span_texts=tuple(document.text[s.text_byte_start : s.text_byte_stop] for s in mine)
                if with_text
                else None,
                segments=tuple(
                    SegmentFacts(
                        segment=document.segments[index],
                        token_start=int(sequence.segment_starts[index]),
                        token_stop=int(sequence.segment_starts[index + 1]),
                    )
                    for index in pieces[1].owned_indices
                ),
            )
        )
    _check_conserved(works, document, sequence, spans)
    return works


def model_tokens(sequence: TokenSequence) -> tuple[Int32s, Int32s]:
    """The document's ids as the model sees them, and its labels: the ids rolled by one, before they are cut."""
    prefix = np.asarray(sequence.prefix_token_ids, dtype=np.int32)
    suffix = np.asarray(sequence.suffix_token_ids, dtype=np.int32)
    token_ids = np.concatenate([prefix, sequence.token_ids, suffix])
    labels = np.full(len(token_ids), NO_LABEL, dtype=np.int32)
    first, last = len(prefix), len(prefix) + sequence.num_tokens
    labels[max(first - 1, 0) : last - 1] = token_ids[max(first, 1) : last]
    return token_ids, labels


def build_shard(sequence: TokenSequence, token_ids: Int32s, labels: Int32s, layout: Layout, rank: int) -> Shard:
    """One rank's ids, labels and positions, of those that `model_tokens` gives for the whole document."""
    first = len(sequence.prefix_token_ids)
    last = first + sequence.num_tokens
    positions = layout.positions(rank)
    is_text = (positions >= first) & (positions < last)
    return Shard(
        layout=layout,
        rank=rank,
        token_ids=token_ids[positions],
        labels=labels[positions],
        positions=positions,
        text_tokens=positions[is_text] - first,
        text_places=np.flatnonzero(is_text).astype(np.int64),
    )


def build_rows(sequence: TokenSequence, shard: Shard) -> TokenRows:
    """The rows of the tokens table that this rank's places predict, and the first row where nothing predicts it."""
    num_prefix = len(sequence.prefix_token_ids)
    places = np.flatnonzero(shard.labels != NO_LABEL).astype(np.int64)
    position = shard.positions[places] + 1 - num_prefix
    if num_prefix == 0 and sequence.num_tokens and shard.layout.owner(0) == shard.rank:
        places = np.concatenate([np.asarray([-1], dtype=np.int64), places])
        position = np.concatenate([np.asarray([0], dtype=np.int64), position])
    segment = np.searchsorted(sequence.segment_starts, position, side="right") - 1
    return TokenRows(
        position=position,
        token_id=sequence.token_ids[position],
        text_byte_start=sequence.byte_starts[position],
        segment_index=segment.astype(np.int32),
        predictor=places,
    )


def _check_conserved(
    works: list[RankWork], document: Document, sequence: TokenSequence, spans: tuple[Span, ...]
) -> None:
    counted = {
        "tokens": (sum(len(work.shard.token_ids) for work in works), sequence.num_model_tokens),
        "rows": (sum(len(work.rows.position) for work in works), sequence.num_tokens),
        "spans": (sum(len(work.spans) for work in works), len(spans)),
        "segments": (sum(len(work.segments) for work in works), len(document.segments)),
    }
    for name, (given, wanted) in counted.items():
        if given != wanted:
            raise AssertionError(f"{given} of {wanted} {name} were handed out to {len(works)} ranks")
