"""The merge of partial attention results, against float64 definitions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

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
