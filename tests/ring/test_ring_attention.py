"""Ring attention alone, by loopback, against attention by its definition in float64."""

import functools
import threading
from collections.abc import Callable, Sequence
from itertools import product

import pytest
import torch
from ring_oracles import (
    HEAD_DIM,
    Float64s,
    attention_by_definition,
    gather,
    random_qkv,
    relative_error,
    shard_attention,
)

from longdoc.ring import attention
from longdoc.ring.exchange import Exchange, ReduceOp, Transfer
from longdoc.ring.exchange.loopback import run_ranks
from longdoc.ring.kernels import Kernel, choose_kernel
from longdoc.ring.layout import LAYOUTS, Layout, LayoutKind
from longdoc.ring.mask import BIDIRECTIONAL, CAUSAL, Band, Mask

TOLERANCES = {torch.float64: 1e-12, torch.float32: 5e-6}


@functools.cache
def expected(num_tokens: int) -> Float64s:
    return attention_by_definition(*random_qkv(num_tokens), HEAD_DIM**-0.5)


def ring_error(
    layout: Layout, kernel: Kernel, dtype: torch.dtype, report: Callable[[int, int], None] = lambda hop, num_hops: None
) -> float:
    q, k, v = (tensor.to(dtype) for tensor in random_qkv(layout.num_tokens))
    parts = run_ranks(layout.num_ranks, lambda ex: shard_attention(ex, layout, kernel, (q, k, v), report))
    assert all(part.dtype == dtype for part in parts)
    return relative_error(gather(layout, parts, dim=1), expected(layout.num_tokens))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("num_tokens", [1, 2, 5, 97, 1000, 4096])
@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4, 7])
def test_torch_kernel_is_exact_on_every_ring(
    num_ranks: int, num_tokens: int, kind: LayoutKind, dtype: torch.dtype
) -> None:
    layout = Layout(kind=kind, num_tokens=num_tokens, num_ranks=num_ranks)
    assert ring_error(layout, choose_kernel("torch", "cpu")[1], dtype) <= TOLERANCES[dtype]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("num_tokens", [1, 2, 5, 97, 1000])
@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4, 7])
def test_reference_kernel_is_exact_on_every_ring(
    num_ranks: int, num_tokens: int, kind: LayoutKind, dtype: torch.dtype
) -> None:
    layout = Layout(kind=kind, num_tokens=num_tokens, num_ranks=num_ranks)
    assert ring_error(layout, choose_kernel("reference", "cpu")[1], dtype) <= TOLERANCES[dtype]


MASKS = {
    "bidirectional": BIDIRECTIONAL,
    "itself": Mask.sliding(1),
    "window": Mask.sliding(8),
    "wide window": Mask.sliding(60),
    "window beyond the end": Mask.sliding(1000),
    "two-sided window": Mask.sliding(8, causal=False),
    "wide two-sided window": Mask.sliding(60, causal=False),
    "lopsided window": Mask(left=3, right=20),
}


@functools.cache
def expected_under(mask: Mask, num_tokens: int) -> Float64s:
    return attention_by_definition(*random_qkv(num_tokens), HEAD_DIM**-0.5, mask=mask)


@pytest.mark.parametrize("kernel", ["reference", "torch"])
@pytest.mark.parametrize(("kind", "name"), [("striped", "bidirectional"), *product(["zigzag", "contiguous"], MASKS)])
@pytest.mark.parametrize("num_ranks", [1, 2, 3, 5, 7])
def test_every_mask_is_exact_on_every_ring(num_ranks: int, kind: LayoutKind, name: str, kernel: str) -> None:
    mask = MASKS[name]
    for num_tokens in (1, 2, 5, 97):
        layout = Layout(kind=kind, num_tokens=num_tokens, num_ranks=num_ranks)
        attend = functools.partial(
            shard_attention,
            layout=layout,
            kernel=choose_kernel(kernel, "cpu")[1],
            qkv=random_qkv(num_tokens),
            mask=mask,
        )
        whole = gather(layout, run_ranks(num_ranks, attend), dim=1)
        assert relative_error(whole, expected_under(mask, num_tokens)) <= 1e-12


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("num_ranks", [1, 3])
@pytest.mark.parametrize("mask", [CAUSAL, BIDIRECTIONAL, Mask.sliding(20)], ids=lambda mask: mask.name)
@pytest.mark.parametrize("value_dim", [4, HEAD_DIM, 24])
@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
def test_softcap_sinks_grouped_heads_and_other_values_are_exact_together(
    num_kv_heads: int, value_dim: int, mask: Mask, num_ranks: int, dtype: torch.dtype
) -> None:
    qkv = random_qkv(97, num_kv_heads=num_kv_heads, value_dim=value_dim)
    layout = Layout(kind="zigzag", num_tokens=97, num_ranks=num_ranks)
    for softcap, sink_H in [(None, None), (5.0, None), (None, SINKS), (5.0, SINKS)]:
        attend = functools.partial(
            shard_attention,
            layout=layout,
            kernel=choose_kernel("torch", "cpu")[1],
            qkv=(qkv[0].to(dtype), qkv[1].to(dtype), qkv[2].to(dtype)),
            mask=mask,
            softcap=softcap,
            sink_H=sink_H,
        )
        whole = gather(layout, run_ranks(num_ranks, attend), dim=1)
        truth = attention_by_definition(*qkv, HEAD_DIM**-0.5, mask=mask, softcap=softcap, sink_H=sink_H)
        assert whole.dtype == dtype
        assert relative_error(whole, truth) <= TOLERANCES[dtype]


