"""One rank's share of one document: forward pass, scores, embeddings, parts. The same code on every exchange.

Owns the order of the steps and what is checked between them. Every step that talks to other ranks is reached by
all of them, so a fault of the document is agreed on before anybody acts on it. Shapes: n local tokens, C hidden.
"""

import contextlib
import ctypes
import resource
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from longdoc.cluster.messages import ComputeJob
from longdoc.errors import InfrastructureError
from longdoc.model.embedding_head import load_head
from longdoc.model.load import RingModel
from longdoc.outputs.embeddings import PooledPieces, PooledTokens, pool_pieces
from longdoc.outputs.rows import segment_slices, span_slices, token_slices
from longdoc.outputs.scores import Scores, score_places
from longdoc.outputs.work import RankWork
from longdoc.records import Int64s, Part, Receipt
from longdoc.reporting import Fault
from longdoc.ring.exchange import Exchange
from longdoc.ring.forensics import first_nonfinite
from longdoc.ring.hook import RingContext, use_ring
from longdoc.ring.kernels import Kernel
from longdoc.store.parts import PartWriter
from longdoc.store.schemas import schema_of

Report = Callable[[int, int, int], None]

# Positions below this many bits, so that a layer and a position are one number.
_POSITION_BITS = 44


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What a rank keeps between documents."""

    model: RingModel
    kernel: Kernel
    kernel_name: str


def compute_document(
    engine: Engine,
    exchange: Exchange,
    job: ComputeJob,
    work: RankWork,
    *,
    report: Report,
    beat: Callable[[], None] = lambda: None,
) -> Receipt | Fault:
    """Run one document on this rank and write its parts to staging.

    `report(layer, hop, num_hops)` is called after each piece of attention, `beat()` after each other piece of work.
    Returns the receipt, or on every rank alike the fault of the document (a state that is not finite).
    Raises `InfrastructureError` where another rank or the disk fails.
    """
    with _told_with_its_document(job):
        return _compute(engine, exchange, job, work, report, beat)


@contextlib.contextmanager
def _told_with_its_document(job: ComputeJob) -> Iterator[None]:
    """Ranks, layers and hops of a failure are told where it happens; which document it was is known here."""
    try:
        yield
    except InfrastructureError as error:
        # In place: another exception would keep this one's traceback, and with it connections to lost peers.
        error.args = (f"{job.display_name}: {error}", *error.args[1:])
        raise


def _compute(
    engine: Engine, exchange: Exchange, job: ComputeJob, work: RankWork, report: Report, beat: Callable[[], None]
) -> Receipt | Fault:
    device = engine.model.device
    release_free_memory()
    reset_peak_memory(device)
    hidden_nC, nonfinite = forward(engine, exchange, job, work, report)
    release_free_memory()
    if fault := _agree_on_finite(nonfinite, engine, exchange, job, work):
        return fault
    scored_rows = np.flatnonzero(work.rows.predictor >= 0).astype(np.int64)
    wants_scores = "logprobs" in job.output.outputs
    scores = _score(engine, hidden_nC, work, scored_rows if wants_scores else scored_rows[:0], beat)
    if fault := _agree_on_finite(_nonfinite_score(scores, scored_rows, work, engine), engine, exchange, job, work):
        return fault
    pooled = _pool(engine, hidden_nC, work, scores, scored_rows if wants_scores else scored_rows[:0], exchange, job)
    parts = _write_parts(job, work, scores if wants_scores else None, scored_rows, pooled, beat)
    return Receipt(rank=work.shard.rank, parts=tuple(parts), facts=_facts(work, pooled[2], engine))


def forward(
    engine: Engine, exchange: Exchange, job: ComputeJob, work: RankWork, report: Report
) -> tuple[Tensor, tuple[int, int] | None]:
    """The hidden states of this rank's tokens, [n, C], from one pass over the whole document.

    And where this rank first met numbers that are not finite: (layer, global position), or None.
    """
    engine.model.set_positions(job.extension, work.shard.layout.num_tokens)
    context = RingContext(layout=work.shard.layout, exchange=exchange, kernel=engine.kernel, report=report)
    device = engine.model.device
    token_ids = torch.from_numpy(work.shard.token_ids.astype(np.int64)).to(device)
    positions = torch.from_numpy(np.array(work.shard.positions)).to(device)
    with torch.inference_mode(), use_ring(context):
        hidden_nC = engine.model.hidden_states(token_ids, positions)
    context.assert_engaged(engine.model.num_layers)
    return hidden_nC, context.nonfinite or _final_nonfinite(hidden_nC, engine.model.num_layers, work)


def _final_nonfinite(hidden_nC: Tensor, num_layers: int, work: RankWork) -> tuple[int, int] | None:
    place = first_nonfinite([hidden_nC[None]])
    return None if place is None else (num_layers, int(work.shard.positions[place]))


def _nonfinite_score(scores: Scores, rows: Int64s, work: RankWork, engine: Engine) -> tuple[int, int] | None:
    """The first token of this rank whose scores are not finite, as of a layer behind the final states."""
    wrong = (~(scores.logprob.isfinite() & scores.entropy.isfinite())).nonzero()
    if not len(wrong):
        return None
    return engine.model.num_layers + 1, int(work.rows.position[rows[int(wrong[0])]]) + work.num_prefix


def _agree_on_finite(
    nonfinite: tuple[int, int] | None, engine: Engine, exchange: Exchange, job: ComputeJob, work: RankWork
) -> Fault | None:
    """The fault of a document whose states are not finite, the same on every rank: its first layer, its first token.

    Later layers and, in them, later tokens are only echoes of it. Final states count as the layer behind the last one,
    scores as the one behind those.
    """
    num_layers = engine.model.num_layers
    layer, position = (num_layers + 2, 0) if nonfinite is None else nonfinite
    first = torch.tensor([-((layer << _POSITION_BITS) + position)])
    exchange.all_reduce(first, op="max")
    layer, position = divmod(-int(first), 1 << _POSITION_BITS)
    if layer == num_layers + 2:
        return None
    behind = {num_layers: "the model's final state is", num_layers + 1: "the log-probabilities of its output head are"}
    what = behind.get(layer, f"queries, keys or values of layer {layer} are")
    return Fault(
        stage="forward",
        reason="not_finite",
        error=f"{job.display_name}: {what} NaN or infinite from token {max(0, position - work.num_prefix)} on.",
    )


def _score(engine: Engine, hidden_nC: Tensor, work: RankWork, rows: Int64s, beat: Callable[[], None]) -> Scores:
    places = torch.from_numpy(work.rows.predictor[rows])
    labels = torch.from_numpy(work.rows.token_id[rows].astype(np.int64))
    with torch.inference_mode():
        return score_places(
            hidden_nC,
            places,
            labels,
            engine.model.logits,
            vocab_size=engine.model.vocab_size,
            # What is made of a tile of logits takes as much as the tile.
            tile_bytes=engine.model.tile_bytes // 2,
            beat=beat,
        )


def _pool(
    engine: Engine,
    hidden_nC: Tensor,
    work: RankWork,
    scores: Scores,
    scored_rows: Int64s,
    exchange: Exchange,
    job: ComputeJob,
) -> list[PooledPieces]:
    """The spans, the segments and the document as a whole. Every rank takes part in each."""
    convention = job.convention
    head = load_head(engine.model.local.folder, convention)
    partitions = [
        (pieces, PooledTokens.of_pieces(work, pieces, convention)) for pieces in (work.span_pieces, work.segment_pieces)
    ]
    return [
        pool_pieces(
            pieces,
            hidden_NC=hidden_nC if "embeddings" in job.output.outputs else None,
            pooled=pooled,
            head=head,
            logprob=scores.logprob,
            scored_rows=scored_rows,
            all_reduce=exchange.all_reduce,
        )
        for pieces, pooled in [*partitions, (work.document_pieces, PooledTokens.of_document(work, convention))]
    ]


def _write_parts(
    job: ComputeJob,
    work: RankWork,
    scores: Scores | None,
    scored_rows: Int64s,
    pooled: list[PooledPieces],
    beat: Callable[[], None],
) -> list[Part]:
    spans, segments, _ = pooled
    tables = {
        "tokens": token_slices(work, scores, scored_rows, job.identity, schema_of("tokens", job.output)),
        "spans": span_slices(work, spans, job.identity, schema_of("spans", job.output)),
        "segments": segment_slices(work, segments, job.identity, schema_of("segments", job.output)),
    }
    parts = []
    for table, slices in tables.items():
        first = next(slices, None)
        if first is None:
            continue
        with PartWriter(
            Path(job.staging),
            table=table,
            unit=job.unit,
            number=work.shard.rank,
            identity=job.output,
            metadata=job.metadata,
        ) as writer:
            writer.write(first)
            beat()
            for rows in slices:
                writer.write(rows)
                beat()
            parts.append(writer.close())
            beat()
    return parts


def _facts(work: RankWork, document: PooledPieces, engine: Engine) -> dict[str, object]:
    """What the driver needs: counts to reconcile, this rank's memory, and from one rank the document's own scores."""
    facts: dict[str, object] = {
        "kernel": engine.kernel_name,
        "num_rows": len(work.rows.position),
        "num_spans": len(work.spans),
        "num_segments": len(work.segments),
        "positions": position_ranges(work.rows.position),
        "peak_rss_bytes": peak_memory_bytes(engine.model.device),
    }
    if len(work.document_pieces.owned):
        owned = work.document_pieces.owned
        embeddings = document.embeddings(owned)
        facts["mean_logprob"] = float(document.mean_logprob(owned)[0])
        facts["embedding"] = None if embeddings is None else embeddings[0].tolist()
    return facts


def position_ranges(positions: Int64s) -> list[tuple[int, int]]:
    """Ascending positions as half-open ranges."""
    if len(positions) == 0:
        return []
    breaks = np.flatnonzero(np.diff(positions) != 1) + 1
    return [(int(run[0]), int(run[-1]) + 1) for run in np.split(positions, breaks)]


def release_free_memory() -> None:
    """Give what the allocator holds back to the machine: other ranks and documents need it. glibc only."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def reset_peak_memory(device: torch.device | None = None) -> None:
    """Let the peak start anew, so that it is this document's. Linux only (proc(5), clear_refs); elsewhere it stays."""
    if device is not None and device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory_bytes(device: torch.device | None = None) -> int:
    """The most memory since the last reset, in bytes: what tensors took on a GPU, else this process's resident set.

    Linux tells it as VmHWM; elsewhere it is the largest ever, which getrusage counts in bytes on macOS.
    """
    if device is not None and device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
