"""The benchmark of overlap: is a transfer that takes 0.8 of the compute it runs beside hidden behind it?

Two processes over gloo, a thread each, attention alone: layers of a real model have more compute to hide behind. The
link is slowed by `ShapedExchange` until a transfer takes `fraction` of what a hop computes. "Compute alone" is the same
hops without any exchange. Legend: N tokens, T of a rank, P ranks, H query heads, G key-value heads, D head dimension.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

from longdoc.bench.facts import machine_facts
from longdoc.bench.processes import Contestant, Handler, interleaved, ratio
from longdoc.bench.report import Column, Report, Table, Target
from longdoc.ring.exchange import Exchange, Transfer
from longdoc.ring.exchange.shaped import Link, ShapedExchange
from longdoc.ring.exchange.wrapped import WrappedExchange
from longdoc.ring.hook import RingContext
from longdoc.ring.kernels import choose_kernel
from longdoc.ring.layout import Layout
from longdoc.ring.mask import CAUSAL

_CALIBRATIONS = 3
_NOTE = "Without overlap a ring of P takes 1 + (P-1)/P × transfer/compute; large rings approach {limit:.2f}."


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapShape:
    """What each rank computes: `num_layers` times the causal attention of N tokens, with the default model's heads."""

    num_tokens: int = 8192
    num_ranks: int = 2
    num_layers: int = 4
    num_heads: int = 9
    num_kv_heads: int = 3
    head_dim: int = 64
    dtype: str = "float32"

    def draw(self, num_tokens: int) -> tuple[Tensor, Tensor, Tensor]:
        """q_HTD, k_GTD, v_GTD of one rank."""
        generator = torch.Generator().manual_seed(num_tokens)
        q, k, v = (
            torch.randn((heads, num_tokens, self.head_dim), generator=generator).to(getattr(torch, self.dtype))
            for heads in (self.num_heads, self.num_kv_heads, self.num_kv_heads)
        )
        return q, k, v


