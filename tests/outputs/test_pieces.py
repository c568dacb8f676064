"""Which rank sums, shares and writes a piece, against a count by hand of who holds what."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from longdoc.outputs.pieces import Partition, piece_owners, pieces_of_rank, shared_pieces
from longdoc.ring.layout import LAYOUTS, Layout


@st.composite
def partitions(draw):
    num_tokens = draw(st.integers(1, 40))
    cuts = draw(st.lists(st.integers(0, num_tokens), max_size=8))
    starts = np.asarray(sorted([0, num_tokens, *cuts]), dtype=np.int64)
    num_prefix, num_suffix = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    layout = Layout(
        kind=draw(st.sampled_from(LAYOUTS)),
        num_tokens=num_prefix + num_tokens + num_suffix,
        num_ranks=draw(st.integers(1, 7)),
    )
    return starts, layout, num_prefix


def contributors(starts, layout, num_prefix, piece):
    tokens = range(int(starts[piece]), int(starts[piece + 1]))
    states = {layout.owner(num_prefix + token) for token in tokens}
    scores = {layout.owner(num_prefix + token - 1) for token in tokens if num_prefix + token > 0}
    return states | scores


@settings(deadline=None, max_examples=300)
@given(partitions())
def test_a_piece_is_shared_exactly_when_two_ranks_contribute(case):
    starts, layout, num_prefix = case
    expected = [p for p in range(len(starts) - 1) if len(contributors(starts, layout, num_prefix, p)) > 1]
    assert shared_pieces(starts, layout, num_prefix=num_prefix).tolist() == expected


@settings(deadline=None, max_examples=300)
@given(partitions())
def test_every_piece_has_one_owner_which_holds_its_first_token(case):
    starts, layout, num_prefix = case
    owners = piece_owners(starts, layout, num_prefix=num_prefix)
    assert len(owners) == len(starts) - 1
    for piece, owner in enumerate(owners):
        first = min(int(starts[piece]), int(starts[-1]) - 1)
        assert owner == layout.owner(num_prefix + first)


@settings(deadline=None, max_examples=200)
@given(partitions())
def test_sums_over_ranks_equal_sums_over_tokens(case):
    """Each rank adds ones for its tokens and rows; shared pieces are added up; owners hold the true counts."""
    starts, layout, num_prefix = case
    num_tokens = int(starts[-1])
    partition = Partition.of(starts, layout, num_prefix=num_prefix)
    views, sums = [], []
    for rank in range(layout.num_ranks):
        positions = layout.positions(rank) - num_prefix
        tokens = positions[(positions >= 0) & (positions < num_tokens)]
        rows = positions + 1
        rows = rows[(rows >= 0) & (rows < num_tokens)]
        if num_prefix == 0 and rank == layout.owner(0):
            rows = np.union1d([0], rows)
        view = pieces_of_rank(partition, rank, tokens=tokens, rows=rows)
        assert (tokens[view.closing] + 1).tolist() == [t + 1 for t in tokens if t + 1 in starts]
        local = np.zeros((len(view.touched), 2), dtype=np.int64)
        np.add.at(local, (view.token_piece, 0), 1)
        np.add.at(local, (view.row_piece, 1), 1)
        views.append(view)
        sums.append(local)
    common = np.zeros((views[0].num_shared, 2), dtype=np.int64)
    for view, local in zip(views, sums):
        common[view.shared_slot] += local[view.shared]
    found = np.full((len(starts) - 1, 2), -1)
    for view, local in zip(views, sums):
        local[view.shared] = common[view.shared_slot]
        found[view.touched[view.owned]] = local[view.owned]
    assert found[:, 0].tolist() == np.diff(starts).tolist()
    assert found[:, 1].tolist() == np.diff(starts).tolist()


def test_a_ring_shares_at_most_one_piece_a_border():
    layout = Layout(kind="zigzag", num_tokens=1000, num_ranks=4)
    assert len(shared_pieces(np.arange(1001, dtype=np.int64), layout, num_prefix=0)) == len(layout.borders()) == 6
