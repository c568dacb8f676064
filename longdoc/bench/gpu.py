"""The benchmark of one CUDA GPU, without Ray: kernels inside a ring against kernels alone, exactness, a large model.

Owns the order of the steps and their budget of time. Every step is one record, shown and written before the next one
starts, so that a run that is cut off still tells what it found. A step that would not fit the time left, or fails, is
a record too. One GPU shows what each rank of a ring computes, and not what NCCL does between two of them.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from longdoc.bench.facts import machine_facts
from longdoc.bench.gpu_device import BenchDevice
from longdoc.bench.gpu_forward import LARGE_SHAPE, SMALL_SHAPE, ForwardShape, RandomModel
from longdoc.bench.gpu_kernels import HeadShape, available_kernels, exactness, ring_against_alone
from longdoc.bench.report import Cell, Column, Report, Table, Target
from longdoc.errors import LongdocError

Row = dict[str, Cell]

#: Ring compute against the kernel alone, by tokens a rank: design, "What it must reach".
_TARGETS = {8192: 0.85, 32768: 0.95, 131072: 0.95}
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
    """One step: what it is called in its record, about how many floating-point operations it takes, and how to do it."""

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
            found = step.run()
        except (LongdocError, RuntimeError) as error:
            # Out of memory, or an op that this GPU or this torch does not have: the next step may do better.
            found = {"failed": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
        self._device.release()
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
    session.note({"step": "facts"} | facts)
    kernels, missing = available_kernels(bench_device)
    for name, reason in missing.items():
        session.note({"step": "kernel", "kernel": name, "missing": reason})
    for step in _steps(bench_device, scale, kernels):
        session.run(step)
    session.note({"step": "nccl", "skipped": UNTESTED})
    return _report_of(session.rows, facts, tuple(kernels))


def _steps(device: BenchDevice, scale: GpuScale, kernels: dict[str, object]) -> list[Step]:
    """Small before large, and what matters most first: a cut-off run should have the first sizes of everything."""
    model = RandomModel(scale.forward, device)
    exact, forward, speed = _exact_steps(device, scale, kernels), _forward_steps(model, scale), []
    for num_tokens in scale.tokens_per_rank:
        speed.append(_speed_steps(device, scale, kernels, num_tokens))
    return [*exact, *speed[0], *forward[:1], *(step for steps in speed[1:] for step in steps), *forward[1:]]


def _exact_steps(device: BenchDevice, scale: GpuScale, kernels: dict[str, object]) -> list[Step]:
    steps = []
    for name in kernels:
        for dtype in ("bfloat16", "float32") if name == "torch" else ("bfloat16",):
            heads = _heads(scale, scale.head_dims[0])
            num_ranks = max(scale.num_ranks)
            steps.append(
                Step(
                    name={"step": "exactness", "kernel": name, "dtype": dtype, "ranks": num_ranks},
                    flops=4 * heads.causal_flops(scale.exact_tokens * num_ranks),
                    run=lambda name=name, dtype=dtype, heads=heads, num_ranks=num_ranks: exactness(  # type: ignore[misc]  # defaults bind the loop's values
                        device, name, heads, dtype=dtype, num_tokens=scale.exact_tokens * num_ranks, num_ranks=num_ranks
                    ),
                )
            )
    return steps
