"""Hop plans: together exactly the mask, nothing empty, neighbours agree, zigzag balanced, nothing sent in vain."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longdoc.errors import ModelError
from longdoc.ring.layout import LAYOUTS, Layout, LayoutKind, TokenRange
from longdoc.ring.mask import Mask
from longdoc.ring.plan import Block, plan_hops, split_block

layouts = st.builds(
    lambda kind, num_tokens, num_ranks: Layout(kind=kind, num_tokens=num_tokens, num_ranks=num_ranks),
    st.sampled_from(LAYOUTS),
    st.integers(0, 60),
    st.integers(1, 9),
)


def pairs_of(block: Block) -> npt.NDArray[np.bool_]:
    shown = np.ones((len(block.queries), len(block.keys)), dtype=bool)
    return np.tril(shown) if block.causal else shown


@given(layouts)
@settings(deadline=None, max_examples=200)
def test_all_blocks_together_are_exactly_the_causal_mask(layout: Layout) -> None:
    num_seen = np.zeros((layout.num_tokens, layout.num_tokens), dtype=int)
    for rank in range(layout.num_ranks):
        queries = layout.positions(rank)
        for hop in plan_hops(layout, rank, Mask()):
            keys = layout.positions(hop.source)
            assert hop.num_keys == len(keys)
            for block in hop.blocks:
                assert block.num_pairs > 0
                assert not block.causal or len(block.queries) == len(block.keys)
                rows, columns = queries[block.queries.slice], keys[block.keys.slice]
                assert (len(rows), len(columns)) == (len(block.queries), len(block.keys))
                num_seen[np.ix_(rows, columns)] += pairs_of(block)
                assert block.num_pairs == pairs_of(block).sum()
    assert np.array_equal(num_seen, np.tril(np.ones_like(num_seen)))


@given(layouts)
@settings(deadline=None, max_examples=200)
def test_keys_arrive_where_they_are_used_and_neighbours_agree(layout: Layout) -> None:
    plans = [{hop.step: hop for hop in plan_hops(layout, rank, Mask())} for rank in range(layout.num_ranks)]
    held = {(rank, 0): rank for rank in range(layout.num_ranks)}
    for step in range(layout.num_ranks):
        for rank, plan in enumerate(plans):
            hop = plan.get(step)
            after = (rank + 1) % layout.num_ranks
            sent_to_next = hop is not None and hop.send_to is not None
            received = plans[after].get(step)
            assert sent_to_next == (received is not None and received.receive_from is not None)
            if hop is None:
                continue
            if hop.blocks or sent_to_next:
                assert held[rank, step] == hop.source
            if sent_to_next:
                assert hop.send_to == after
                assert received is not None
                assert received.receive_from == rank
                assert received.num_keys_received == hop.num_keys > 0
                held[after, step + 1] = hop.source


@given(layouts)
@settings(deadline=None, max_examples=200)
def test_nothing_is_sent_that_nobody_downstream_needs(layout: Layout) -> None:
    plans = [plan_hops(layout, rank, Mask()) for rank in range(layout.num_ranks)]
    users = {(hop.source, rank) for rank, plan in enumerate(plans) for hop in plan if hop.blocks}
    for rank, plan in enumerate(plans):
        for hop in plan:
            assert hop.blocks or hop.send_to is not None or hop.receive_from is not None
            if hop.send_to is not None:
                rest = [(rank + d) % layout.num_ranks for d in range(1, layout.num_ranks - hop.step)]
                assert any((hop.source, later) in users for later in rest)


def test_contiguous_causal_keys_never_travel_back_to_the_first_rank() -> None:
    layout = Layout(kind="contiguous", num_tokens=40, num_ranks=4)
    first, last = (plan_hops(layout, rank, Mask()) for rank in (0, 3))
    assert [(hop.step, hop.send_to, hop.receive_from) for hop in first] == [(0, 1, None)]
    assert [(hop.source, hop.send_to, hop.receive_from) for hop in last] == [
        (3, None, 2),
        (2, None, 2),
        (1, None, 2),
        (0, None, None),
    ]


def test_zigzag_needs_one_kernel_call_a_hop() -> None:
    layout = Layout(kind="zigzag", num_tokens=64, num_ranks=4)
    for rank in range(4):
        assert [len(hop.blocks) for hop in plan_hops(layout, rank, Mask())] == [1, 1, 1, 1]


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("odd", [0, 1, 13])
def test_zigzag_gives_no_rank_more_than_1_02_of_the_mean_work(num_ranks: int, odd: int) -> None:
    layout = Layout(kind="zigzag", num_tokens=1024 * num_ranks + odd, num_ranks=num_ranks)
    # The work of a rank, counted from its positions: the token at position p sees p + 1 keys.
    work = [int((layout.positions(rank) + 1).sum()) for rank in range(num_ranks)]
    planned = [sum(b.num_pairs for hop in plan_hops(layout, r, Mask()) for b in hop.blocks) for r in range(num_ranks)]
    assert planned == work
    assert max(work) <= 1.02 * sum(work) / num_ranks


@given(
    st.integers(1, 700),
    st.integers(1, 700),
    st.booleans(),
    st.integers(0, 40),
    st.sampled_from([1000, 5000, 100_000, 10**6]),
)
@settings(deadline=None, max_examples=60)
def test_pieces_of_a_block_are_small_and_together_the_block(
    num_queries: int, num_keys: int, causal: bool, start: int, max_pairs: int
) -> None:
    if causal:
        num_keys = num_queries
    queries, keys = (TokenRange(start=start, stop=start + size) for size in (num_queries, num_keys))
    block = Block(queries=queries, keys=keys, causal=causal)
    num_seen = np.zeros((start + num_queries, start + num_keys), dtype=int)
    for piece in split_block(block, max_pairs):
        assert 0 < piece.num_pairs <= max_pairs
        num_seen[piece.queries.slice, piece.keys.slice] += pairs_of(piece)
    assert np.array_equal(num_seen[start:, start:], pairs_of(block))
    assert num_seen[:start].sum() == num_seen[:, :start].sum() == 0


def test_a_block_that_fits_is_not_cut() -> None:
    block = Block(queries=TokenRange(start=0, stop=100), keys=TokenRange(start=0, stop=100), causal=True)
    assert list(split_block(block, 5050)) == [block]
    assert len(list(split_block(block, 5049))) == 3


@pytest.mark.parametrize("kind", LAYOUTS)
def test_a_document_without_tokens_needs_no_hop(kind: LayoutKind) -> None:
    assert plan_hops(Layout(kind=kind, num_tokens=0, num_ranks=3), 1, Mask()) == ()


def test_other_masks_are_refused_by_name() -> None:
    with pytest.raises(ModelError) as refusal:
        Mask(kind="sliding_window")  # type: ignore[arg-type]
    assert str(refusal.value) == (
        "a model with 'sliding_window' attention cannot run on the ring: only causal attention is supported;"
        " choose a causal language model (see `longdoc models list`)"
    )
