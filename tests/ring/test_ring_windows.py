"""Bands said in flash-attn's windows, against flash-attn's own reading of them, on every small block."""

import itertools

import numpy as np
import pytest
from cuda_twins import seen_by_flash_attn, seen_by_flash_attn_4

from longdoc.ring.kernels.windows import window_parts
from longdoc.ring.mask import Band


def wanted(band, num_queries, num_keys):
    ahead = np.arange(num_keys)[None] - np.arange(num_queries)[:, None]
    seen = np.ones_like(ahead, dtype=bool)
    if band.lower is not None:
        seen &= ahead >= band.lower
    if band.upper is not None:
        seen &= ahead <= band.upper
    return seen


def planned_blocks(size):
    """Every block of up to size × size that keeps to what the planner promises: no empty row, no empty column."""
    for num_queries, num_keys in itertools.product(range(1, size + 1), repeat=2):
        bounds = (None, *range(-size - 1, size + 2))
        for lower, upper in itertools.product(bounds, repeat=2):
            seen = wanted(Band(lower=lower, upper=upper), num_queries, num_keys)
            if seen.any(axis=1).all() and seen.any(axis=0).all():
                yield Band(lower=lower, upper=upper), num_queries, num_keys, seen


@pytest.mark.parametrize("read", [seen_by_flash_attn, seen_by_flash_attn_4])
def test_windows_show_exactly_the_band_of_every_small_block(read):
    num_blocks = 0
    for band, num_queries, num_keys, seen in planned_blocks(7):
        shown = np.zeros_like(seen)
        done = 0
        for part in window_parts(band, num_queries, num_keys):
            assert part.query_start == done < part.query_stop, "parts are ascending, disjoint and not empty"
            done = part.query_stop
            rows, columns = shown[part.queries], shown[part.queries, part.keys].shape[1]
            rows[:, part.keys] = read(len(rows), columns, part.left, part.right)
            assert shown[part.queries].any(axis=1).all(), "a row without keys has no log-sum-exp"
        assert done == num_queries
        assert (shown == seen).all(), (band, num_queries, num_keys)
        num_blocks += 1
    assert num_blocks > 3000


def test_the_usual_blocks_are_one_call_each():
    assert [part.is_full for part in window_parts(Band(), 5, 9)] == [True]
    assert [part.is_causal for part in window_parts(Band(upper=0), 8, 8)] == [True]
    (window,) = window_parts(Band(lower=-3, upper=0), 8, 8)
    assert (window.left, window.right) == (3, 0)
    (both,) = window_parts(Band(lower=-3, upper=3), 8, 8)
    assert (both.left, both.right) == (3, 3)


def test_no_block_takes_more_than_three_calls():
    assert max(len(window_parts(band, t, s)) for band, t, s, _ in planned_blocks(6)) <= 3


def test_a_block_the_planner_never_makes_is_an_invariant_broken_not_a_wide_window():
    with pytest.raises(AssertionError, match="sees none of 4 keys"):
        window_parts(Band(lower=2), 4, 4)
    with pytest.raises(AssertionError, match="none of 4 queries sees the last of 4 keys"):
        window_parts(Band(upper=-1), 4, 4)
