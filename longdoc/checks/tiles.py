"""Segments and spans: they tile what they stand for, add up to the source, and stay within their file or chapter."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longdoc.checks.findings import Findings
from longdoc.checks.reading import WINDOW_ROWS, NotInOrderError, RowGroup, are_lists_finite, in_order, scan, to_numpy

# A window of spans holds their text, about a kilobyte each.
TEXT_WINDOW_ROWS = 16_384
_SEGMENT_NUMBERS = (
    "unit",
    "num_bytes_source",
    "text_byte_start",
    "text_byte_stop",
    "char_start",
    "char_stop",
    "token_start",
    "token_stop",
)
_SPAN_NUMBERS = (
    "segment_index",
    "token_start",
    "token_stop",
    "text_byte_start",
    "text_byte_stop",
    "line_start",
    "line_stop",
    "mean_logprob",
    "max_surprisal",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """The numbers of a document's segments or spans in order, one array a column, all of one length."""

    columns: dict[str, npt.NDArray[Any]]

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self.columns[name]


def check_segments(findings: Findings, row: dict[str, Any], paths: list[Path], embedding_size: int) -> Tiles | None:
    """Check a document's segments; None where they cannot be put in order or do not tile."""
    extra = ["token_start", "token_stop", "num_bytes_source", "text_byte_start", "text_byte_stop", "reason"]
    groups = scan(
        findings,
        "segments",
        paths,
        row,
        index="segment_index",
        columns=extra + ["embedding"] * (embedding_size > 0),
        check=lambda rows: _segment_problem(rows, embedding_size),
    )
    segments = _tiles(findings, "segments", row, groups, "segment_index", _SEGMENT_NUMBERS)
    if segments is None:
        return None
    findings.counts["segments"] += len(segments["unit"])
    key, is_tiled = str(row["doc_key"]), True
    for what, total in (("text_byte", row["num_bytes_text"]), ("char", None), ("token", row["num_tokens"])):
        is_tiled &= _check_tiling(findings, "segments", key, segments, what, total)
    accounted = int(segments["num_bytes_source"].sum())
    if accounted != row["num_bytes_source"]:
        findings.fault("segments", key, f"account for {accounted} bytes of a source of {row['num_bytes_source']}")
    return segments if is_tiled else None


def check_spans(
    findings: Findings, row: dict[str, Any], paths: list[Path], embedding_size: int, segments: Tiles
) -> Tiles | None:
    """Check a document's spans against its segments; None where they cannot be put in order or do not tile."""
    groups = scan(
        findings,
        "spans",
        paths,
        row,
        index="span_index",
        columns=["embedding"] * (embedding_size > 0),
        check=lambda rows: _span_problem(rows, embedding_size),
    )
    spans = _tiles(findings, "spans", row, groups, "span_index", _SPAN_NUMBERS)
    if spans is None or groups is None:
        return None
    findings.counts["spans"] += len(spans["token_start"])
    key, is_tiled = str(row["doc_key"]), True
    for what, total in (("text_byte", row["num_bytes_text"]), ("token", row["num_tokens"])):
        is_tiled &= _check_tiling(findings, "spans", key, spans, what, total)
    if not is_tiled:
        return None
    _check_units(findings, key, spans, segments)
    is_wrong = (spans["line_start"] < 1) | (spans["line_stop"] < spans["line_start"])
    if is_wrong.any():
        findings.fault("spans", key, f"span {np.argmax(is_wrong)} has lines that cannot be")
    _check_text(findings, row, groups, spans, segments)
    return spans


def _segment_problem(rows: pa.Table, embedding_size: int) -> str | None:
    is_silent = pc.and_(
        pc.equal(rows["text_byte_start"], rows["text_byte_stop"]), pc.greater(rows["num_bytes_source"], 0)
    )
    if pc.any(pc.and_(is_silent, pc.is_null(rows["reason"]))).as_py():
        return "has a segment with bytes of the source, no text and no reason"
    if not embedding_size:
        return None
    lengths = pc.drop_null(pc.list_value_length(rows["embedding"]))
    if not pc.all(pc.equal(lengths, embedding_size)).as_py() and len(lengths):
        return f"has an embedding that does not have {embedding_size} numbers"
    if not are_lists_finite(rows, "embedding"):
        return "has an embedding that is not finite"
    has_tokens = pc.greater(rows["token_stop"], rows["token_start"])
    if not pc.all(pc.equal(has_tokens, pc.is_valid(rows["embedding"]))).as_py():
        return "has a segment with tokens and no embedding, or the reverse"
    return None


