"""A slowed link: its arithmetic by a clock that stands still, and a ring over it that computes what it always does."""

import threading

import pytest
import torch
from ring_oracles import gather, random_qkv, shard_attention

from longdoc.ring.exchange import Exchange
from longdoc.ring.exchange.loopback import run_ranks
from longdoc.ring.exchange.shaped import Link, ShapedExchange
from longdoc.ring.kernels import choose_kernel
from longdoc.ring.layout import Layout


def test_messages_leave_one_after_another_and_travel_side_by_side() -> None:
    link = Link(bytes_per_second=100, latency_s=0.5)
    assert link.post(10.0, 100) == 11.5
    # Posted while the first is still leaving: waits for the link, not for the arrival.
    assert link.post(10.25, 200) == 13.5
    # An idle link starts at once.
    assert link.post(20.0, 50) == 21.0


@pytest.mark.parametrize(("bytes_per_second", "latency_s"), [(0, 0), (-1, 0), (1, -0.1)])
def test_impossible_links_are_refused(bytes_per_second: float, latency_s: float) -> None:
    with pytest.raises(ValueError, match="no link carries"):
        Link(bytes_per_second=bytes_per_second, latency_s=latency_s)


class Clock:
    """A clock of one rank that moves only when it is told to or slept on."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def swap(exchange: Exchange, *, starts: tuple[float, float], compute: float, blocking: bool) -> tuple[list[float], int]:
    """Two ranks swap 100 and 200 bytes over links of 100 bytes a second and compute meanwhile.

    What each slept, and how many of its sleeps were over when `start` returned.
    """
    clock = Clock(starts[exchange.rank])
    link = Link(bytes_per_second=100, latency_s=0.5)
    shaped = ShapedExchange(exchange, link, blocking=blocking, clock=clock, sleep=clock.sleep)
    peer = 1 - exchange.rank
    sizes = (100, 200)
    received = torch.zeros(sizes[peer], dtype=torch.uint8)
    shaped.start(
        sends=[(peer, torch.full((sizes[exchange.rank],), exchange.rank + 5, dtype=torch.uint8))],
        receives=[(peer, received)],
    )
    slept_in_start = len(clock.slept)
    clock.now += compute
    shaped.finish()
    assert received.tolist() == [peer + 5] * sizes[peer]
    return clock.slept, slept_in_start


def test_a_hop_is_over_when_the_later_of_both_messages_has_arrived() -> None:
    # Rank 0 posts 100 bytes at 10, there at 11.5; rank 1 posts 200 bytes at 10.25, there at 12.75.
    waits = run_ranks(2, lambda ex: swap(ex, starts=(10.0, 10.25), compute=0.0, blocking=False))
    assert waits == [([2.75], 0), ([2.5], 0)]


def test_what_is_computed_meanwhile_is_not_waited_for_again() -> None:
    waits = run_ranks(2, lambda ex: swap(ex, starts=(10.0, 10.25), compute=2.0, blocking=False))
    assert waits == [([0.75], 0), ([0.5], 0)]
    waits = run_ranks(2, lambda ex: swap(ex, starts=(10.0, 10.25), compute=3.0, blocking=False))
    assert waits == [([], 0), ([], 0)]


def test_a_blocking_link_is_waited_for_before_anything_is_computed() -> None:
    waits = run_ranks(2, lambda ex: swap(ex, starts=(10.0, 10.25), compute=3.0, blocking=True))
    assert waits == [([2.75], 1), ([2.5], 1)]


@pytest.mark.parametrize("blocking", [False, True])
def test_a_slow_link_changes_no_bit_of_the_result(blocking: bool) -> None:
    layout = Layout(kind="zigzag", num_tokens=97, num_ranks=3)
    kernel, qkv = choose_kernel("torch", "cpu")[1], random_qkv(97)
    plain = run_ranks(3, lambda ex: shard_attention(ex, layout, kernel, qkv))
    waited = threading.Event()

    def run(exchange: Exchange) -> torch.Tensor:
        link = Link(bytes_per_second=1e9, latency_s=100.0)
        shaped = ShapedExchange(exchange, link, blocking=blocking, clock=lambda: 0.0, sleep=lambda _: waited.set())
        return shard_attention(shaped, layout, kernel, qkv)

    assert torch.equal(gather(layout, run_ranks(3, run), dim=1), gather(layout, plain, dim=1))
    assert waited.is_set()
