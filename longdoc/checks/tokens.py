"""The tokens of one document: all there in order, the ids as hashed, the bytes as tiled, the scores as averaged."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longdoc.checks.findings import Findings
from longdoc.checks.reading import WINDOW_ROWS, NotInOrderError, in_order, scan, to_numpy
from longdoc.checks.tiles import Tiles

#: Means are written in float32 and summed in another order here.
RELATIVE_TOLERANCE = 1e-5
ABSOLUTE_TOLERANCE = 1e-6
# -Σ p log p is never negative; computed in float32 as a difference it can be, by rounding.
LEAST_ENTROPY = -1e-3
_COLUMNS = ("token_id", "text_byte_start", "segment_index", "logprob", "entropy", "rank_in_vocabulary")
Float64s = npt.NDArray[np.float64]


@dataclass(slots=True, kw_only=True)
class _Pass:
    """What one pass over the tokens carries from window to window. Span sums have one entry a span."""

    row: dict[str, Any]
    has_scores: bool
    segments: Tiles
    spans: Tiles | None
    digest: Any = field(default_factory=hashlib.sha256)
    last_byte: int = -1
    sums: Float64s = field(init=False)
    num_scored: npt.NDArray[np.int64] = field(init=False)
    surprisals: Float64s = field(init=False)

    def __post_init__(self) -> None:
        num_spans = 0 if self.spans is None else len(self.spans["token_stop"])
        self.sums = np.zeros(num_spans + 1)
        self.num_scored = np.zeros(num_spans + 1, dtype=np.int64)
        self.surprisals = np.full(num_spans + 1, -np.inf)


def check_tokens(
    findings: Findings,
    row: dict[str, Any],
    paths: Sequence[Path],
    *,
    has_scores: bool,
    segments: Tiles,
    spans: Tiles | None,
) -> None:
    """Check a document's tokens against its row, its segments and, where these are sound, its spans."""
    key = str(row["doc_key"])
    groups = scan(findings, "tokens", paths, row, index="position")
    if groups is None:
        return
    state = _Pass(row=row, has_scores=has_scores, segments=segments, spans=spans)
    problems: dict[str, None] = {}
    with findings.reading("tokens", key):
        try:
            for rows in in_order(groups, index="position", columns=_COLUMNS, window=WINDOW_ROWS):
                problems |= dict.fromkeys(_check_window(state, rows))
                findings.counts["tokens"] += rows.num_rows
            problems |= dict.fromkeys(_check_end(state))
        except NotInOrderError as error:
            problems[str(error)] = None
    for problem in problems:
        findings.fault("tokens", key, problem)
    for table, subject, problem in _check_means(state) if not problems else ():
        findings.fault(table, subject, problem)


def _check_window(state: _Pass, rows: pa.Table) -> Iterator[str]:
    positions, ids, starts = (to_numpy(rows, name) for name in ("position", "token_id", "text_byte_start"))
    state.digest.update(np.ascontiguousarray(ids, dtype="<i4").tobytes())
    if (ids < 0).any():
        yield f"position {positions[np.argmax(ids < 0)]} has a negative token id"
    steps = np.diff(starts, prepend=state.last_byte)
    if (steps <= 0).any():
        yield f"position {positions[np.argmax(steps <= 0)]} does not start after the one before it"
    state.last_byte = int(starts[-1])
    if (starts >= state.row["num_bytes_text"]).any():
        yield f"a token starts at byte {starts.max()}, the text ends at {state.row['num_bytes_text']}"
    owners = np.searchsorted(state.segments["token_stop"], positions, side="right")
    is_wrong = to_numpy(rows, "segment_index") != owners
    if is_wrong.any():
        place = int(np.argmax(is_wrong))
        yield f"position {positions[place]} names another segment than {owners[place]}, which holds it"
    for name, tiles in (("segment", state.segments), ("span", state.spans)):
        if tiles is not None:
            yield from _check_borders(name, tiles, positions, starts)
    yield from _check_scores(state, rows, positions)


