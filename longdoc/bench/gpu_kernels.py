"""Kernels on one GPU: alone on a whole document, and inside the hops of each rank of a ring.

The ring's ranks run one after another, and what a rank would receive is copied to it from where it lies, so that its
time is its compute: every kernel call, every merge, every copy, and no link. Legend: N tokens of the document, T of a
rank, H query heads, G key-value heads, D head dimension.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from longdoc.bench.gpu_device import BenchDevice
from longdoc.bench.report import Cell
from longdoc.errors import StartError, ensure
from longdoc.model.load import first_line
from longdoc.ring.attention import ring_attention
from longdoc.ring.exchange import Exchange, ReduceOp, Transfer
from longdoc.ring.exchange.loopback import run_ranks
from longdoc.ring.kernels import KERNELS, Kernel, choose_kernel
from longdoc.ring.kernels.reference import reference_kernel
from longdoc.ring.layout import Layout
from longdoc.ring.mask import CAUSAL, FULL, LOWER_TRIANGLE
from longdoc.ring.plan import Hop, plan_hops

# Rows of a document that are compared with their definition in float64.
_NUM_SAMPLES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadShape:
    """The heads of one layer."""

    num_heads: int
    num_kv_heads: int
    head_dim: int

    def draw(self, num_tokens: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """q_HND, k_GND, v_GND, drawn on the device."""
        generator = torch.Generator(device).manual_seed(num_tokens)
        q, k, v = (
            torch.randn((heads, num_tokens, self.head_dim), generator=generator, device=device, dtype=dtype)
            for heads in (self.num_heads, self.num_kv_heads, self.num_kv_heads)
        )
        return q, k, v

    def causal_flops(self, num_tokens: int) -> float:
        """4·D floating-point operations for each head and each pair that sees each other: N(N+1)/2 pairs."""
        return 4.0 * self.num_heads * self.head_dim * (num_tokens * (num_tokens + 1) / 2)


def available_kernels(device: BenchDevice) -> tuple[dict[str, Kernel], dict[str, str]]:
    """The kernels that run in bf16 on this device, by name, and why the others do not.

    Beside those of `--kernel` there is cuDNN's, to learn what choosing it would bring.
    """
    found: dict[str, Kernel] = {}
    missing: dict[str, str] = {}
    for name in KERNELS:
        if name in ("auto", "reference"):
            continue
        try:
            found[name] = choose_kernel(name, device.device, torch.bfloat16)[1]
        except StartError as error:
            missing[name] = str(error)
        except Exception as error:  # a library that is installed may raise whatever it likes while it is imported
            missing[name] = f"{type(error).__name__}: {first_line(error)}"
    if device.kind == "cuda":
        from longdoc.ring.kernels.torch_cuda import cudnn_kernel

        found["cudnn"] = cudnn_kernel
    return found, missing


class PreparedExchange:
    """An exchange in which everything has been sent already: a receive is a copy on the device itself."""

    def __init__(self, rank: int, num_ranks: int, messages: Sequence[Tensor]) -> None:
        self._rank, self._num_ranks = rank, num_ranks
        self._messages, self._number = messages, 0
        self._receives: Sequence[Transfer] = ()

    @property
    def rank(self) -> int:
        """The rank whose messages these are."""
        return self._rank

    @property
    def num_ranks(self) -> int:
        """The size of the ring that is played."""
        return self._num_ranks

    def start(self, sends: Sequence[Transfer], receives: Sequence[Transfer]) -> None:
        """Remember where to receive; nobody waits for what is sent."""
        self._receives = receives

    def finish(self) -> None:
        """Copy what this hop receives."""
        for _, tensor in self._receives:
            tensor.copy_(self._messages[self._number])
            self._number += 1

    def all_reduce(self, tensor: Tensor, op: ReduceOp = "sum") -> None:
        """One rank by itself reduces nothing."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is open."""