class WatchedExchange(WrappedExchange):
    """An exchange that counts the bytes it sends and, once told to rest, neither sends nor receives any more."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.rests = False
        self.num_bytes = 0

    def start(self, sends: Sequence[Transfer], receives: Sequence[Transfer]) -> None:
        """Post the transfers; at rest, only put zeros where they would arrive, so that nobody computes with garbage."""
        if self.rests:
            for _, tensor in receives:
                tensor.zero_()
            return
        self.num_bytes += sum(tensor.numel() * tensor.element_size() for _, tensor in sends)
        self._exchange.start(sends, receives)

    def finish(self) -> None:
        """Wait for them."""
        if not self.rests:
            self._exchange.finish()


def build_overlap(exchange: Exchange | None, shape: OverlapShape) -> Handler:
    """One rank. Answers ("run", mode) after all layers, ("shape", bytes_per_second) and ("bytes",) of one layer."""
    if exchange is None:
        raise ValueError("a rank of a ring needs an exchange")
    layout = Layout(kind="zigzag", num_tokens=shape.num_tokens, num_ranks=shape.num_ranks)
    q_HTD, k_GTD, v_GTD = shape.draw(layout.num_tokens_of(exchange.rank))
    kernel = choose_kernel("torch", "cpu")[1]
    contexts: dict[str, RingContext] = {}

    def attend(mode: str) -> None:
        contexts[mode].attend(q_HTD, k_GTD, v_GTD, mask=CAUSAL, scale=shape.head_dim**-0.5)

    def add(mode: str, through: Exchange) -> None:
        contexts[mode] = RingContext(layout=layout, exchange=through, kernel=kernel)
        attend(mode)

    alone = WatchedExchange(exchange)
    add("alone", alone)
    add("free", exchange)
    alone.rests = True

    @torch.inference_mode()
    def handle(command: str, argument: Any = None) -> Any:
        if command == "bytes":
            return alone.num_bytes
        if command == "shape":
            for mode in ("overlapped", "blocking"):
                link = Link(bytes_per_second=argument)
                add(mode, ShapedExchange(exchange, link, blocking=mode == "blocking"))
            return None
        for _ in range(shape.num_layers):
            attend(argument)
        return None

    return handle


def bench_overlap(
    shape: OverlapShape,
    *,
    fraction: float = 0.8,
    megabytes_per_second: float | None = None,
    repeats: int = 5,
    report: Callable[[str], None],
) -> Report:
    """Wall time under a slowed link against compute alone; target: at most 1.10 where transfer = 0.8 × compute.

    `megabytes_per_second` sets the link instead of `fraction`.
    """
    facts = machine_facts()
    report(f"starting {shape.num_ranks} processes")
    with Contestant("overlap", build_overlap, shape, num_ranks=shape.num_ranks, ring=True) as ring:
        # The busiest link and the hop it hides behind: each rank sends P - 1 shards a layer and computes P hops.
        bytes_per_transfer = max(ring.call("bytes")) / (shape.num_ranks - 1)
        hops = shape.num_layers * shape.num_ranks
        calibrated = median(ring.seconds("run", "alone") for _ in range(_CALIBRATIONS)) / hops
        bandwidth = bytes_per_transfer / (fraction * calibrated)
        if megabytes_per_second is not None:
            bandwidth = megabytes_per_second * 1e6
        report(f"a hop computes {calibrated:.4f} s; the link carries {bandwidth / 1e6:.2f} MB/s")
        ring.call("shape", bandwidth)
        seconds = interleaved(
            {mode: partial(ring.seconds, "run", mode) for mode in _MODES},
            repeats,
            lambda mode, repeat, spent: report(f"{repeat + 1}/{repeats} {mode}: {spent:.3f} s"),
        )
    measured = bytes_per_transfer / bandwidth / (median(seconds["alone"]) / hops)
    facts |= {**asdict(shape), "threads a rank": 1, "repeats": repeats, "link MB/s": round(bandwidth / 1e6, 3)}
    return Report(
        bench="overlap",
        facts=facts | {"transfer / compute of a hop": round(measured, 3)},
        tables=(_table(seconds, measured, shape.num_ranks),),
        targets=(_target(seconds),) if megabytes_per_second is None else (),
        notes=(_NOTE.format(limit=1 + measured),),
    )


_MODES = {
    "alone": "compute alone, no exchange",
    "free": "the ring, link as it is",
    "overlapped": "the ring, slowed link",
    "blocking": "slowed link, nothing overlapped",
}


def _target(seconds: dict[str, list[float]]) -> Target:
    value = ratio(seconds["overlapped"], seconds["alone"])
    return Target(name="wall time under the slowed link / compute alone", value=value, relation="at most", bound=1.10)


def expected_ratio(mode: str, transfer: float, num_ranks: int) -> float:
    """Wall time against compute alone, by formula; `transfer` is the time of one in hops' compute.

    A hop takes max(compute, transfer) with overlap and their sum without; the last of P hops transfers nothing.
    """
    hop = max(1.0, transfer) if mode == "overlapped" else 1.0 + transfer if mode == "blocking" else 1.0
    return ((num_ranks - 1) * hop + 1) / num_ranks


def _table(seconds: dict[str, list[float]], transfer: float, num_ranks: int) -> Table:
    return Table(
        title="Wall time of all layers, median of interleaved repeats",
        columns=(
            Column(name="what ran"),
            Column(name="seconds", spec="{:.3f}"),
            Column(name="fastest", spec="{:.3f}"),
            Column(name="slowest", spec="{:.3f}"),
            Column(name="/ alone", spec="{:.3f}"),
            Column(name="by formula", spec="{:.3f}"),
        ),
        rows=tuple(
            (
                words,
                median(seconds[mode]),
                min(seconds[mode]),
                max(seconds[mode]),
                ratio(seconds[mode], seconds["alone"]),
                expected_ratio(mode, transfer, num_ranks),
            )
            for mode, words in _MODES.items()
        ),
    )
