"""The CUDA kernels: on twins of their ops here (tests/ring/cuda_twins.py), and as they are where there is a GPU."""

import sys
import types

import cuda_twins
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longdoc.errors import ModelError, StartError
from longdoc.ring.kernels import choose_kernel, flash_attn
from longdoc.ring.kernels.reference import reference_kernel
from longdoc.ring.kernels.torch_cuda import choose_op, cudnn_kernel, torch_cuda_kernel
from longdoc.ring.mask import FULL, LOWER_TRIANGLE, Band

HALF = (torch.bfloat16, torch.float16)


def blocks(dtype=torch.bfloat16, *, heads=4, kv_heads=2, queries=9, keys=9, dim=16, value_dim=16, seed=0):
    random = torch.Generator().manual_seed(seed)
    shapes = (heads, queries, dim), (kv_heads, keys, dim), (kv_heads, keys, value_dim)
    return [torch.randn(shape, generator=random).to(dtype) for shape in shapes]


@st.composite
def bands(draw):
    """A band, T and S such that every query sees a key and every key is seen."""
    num_queries, num_keys = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    lower = draw(st.none() | st.integers(-14, min(0, num_keys - num_queries)))
    upper = draw(st.none() | st.integers(max(0, num_keys - num_queries), 14))
    return Band(lower=lower, upper=upper), num_queries, num_keys


@pytest.fixture
def twins(monkeypatch):
    """Twins of torch's ops, and of both versions of flash-attn, as if they were installed."""
    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", cuda_twins.aten_flash)
    monkeypatch.setattr(torch.ops.aten, "_efficient_attention_forward", cuda_twins.aten_efficient)
    monkeypatch.setattr(torch.ops.aten, "_scaled_dot_product_cudnn_attention", cuda_twins.aten_cudnn)
    modules = {
        "flash_attn": {},
        "flash_attn.flash_attn_interface": {"flash_attn_func": cuda_twins.flash_attn_func},
        "flash_attn.cute": {},
        "flash_attn.cute.interface": {"flash_attn_func": cuda_twins.flash_attn_4_func},
    }
    for name, members in modules.items():
        module = types.ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(flash_attn, "version", {"flash-attn": "2.8.3", "flash-attn-4": "4.0.0b36"}.__getitem__)


def assert_same(kernel, q, k, v, *, band, softcap=None, scale=0.3, tolerance=1e-2):
    out, lse = kernel(q, k, v, band=band, scale=scale, softcap=softcap)
    wanted, wanted_lse = reference_kernel(q.double(), k.double(), v.double(), band=band, scale=scale, softcap=softcap)
    assert out.shape == wanted.shape
    assert lse.shape == wanted_lse.shape
    assert lse.dtype == torch.float32
    assert (out.double() - wanted).abs().max() <= tolerance * wanted.abs().max()
    assert (lse.double() - wanted_lse).abs().max() <= 1e-4


CUDA_KERNELS = ("flash-attn", "flash-attn-4", "torch")


@pytest.mark.parametrize("name", CUDA_KERNELS)
def test_every_band_is_what_its_definition_says(twins, name):
    _, kernel = choose_kernel(name, "cuda")

    @given(bands(), st.integers(0, 100))
    @settings(deadline=None, max_examples=60, derandomize=True)
    def check(block, seed):
        band, num_queries, num_keys = block
        assert_same(kernel, *blocks(queries=num_queries, keys=num_keys, seed=seed), band=band)

    check()


@pytest.mark.parametrize("name", CUDA_KERNELS)
@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize(("dim", "value_dim"), [(24, 16), (20, 20), (16, 40)])
def test_values_of_another_width_and_softcaps_are_served(twins, name, softcap, dim, value_dim):
    _, kernel = choose_kernel(name, "cuda", torch.bfloat16)
    q, k, v = blocks(dim=dim, value_dim=value_dim)
    assert_same(kernel, q, k, v, band=LOWER_TRIANGLE, softcap=softcap)


