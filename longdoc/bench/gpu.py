"""The benchmark of one CUDA GPU, without Ray: kernels inside a ring against kernels alone, exactness, a large model.

Owns the order of the steps and their budget of time. Every step is one record, shown and written before the next one
starts, so that a run that is cut off still tells what it found. A step that would not fit the time left, or fails, is
a record too. One GPU shows what each rank of a ring computes, and not what NCCL does between two of them.
"""

import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from longdoc.bench.facts import machine_facts
from longdoc.bench.gpu_device import LONG_ROUND_SECONDS, BenchDevice
from longdoc.bench.gpu_forward import LARGE_SHAPE, SMALL_SHAPE, ForwardShape, RandomModel
from longdoc.bench.gpu_kernels import HeadShape, available_kernels, exactness, ring_against_alone
from longdoc.bench.report import Cell, Column, Report, Table, Target
from longdoc.model.load import first_line
from longdoc.ring.kernels import Kernel

Row = dict[str, Cell]

#: Ring compute against the kernel alone, by tokens a rank: design, "What it must reach".
_TARGETS = {8192: 0.85, 32768: 0.95, 131072: 0.95}
_SPECS = {
    **dict.fromkeys(("tokens", "ranks", "head dim", "tokens a rank", "tokens/s"), "{:,.0f}"),
    **dict.fromkeys(("ring error", "alone error"), "{:.2e}"),
    **dict.fromkeys(("ratio", "share of peak", "peak / forecast"), "{:.3f}"),
}
UNTESTED = "NCCL between two ranks is untested: it takes two GPUs, and this benchmark uses one"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuScale:
    """How large the steps are. `forward` is tried with each of `forward_tokens`, in this order."""

    tokens_per_rank: tuple[int, ...]
    head_dims: tuple[int, ...]
    num_ranks: tuple[int, ...]
    num_heads: int
    num_kv_heads: int
    exact_tokens: int
    forward: ForwardShape
    forward_tokens: tuple[int, ...]
    repeats: int

    def heads(self, head_dim: int) -> HeadShape:
        """The heads of the attention that is measured by itself."""
        return HeadShape(num_heads=self.num_heads, num_kv_heads=self.num_kv_heads, head_dim=head_dim)


