"""Segments: they tile the document and add up to its source, and what each says of itself can be true.

Looks at segments alone. Whether a segment's text gives its bytes back is for `longdoc.checks.texts`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longdoc.checks.findings import Findings
from longdoc.checks.reading import are_lists_finite, scan
from longdoc.checks.tiles import Tiles, check_tiling, tiles_of
from longdoc.encodings import is_encoding
from longdoc.records import display

_SCANNED = ("token_start", "token_stop", "num_bytes_source", "text_byte_start", "text_byte_stop", "reason")
_NUMBERS = (
    "unit",
    "is_content",
    "num_bytes_source",
    "num_lines",
    "text_byte_start",
    "text_byte_stop",
    "char_start",
    "char_stop",
    "token_start",
    "token_stop",
)
_WORDS = ("path", "display_path", "title", "encoding", "encoding_source", "transform", "source_sha256", "blob_id")
_SHA256 = "^[0-9a-f]{64}$"
_BLOB_ID = "^([0-9a-f]{40}|[0-9a-f]{64})$"


def check_segments(findings: Findings, row: dict[str, Any], paths: list[Path], embedding_size: int) -> Tiles | None:
    """Check a document's segments; None where they cannot be put in order or do not tile."""
    groups = scan(
        findings,
        "segments",
        paths,
        row,
        index="segment_index",
        columns=[*_SCANNED, *["embedding"] * (embedding_size > 0)],
        check=lambda rows: _group_problem(rows, embedding_size),
    )
    segments = tiles_of(findings, "segments", row, groups, index="segment_index", numbers=_NUMBERS, words=_WORDS)
    if segments is None:
        return None
    findings.counts["segments"] += len(segments["unit"])
    key, is_tiled = str(row["doc_key"]), True
    for what, total in (("text_byte", row["num_bytes_text"]), ("char", None), ("token", row["num_tokens"])):
        is_tiled &= check_tiling(findings, "segments", key, segments, what, total)
    accounted = int(segments["num_bytes_source"].sum())
    if accounted != row["num_bytes_source"]:
        findings.fault("segments", key, f"account for {accounted} bytes of a source of {row['num_bytes_source']}")
    for problem in (*_unit_problems(segments), *_line_problems(segments), *_word_problems(segments)):
        findings.fault("segments", key, problem)
    return segments if is_tiled else None


def _group_problem(rows: pa.Table, embedding_size: int) -> str | None:
    is_silent = pc.equal(rows["text_byte_start"], rows["text_byte_stop"])
    has_reason = pc.is_valid(rows["reason"])
    has_bytes = pc.greater(rows["num_bytes_source"], 0)
    if pc.any(pc.and_(pc.and_(is_silent, has_bytes), pc.invert(has_reason))).as_py():
        return "has a segment with bytes of the source, no text and no reason"
    if pc.any(pc.and_(has_reason, pc.invert(is_silent))).as_py():
        return "has a segment with text and a reason why it is none"
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


def _unit_problems(segments: Tiles) -> Iterator[str]:
    """Neighbours make a unit, and one of them is its content."""
    units = segments["unit"]
    firsts = np.flatnonzero(np.diff(units, prepend=units[0] - 1))
    if len(np.unique(units)) != len(firsts):
        yield "one unit is in two places, with another in between"
        return
    contents = np.add.reduceat(segments["is_content"].astype(np.int64), firsts)
    if (contents != 1).any():
        place = int(np.argmax(contents != 1))
        yield f"unit {units[firsts[place]]} has {contents[place]} segments of content, not 1"


def _line_problems(segments: Tiles) -> Iterator[str]:
    lines, num_bytes = segments["num_lines"], segments["text_byte_stop"] - segments["text_byte_start"]
    is_wrong = (lines < 0) | (lines > num_bytes) | ((lines == 0) & (num_bytes > 0))
    if is_wrong.any():
        place = int(np.argmax(is_wrong))
        yield f"segment {place} has {lines[place]} lines in {num_bytes[place]} bytes of text"


def _word_problems(segments: Tiles) -> Iterator[str]:
    words = segments.words
    names = ["encoding", "encoding_source"]
    for pair in words.select(names).group_by(names).aggregate([]).to_pylist():
        encoding, source = pair["encoding"], pair["encoding_source"]
        if (encoding is None) != (source is None):
            yield f"a segment has the encoding {encoding}, found by {source}"
        elif encoding is not None and not is_encoding(encoding, source):
            yield f"a segment has the encoding {encoding!r}, found by {source!r}, which does not exist"
    for name, pattern in (("source_sha256", _SHA256), ("blob_id", _BLOB_ID)):
        is_right = pc.fill_null(pc.match_substring_regex(words[name], pattern), True).to_numpy()
        if not is_right.all():
            yield f"segment {np.argmin(is_right)} has a {name} that is none"
    is_unproved = pc.and_(pc.is_valid(words["encoding"]), pc.is_null(words["source_sha256"])).to_numpy()
    if is_unproved.any():
        yield f"segment {np.argmax(is_unproved)} has an encoding and no source_sha256"
    yield from _origin_problems(segments)
    yield from _path_problems(words)


def _origin_problems(segments: Tiles) -> Iterator[str]:
    """Text that came from source bytes is either those bytes, decoded, or what a format's rules made of them."""
    is_decoded, is_made = (pc.is_valid(segments.words[name]).to_numpy() for name in ("encoding", "transform"))
    if (is_decoded & is_made).any():
        yield f"segment {np.argmax(is_decoded & is_made)} has an encoding and a transform"
    has_text = segments["text_byte_stop"] > segments["text_byte_start"]
    is_unexplained = has_text & (segments["num_bytes_source"] > 0) & ~is_decoded & ~is_made
    if is_unexplained.any():
        yield f"segment {np.argmax(is_unexplained)} has text from the source and neither an encoding nor a transform"


def _path_problems(words: pa.Table) -> Iterator[str]:
    place = 0
    for batch in words.select(["path", "display_path"]).to_batches():
        for path, shown in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if shown != (None if path is None else display(path)):
                yield f"segment {place} has the display_path {shown!r} and the path {path!r}"
                return
            place += 1
