"""Pieces of a block: small, together the block, and hardly larger than what is visible."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longdoc.ring.blocks import Block, trimmed
from longdoc.ring.layout import TokenRange
from longdoc.ring.mask import Band
from longdoc.ring.pieces import split_block

edges = st.one_of(st.none(), st.integers(-720, 720))


def whole(num_tokens: int) -> TokenRange:
    return TokenRange(start=0, stop=num_tokens)


def visible(block: Block) -> npt.NDArray[np.bool_]:
    """The pairs of a block among 800 × 800 places."""
    ahead = np.arange(len(block.keys))[None, :] - np.arange(len(block.queries))[:, None]
    lower, upper = block.band.lower, block.band.upper
    places = np.zeros((800, 800), dtype=bool)
    places[block.queries.slice, block.keys.slice] = (ahead >= (-(10**9) if lower is None else lower)) & (
        ahead <= (10**9 if upper is None else upper)
    )
    return places


@given(
    st.tuples(st.integers(1, 700), st.integers(1, 700)),
    st.one_of(st.tuples(edges, edges), st.just((None, 0)), st.just((None, None))),
    st.integers(0, 40),
    st.sampled_from([1000, 5000, 100_000, 10**6]),
)
@settings(deadline=None, max_examples=80)
def test_pieces_of_a_block_are_small_and_together_the_block(
    sizes: tuple[int, int], band: tuple[int | None, int | None], start: int, max_pairs: int
) -> None:
    queries, keys = (TokenRange(start=start, stop=start + size) for size in sizes)
    block = trimmed(queries, keys, *band)
    if block is None:
        return
    num_seen = np.zeros((800, 800), dtype=int)
    for piece in split_block(block, max_pairs):
        seen = visible(piece)
        assert 0 < piece.num_pairs <= max_pairs
        assert piece.num_pairs == seen.sum()
        assert seen[piece.queries.slice, piece.keys.slice].any(axis=0).all()
        assert seen[piece.queries.slice, piece.keys.slice].any(axis=1).all()
        num_seen += seen
    assert np.array_equal(num_seen, visible(block))


@given(st.tuples(st.integers(1, 30), st.integers(1, 30)), edges, edges)
@settings(deadline=None, max_examples=200)
def test_a_block_is_trimmed_to_what_is_visible(sizes: tuple[int, int], lower: int | None, upper: int | None) -> None:
    lower, upper = (None if edge is None else edge % 70 - 35 for edge in (lower, upper))
    untrimmed = visible(Block(queries=whole(sizes[0]), keys=whole(sizes[1]), band=Band(lower=lower, upper=upper)))
    block = trimmed(whole(sizes[0]), whole(sizes[1]), lower, upper)
    if block is None:
        assert not untrimmed.any()
        return
    rows, columns = (np.flatnonzero(untrimmed.any(axis=axis)) for axis in (1, 0))
    assert (block.queries.start, block.queries.stop) == (rows[0], rows[-1] + 1)
    assert (block.keys.start, block.keys.stop) == (columns[0], columns[-1] + 1)
    assert np.array_equal(visible(block), untrimmed)
    # An edge is said only where it hides something.
    part = untrimmed[block.queries.slice, block.keys.slice]
    assert block.band.is_full == bool(part.all())


def test_a_block_that_fits_is_not_cut() -> None:
    block = Block(queries=whole(100), keys=whole(100), band=Band(upper=0))
    assert list(split_block(block, 5050)) == [block]
    assert len(list(split_block(block, 5049))) == 3


@pytest.mark.parametrize("window", [2, 100, 1000, 5000])
def test_the_rectangles_around_the_pieces_of_a_window_are_tokens_times_window(window: int) -> None:
    num_tokens = 20_000
    block = trimmed(whole(num_tokens), whole(num_tokens), 1 - window, 0)
    assert block is not None
    pieces = list(split_block(block, 10**9))
    rectangles = sum(len(piece.queries) * len(piece.keys) for piece in pieces)
    assert rectangles <= 2 * num_tokens * max(window, 512)
    # And no more calls than that takes.
    assert len(pieces) <= 4 * num_tokens / max(window, 512)