#: One that hardly counts, one that matters, one that drowns everything, one that is none.
SINKS = torch.tensor([-30.0, 4.0, 40.0, -torch.inf])


@pytest.mark.parametrize("num_ranks", [2, 4, 7])
def test_bfloat16_is_at_most_twice_as_wrong_as_one_dense_call(num_ranks: int) -> None:
    num_tokens, scale = 1000, HEAD_DIM**-0.5
    q, k, v = (tensor.bfloat16() for tensor in random_qkv(num_tokens))
    truth = attention_by_definition(q, k, v, scale)
    hidden = torch.ones(num_tokens, num_tokens, dtype=torch.bool).triu(1)
    scores = (q @ k.repeat_interleave(2, 0).transpose(1, 2)) * scale
    weights = scores.float().masked_fill(hidden, -torch.inf).softmax(-1).bfloat16()
    dense = weights @ v.repeat_interleave(2, 0)
    layout = Layout(kind="zigzag", num_tokens=num_tokens, num_ranks=num_ranks)
    kernel = choose_kernel("torch", "cpu")[1]
    parts = run_ranks(num_ranks, lambda ex: shard_attention(ex, layout, kernel, (q, k, v)))
    assert relative_error(gather(layout, parts, dim=1), truth) <= 2 * relative_error(dense, truth)


