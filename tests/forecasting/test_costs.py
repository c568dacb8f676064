"""Seconds from work and rates: every expected number is counted by hand or from a dense mask."""

import dataclasses

import numpy as np
import pytest

from longdoc.estimate import ModelShape, forward_seconds_bound, stall_seconds
from longdoc.forecasting.costs import (
    PairRate,
    Pairs,
    Rates,
    attention_seconds,
    document_seconds,
    kinds_of,
    longest_block_seconds,
    mask_of,
    pairs_of,
    patience,
)
from longdoc.forecasting.waiting import Waits
from longdoc.model.layers import LayerShape
from longdoc.ring.layout import Layout

WHOLE = LayerShape(num_heads=2, num_kv_heads=1, head_dim=8, value_dim=8, window=None)
WINDOW = dataclasses.replace(WHOLE, window=16)
SHAPE = ModelShape(
    hidden_size=16,
    intermediate_size=32,
    vocab_size=100,
    layers=(WHOLE, WINDOW, WHOLE),
    num_parameters=6000,
    num_active_parameters=3000,
    value_bytes=4,
)
# A full pair takes 1, a masked one 10, one in a window 100; everything else nothing.
PAIRS_ONLY = Rates(
    weight=0.0,
    logit=0.0,
    token=0.0,
    document=0.0,
    pairs=(PairRate(layer=WHOLE, full=1.0, masked=10.0), PairRate(layer=WINDOW, full=100.0, masked=100.0)),
)


def layout_of(num_tokens, num_ranks, kind="zigzag"):
    return Layout(kind=kind, num_tokens=num_tokens, num_ranks=num_ranks)


def dense_pairs(layout, rank, left, right):
    """Visible pairs of one rank's queries, from a dense mask over the whole document."""
    ahead = np.arange(layout.num_tokens)[None, :] - layout.positions(rank)[:, None]
    seen = (ahead <= right) if left is None else (ahead <= right) & (ahead >= -left)
    return int(seen.sum())


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
@pytest.mark.parametrize("kind", ["zigzag", "contiguous"])
def test_pairs_are_those_of_the_dense_mask(num_ranks, kind):
    layout = layout_of(203, num_ranks, kind)
    for layer, left in ((WHOLE, None), (WINDOW, 15)):
        for rank in range(num_ranks):
            pairs = pairs_of(layout, rank, mask_of(SHAPE, layer))
            assert pairs.full + pairs.masked == dense_pairs(layout, rank, left, 0)


def test_an_encoder_sees_both_ways():
    both = dataclasses.replace(SHAPE, is_causal=False)
    assert pairs_of(layout_of(200, 1), 0, mask_of(both, WHOLE)) == Pairs(full=200 * 200, masked=0)
    windowed = pairs_of(layout_of(200, 1), 0, mask_of(both, WINDOW))
    assert windowed.full + windowed.masked == dense_pairs(layout_of(200, 1), 0, 15, 15)


def test_attention_is_priced_by_the_kind_of_block_and_of_layer():
    n = 64
    causal, window = n * (n + 1) // 2, dense_pairs(layout_of(n, 1), 0, 15, 0)
    assert attention_seconds(SHAPE, PAIRS_ONLY, layout_of(n, 1)) == 2 * 10 * causal + 100 * window
    # Two ranks, contiguous: the second sees all of the first one's half, and its own half under the mask.
    half = n // 2
    own = half * (half + 1) // 2
    second_window = dense_pairs(layout_of(n, 2, "contiguous"), 1, 15, 0)
    assert (
        attention_seconds(SHAPE, PAIRS_ONLY, layout_of(n, 2, "contiguous"))
        == 2 * (10 * own + half * half) + 100 * second_window
    )


def test_windows_cost_what_they_show_and_the_whole_its_square():
    only = dataclasses.replace(SHAPE, layers=(WINDOW,))
    short, long = (attention_seconds(only, PAIRS_ONLY, layout_of(n, 1)) for n in (1000, 2000))
    assert long / short == pytest.approx(2, rel=0.01)
    only = dataclasses.replace(SHAPE, layers=(WHOLE,))
    short, long = (attention_seconds(only, PAIRS_ONLY, layout_of(n, 1)) for n in (1000, 2000))
    assert long / short == pytest.approx(4, rel=0.01)


def test_the_rest_is_priced_by_token_and_the_longest_shard_counts():
    rates = Rates(weight=2.0, logit=3.0, token=5.0, document=7.0, pairs=PAIRS_ONLY.pairs)
    rest = document_seconds(SHAPE, rates, layout_of(101, 2)) - attention_seconds(SHAPE, rates, layout_of(101, 2))
    assert rest == 7 + 51 * (3000 * 2 + 100 * 3 + 5)
    silent = document_seconds(SHAPE, rates, layout_of(101, 2), with_scores=False)
    assert document_seconds(SHAPE, rates, layout_of(101, 2)) - silent == 51 * 100 * 3
    headless = dataclasses.replace(SHAPE, has_head=False)
    assert document_seconds(headless, rates, layout_of(101, 2)) == silent


def test_contiguous_waits_for_its_last_rank_and_zigzag_for_none():
    only = dataclasses.replace(SHAPE, layers=(WHOLE,))
    flat = dataclasses.replace(PAIRS_ONLY, pairs=(PairRate(layer=WHOLE, full=1.0, masked=1.0),))
    total = attention_seconds(only, flat, layout_of(4000, 1))
    assert attention_seconds(only, flat, layout_of(4000, 4)) == pytest.approx(total / 4, rel=0.01)
    assert attention_seconds(only, flat, layout_of(4000, 4, "contiguous")) == pytest.approx(total * 7 / 16, rel=0.01)


def test_each_kind_of_layer_is_measured_once():
    assert kinds_of(SHAPE) == (WHOLE, WINDOW)


def test_patience_is_ten_times_the_forecast_and_a_minute_at_least():
    assert patience(0.5) == 60
    assert patience(30) == 300
    assert patience(1e6) == 86_400


def test_waits_follow_the_rates_where_there_are_some():
    rates = dataclasses.replace(PAIRS_ONLY, weight=1e-3)
    layout = layout_of(1000, 2)
    waits = Waits.of(SHAPE, layout, rates)
    assert waits.for_a_peer == patience(document_seconds(SHAPE, rates, layout))
    # One layer's thousand weights for 500 tokens, and a piece of attention.
    assert longest_block_seconds(SHAPE, rates, layout) == pytest.approx(2 + 500 * 1000 * 1e-3)
    assert waits.without_a_sign == pytest.approx(10 * 502)
    unknown = Waits.of(SHAPE, layout, None)
    assert unknown.for_a_peer == forward_seconds_bound(SHAPE, 1000, 2)
    assert unknown.without_a_sign == stall_seconds(SHAPE, 1000, 2)
