"""The rows that a rank writes, as Arrow tables of the store's schemas.

Owns the translation of records and tensors into columns, and nothing of what they mean. Built a slice of rows at a
time, so that a rank never holds its part of the document twice.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from longdoc.outputs.embeddings import PooledPieces
from longdoc.outputs.scores import Scores
from longdoc.outputs.work import RankWork
from longdoc.records import Int64s, RowIdentity
from longdoc.store.parts import MAX_GROUP_BYTES, MAX_GROUP_ROWS


def token_slices(
    work: RankWork, scores: Scores | None, scored_rows: Int64s, identity: RowIdentity, schema: pa.Schema
) -> Iterator[pa.Table]:
    """The tokens rows of a rank. `scores` belongs to the rows `scored_rows`; the others are null."""
    rows = work.rows
    num_rows = len(rows.position)
    logprob, entropy, rank = (
        (None, None, None)
        if scores is None
        else (scores.logprob.float().numpy(), scores.entropy.float().numpy(), scores.rank.to(torch.int32).numpy())
    )
    row_of_score = np.full(num_rows, -1, dtype=np.int64)
    row_of_score[scored_rows] = np.arange(len(scored_rows))

    def scored(values: npt.NDArray[Any] | None, chosen: slice, kind: pa.DataType) -> pa.Array:
        index = row_of_score[chosen]
        if values is None:
            return pa.nulls(len(index), kind)
        return pa.array(values[np.maximum(index, 0)] if len(values) else np.zeros(len(index)), kind, mask=index < 0)

    for chosen in _slices(num_rows, MAX_GROUP_ROWS):
        yield _table(
            schema,
            identity,
            {
                "position": rows.position[chosen],
                "token_id": rows.token_id[chosen],
                "text_byte_start": rows.text_byte_start[chosen],
                "segment_index": rows.segment_index[chosen],
                "logprob": scored(logprob, chosen, pa.float32()),
                "entropy": scored(entropy, chosen, pa.float32()),
                "rank_in_vocabulary": scored(rank, chosen, pa.int32()),
            },
        )


def span_slices(work: RankWork, pooled: PooledPieces, identity: RowIdentity, schema: pa.Schema) -> Iterator[pa.Table]:
    """The spans rows of a rank."""
    for chosen in _slices(len(work.spans), _rows_with_vectors(pooled)):
        owned = work.span_pieces.owned[chosen]
        spans, segments = work.spans[chosen], work.span_segments[chosen]
        columns: dict[str, Any] = {
            name: [getattr(span, name) for span in spans]
            for name in (
                "span_index",
                "segment_index",
                "token_start",
                "token_stop",
                "text_byte_start",
                "text_byte_stop",
                "line_start",
                "line_stop",
            )
        }
        texts = None if work.span_texts is None else [text.decode("utf-8") for text in work.span_texts[chosen]]
        columns |= {
            "display_path": [segment.display_path for segment in segments],
            "title": [segment.title for segment in segments],
            "text": [None] * len(spans) if texts is None else texts,
            "mean_logprob": _nan_to_null(pooled.mean_logprob(owned)),
            "max_surprisal": _nan_to_null(pooled.max_surprisal.numpy()[owned]),
            "embedding": _fixed_lists(pooled.embeddings(owned)),
        }
        yield _table(schema, identity, columns)


def segment_slices(
    work: RankWork, pooled: PooledPieces, identity: RowIdentity, schema: pa.Schema
) -> Iterator[pa.Table]:
    """The segments rows of a rank. A segment without tokens has a null embedding."""
    for chosen in _slices(len(work.segments), _rows_with_vectors(pooled)):
        facts = work.segments[chosen]
        segments = [fact.segment for fact in facts]
        columns: dict[str, Any] = {
            name: [getattr(segment, name) for segment in segments]
            for name in (
                "segment_index",
                "unit",
                "is_content",
                "kind",
                "path",
                "display_path",
                "title",
                "encoding",
                "encoding_source",
                "reason",
                "num_bytes_source",
                "source_sha256",
                "blob_id",
                "transform",
                "place",
                "text_byte_start",
                "text_byte_stop",
                "char_start",
                "char_stop",
                "num_lines",
            )
        }
        columns |= {
            "token_start": [fact.token_start for fact in facts],
            "token_stop": [fact.token_stop for fact in facts],
            "embedding": _nullable_lists(pooled.embeddings(work.segment_pieces.owned[chosen])),
        }
        yield _table(schema, identity, columns)


def _rows_with_vectors(pooled: PooledPieces) -> int:
    """Rows of a slice whose embeddings, in float32, fit a row group."""
    width = 1 if pooled.vectors is None else pooled.vectors.shape[1]
    return max(1, MAX_GROUP_BYTES // (4 * width))


def _slices(num_rows: int, size: int) -> Iterator[slice]:
    for start in range(0, num_rows, size):
        yield slice(start, min(start + size, num_rows))


def _table(schema: pa.Schema, identity: RowIdentity, columns: dict[str, Any]) -> pa.Table:
    """Exactly the schema's columns, in its order and of its types; a missing one is a programming error."""
    num_rows = len(columns["segment_index"])
    repeated = {
        name: pa.repeat(pa.scalar(getattr(identity, name), schema.field(name).type), num_rows)
        for name in ("doc_id", "doc_key", "attempt_id")
    }
    columns |= repeated
    arrays = []
    for field in schema:
        values = columns[field.name]
        if isinstance(values, pa.Array):
            arrays.append(values if values.type == field.type else values.cast(field.type))
        else:
            arrays.append(pa.array(values, field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _nan_to_null(values: npt.NDArray[np.float64]) -> pa.Array:
    return pa.array(values.astype(np.float32), pa.float32(), mask=~np.isfinite(values))


def _fixed_lists(vectors: npt.NDArray[np.float32] | None) -> pa.Array | None:
    if vectors is None:
        return None
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1), pa.float32()), vectors.shape[1])


def _nullable_lists(vectors: npt.NDArray[np.float32] | None) -> pa.Array | None:
    if vectors is None:
        return None
    present = ~np.isnan(vectors).any(axis=1)
    offsets = np.concatenate([[0], np.cumsum(np.where(present, vectors.shape[1], 0))]).astype(np.int32)
    mask = pa.array(~present)
    values = pa.array(vectors[present].reshape(-1), pa.float32())
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, mask=mask)
