"""Hop plans: together exactly the mask, nothing empty, ranks agree, zigzag balanced, nothing sent in vain."""

from collections import defaultdict

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longdoc.errors import ModelError
from longdoc.ring.blocks import Block
from longdoc.ring.layout import LAYOUTS, Layout, LayoutKind
from longdoc.ring.mask import BIDIRECTIONAL, CAUSAL, Mask
from longdoc.ring.plan import Hop, buffer_sizes, plan_hops

Int64s = npt.NDArray[np.int64]
reaches = st.one_of(st.none(), st.integers(0, 70))
masks = st.one_of(
    st.sampled_from([CAUSAL, BIDIRECTIONAL]),
    st.builds(lambda window, causal: Mask.sliding(window, causal=causal), st.integers(1, 70), st.booleans()),
    st.builds(lambda left, right: Mask(left=left, right=right), reaches, reaches),
)


@st.composite
def rings(draw: st.DrawFn) -> tuple[Layout, Mask]:
    mask = draw(masks)
    kind = draw(st.sampled_from([kind for kind in LAYOUTS if kind != "striped" or not mask.is_windowed]))
    return Layout(kind=kind, num_tokens=draw(st.integers(0, 60)), num_ranks=draw(st.integers(1, 9))), mask


def plans_of(layout: Layout, mask: Mask) -> list[tuple[Hop, ...]]:
    return [plan_hops(layout, rank, mask) for rank in range(layout.num_ranks)]


def dense(mask: Mask, num_tokens: int) -> npt.NDArray[np.bool_]:
    """The mask by its definition, query by key."""
    ahead = np.arange(num_tokens)[None, :] - np.arange(num_tokens)[:, None]
    left, right = (num_tokens if reach is None else reach for reach in (mask.left, mask.right))
    return (-left <= ahead) & (ahead <= right)


def shown(block: Block) -> npt.NDArray[np.bool_]:
    ahead = np.arange(len(block.keys))[None, :] - np.arange(len(block.queries))[:, None]
    lower, upper = block.band.lower, block.band.upper
    return (ahead >= (-(10**9) if lower is None else lower)) & (ahead <= (10**9 if upper is None else upper))


def held_positions(layout: Layout, plans: list[tuple[Hop, ...]]) -> dict[tuple[int, int], Int64s]:
    """(rank, step) -> the positions of the keys that are held then, by following every transfer.

    Fails where a receive has no send of the same keys at the same step, or a send no receive.
    """
    by_step = [{hop.step: hop for hop in plan} for plan in plans]
    held: dict[tuple[int, int], Int64s] = {(r, 0): layout.positions(r) for r in range(layout.num_ranks)}
    for step in sorted({hop.step for plan in plans for hop in plan}):
        for rank, plan in enumerate(by_step):
            hop = plan.get(step)
            if hop is not None and hop.receive is not None:
                sent = by_step[hop.receive.peer][step].send
                assert sent is not None
                assert (sent.peer, sent.owner, sent.keys) == (rank, hop.receive.owner, hop.receive.keys)
                owned = layout.positions(sent.owner)
                held[rank, step + 1] = np.concatenate([owned[keys.slice] for keys in sent.keys])
            if hop is not None and hop.send is not None:
                received = by_step[hop.send.peer][step].receive
                assert received is not None
                assert received.peer == rank
                if hop.send.owner != rank:  # passed on as it came
                    owned = layout.positions(hop.send.owner)
                    passed_on = np.concatenate([owned[keys.slice] for keys in hop.send.keys])
                    assert held[rank, step].tolist() == passed_on.tolist()
    return held


