"""Spans: they tile the document, stay within their file or chapter, and are named after its content."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longdoc.checks.findings import Findings
from longdoc.checks.reading import are_lists_finite, scan
from longdoc.checks.texts import check_texts
from longdoc.checks.tiles import Tiles, check_tiling, tiles_of

_NUMBERS = (
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
_NAMES = ("display_path", "title")


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
        check=lambda rows: _group_problem(rows, embedding_size),
    )
    spans = tiles_of(findings, "spans", row, groups, index="span_index", numbers=_NUMBERS, words=_NAMES)
    if spans is None or groups is None:
        return None
    findings.counts["spans"] += len(spans["token_start"])
    key, is_tiled = str(row["doc_key"]), True
    for what, total in (("text_byte", row["num_bytes_text"]), ("token", row["num_tokens"])):
        is_tiled &= check_tiling(findings, "spans", key, spans, what, total)
    if not is_tiled:
        return None
    problems = [*_unit_problems(spans, segments)]
    problems = problems or [*_line_problems(spans, segments), *_name_problems(spans, segments)]
    for problem in problems:
        findings.fault("spans", key, problem)
    check_texts(findings, row, groups, spans, segments)
    return spans


def _group_problem(rows: pa.Table, embedding_size: int) -> str | None:
    # A list of another width cannot be here: the width is part of the schema.
    return "has an embedding that is not finite" if embedding_size and not are_lists_finite(rows, "embedding") else None


def _unit_problems(spans: Tiles, segments: Tiles) -> Iterator[str]:
    """The first and last token of a span, and the segment it is named after, are of one unit; that is its content."""
    stops = segments["token_stop"]
    first = segments["unit"][np.searchsorted(stops, spans["token_start"], side="right")]
    last = segments["unit"][np.searchsorted(stops, spans["token_stop"] - 1, side="right")]
    named = spans["segment_index"]
    exists = (named >= 0) & (named < len(stops))
    place = np.where(exists, named, 0)
    for is_wrong, problem in (
        (first != last, "crosses into another file, chapter or page"),
        (~exists | (segments["unit"][place] != first), "is named after a segment of another file, chapter or page"),
        (exists & ~segments["is_content"][place], "is named after a segment that is not its file's or chapter's own"),
    ):
        if is_wrong.any():
            yield f"span {np.argmax(is_wrong)} {problem}"


def _line_problems(spans: Tiles, segments: Tiles) -> Iterator[str]:
    num_lines = segments["num_lines"][spans["segment_index"]]
    first, stop = spans["line_start"], spans["line_stop"]
    is_wrong = (first < 1) | (stop < first) | (stop > num_lines + 1)
    if is_wrong.any():
        place = int(np.argmax(is_wrong))
        yield f"span {place} has lines {first[place]} to {stop[place]} of a segment of {num_lines[place]}"


def _name_problems(spans: Tiles, segments: Tiles) -> Iterator[str]:
    for name in _NAMES:
        found = spans.words[name]
        wanted = segments.words[name].take(pa.array(spans["segment_index"]))
        is_same = pc.fill_null(pc.equal(found, wanted), pc.equal(pc.is_null(found), pc.is_null(wanted)))
        is_wrong = ~is_same.to_numpy()
        if is_wrong.any():
            place = int(np.argmax(is_wrong))
            yield f"span {place} has the {name} {found[place].as_py()!r}, its segment {wanted[place].as_py()!r}"
