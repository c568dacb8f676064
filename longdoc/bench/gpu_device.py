"""The device under a benchmark: how time and memory are measured on it, and what it could do at best.

On a CPU the same questions have plainer answers, so that everything around them runs, and is tested, without a GPU.
"""

import time
from collections.abc import Callable
from statistics import median

import torch

from longdoc.bench.report import Cell

# Dense bf16 with float32 accumulation, without sparsity, in FLOP/s. Sources: NVIDIA's data sheets of each product.
_PEAKS = {"H200": 989e12, "H100 80GB HBM3": 989e12, "H100 SXM": 989e12, "A100": 312e12}
# What is expected before anything was measured, to plan with; a GPU that is slower skips more.
_EXPECTED = {"cuda": 250e12, "cpu": 2e9}
# When one round of everything takes longer than this, one more is enough.
LONG_ROUND_SECONDS = 2.0
# A measurement lasts at least this long, however short what it measures is.
_SHORTEST_SECONDS = {"cuda": 0.1, "cpu": 0.0}


class BenchDevice:
    """One device. `kind` is cuda or cpu."""

    def __init__(self, kind: str) -> None:
        self.device = torch.device(kind, 0) if kind == "cuda" else torch.device(kind)
        self.kind = kind
        #: The rate to plan with; raised or lowered to what was measured last.
        self.flops_per_second = _EXPECTED[kind]

    @property
    def name(self) -> str:
        """What the maker calls it."""
        return torch.cuda.get_device_name(self.device) if self.kind == "cuda" else "cpu"

    @property
    def peak(self) -> float | None:
        """Its dense bf16 peak in FLOP/s, None where it is not in the table."""
        return next((flops for part, flops in _PEAKS.items() if part in self.name), None)

    def facts(self) -> dict[str, Cell]:
        """What ran."""
        facts: dict[str, Cell] = {"device": self.name, "peak TFLOP/s": _tera(self.peak)}
        if self.kind == "cuda":
            free, total = torch.cuda.mem_get_info(self.device)
            facts |= {"CUDA": torch.version.cuda, "GPU GiB": total / 2**30, "free GPU GiB": free / 2**30}
            facts["compute capability"] = "{}.{}".format(*torch.cuda.get_device_capability(self.device))
        return facts

    def seconds_of(self, action: Callable[[], object]) -> float:
        """How long one call of `action` takes, from an idle device to an idle device; short ones are repeated."""
        once = self.timed(action)
        num_calls = max(1, int(_SHORTEST_SECONDS[self.kind] / max(once, 1e-6)))
        return once if num_calls == 1 else self.timed(action, num_calls) / num_calls

    def medians(self, actions: list[Callable[[], object]], repeats: int) -> list[float]:
        """The median seconds of each action, taken in turns after one round that does not count."""
        if sum(self.timed(action) for action in actions) > LONG_ROUND_SECONDS:
            repeats = 1
        rounds = [[self.seconds_of(action) for action in actions] for _ in range(repeats)]
        return [median(times) for times in zip(*rounds, strict=True)]

    def timed(self, action: Callable[[], object], num_calls: int = 1) -> float:
        """How long so many calls take together, from an idle device to an idle device."""
        self.synchronize()
        started = time.perf_counter()
        for _ in range(num_calls):
            action()
        self.synchronize()
        return time.perf_counter() - started

    def synchronize(self) -> None:
        """Wait until the device is idle."""
        if self.kind == "cuda":
            torch.cuda.synchronize(self.device)

    def reset_peak(self) -> None:
        """Let the peak start anew."""
        if self.kind == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)

    def peak_bytes(self) -> int | None:
        """The most that tensors took since the last reset; None where nobody counts."""
        return torch.cuda.max_memory_allocated(self.device) if self.kind == "cuda" else None

    def release(self) -> None:
        """Give the memory that nothing uses back, so that one step does not decide what the next one can allocate."""
        if self.kind == "cuda":
            torch.cuda.empty_cache()

    def rates(self, flops: float, seconds: float) -> dict[str, Cell]:
        """Achieved TFLOP/s, and the share of the peak."""
        self.flops_per_second = flops / seconds
        share = None if self.peak is None else flops / seconds / self.peak
        return {"TFLOP/s": _tera(flops / seconds), "share of peak": share}


def _tera(flops: float | None) -> float | None:
    return None if flops is None else flops / 1e12