def _check_borders(name: str, tiles: Tiles, positions: npt.NDArray[Any], starts: npt.NDArray[Any]) -> Iterator[str]:
    """The first token of a tile starts at the tile's first byte."""
    firsts = tiles["token_start"]
    is_here = (firsts >= positions[0]) & (firsts <= positions[-1]) & (tiles["token_stop"] > firsts)
    is_wrong = is_here.copy()
    is_wrong[is_here] = starts[firsts[is_here] - positions[0]] != tiles["text_byte_start"][is_here]
    if is_wrong.any():
        yield f"{name} {np.argmax(is_wrong)} starts at another byte than its first token"


def _check_scores(state: _Pass, rows: pa.Table, positions: npt.NDArray[Any]) -> Iterator[str]:
    has_predecessor = (positions > 0) | (len(state.row["prefix_token_ids"]) > 0)
    wanted = has_predecessor & state.has_scores
    for name in ("logprob", "entropy", "rank_in_vocabulary"):
        is_wrong = pc.is_valid(rows[name]).to_numpy() != wanted
        if is_wrong.any():
            place = int(np.argmax(is_wrong))
            yield f"position {positions[place]} has {'no' if wanted[place] else 'a'} {name}"
            return
    logprobs, entropies, ranks = (to_numpy(rows, name)[wanted] for name in ("logprob", "entropy", "rank_in_vocabulary"))
    is_sound = True
    for is_right, problem in (
        (np.isfinite(logprobs) & (logprobs <= 0), "has a logprob that is not finite or above 0"),
        (np.isfinite(entropies) & (entropies >= LEAST_ENTROPY), "has an entropy that is not finite or below 0"),
        (ranks >= 1, "has a rank below 1"),
    ):
        if not is_right.all():
            is_sound = False
            yield f"position {positions[wanted][np.argmin(is_right)]} {problem}"
    if is_sound:
        _add_scores(state, positions[wanted], logprobs.astype(np.float64))


def _add_scores(state: _Pass, positions: npt.NDArray[Any], logprobs: Float64s) -> None:
    # The last entry takes the sum of the document, whether or not the spans are sound.
    state.sums[-1] += logprobs.sum()
    state.num_scored[-1] += len(logprobs)
    if state.spans is not None:
        owners = np.searchsorted(state.spans["token_stop"], positions, side="right")
        np.add.at(state.sums, owners, logprobs)
        np.add.at(state.num_scored, owners, 1)
        np.maximum.at(state.surprisals, owners, -logprobs)


def _check_end(state: _Pass) -> Iterator[str]:
    digest = state.digest.hexdigest()
    if digest != state.row["tokens_sha256"]:
        yield f"their ids hash to {digest}, the document's to {state.row['tokens_sha256']}"


def _check_means(state: _Pass) -> Iterator[tuple[str, str, str]]:
    key, mean, perplexity = (state.row[name] for name in ("doc_key", "mean_logprob", "perplexity"))
    total, count = state.sums[-1], state.num_scored[-1]
    if (mean is None) != (count == 0) or (perplexity is None) != (count == 0):
        yield "documents", key, f"mean_logprob is {mean} and perplexity {perplexity} with {count} scored tokens"
    elif count and not math.isclose(mean, total / count, rel_tol=RELATIVE_TOLERANCE, abs_tol=ABSOLUTE_TOLERANCE):
        yield "documents", key, f"mean_logprob is {mean}, its tokens' is {total / count}"
    elif count and not math.isclose(perplexity, math.exp(-mean), rel_tol=RELATIVE_TOLERANCE):
        yield "documents", key, f"perplexity is {perplexity}, exp(-mean_logprob) is {math.exp(-mean)}"
    if state.spans is None:
        return
    counts = state.num_scored[:-1]
    with np.errstate(invalid="ignore"):
        means = state.sums[:-1] / counts
    for name, expected in (
        ("mean_logprob", means),
        ("max_surprisal", np.where(counts > 0, state.surprisals[:-1], np.nan)),
    ):
        found = state.spans[name]
        is_close = np.isclose(found, expected, rtol=RELATIVE_TOLERANCE, atol=ABSOLUTE_TOLERANCE, equal_nan=True)
        if not is_close.all():
            place = int(np.argmin(is_close))
            yield "spans", key, f"span {place} has {name} {found[place]}, its tokens give {expected[place]}"