class PlayedRank:
    """One rank of a causal ring over a document that lies whole on this device."""

    def __init__(self, qkv: tuple[Tensor, Tensor, Tensor], *, layout: Layout, rank: int) -> None:
        self._rank, self._layout = rank, layout
        self._hops = plan_hops(layout, rank, CAUSAL)
        self._positions = [
            torch.from_numpy(layout.positions(owner)).to(qkv[0].device) for owner in range(layout.num_ranks)
        ]
        self._own = [tensor[:, self._positions[rank]] for tensor in qkv]
        self._messages = [self._message(qkv[1], qkv[2], hop) for hop in self._hops if hop.receive is not None]

    def _message(self, k_GND: Tensor, v_GND: Tensor, hop: Hop) -> Tensor:
        """Keys, then values, flat, as they travel."""
        assert hop.receive is not None
        shard = self._positions[hop.receive.owner]
        places = torch.cat([shard[keys.slice] for keys in hop.receive.keys])
        return torch.cat([k_GND[:, places].flatten(), v_GND[:, places].flatten()])

    def attend(self, kernel: Kernel, scale: float) -> Tensor:
        """This rank's share of the layer: out_HTD."""
        q_HTD, k_GTD, v_GTD = self._own
        return ring_attention(
            q_HTD,
            k_GTD,
            v_GTD,
            hops=self._hops,
            exchange=PreparedExchange(self._rank, self._layout.num_ranks, self._messages),
            kernel=kernel,
            scale=scale,
        )


def ring_against_alone(
    device: BenchDevice, kernel: Kernel, heads: HeadShape, *, tokens_per_rank: int, num_ranks: int, repeats: int
) -> dict[str, Cell]:
    """Time of each rank's hops against the kernel alone on the whole document, in bf16, taken in turns.

    `ratio` is the slowest rank's: what its share of the work takes the kernel alone, over what it took.
    """
    num_tokens, scale = tokens_per_rank * num_ranks, heads.head_dim**-0.5
    qkv = heads.draw(num_tokens, torch.bfloat16, device.device)
    layout = Layout(kind="zigzag", num_tokens=num_tokens, num_ranks=num_ranks)
    alone = partial(kernel, *qkv, band=LOWER_TRIANGLE, scale=scale)
    played = [PlayedRank(qkv, layout=layout, rank=rank) for rank in range(num_ranks)]
    alone_seconds, *of_ranks = device.medians([alone, *(partial(one.attend, kernel, scale) for one in played)], repeats)
    slowest = max(of_ranks)
    flops = heads.causal_flops(num_tokens)
    return {
        "alone ms": alone_seconds * 1e3,
        "slowest rank ms": slowest * 1e3,
        "alone TFLOP/s": flops / alone_seconds / 1e12,
        "ratio": alone_seconds / num_ranks / slowest,
        **device.rates(flops / num_ranks, slowest),
    }


def exactness(
    device: BenchDevice, kernel: Kernel, heads: HeadShape, *, dtype: torch.dtype, num_tokens: int, num_ranks: int
) -> dict[str, Cell]:
    """max|Δ| / max|ref| of a real ring (loopback), and of the kernel alone, at sampled rows, against float64."""
    q, k, v = heads.draw(num_tokens, dtype, device.device)
    scale = heads.head_dim**-0.5
    layout = Layout(kind="zigzag", num_tokens=num_tokens, num_ranks=num_ranks)
    whole_HND = torch.empty_like(q)

    def attend(exchange: Exchange) -> None:
        positions = torch.from_numpy(layout.positions(exchange.rank)).to(device.device)
        own, hops = [tensor[:, positions] for tensor in (q, k, v)], plan_hops(layout, exchange.rank, CAUSAL)
        whole_HND[:, positions] = ring_attention(
            own[0], own[1], own[2], hops=hops, exchange=exchange, kernel=kernel, scale=scale
        )

    run_ranks(num_ranks, attend)
    rows = torch.linspace(0, num_tokens - 1, min(_NUM_SAMPLES, num_tokens)).long().tolist()
    wanted = _rows_by_definition(q, k, v, rows, scale)
    alone_HND, _ = kernel(q, k, v, band=LOWER_TRIANGLE, scale=scale)
    return {
        "ring error": _relative(whole_HND[:, rows], wanted),
        "alone error": _relative(alone_HND[:, rows], wanted),
    }


def _rows_by_definition(q: Tensor, k: Tensor, v: Tensor, rows: list[int], scale: float) -> Tensor:
    k, v = k.double(), v.double()
    found = [
        reference_kernel(q[:, row : row + 1].double(), k[:, : row + 1], v[:, : row + 1], band=FULL, scale=scale)[0]
        for row in rows
    ]
    return torch.cat(found, dim=1)


def _relative(found: Tensor, wanted: Tensor) -> float:
    error = ((found.double() - wanted).abs().max() / wanted.abs().max()).item()
    ensure(error < float("inf"), "a result is not finite")
    return error
