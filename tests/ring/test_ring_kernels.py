"""Kernels and the merge of their results, against float64 definitions."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ring_oracles import HEAD_DIM, attention_by_definition, random_qkv, relative_error

from longdoc.errors import StartError
from longdoc.ring import kernels
from longdoc.ring.kernels import choose_kernel, reference
from longdoc.ring.merge import Accumulator, merge_

KERNELS = ["torch", "reference"]
SCALE = HEAD_DIM**-0.5


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 5e-6)])
@pytest.mark.parametrize("num_tokens", [1, 2, 5, 97, 300])
def test_a_causal_block_is_attention_by_its_definition(
    name: str, dtype: torch.dtype, tolerance: float, num_tokens: int
) -> None:
    kernel = choose_kernel(name, "cpu")[1]
    q, k, v = (tensor.to(dtype) for tensor in random_qkv(num_tokens))
    out, lse = kernel(q, k, v, causal=True, scale=SCALE)
    assert relative_error(out, attention_by_definition(q, k, v, SCALE)) <= tolerance
    assert lse.dtype == dtype
    for head in range(q.shape[0]):
        scores = SCALE * q[head].double().numpy() @ k[head // 2].double().numpy().T
        expected = [np.logaddexp.reduce(scores[row, : row + 1]) for row in range(num_tokens)]
        assert np.abs(lse[head].double().numpy() - expected).max() <= 100 * tolerance


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("score_bytes", [1, 4 * 97 * 4 * 10, 1 << 30])
def test_tiles_of_queries_do_not_change_the_reference(
    monkeypatch: pytest.MonkeyPatch, causal: bool, score_bytes: int
) -> None:
    q, k, v = random_qkv(97)
    whole = reference.reference_kernel(q, k, v, causal=causal, scale=SCALE)
    monkeypatch.setattr(reference, "_SCORE_BYTES", score_bytes)
    for found, expected in zip(reference.reference_kernel(q, k, v, causal=causal, scale=SCALE), whole, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", KERNELS)
def test_a_full_block_may_have_other_keys_than_queries(name: str) -> None:
    kernel = choose_kernel(name, "cpu")[1]
    q, k, v = random_qkv(40)
    out, lse = kernel(q[:, :7], k, v, causal=False, scale=SCALE)
    assert (out.shape, lse.shape) == ((4, 7, HEAD_DIM), (4, 7))
    # The last query of a causal block sees every key.
    expected = attention_by_definition(torch.cat([k.repeat_interleave(2, 0)[:, :-1], q[:, 6:7]], 1), k, v, SCALE)
    assert np.abs(out[:, 6].numpy() - expected[:, -1]).max() <= 1e-13


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("num_queries", "num_keys"), [(0, 3), (3, 0)])
def test_empty_blocks_never_reach_a_kernel(name: str, num_queries: int, num_keys: int) -> None:
    q, k, v = random_qkv(3)
    with pytest.raises(AssertionError, match=r"without (queries|keys)"):
        choose_kernel(name, "cpu")[1](q[:, :num_queries], k[:, :num_keys], v[:, :num_keys], causal=False, scale=1.0)


def test_empty_blocks_are_refused_without_assert_statements_too() -> None:
    # torch's own kernel divides by zero there, which no exception handler sees: the process is gone.
    code = (
        "import torch\nfrom longdoc.ring.kernels import choose_kernel\nk = torch.zeros(1, 3, 8)\n"
        "try:\n    choose_kernel('torch', 'cpu')[1](k[:, :0], k, k, causal=False, scale=1.0)\n"
        "except AssertionError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "a kernel was called without queries\n"


@pytest.mark.parametrize("name", KERNELS)
def test_a_causal_block_must_be_square(name: str) -> None:
    q, k, v = random_qkv(3)
    with pytest.raises(AssertionError, match="a causal block must be square, not 2 × 3"):
        choose_kernel(name, "cpu")[1](q[:, :2], k, v, causal=True, scale=1.0)


def test_auto_is_torch_and_says_so() -> None:
    assert kernels.KERNELS == ("auto", "torch", "flash-attn", "reference")
    assert choose_kernel("auto", "cpu") == choose_kernel("torch", torch.device("cpu"))
    assert choose_kernel("auto", "cpu")[0] == "torch"


@pytest.mark.parametrize(
    ("name", "device", "message"),
    [
        ("flash-attn", "cpu", "kernel 'flash-attn' arrives with CUDA support; use --kernel torch"),
        ("torch", "cuda", "kernel 'torch' does not run on device 'cuda' yet; use --device cpu"),
        ("triton", "cpu", "unknown kernel 'triton': choose --kernel auto, torch, reference"),
    ],
)
def test_a_missing_kernel_is_refused_by_name(name: str, device: str, message: str) -> None:
    with pytest.raises(StartError) as refusal:
        choose_kernel(name, device)
    assert str(refusal.value) == message


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.sampled_from([1.0, 30.0, 1000.0]))
@settings(deadline=None, max_examples=60)
def test_merging_any_partition_of_the_keys_gives_attention_over_all(sizes: list[int], spread: float) -> None:
    generator = torch.Generator().manual_seed(sum(sizes))
    num_keys = sum(sizes)
    scores = spread * torch.randn((2, 3, num_keys), generator=generator, dtype=torch.float64)
    values = torch.randn((2, num_keys, 4), generator=generator, dtype=torch.float64)
    total = Accumulator.empty_for(torch.empty((2, 3, 4), dtype=torch.float64))
    start = 0
    for size in sizes:
        part = slice(start, start + size)
        start += size
        # By definition: no key, lse -inf and out 0.
        weights = torch.softmax(scores[..., part], dim=-1)
        total.merge(slice(0, 3), weights @ values[:, part], torch.logsumexp(scores[..., part], dim=-1))
    expected_lse = np.logaddexp.reduce(scores.numpy(), axis=-1, initial=-np.inf)
    assert np.allclose(total.lse_HT.numpy(), expected_lse, rtol=1e-13, atol=1e-13)
    assert torch.allclose(total.out_HTD, torch.softmax(scores, dim=-1) @ values, rtol=1e-12, atol=1e-13)


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
    empty = Accumulator.empty_for(out)
    empty.merge(slice(0, 9), out, lse)
    assert torch.equal(empty.out_HTD, out)
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
        assert Accumulator.empty_for(torch.empty((1, 2, 3), dtype=dtype)).out_HTD.dtype == torch.float32