SCALES = {
    "full": GpuScale(
        tokens_per_rank=(8192, 32768, 131072),
        head_dims=(128, 64),
        num_ranks=(2, 4),
        num_heads=16,
        num_kv_heads=4,
        exact_tokens=8192,
        forward=LARGE_SHAPE,
        forward_tokens=(32768, 131072),
        repeats=3,
    ),
    "tiny": GpuScale(
        tokens_per_rank=(24, 48),
        head_dims=(16,),
        num_ranks=(2, 3),
        num_heads=4,
        num_kv_heads=2,
        exact_tokens=24,
        forward=SMALL_SHAPE,
        forward_tokens=(33, 50),
        repeats=1,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step: its name in the record, about how many floating-point operations it takes, and how it is done."""

    name: Row
    flops: float
    run: Callable[[], Row]


class Session:
    """Runs steps within a budget of seconds, and keeps, shows and writes the record of each."""

    def __init__(
        self,
        *,
        seconds: float,
        log: Path | None,
        report: Callable[[str], None],
        device: BenchDevice,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rows: list[Row] = []
        self._end, self._clock = clock() + seconds, clock
        self._log, self._report, self._device = log, report, device

    def run(self, step: Step) -> None:
        """Do one step, unless it would last longer than the time that is left."""
        left, needed = self._end - self._clock(), step.flops / self._device.flops_per_second
        if needed > left:
            self.note(step.name | {"skipped": f"about {needed:.0f} s, and {max(0.0, left):.0f} s are left"})
            return
        try:
            self._device.release()  # here, because a device in which a kernel crashed refuses this as well
            found = step.run()
        except Exception as error:  # out of memory, an op or a signature that is not there, a kernel that won't compile
            # Whatever a library raises is what this step found; the next one may do better.
            found = {"failed": f"{type(error).__name__}: {first_line(error)}"}
        self.note(step.name | found)

    def note(self, row: Row) -> None:
        """Keep, show and write one record."""
        self.rows.append(row)
        line = json.dumps(row)
        self._report(line)
        if self._log is not None:
            with self._log.open("a", encoding="utf-8") as file:
                file.write(line + "\n")


def bench_gpu(
    *,
    device: str,
    scale: GpuScale,
    seconds: float,
    log: Path | None,
    report: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> Report:
    """Everything that `longdoc bench gpu` shows. `log` receives a line of JSON after each step."""
    bench_device = BenchDevice(device)
    session = Session(seconds=seconds, log=log, report=report, device=bench_device, clock=clock)
    facts = machine_facts() | bench_device.facts()
    session.note({"step": "facts", **facts})
    kernels, missing = available_kernels(bench_device)
    for name, reason in missing.items():
        session.note({"step": "kernel", "kernel": name, "missing": reason})
    for step in _steps(bench_device, scale, kernels):
        session.run(step)
    session.note({"step": "nccl", "skipped": UNTESTED})
    return report_of(session.rows, facts)


def _steps(device: BenchDevice, scale: GpuScale, kernels: dict[str, Kernel]) -> list[Step]:
    """Small before large, so that a run that is cut off has the first sizes of everything."""
    model = RandomModel(scale.forward, device)
    forward = [
        Step(
            name={"step": "forward", "tokens": num_tokens},
            flops=1.5 * scale.forward.flops(num_tokens),
            run=partial(model.forward, num_tokens),
        )
        for num_tokens in scale.forward_tokens
    ]
    speed = [_speed_steps(device, scale, kernels, num_tokens) for num_tokens in scale.tokens_per_rank]
    larger = [step for steps in speed[1:] for step in steps]
    return [*_exact_steps(device, scale, kernels), *speed[0], *forward[:1], *larger, *forward[1:]]


def _exact_steps(device: BenchDevice, scale: GpuScale, kernels: dict[str, Kernel]) -> list[Step]:
    heads, num_ranks = scale.heads(scale.head_dims[0]), max(scale.num_ranks)
    num_tokens = scale.exact_tokens * num_ranks
    # torch's is the only one that computes in float32 too.
    tried = [(name, "bfloat16") for name in kernels] + [("torch", "float32")]
    return [
        Step(
            name={"step": "exactness", "kernel": name, "dtype": dtype, "tokens": num_tokens, "ranks": num_ranks},
            flops=4 * heads.causal_flops(num_tokens),
            run=partial(
                exactness,
                device,
                kernels[name],
                heads,
                dtype=getattr(torch, dtype),
                num_tokens=num_tokens,
                num_ranks=num_ranks,
            ),
        )
        for name, dtype in tried
    ]


def _speed_steps(device: BenchDevice, scale: GpuScale, kernels: dict[str, Kernel], tokens_per_rank: int) -> list[Step]:
    steps = []
    for num_ranks, head_dim, name in itertools.product(scale.num_ranks, scale.head_dims, kernels):
        heads = scale.heads(head_dim)
        # A round is the whole document alone, and once more by its ranks together.
        flops = 2 * heads.causal_flops(tokens_per_rank * num_ranks)
        steps.append(
            Step(
                name={
                    "step": "speed",
                    "kernel": name,
                    "head dim": head_dim,
                    "tokens a rank": tokens_per_rank,
                    "ranks": num_ranks,
                },
                flops=_rounds(device, scale, flops) * flops,
                run=partial(
                    ring_against_alone,
                    device,
                    kernels[name],
                    heads,
                    tokens_per_rank=tokens_per_rank,
                    num_ranks=num_ranks,
                    repeats=scale.repeats,
                ),
            )
        )
    return steps


def _rounds(device: BenchDevice, scale: GpuScale, flops: float) -> int:
    return 2 if flops / device.flops_per_second > LONG_ROUND_SECONDS else 1 + scale.repeats


def report_of(rows: Sequence[Row], facts: Row) -> Report:
    """The records as tables, one a kind of step, and the targets of the design."""
    kinds = dict.fromkeys(str(row["step"]) for row in rows)
    tables = [_table(kind, [row for row in rows if row["step"] == kind]) for kind in kinds if kind != "facts"]
    return Report(bench="gpu", facts=facts, tables=tuple(tables), targets=tuple(_targets(rows)), notes=(UNTESTED,))


def _table(kind: str, rows: list[Row]) -> Table:
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name != "step"]
    return Table(
        title=kind,
        columns=tuple(Column(name=name, spec=_SPECS.get(name, "{:,.2f}")) for name in names),
        rows=tuple(tuple(row.get(name) for name in names) for row in rows),
    )


def _targets(rows: Sequence[Row]) -> Iterator[Target]:
    """The worst ratio of each size over everything that was asked of it; a step that is missing is a miss."""
    for tokens_per_rank, bound in _TARGETS.items():
        tried = [row for row in rows if row["step"] == "speed" and row["tokens a rank"] == tokens_per_rank]
        ratios = [row.get("ratio") for row in tried if row["kernel"] != "cudnn"]
        if ratios:
            measured = [ratio for ratio in ratios if isinstance(ratio, float)]
            yield Target(
                name=f"ring compute against the kernel alone, {tokens_per_rank:,} tokens a rank",
                value=min(measured) if len(measured) == len(ratios) else None,
                relation="at least",
                bound=bound,
            )
    for row in rows:
        if row["step"] == "exactness" and row["dtype"] == "bfloat16":
            yield _exactness_target(row)


def _exactness_target(row: Row) -> Target:
    ring, alone = row.get("ring error"), row.get("alone error")
    measured = isinstance(ring, float) and isinstance(alone, float)
    return Target(
        name=f"error of the ring against the kernel alone, {row['kernel']} in bf16",
        value=ring / alone if measured else None,  # type: ignore[operator]  # both are numbers where measured
        relation="at most",
        bound=2.0,
    )