def test_long_blocks_are_cut_into_pieces_that_each_report(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout(kind="zigzag", num_tokens=1000, num_ranks=2)
    reports: dict[int, list[tuple[int, int]]] = {}

    def report(hop: int, num_hops: int) -> None:
        reports.setdefault(threading.get_ident(), []).append((hop, num_hops))

    kernel = choose_kernel("torch", "cpu")[1]
    assert ring_error(layout, kernel, torch.float64, report) <= 1e-12
    assert sorted(reports.values()) == [[(0, 2), (1, 2)]] * 2
    reports.clear()
    max_pairs = 20_000
    monkeypatch.setattr(attention, "_FLOPS_PER_PIECE", {"cpu": max_pairs * 4 * 4 * HEAD_DIM})
    assert ring_error(layout, kernel, torch.float64, report) <= 1e-12
    for seen in reports.values():
        assert seen == sorted(seen)
        # A rank of two has half of the 500,500 visible pairs.
        assert len(seen) >= 500_500 / 2 / max_pairs


@pytest.mark.parametrize("wrong", ["base 2", "off by one", "scaled by the number of keys"])
def test_a_kernel_with_a_wrong_log_sum_exp_does_not_pass(wrong: str) -> None:
    right = choose_kernel("torch", "cpu")[1]

    def kernel(
        q_HTD: torch.Tensor,
        k_GSD: torch.Tensor,
        v_GSE: torch.Tensor,
        *,
        band: Band,
        scale: float,
        softcap: float | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        out, lse = right(q_HTD, k_GSD, v_GSE, band=band, scale=scale, softcap=softcap)
        if wrong == "base 2":
            return out, lse / torch.log(torch.tensor(2.0))
        if wrong == "off by one":
            return out, lse + (1e-3 if band.is_full else 0)
        return out, lse - torch.log(torch.tensor(float(k_GSD.shape[1])))

    layout = Layout(kind="zigzag", num_tokens=97, num_ranks=3)
    assert ring_error(layout, right, torch.float64) <= 1e-12
    assert ring_error(layout, kernel, torch.float64) > 1e-6


class Watched:
    """An exchange that writes down, with the kernel's calls, in which order things happen and where data lands."""

    def __init__(self, exchange: Exchange, events: list[str]) -> None:
        self._exchange = exchange
        self.rank, self.num_ranks = exchange.rank, exchange.num_ranks
        self.events = events
        self.places: set[int] = set()
        self.num_elements: set[int] = set()
        self.peers_sent_to: list[list[int]] = []

    def start(self, sends: Sequence[Transfer], receives: Sequence[Transfer]) -> None:
        self.events.append("start")
        self.peers_sent_to.append([peer for peer, _ in sends])
        for _, tensor in [*sends, *receives]:
            self.places.add(tensor.untyped_storage().data_ptr())
            self.num_elements.add(tensor.untyped_storage().nbytes() // tensor.element_size())
        self._exchange.start(sends, receives)

    def finish(self) -> None:
        self._exchange.finish()
        self.events.append("finish")

    def all_reduce(self, tensor: torch.Tensor, op: ReduceOp = "sum") -> None:
        self._exchange.all_reduce(tensor, op)

    def close(self) -> None:
        self._exchange.close()


def test_sends_are_posted_before_the_compute_they_hide_behind() -> None:
    layout = Layout(kind="zigzag", num_tokens=96, num_ranks=4)
    right = choose_kernel("torch", "cpu")[1]
    qkv = random_qkv(96)

    def rank_main(exchange: Exchange) -> list[str]:
        events: list[str] = []

        def kernel(
            q_HTD: torch.Tensor,
            k_GSD: torch.Tensor,
            v_GSE: torch.Tensor,
            *,
            band: Band,
            scale: float,
            softcap: float | None = None,
        ) -> tuple[torch.Tensor, torch.Tensor]:
            events.append("compute")
            return right(q_HTD, k_GSD, v_GSE, band=band, scale=scale, softcap=softcap)

        shard_attention(Watched(exchange, events), layout, kernel, qkv)
        return events

    assert run_ranks(4, rank_main) == [["start", "compute", "finish"] * 4] * 4


@pytest.mark.parametrize("num_ranks", [2, 4, 7])
def test_two_buffers_of_a_shard_serve_any_ring(num_ranks: int) -> None:
    layout = Layout(kind="zigzag", num_tokens=101, num_ranks=num_ranks)
    kernel = choose_kernel("torch", "cpu")[1]
    qkv = random_qkv(101)

    def rank_main(exchange: Exchange) -> tuple[int, int]:
        watched = Watched(exchange, [])
        shard_attention(watched, layout, kernel, qkv)
        return len(watched.places), max(watched.num_elements)

    largest = max(layout.num_tokens_of(rank) for rank in range(num_ranks))
    for num_places, num_elements in run_ranks(num_ranks, rank_main):
        # Keys and values, two heads of them.
        assert (num_places, num_elements) <= (2, 2 * 2 * largest * HEAD_DIM)


@pytest.mark.parametrize("num_ranks", [2, 4, 16])
def test_a_window_needs_buffers_of_a_window_and_sends_one_message_a_peer(num_ranks: int) -> None:
    layout = Layout(kind="zigzag", num_tokens=1600, num_ranks=num_ranks)
    kernel = choose_kernel("torch", "cpu")[1]
    qkv = random_qkv(1600, value_dim=24)

    def rank_main(exchange: Exchange) -> Watched:
        watched = Watched(exchange, [])
        shard_attention(watched, layout, kernel, qkv, mask=Mask.sliding(10))
        return watched

    for watched in run_ranks(num_ranks, rank_main):
        assert len(watched.places) <= 3
        # Keys of 16 and values of 24 dimensions, two heads of them; at most the ends of two chunks at a time.
        assert max(watched.num_elements) <= 2 * 9 * 2 * (HEAD_DIM + 24)
        assert all(len(peers) == len(set(peers)) for peers in watched.peers_sent_to)


def test_a_kernel_that_fails_on_one_rank_stops_the_ring() -> None:
    layout = Layout(kind="zigzag", num_tokens=50, num_ranks=3)
    right = choose_kernel("torch", "cpu")[1]

    def rank_main(exchange: Exchange) -> torch.Tensor:
        def broken(
            q_HTD: torch.Tensor,
            k_GSD: torch.Tensor,
            v_GSE: torch.Tensor,
            *,
            band: Band,
            scale: float,
            softcap: float | None = None,
        ) -> tuple[torch.Tensor, torch.Tensor]:
            raise FloatingPointError("planted")

        return shard_attention(exchange, layout, broken if exchange.rank == 1 else right, random_qkv(50))

    with pytest.raises(FloatingPointError, match="planted"):
        run_ranks(3, rank_main)
