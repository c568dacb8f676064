"""Kernels and the merge of their results, against float64 definitions."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from ring_oracles import HEAD_DIM, attention_by_definition, random_qkv, relative_error

from longdoc.errors import StartError
from longdoc.ring import kernels
from longdoc.ring.kernels import choose_kernel, reference
from longdoc.ring.mask import FULL, LOWER_TRIANGLE, Band

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
    out, lse = kernel(q, k, v, band=LOWER_TRIANGLE, scale=SCALE)
    assert relative_error(out, attention_by_definition(q, k, v, SCALE)) <= tolerance
    assert lse.dtype == dtype
    for head in range(q.shape[0]):
        scores = SCALE * q[head].double().numpy() @ k[head // 2].double().numpy().T
        expected = [np.logaddexp.reduce(scores[row, : row + 1]) for row in range(num_tokens)]
        assert np.abs(lse[head].double().numpy() - expected).max() <= 100 * tolerance


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
def test_a_full_block_may_have_other_keys_than_queries(name: str) -> None:
    kernel = choose_kernel(name, "cpu")[1]
    q, k, v = random_qkv(40)
    out, lse = kernel(q[:, :7], k, v, band=FULL, scale=SCALE)
    assert (out.shape, lse.shape) == ((4, 7, HEAD_DIM), (4, 7))
    # The last query of a causal block sees every key.
    expected = attention_by_definition(torch.cat([k.repeat_interleave(2, 0)[:, :-1], q[:, 6:7]], 1), k, v, SCALE)
    assert np.abs(out[:, 6].numpy() - expected[:, -1]).max() <= 1e-13


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