@pytest.mark.parametrize("band", [FULL, LOWER_TRIANGLE, Band(lower=-2, upper=2), Band(lower=-3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_wider_dtypes_run_in_torch_by_another_op(twins, dtype, band):
    q, k, v = blocks(dtype, queries=40, keys=40)
    out, lse = torch_cuda_kernel(q, k, v, band=band, scale=0.3)
    wanted, wanted_lse = reference_kernel(q, k, v, band=band, scale=0.3)
    torch.testing.assert_close(out, wanted)
    torch.testing.assert_close(lse, wanted_lse)


def test_blocks_in_which_queries_see_less_than_the_end_of_the_keys(twins):
    # Bottom-right alignment, and a log-sum-exp that is padded to 32 queries.
    q, k, v = blocks(torch.float32, queries=7, keys=11)
    out, lse = torch_cuda_kernel(q, k, v, band=Band(upper=4), scale=0.3)
    wanted, wanted_lse = reference_kernel(q, k, v, band=Band(upper=4), scale=0.3)
    torch.testing.assert_close(out, wanted)
    torch.testing.assert_close(lse, wanted_lse)


@pytest.mark.parametrize(
    ("dtype", "head_dim", "band", "softcap", "op"),
    [
        (torch.bfloat16, 128, FULL, None, "flash"),
        (torch.float16, 64, LOWER_TRIANGLE, None, "flash"),
        (torch.bfloat16, 128, Band(lower=-3, upper=3), None, "flash"),
        (torch.bfloat16, 512, LOWER_TRIANGLE, None, "efficient"),
        (torch.bfloat16, 128, FULL, 50.0, "reference"),
        (torch.float32, 128, FULL, None, "efficient"),
        (torch.float32, 128, LOWER_TRIANGLE, None, "efficient"),
        (torch.float32, 128, Band(lower=-3, upper=0), None, "reference"),
        (torch.float64, 128, FULL, None, "reference"),
    ],
)
def test_which_op_of_torch_serves_which_block(dtype, head_dim, band, softcap, op):
    assert op == choose_op(dtype=dtype, head_dim=head_dim, band=band, num_queries=8, num_keys=8, softcap=softcap)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("band", [FULL, LOWER_TRIANGLE])
def test_the_real_ops_of_torch_take_these_calls(dtype, band):
    # On torch's meta device an op checks its arguments and tells the shapes of its results, without a GPU.
    q, k, v = (tensor.to("meta") for tensor in blocks(dtype, queries=40, keys=40))
    out, lse = torch_cuda_kernel(q, k, v, band=band, scale=0.3)
    assert (out.shape, out.dtype, lse.shape, lse.dtype) == (q.shape, dtype, q.shape[:2], torch.float32)


@pytest.mark.parametrize("band", [FULL, LOWER_TRIANGLE])
def test_cudnn_serves_full_blocks_and_causal_squares(twins, band):
    q, k, v = blocks()
    assert_same(cudnn_kernel, q, k, v, band=band)
    with pytest.raises(ModelError, match="'cudnn' computes full blocks and causal squares in half precision"):
        cudnn_kernel(q, k, v, band=Band(lower=-2, upper=0), scale=0.3)


def test_the_real_op_of_cudnn_takes_this_call():
    q, k, v = (tensor.to("meta") for tensor in blocks(queries=7, keys=11))
    out, lse = cudnn_kernel(q, k, v, band=FULL, scale=0.3)
    assert (out.shape, lse.shape) == (q.shape, q.shape[:2])


def test_auto_on_cuda_is_flash_attn_where_it_is_installed_and_computes_in_the_dtype(twins, monkeypatch):
    assert choose_kernel("auto", "cuda")[0] == "flash-attn"
    assert choose_kernel("auto", "cuda", torch.bfloat16)[0] == "flash-attn"
    assert choose_kernel("auto", "cuda", torch.float32)[0] == "torch"
    monkeypatch.setattr(flash_attn, "is_installed", lambda name: False)
    assert choose_kernel("auto", "cuda", torch.bfloat16) == ("torch", torch_cuda_kernel)


@pytest.mark.parametrize(
    ("name", "how"), [("flash-attn", "pip install 'longdoc[gpu]'"), ("flash-attn-4", "pip install --pre flash-attn-4")]
)
def test_a_missing_flash_attn_says_how_to_install_it(name, how):
    if flash_attn.is_installed(name):
        pytest.skip("it is installed")
    with pytest.raises(StartError) as refusal:
        choose_kernel(name, "cuda")
    assert str(refusal.value) == f"kernel {name!r} is not installed: {how}, or use --kernel torch"


def test_a_flash_attn_that_was_built_for_another_torch_is_refused_with_its_cause(twins, monkeypatch):
    monkeypatch.setitem(sys.modules, "flash_attn.flash_attn_interface", None)
    with pytest.raises(StartError, match=r"cannot be imported \(.*\): install the build for torch 2"):
        choose_kernel("flash-attn", "cuda")


def test_what_flash_attn_cannot_do_is_refused_by_name(twins):
    _, kernel = choose_kernel("flash-attn", "cuda")
    with pytest.raises(ModelError, match=r"computes in bfloat16 and float16, not in torch.float32; use --kernel torch"):
        kernel(*blocks(torch.float32), band=FULL, scale=1.0)
    with pytest.raises(ModelError, match="takes heads of 256 dimensions at most, not 264"):
        kernel(*blocks(dim=264, value_dim=264), band=FULL, scale=1.0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", CUDA_KERNELS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(
    ("band", "num_queries", "num_keys"),
    [
        (FULL, 257, 301),
        (LOWER_TRIANGLE, 300, 300),
        (Band(lower=-40, upper=0), 300, 300),
        (Band(lower=-40, upper=40), 300, 300),
        (Band(upper=0), 300, 40),
        (Band(lower=-260), 300, 40),
        (Band(upper=0), 1, 1),
    ],
)
def test_on_a_gpu_the_real_kernels_are_what_their_definition_says(name, dtype, band, num_queries, num_keys):
    if name != "torch" and not (flash_attn.is_installed(name) and dtype in HALF):
        pytest.skip(f"{name} is not installed, or does not compute in {dtype}")
    _, kernel = choose_kernel(name, "cuda", dtype)
    q, k, v = (t.cuda() for t in blocks(dtype, queries=num_queries, keys=num_keys, dim=64, value_dim=64))
    assert_same(kernel, q, k, v, band=band, tolerance=2e-2 if dtype in HALF else 1e-5)