@given(rings())
@settings(deadline=None, max_examples=300)
def test_all_blocks_together_are_exactly_the_mask(ring: tuple[Layout, Mask]) -> None:
    layout, mask = ring
    plans = plans_of(layout, mask)
    held = held_positions(layout, plans)
    num_seen = np.zeros((layout.num_tokens, layout.num_tokens), dtype=int)
    for rank, plan in enumerate(plans):
        queries = layout.positions(rank)
        for hop in plan:
            assert (hop.source == rank) == (hop.step == 0)
            keys = held.get((rank, hop.step), queries[:0])
            assert hop.num_keys == len(keys)
            for block, among in [*((b, keys) for b in hop.blocks), *((b, queries) for b in hop.own_blocks)]:
                visible = shown(block)
                # Kernels have no answer for a query without keys, and a key without queries is work for nothing.
                assert visible.size > 0
                assert visible.any(axis=0).all()
                assert visible.any(axis=1).all()
                assert block.num_pairs == visible.sum()
                num_seen[np.ix_(queries[block.queries.slice], among[block.keys.slice])] += visible
    assert np.array_equal(num_seen, dense(mask, layout.num_tokens))


@given(rings())
@settings(deadline=None, max_examples=200)
def test_no_hop_is_made_and_no_key_is_sent_that_nobody_needs(ring: tuple[Layout, Mask]) -> None:
    layout, mask = ring
    plans = plans_of(layout, mask)
    held = held_positions(layout, plans)
    needed: dict[int, set[int]] = defaultdict(set)  # rank -> the positions of others that it computes with
    for rank, plan in enumerate(plans):
        for hop in plan:
            assert hop.blocks or hop.own_blocks or hop.send is not None or hop.receive is not None
            if hop.step > 0:
                for block in hop.blocks:
                    needed[rank] |= set(held[rank, hop.step][block.keys.slice].tolist())
    for rank, plan in enumerate(plans):
        for hop in plan:
            if hop.send is None:
                continue
            positions = layout.positions(hop.send.owner)
            sent = {p for keys in hop.send.keys for p in positions[keys.slice].tolist()}
            assert sent
            if mask.within(layout.num_tokens).is_windowed:
                assert sent <= needed[hop.send.peer]
            else:  # Whole shards are passed on, as far as a rank further on needs any of it.
                further = [(rank + d) % layout.num_ranks for d in range(1, layout.num_ranks - hop.step)]
                assert any(sent & needed[later] for later in further)


@given(rings())
@settings(deadline=None, max_examples=100)
def test_buffers_hold_what_comes_in_and_no_rank_needs_more_for_a_larger_ring(ring: tuple[Layout, Mask]) -> None:
    layout, mask = ring
    for rank, plan in enumerate(plans_of(layout, mask)):
        sizes = buffer_sizes(plan, rank)
        for hop in plan:
            if hop.receive is not None:
                assert hop.receive.num_keys <= sizes.slots[(hop.step + 1) % 2]
            if hop.send is not None and hop.send.owner == rank:
                # Slot 0 receives from step 1 on: what is sent of one's own later needs a place of its own.
                assert hop.send.num_keys <= (sizes.packed or (sizes.slots[0] if hop.step == 0 else 0))
        largest = max(layout.num_tokens_of(owner) for owner in range(layout.num_ranks))
        assert max(*sizes.slots, sizes.packed) <= largest


def test_contiguous_causal_keys_never_travel_back_to_the_first_rank() -> None:
    layout = Layout(kind="contiguous", num_tokens=40, num_ranks=4)
    first, last = (
        [(hop.source, hop.send and hop.send.peer, hop.receive and hop.receive.peer) for hop in plan]
        for plan in (plan_hops(layout, rank, CAUSAL) for rank in (0, 3))
    )
    assert first == [(0, 1, None)]
    assert last == [(3, None, 2), (2, None, 2), (1, None, 2), (0, None, None)]


@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("mask", [CAUSAL, BIDIRECTIONAL])
def test_full_attention_needs_one_kernel_call_a_hop(kind: LayoutKind, mask: Mask) -> None:
    layout = Layout(kind=kind, num_tokens=64, num_ranks=4)
    for plan in plans_of(layout, mask):
        assert all(len(hop.blocks) <= 1 for hop in plan)
        assert all(block.is_full or block.is_causal_square for hop in plan for block in hop.blocks)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kind", ["zigzag", "contiguous"])
