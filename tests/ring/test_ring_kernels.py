"""Kernels against the definition of attention in float64."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kernel_oracles import block_by_definition, errors, random_block, visible
from ring_oracles import HEAD_DIM, random_qkv, relative_error

from longdoc.errors import StartError
from longdoc.ring import kernels
from longdoc.ring.kernels import check_block, choose_kernel, reference
from longdoc.ring.mask import FULL, LOWER_TRIANGLE, Band

KERNELS = ["torch", "reference"]
SCALE = HEAD_DIM**-0.5
TOLERANCES = {torch.float64: 1e-13, torch.float32: 5e-6}
BLOCKS = {
    "full": (FULL, 97, 97),
    "full, more keys": (FULL, 40, 333),
    "one query": (FULL, 1, 300),
    "one key": (FULL, 300, 1),
    "one pair": (LOWER_TRIANGLE, 1, 1),
    "triangle": (LOWER_TRIANGLE, 300, 300),
    "triangle, more queries": (LOWER_TRIANGLE, 300, 200),
    "upper triangle": (Band(lower=0), 130, 130),
    "strict triangle, one query after the first key": (Band(upper=1), 120, 121),
    "window": (Band(lower=-31, upper=0), 300, 300),
    "window of one": (Band(lower=0, upper=0), 65, 65),
    "two-sided window": (Band(lower=-20, upper=20), 300, 300),
    "keys that leave a window": (Band(lower=-300, upper=None), 301, 64),
    "offset band": (Band(lower=-90, upper=40), 200, 180),
    "a band wider than the block": (Band(lower=-1000, upper=1000), 33, 44),
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", list(TOLERANCES))
@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_any_shape_is_attention_by_its_definition(name: str, dtype: torch.dtype, block: str) -> None:
    band, num_queries, num_keys = BLOCKS[block]
    q, k, v = random_block(num_queries, num_keys, dtype)
    out, lse = choose_kernel(name, "cpu")[1](q, k, v, band=band, scale=SCALE)
    assert (out.dtype, lse.dtype) == (dtype, dtype)
    assert errors(out, lse, block_by_definition(q, k, v, band, SCALE)) <= TOLERANCES[dtype]


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", list(TOLERANCES))
@pytest.mark.parametrize("softcap", [None, 0.5, 50.0])
@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(3, 3), (6, 2), (5, 1)])
@pytest.mark.parametrize(("head_dim", "value_dim"), [(16, 16), (24, 16), (7, 40)])
def test_softcaps_shared_keys_and_values_of_another_width(
    name: str,
    dtype: torch.dtype,
    softcap: float | None,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    value_dim: int,
) -> None:
    q, k, v = random_block(50, 60, dtype, (num_heads, num_kv_heads), (head_dim, value_dim))
    band = Band(lower=-45, upper=12)
    out, lse = choose_kernel(name, "cpu")[1](q, k, v, band=band, scale=0.3, softcap=softcap)
    assert out.shape == (num_heads, 50, value_dim)
    assert errors(out, lse, block_by_definition(q, k, v, band, 0.3, softcap)) <= TOLERANCES[dtype]


@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.none() | st.integers(-45, 5),
    st.none() | st.integers(-5, 45),
    st.sampled_from([None, 2.0]),
    st.sampled_from(KERNELS),
)
@settings(deadline=None, max_examples=60)
def test_any_band_in_which_all_see_something_is_attention_by_its_definition(
    num_queries: int, num_keys: int, lower: int | None, upper: int | None, softcap: float | None, name: str
) -> None:
    band = Band(lower=lower, upper=upper)
    visible_TS = visible(band, num_queries, num_keys)
    assume(visible_TS.any(axis=0).all() and visible_TS.any(axis=1).all())
    q, k, v = random_block(num_queries, num_keys, torch.float64)
    out, lse = choose_kernel(name, "cpu")[1](q, k, v, band=band, scale=SCALE, softcap=softcap)
    assert errors(out, lse, block_by_definition(q, k, v, band, SCALE, softcap)) <= 1e-13


def test_a_block_is_refused_exactly_where_a_query_or_a_key_is_left_alone() -> None:
    bounds = (None, *range(-6, 7))
    for num_queries, num_keys, lower, upper in itertools.product(range(1, 6), range(1, 6), bounds, bounds):
        q, k, v = torch.empty(1, num_queries, 1), torch.empty(1, num_keys, 1), torch.empty(1, num_keys, 1)
        band = Band(lower=lower, upper=upper)
        visible_TS = visible(band, num_queries, num_keys)
        if visible_TS.any(axis=0).all() and visible_TS.any(axis=1).all():
            check_block(q, k, v, band=band)
        else:
            with pytest.raises(AssertionError, match=r"a query sees no key|a key is seen by no query"):
                check_block(q, k, v, band=band)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("num_tokens", [64, 700])
@pytest.mark.parametrize("band", [FULL, LOWER_TRIANGLE, Band(lower=-50, upper=0)])
def test_half_precision_errs_no_more_than_its_own_rounding_of_results(
    dtype: torch.dtype, num_tokens: int, band: Band
) -> None:
    q, k, v = random_block(num_tokens, num_tokens, dtype, head_dims=(32, 32))
    expected = block_by_definition(q, k, v, band, SCALE)
    out, lse = choose_kernel("torch", "cpu")[1](q, k, v, band=band, scale=SCALE)
    assert lse.dtype == torch.float32
    # Weights and results are each rounded once, to half a unit in the last place.
    assert relative_error(out, expected[0]) <= 2 * torch.finfo(dtype).eps / 2
    assert np.abs(lse.double().numpy() - expected[1]).max() <= 1e-4


@pytest.mark.parametrize("name", KERNELS)
def test_blocks_whose_shapes_do_not_fit_are_refused(name: str) -> None:
    kernel = choose_kernel(name, "cpu")[1]
    q, k, v = random_block(4, 5, torch.float32, (4, 2), (8, 8))
    faults = {
        "4 query heads are no multiple of 3 key-value heads": (q, torch.zeros(3, 5, 8), torch.zeros(3, 5, 8)),
        "keys (2, 5, 8) and values (2, 4, 8) differ in heads or number": (q, k, v[:, :4]),
        "queries have 8 dimensions a head, keys 7": (q, k[..., :7], v),
        "queries, keys and values differ in dtype": (q, k.double(), v),
    }
    for message, (q_bad, k_bad, v_bad) in faults.items():
        with pytest.raises(AssertionError) as refusal:
            kernel(q_bad, k_bad, v_bad, band=FULL, scale=1.0)
        assert str(refusal.value) == message


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("place", ["queries", "keys", "values"])
@pytest.mark.parametrize("num_tokens", [20, 400])
def test_a_nan_reaches_the_result(name: str, place: str, num_tokens: int) -> None:
    q, k, v = random_block(num_tokens, num_tokens, torch.float32, head_dims=(32, 32))
    {"queries": q, "keys": k, "values": v}[place][0, 3, 2] = torch.nan
    out, _ = choose_kernel(name, "cpu")[1](q, k, v, band=FULL, scale=SCALE)
    assert bool(out[0, 3].isnan().any())


@pytest.mark.parametrize("band", [LOWER_TRIANGLE, FULL])
@pytest.mark.parametrize("score_bytes", [1, 4 * 97 * 4 * 10, 1 << 30])
def test_tiles_of_queries_do_not_change_the_reference(
    monkeypatch: pytest.MonkeyPatch, band: Band, score_bytes: int
) -> None:
    q, k, v = random_qkv(97)
    whole = reference.reference_kernel(q, k, v, band=band, scale=SCALE)
    monkeypatch.setattr(reference, "_SCORE_BYTES", score_bytes)
    for found, expected in zip(reference.reference_kernel(q, k, v, band=band, scale=SCALE), whole, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("num_queries", "num_keys"), [(0, 3), (3, 0)])
def test_empty_blocks_never_reach_a_kernel(name: str, num_queries: int, num_keys: int) -> None:
    q, k, v = random_qkv(3)
    with pytest.raises(AssertionError, match=r"without (queries|keys)"):
        choose_kernel(name, "cpu")[1](q[:, :num_queries], k[:, :num_keys], v[:, :num_keys], band=FULL, scale=1.0)


def test_empty_blocks_are_refused_without_assert_statements_too() -> None:
    # torch's own kernel divides by zero there, which no exception handler sees: the process is gone.
    code = (
        "import torch\nfrom longdoc.ring.kernels import choose_kernel\nfrom longdoc.ring.mask import FULL\n"
        "k = torch.zeros(1, 3, 8)\n"
        "try:\n    choose_kernel('torch', 'cpu')[1](k[:, :0], k, k, band=FULL, scale=1.0)\n"
        "except AssertionError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "a kernel was called without queries\n"


def test_auto_is_torch_and_says_so() -> None:
    assert kernels.KERNELS == ("auto", "torch", "flash-attn", "flash-attn-4", "reference")
    assert choose_kernel("auto", "cpu") == choose_kernel("torch", torch.device("cpu"))
    assert choose_kernel("auto", "cpu")[0] == "torch"


@pytest.mark.parametrize(
    ("name", "device", "message"),
    [
        (
            "flash-attn",
            "cpu",
            "kernel 'flash-attn' runs on CUDA only, and the device is cpu; use --kernel torch",
        ),
        ("torch", "mps", "kernel 'torch' does not run on device 'mps'; use --device cpu or --device cuda"),
        ("triton", "cpu", "unknown kernel 'triton': choose --kernel auto, torch, flash-attn, flash-attn-4, reference"),
    ],
)
def test_a_missing_kernel_is_refused_by_name(name: str, device: str, message: str) -> None:
    with pytest.raises(StartError) as refusal:
        choose_kernel(name, device)
    assert str(refusal.value) == message
