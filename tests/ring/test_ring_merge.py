"""The merge of partial attention results, against float64 definitions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longdoc.ring import merge
from longdoc.ring.merge import Accumulator, merge_


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.sampled_from([1.0, 30.0, 1000.0]))
@settings(deadline=None, max_examples=60)
def test_merging_any_partition_of_the_keys_gives_attention_over_all(sizes: list[int], spread: float) -> None:
    generator = torch.Generator().manual_seed(sum(sizes))
    num_keys = sum(sizes)
    scores = spread * torch.randn((2, 3, num_keys), generator=generator, dtype=torch.float64)
    values = torch.randn((2, num_keys, 4), generator=generator, dtype=torch.float64)
    total = Accumulator.empty_for(torch.empty((2, 3, 5), dtype=torch.float64), 4)
    start = 0
    for size in sizes:
        part = slice(start, start + size)
        start += size
        # By definition: no key, lse -inf and out 0.
        weights = torch.softmax(scores[..., part], dim=-1)
        total.merge(slice(0, 3), weights @ values[:, part], torch.logsumexp(scores[..., part], dim=-1))
    expected_lse = np.logaddexp.reduce(scores.numpy(), axis=-1, initial=-np.inf)
    assert np.allclose(total.lse_HT.numpy(), expected_lse, rtol=1e-13, atol=1e-13)
    assert torch.allclose(total.out_HTE, torch.softmax(scores, dim=-1) @ values, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nothing_merged_with_nothing_is_nothing(dtype: torch.dtype) -> None:
    out, lse = torch.zeros((1, 40, 2), dtype=dtype), torch.full((1, 40), -torch.inf, dtype=dtype)
    merge_(out, lse, torch.zeros((1, 40, 2), dtype=dtype), torch.full((1, 40), -torch.inf, dtype=dtype))
    assert bool((out == 0).all())
    assert bool((lse == -torch.inf).all())


def test_a_merge_with_nothing_changes_no_bit() -> None:
    out, lse = torch.randn(1, 9, 2), torch.randn(1, 9)
    before = out.clone(), lse.clone()
    merge_(out, lse, torch.zeros(1, 9, 2), torch.full((1, 9), -torch.inf))
    assert torch.equal(out, before[0])
    assert torch.equal(lse, before[1])
    empty = Accumulator.empty_for(out, 2)
    empty.merge(slice(0, 9), out, lse)
    assert torch.equal(empty.out_HTE, out)
    assert torch.equal(empty.lse_HT, lse)


def test_log_sum_exps_far_beyond_the_range_of_exp_merge() -> None:
    out, lse = torch.tensor([[[1.0]]]), torch.tensor([[5000.0]])
    merge_(out, lse, torch.tensor([[[3.0]]]), torch.tensor([[5000.0]]))
    assert out.item() == 2.0
    assert lse.item() == pytest.approx(5000.0 + math.log(2.0))
    merge_(out, lse, torch.tensor([[[7.0]]]), torch.tensor([[-5000.0]]))
    assert out.item() == 2.0


def test_a_nan_is_not_hidden() -> None:
    out, lse = torch.zeros(1, 1, 1), torch.zeros(1, 1)
    merge_(out, lse, torch.zeros(1, 1, 1), torch.full((1, 1), torch.nan))
    assert bool(lse.isnan().all())
    assert bool(out.isnan().all())


def test_accumulators_are_float32_for_half_precision() -> None:
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        assert Accumulator.empty_for(torch.empty((1, 2, 3), dtype=dtype), 3).out_HTE.dtype == torch.float32


@pytest.mark.parametrize("spread", [1.0, 1000.0])
def test_sinks_are_one_more_score_without_a_value(spread: float) -> None:
    generator = torch.Generator().manual_seed(7)
    scores = spread * torch.randn((3, 4, 6), generator=generator, dtype=torch.float64)
    values = torch.randn((3, 6, 2), generator=generator, dtype=torch.float64)
    sink_H = torch.tensor([-torch.inf, 0.5 * spread, 3.0 * spread], dtype=torch.float64)
    total = Accumulator.empty_for(torch.empty((3, 4, 5), dtype=torch.float64), 2)
    for part in (slice(0, 2), slice(2, 6)):
        weights = torch.softmax(scores[..., part], dim=-1)
        total.merge(slice(0, 4), weights @ values[:, part], torch.logsumexp(scores[..., part], dim=-1))
    total.apply_sinks(sink_H)
    with_sinks = torch.cat([scores, sink_H[:, None, None].expand(3, 4, 1)], dim=-1)
    expected = torch.softmax(with_sinks, dim=-1)[..., :-1] @ values
    assert torch.allclose(total.out_HTE, expected, rtol=1e-12, atol=1e-14)
    assert torch.allclose(total.lse_HT, torch.logsumexp(with_sinks, dim=-1), rtol=1e-13)


def test_a_query_that_saw_no_key_gives_zero_with_any_sink() -> None:
    total = Accumulator.empty_for(torch.empty((3, 2, 4)), 4)
    total.apply_sinks(torch.tensor([-torch.inf, 0.0, 500.0]))
    assert bool((total.out_HTE == 0).all())
    assert total.lse_HT[:, 0].tolist() == [-torch.inf, 0.0, 500.0]


def test_half_precision_is_merged_in_tiles_to_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [(torch.randn(2, 50, 3).bfloat16(), torch.randn(2, 50)) for _ in range(3)]
    totals = []
    for tile in (1 << 20, 7 * 2 * 3):
        monkeypatch.setattr(merge, "_TILE_VALUES", {"cpu": tile})
        totals.append(Accumulator.empty_for(torch.empty((2, 50, 3)), 3))
        for out, lse in parts:
            totals[-1].merge(slice(0, 50), out, lse)
    assert torch.equal(totals[0].out_HTE, totals[1].out_HTE)
    assert torch.equal(totals[0].lse_HT, totals[1].lse_HT)


def test_a_result_may_take_the_place_of_queries_of_its_shape_and_never_of_others() -> None:
    q_THD = torch.zeros(5, 2, 4, dtype=torch.bfloat16)
    q_HTD = q_THD.transpose(0, 1)
    total = Accumulator.empty_for(q_HTD, 4)
    total.out_HTE.copy_(torch.randn(2, 5, 4))
    expected = total.out_HTE.bfloat16()
    apart = total.result(q_HTD)
    assert torch.equal(apart, expected)
    assert not q_THD.any()
    placed = total.result(q_HTD, overwrite=True)
    assert torch.equal(placed, expected)
    assert placed.data_ptr() == q_THD.data_ptr()
    # Part of a larger tensor, or laid out head by head: someone else's memory, or another order than the next layer's.
    part = torch.zeros(5, 2, 8, dtype=torch.bfloat16)[..., :4].transpose(0, 1)
    for other in (part, torch.zeros(2, 5, 4, dtype=torch.bfloat16)):
        assert torch.equal(total.result(other, overwrite=True), expected)
        assert not other.any()


def test_without_a_change_of_dtype_the_accumulator_is_the_result() -> None:
    q_HTD = torch.zeros(2, 5, 4)
    total = Accumulator.empty_for(q_HTD, 3)
    assert total.result(q_HTD, overwrite=True) is total.out_HTE
    assert total.out_HTE.transpose(0, 1).is_contiguous()
