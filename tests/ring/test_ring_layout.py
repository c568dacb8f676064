"""Layouts: exact, complete and balanced for any number of tokens and ranks."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longdoc.errors import StartError
from longdoc.ring.layout import LAYOUTS, Layout, LayoutKind, TokenRange

layouts = st.builds(
    lambda kind, num_tokens, num_ranks: Layout(kind=kind, num_tokens=num_tokens, num_ranks=num_ranks),
    st.sampled_from(LAYOUTS),
    st.integers(0, 200),
    st.integers(1, 12),
)


def ranges(layout: Layout, rank: int) -> list[tuple[int, int]]:
    return [(tokens.start, tokens.stop) for tokens in layout.ranges(rank)]


def test_zigzag_pairs_early_chunks_with_late_ones() -> None:
    layout = Layout(kind="zigzag", num_tokens=12, num_ranks=3)
    assert ranges(layout, 0) == [(0, 2), (10, 12)]
    assert ranges(layout, 1) == [(2, 4), (8, 10)]
    assert ranges(layout, 2) == [(4, 8)]
    assert layout.borders() == (2, 4, 8, 10)


def test_contiguous_deals_out_one_stretch_a_rank_longer_ones_first() -> None:
    layout = Layout(kind="contiguous", num_tokens=11, num_ranks=4)
    assert [ranges(layout, rank) for rank in range(4)] == [[(0, 3)], [(3, 6)], [(6, 9)], [(9, 11)]]
    assert layout.borders() == (3, 6, 9)


@pytest.mark.parametrize("kind", LAYOUTS)
def test_with_fewer_tokens_than_ranks_the_last_ranks_own_nothing(kind: LayoutKind) -> None:
    layout = Layout(kind=kind, num_tokens=2, num_ranks=4)
    assert [ranges(layout, rank) for rank in range(4)] == [[(0, 1)], [(1, 2)], [], []]
    assert layout.positions(3).shape == (0,)
    assert layout.positions(3).dtype == np.int64
    assert layout.borders() == (1,)


@given(layouts)
@settings(deadline=None)
def test_every_token_has_exactly_one_owner(layout: Layout) -> None:
    owners = {}
    for rank in range(layout.num_ranks):
        positions = layout.positions(rank).tolist()
        assert positions == sorted(positions)
        assert len(positions) == layout.num_tokens_of(rank)
        for position in positions:
            assert position not in owners
            owners[position] = rank
    assert sorted(owners) == list(range(layout.num_tokens))
    assert [layout.owner(position) for position in range(layout.num_tokens)] == [
        owners[position] for position in range(layout.num_tokens)
    ]
    changes = [p for p in range(1, layout.num_tokens) if owners[p] != owners[p - 1]]
    assert layout.borders() == tuple(changes)


@given(layouts)
@settings(deadline=None)
def test_ranks_differ_by_at_most_one_token(layout: Layout) -> None:
    sizes = [layout.num_tokens_of(rank) for rank in range(layout.num_ranks)]
    assert max(sizes) - min(sizes) <= 1


@given(layouts)
@settings(deadline=None)
def test_ranges_are_apart_and_never_empty(layout: Layout) -> None:
    for rank in range(layout.num_ranks):
        found = layout.ranges(rank)
        assert all(len(tokens) > 0 for tokens in found)
        assert all(a.stop < b.start for a, b in itertools.pairwise(found))


def test_striped_deals_out_one_token_after_the_other() -> None:
    layout = Layout(kind="striped", num_tokens=8, num_ranks=3)
    assert [layout.positions(rank).tolist() for rank in range(3)] == [[0, 3, 6], [1, 4, 7], [2, 5]]
    assert layout.borders() == (1, 2, 3, 4, 5, 6, 7)
    assert ranges(layout, 2) == [(2, 3), (5, 6)]


@given(layouts)
@settings(deadline=None)
def test_runs_are_at_most_two_and_say_the_positions(layout: Layout) -> None:
    for rank in range(layout.num_ranks):
        runs = layout.runs(rank)
        assert len(runs) <= 2
        spelt_out = [run.start + run.step * number for run in runs for number in range(run.num_tokens)]
        assert spelt_out == layout.positions(rank).tolist()


def test_an_unknown_layout_is_refused_by_name() -> None:
    with pytest.raises(StartError) as refusal:
        Layout(kind="spiral", num_tokens=4, num_ranks=2)  # type: ignore[arg-type]
    assert str(refusal.value) == "layout 'spiral' is not available: choose --layout zigzag, contiguous, striped"


@pytest.mark.parametrize(("num_tokens", "num_ranks"), [(-1, 2), (5, 0)])
def test_impossible_sizes_are_refused(num_tokens: int, num_ranks: int) -> None:
    with pytest.raises(ValueError, match="cannot lay out"):
        Layout(kind="zigzag", num_tokens=num_tokens, num_ranks=num_ranks)


def test_places_outside_are_refused() -> None:
    layout = Layout(kind="zigzag", num_tokens=5, num_ranks=2)
    with pytest.raises(ValueError, match="position 5 is outside of 5 tokens"):
        layout.owner(5)
    with pytest.raises(ValueError, match="rank 2 is not in a ring of 2"):
        layout.ranges(2)
    assert len(TokenRange(start=2, stop=5)) == 3