def _span_problem(rows: pa.Table, embedding_size: int) -> str | None:
    # A list of another width cannot be here: the width is part of the schema.
    return "has an embedding that is not finite" if embedding_size and not are_lists_finite(rows, "embedding") else None


def _tiles(
    findings: Findings,
    table: str,
    row: dict[str, Any],
    groups: list[RowGroup] | None,
    index: str,
    names: tuple[str, ...],
) -> Tiles | None:
    if groups is None:
        return None
    key, windows = str(row["doc_key"]), list[dict[str, npt.NDArray[Any]]]()
    with findings.reading(table, key):
        try:
            for rows in in_order(groups, index=index, columns=names, window=WINDOW_ROWS):
                windows.append({name: to_numpy(rows, name) for name in names})
        except NotInOrderError as error:
            findings.fault(table, key, str(error))
            return None
        if windows:
            return Tiles(columns={name: np.concatenate([window[name] for window in windows]) for name in names})
        findings.fault(table, key, f"has no {table}")
    return None


def _check_tiling(findings: Findings, table: str, key: str, tiles: Tiles, what: str, total: int | None) -> bool:
    """Each tile starts where the one before stopped, the first at 0, the last stops at `total` (None: not known)."""
    starts, stops = tiles[f"{what}_start"], tiles[f"{what}_stop"]
    wanted = np.concatenate([[0], stops[:-1]])
    is_wrong = (starts != wanted) | (stops < starts)
    if is_wrong.any():
        place = int(np.argmax(is_wrong))
        tile = f"{what} {starts[place]} to {stops[place]}"
        findings.fault(table, key, f"{table[:-1]} {place} holds {tile}, the one before it ended at {wanted[place]}")
        return False
    if total is not None and stops[-1] != total:
        findings.fault(table, key, f"the last of {table} ends at {what} {stops[-1]}, the document at {total}")
        return False
    return True


def _check_units(findings: Findings, key: str, spans: Tiles, segments: Tiles) -> None:
    """The first and last token of a span, and the segment it is named after, are of one unit."""
    stops = segments["token_stop"]
    first = segments["unit"][np.searchsorted(stops, spans["token_start"], side="right")]
    last = segments["unit"][np.searchsorted(stops, spans["token_stop"] - 1, side="right")]
    named = spans["segment_index"]
    exists = (named >= 0) & (named < len(stops))
    of_name = np.where(exists, segments["unit"][np.where(exists, named, 0)], -1)
    for is_wrong, problem in (
        (first != last, "crosses into another file, chapter or page"),
        (of_name != first, "is named after a segment of another file, chapter or page"),
    ):
        if is_wrong.any():
            findings.fault("spans", key, f"span {np.argmax(is_wrong)} {problem}")


def _check_text(findings: Findings, row: dict[str, Any], groups: list[RowGroup], spans: Tiles, segments: Tiles) -> None:
    key, digest, num_chars, place = str(row["doc_key"]), hashlib.sha256(), 0, 0
    for rows in in_order(groups, index="span_index", columns=["text"], window=TEXT_WINDOW_ROWS):
        texts = rows["text"]
        if texts.null_count == len(texts) and num_chars == 0:
            return  # the run was told not to store text
        if texts.null_count:
            findings.fault("spans", key, "some spans have a text and some have none")
            return
        lengths = pc.binary_length(texts).to_numpy()
        part = slice(place, place + len(lengths))
        is_wrong = lengths != spans["text_byte_stop"][part] - spans["text_byte_start"][part]
        if is_wrong.any():
            findings.fault(
                "spans", key, f"span {place + np.argmax(is_wrong)} has a text of another length than its bytes"
            )
            return
        digest.update("".join(texts.to_pylist()).encode("utf-8"))
        num_chars += int(pc.sum(pc.utf8_length(texts)).as_py())
        place += len(lengths)
    if digest.hexdigest() != row["text_sha256"]:
        findings.fault(
            "spans", key, f"their texts hash to {digest.hexdigest()}, the document's to {row['text_sha256']}"
        )
    if num_chars != segments["char_stop"][-1]:
        findings.fault("segments", key, f"end at char {segments['char_stop'][-1]}, the text has {num_chars}")
