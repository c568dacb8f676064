"""The benchmark of the ring itself: time against one process, balance of the layouts, error by ring size.

A ring of two ranks with a thread each stands against one transformers process with two threads: the same cores, the
same model, token ids and dtype. Both are resident and take turns.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median

import numpy as np
import numpy.typing as npt

from longdoc.bench.balance import balance_table
from longdoc.bench.exactness import exactness_table
from longdoc.bench.facts import machine_facts
from longdoc.bench.forward import build_plain, build_ring
from longdoc.bench.processes import Contestant, interleaved, ratio
from longdoc.bench.report import Cell, Column, Report, Table, Target
from longdoc.model.local import LocalModel
from longdoc.ring.layout import Layout, LayoutKind

NUM_RANKS = 2
#: Design: a ring of two may take this much of one process's time.
RATIO_BOUND = 0.95
_EXACTNESS_TOKENS = 4096

States = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSettings:
    """What `longdoc bench attention` compares."""

    tokens: tuple[int, ...] = (8192, 16384)
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    repeats: int = 5
    layout: LayoutKind = "zigzag"
    kernel: str = "torch"
    plain_threads: int = NUM_RANKS
    exactness_tokens: int = _EXACTNESS_TOKENS


def bench_attention(local: LocalModel, settings: AttentionSettings, *, report: Callable[[str], None]) -> Report:
    """Everything `longdoc bench attention` shows; `report` takes a line of progress."""
    facts = machine_facts() | {
        "model": f"{local.name} ({local.num_parameters / 1e6:.0f} M)",
        "ring": f"{NUM_RANKS} processes × 1 thread, gloo, {settings.layout}, kernel {settings.kernel}",
        "against": f"transformers sdpa, 1 process × {settings.plain_threads} threads",
        "repeats": settings.repeats,
    }
    balance, balance_target = balance_table()
    exactness, exactness_targets = exactness_table(settings.exactness_tokens, report=report)
    times, time_targets = _time_table(local, settings, report)
    return Report(
        bench="attention",
        facts=facts,
        tables=(times, balance, exactness),
        targets=(*time_targets, balance_target, *exactness_targets),
    )


def _time_table(
    local: LocalModel, settings: AttentionSettings, report: Callable[[str], None]
) -> tuple[Table, tuple[Target, ...]]:
    rows: list[tuple[Cell, ...]] = []
    targets = []
    for dtype in settings.dtypes:
        with ExitStack() as stack:
            report(f"loading {local.name} in {dtype}, once a process")
            ring = stack.enter_context(
                Contestant(
                    "ring", build_ring, local, dtype, settings.layout, settings.kernel, num_ranks=NUM_RANKS, ring=True
                )
            )
            plain = stack.enter_context(
                Contestant("sdpa", build_plain, local, dtype, num_threads=settings.plain_threads)
            )
            for num_tokens in settings.tokens:
                row = _compare(ring, plain, num_tokens, settings, report)
                rows.append((dtype, num_tokens, *row))
                name = f"ring / sdpa, {dtype}, {num_tokens:,} tokens"
                targets.append(Target(name=name, value=row[-2], relation="at most", bound=RATIO_BOUND))
    columns = (
        Column(name="dtype"),
        Column(name="tokens", spec="{:,}"),
        *(Column(name=name, spec="{:.2f}") for name in ("ring s", "fastest", "slowest")),
        *(Column(name=name, spec="{:.2f}") for name in ("sdpa s", "fastest ", "slowest ")),
        Column(name="ring / sdpa", spec="{:.3f}"),
        Column(name="states differ by", spec="{:.1e}"),
    )
    title = "One forward pass of the base model, median of interleaved repeats"
    return Table(title=title, columns=columns, rows=tuple(rows)), tuple(targets)


def _compare(
    ring: Contestant,
    plain: Contestant,
    num_tokens: int,
    settings: AttentionSettings,
    report: Callable[[str], None],
) -> tuple[float, ...]:
    """Times of both, their ratio, and max|Δ| / max|states| between what they computed in the first, untimed pass."""
    report(f"{num_tokens:,} tokens: warming up")
    parts = ring.call(num_tokens, True)
    expected: States = plain.call(num_tokens, True)[0]
    difference = np.abs(gather(parts, num_tokens, settings.layout) - expected).max() / np.abs(expected).max()
    seconds = interleaved(
        {contestant.name: partial(contestant.seconds, num_tokens, False) for contestant in (ring, plain)},
        settings.repeats,
        lambda name, repeat, spent: report(
            f"{num_tokens:,} tokens {repeat + 1}/{settings.repeats} {name}: {spent:.2f} s"
        ),
    )
    spread = [f(seconds[name]) for name in (ring.name, plain.name) for f in (median, min, max)]
    return (*spread, ratio(seconds[ring.name], seconds[plain.name]), float(difference))


def gather(parts: Sequence[States], num_tokens: int, kind: LayoutKind) -> States:
    """The states [N, C] of the whole document from those of the ranks."""
    layout = Layout(kind=kind, num_tokens=num_tokens, num_ranks=len(parts))
    whole = np.empty((num_tokens, parts[0].shape[1]), dtype=np.float32)
    for rank, part in enumerate(parts):
        whole[layout.positions(rank)] = part
    return whole