@pytest.mark.parametrize("num_ranks", [2, 4, 16, 64])
def test_a_window_costs_a_few_hops_and_tokens_times_window_in_a_ring_of_any_size(
    num_ranks: int, kind: LayoutKind, causal: bool
) -> None:
    window, num_tokens = 32, 64 * 128
    layout = Layout(kind=kind, num_tokens=num_tokens, num_ranks=num_ranks)
    plans = plans_of(layout, Mask.sliding(window, causal=causal))
    sides = 1 if causal else 2
    # Own keys, and those of the owners of the chunks before and behind.
    assert max(len(plan) for plan in plans) <= 3
    num_pairs = sum(b.num_pairs for plan in plans for hop in plan for b in (*hop.blocks, *hop.own_blocks))
    assert num_pairs <= num_tokens * (1 + sides * (window - 1))
    # A border between two chunks is crossed by the keys of one window, or of one from each side.
    num_sent = sum(hop.send.num_keys for plan in plans for hop in plan if hop.send is not None)
    assert num_sent == len(layout.borders()) * sides * (window - 1)
    for rank, plan in enumerate(plans):
        sizes = buffer_sizes(plan, rank)
        assert max(*sizes.slots, sizes.packed) <= 4 * window


def test_both_transfers_of_a_window_hide_behind_half_of_a_ranks_own_work() -> None:
    layout = Layout(kind="zigzag", num_tokens=8 * 1024, num_ranks=4)
    for rank, plan in enumerate(plans_of(layout, Mask.sliding(32))):
        work = [sum(block.num_pairs for block in (*hop.blocks, *hop.own_blocks)) for hop in plan]
        # The last rank's two chunks are one stretch, which needs one chunk before it only.
        num_transfers = 1 if rank == 3 else 2
        behind = [pairs for pairs, hop in zip(work, plan, strict=True) if hop.receive is not None]
        assert all(pairs >= 0.9 * sum(work) / num_transfers for pairs in behind)


def test_a_window_wider_than_a_shard_reaches_as_many_ranks_as_it_must() -> None:
    layout = Layout(kind="contiguous", num_tokens=80, num_ranks=8)
    sources = [hop.source for hop in plan_hops(layout, 7, Mask.sliding(22))]
    assert sources == [7, 6, 5, 4]


def test_a_window_that_no_pair_of_tokens_reaches_is_none() -> None:
    layout = Layout(kind="zigzag", num_tokens=40, num_ranks=4)
    assert plans_of(layout, Mask.sliding(40)) == plans_of(layout, CAUSAL)
    assert plans_of(layout, Mask.sliding(40, causal=False)) == plans_of(layout, BIDIRECTIONAL)
    assert plans_of(layout, Mask.sliding(39)) != plans_of(layout, CAUSAL)


@pytest.mark.parametrize("kind", ["zigzag", "striped"])
@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("odd", [0, 1, 13])
def test_no_rank_has_more_than_1_02_of_the_mean_work(num_ranks: int, odd: int, kind: LayoutKind) -> None:
    layout = Layout(kind=kind, num_tokens=1024 * num_ranks + odd, num_ranks=num_ranks)
    # The work of a rank, counted from its positions: the token at position p sees p + 1 keys.
    work = [int((layout.positions(rank) + 1).sum()) for rank in range(num_ranks)]
    planned = [sum(b.num_pairs for hop in plan for b in hop.blocks) for plan in plans_of(layout, CAUSAL)]
    assert planned == work
    assert max(work) <= 1.02 * sum(work) / num_ranks


@pytest.mark.parametrize("kind", LAYOUTS)
def test_a_document_without_tokens_needs_no_hop(kind: LayoutKind) -> None:
    assert plan_hops(Layout(kind=kind, num_tokens=0, num_ranks=3), 1, CAUSAL) == ()


def test_a_window_in_a_striped_layout_is_refused_however_short_the_document() -> None:
    with pytest.raises(ModelError) as refusal:
        plan_hops(Layout(kind="striped", num_tokens=4, num_ranks=2), 0, Mask.sliding(128))
    assert str(refusal.value) == (
        "layout 'striped' is for full causal and bidirectional attention, and this model has layers causal with a"
        " window of 128: choose --layout zigzag"
    )
