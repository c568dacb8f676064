"""Tiles of matrix products: their sizes change nothing, and they are used where they are said to be."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from kernel_oracles import block_by_definition, errors, random_block

from longdoc.ring.kernels import torch_cpu, torch_tiles
from longdoc.ring.kernels.torch_cpu import torch_cpu_kernel
from longdoc.ring.kernels.torch_tiles import tiled_attention
from longdoc.ring.mask import FULL, LOWER_TRIANGLE, Band

BANDS = {
    "full": (FULL, 70, 90),
    "triangle": (LOWER_TRIANGLE, 90, 90),
    "window": (Band(lower=-6, upper=0), 90, 90),
    "wide window": (Band(lower=-40, upper=40), 90, 90),
    "offset band": (Band(lower=-50, upper=30), 100, 80),
    "upper triangle": (Band(lower=0), 60, 60),
}


@pytest.mark.parametrize("block", BANDS)
@pytest.mark.parametrize(("rows", "keys"), [(1, 1), (4, 3), (16, 16), (64, 7), (7, 64), (512, 1024)])
@pytest.mark.parametrize("softcap", [None, 4.0])
def test_the_size_of_tiles_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, block: str, rows: int, keys: int, softcap: float | None
) -> None:
    band, num_queries, num_keys = BANDS[block]
    monkeypatch.setattr(torch_tiles, "_ROWS", rows)
    monkeypatch.setattr(torch_tiles, "_KEYS", keys)
    q, k, v = random_block(num_queries, num_keys, torch.float64, (6, 2), (8, 5))
    out, lse = tiled_attention(q, k, v, band=band, scale=0.25, softcap=softcap)
    assert errors(out, lse, block_by_definition(q, k, v, band, 0.25, softcap)) <= 1e-13


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("band", "num_queries", "num_keys"),
    [(LOWER_TRIANGLE, 1300, 1300), (FULL, 600, 1500), (Band(lower=-200, upper=0), 1300, 1300)],
)
def test_blocks_of_several_tiles_of_the_real_size(
    dtype: torch.dtype, band: Band, num_queries: int, num_keys: int
) -> None:
    q, k, v = random_block(num_queries, num_keys, dtype, (3, 1), (64, 64))
    out, lse = tiled_attention(q, k, v, band=band, scale=0.125)
    assert (out.dtype, lse.dtype) == (torch.float32, torch.float32)
    assert errors(out, lse, block_by_definition(q, k, v, band, 0.125)) <= 5e-6


@pytest.mark.parametrize(
    ("num_threads", "heads_in_group", "band", "num_queries"),
    [
        (1, 1, LOWER_TRIANGLE, 512),
        (16, 1, LOWER_TRIANGLE, 512),
        (1, 3, LOWER_TRIANGLE, 128),
        (1, 600, FULL, 1),
        (64, 1, LOWER_TRIANGLE, 2048),
        (48, 4, FULL, 256),
        (64, 1, Band(lower=-1023, upper=0), 1024),
        (64, 1, Band(lower=-64, upper=64), 512),
        (64, 8, Band(lower=-127, upper=0), 128),
    ],
)
def test_tiles_fill_the_caches_of_their_threads_but_are_no_wider_than_a_window(
    monkeypatch: pytest.MonkeyPatch, num_threads: int, heads_in_group: int, band: Band, num_queries: int
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: num_threads)
    assert torch_tiles._queries_in_tile(band, heads_in_group) == num_queries


@pytest.mark.parametrize("block", BANDS)
def test_the_number_of_threads_changes_no_bit(
    monkeypatch: pytest.MonkeyPatch, set_threads: Callable[[int], None], block: str
) -> None:
    band, num_queries, num_keys = BANDS[block]
    monkeypatch.setattr(torch_tiles, "_ROWS", 8)
    q, k, v = random_block(num_queries, num_keys, torch.float32)
    set_threads(1)
    expected = tiled_attention(q, k, v, band=band, scale=0.25)
    set_threads(3)
    found = tiled_attention(q, k, v, band=band, scale=0.25)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    with torch.inference_mode():
        found = tiled_attention(q, k, v, band=band, scale=0.25)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("softcap", [None, 4.0])
def test_without_onednn_torchs_own_products_serve(monkeypatch: pytest.MonkeyPatch, softcap: float | None) -> None:
    q, k, v = random_block(90, 90, torch.float32)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    out, lse = tiled_attention(q, k, v, band=LOWER_TRIANGLE, scale=0.25, softcap=softcap)
    assert errors(out, lse, block_by_definition(q, k, v, LOWER_TRIANGLE, 0.25, softcap)) <= 5e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tensors_that_lie_apart_in_memory_are_read_as_they_are_meant(dtype: torch.dtype) -> None:
    q, k, v = random_block(90, 90, dtype)
    expected = tiled_attention(q, k, v, band=LOWER_TRIANGLE, scale=0.25)
    apart = (tensor.transpose(0, 1).contiguous().transpose(0, 1) for tensor in (q, k, v))
    found = tiled_attention(*apart, band=LOWER_TRIANGLE, scale=0.25)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_scores_far_beyond_the_range_of_exp_stay_finite() -> None:
    q, k, v = random_block(40, 40, torch.float32)
    out, lse = tiled_attention(1000 * q, k, v, band=LOWER_TRIANGLE, scale=1.0)
    assert errors(out, lse, block_by_definition(1000 * q, k, v, LOWER_TRIANGLE, 1.0)) <= 1e-3
    assert float(lse.abs().max()) > 1000


def test_keys_may_lose_all_their_weight_to_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    # The running maximum climbs by more than the exponents of float32 hold from one tile to the next.
    monkeypatch.setattr(torch_tiles, "_KEYS", 2)
    q, v = torch.ones(1, 3, 1), torch.arange(6.0).reshape(1, 6, 1)
    k = torch.tensor([-3e4, -2e4, 0.0, 1e4, 2e4, 3e4]).reshape(1, 6, 1)
    out, lse = tiled_attention(q, k, v, band=FULL, scale=1.0)
    assert out.flatten().tolist() == [5.0, 5.0, 5.0]
    torch.testing.assert_close(lse, torch.full((1, 3), 3e4))


@pytest.mark.parametrize(
    ("dtype", "num_tokens", "num_keys", "head_dim", "has_amx", "expected"),
    [
        (torch.float32, 512, 512, 64, False, "tiles"),
        (torch.float32, 512, 512, 64, True, "tiles"),
        (torch.bfloat16, 512, 512, 64, False, "tiles"),
        (torch.bfloat16, 512, 512, 64, True, "torch's own"),
        (torch.float64, 512, 512, 64, False, "torch's own"),
        (torch.float32, 200, 200, 64, False, "torch's own"),
        (torch.float32, 4096, 128, 64, False, "torch's own"),
        (torch.float32, 16, 4096, 64, False, "tiles"),
        (torch.float32, 15, 4096, 64, False, "torch's own"),
        (torch.float32, 512, 512, 16, False, "torch's own"),
    ],
)
def test_which_blocks_go_through_tiles(
    monkeypatch: pytest.MonkeyPatch,
    dtype: torch.dtype,
    num_tokens: int,
    num_keys: int,
    head_dim: int,
    has_amx: bool,
    expected: str,
) -> None:
    assert way(monkeypatch, FULL, (num_tokens, num_keys), dtype, (head_dim, head_dim), has_amx=has_amx) == expected


@pytest.mark.parametrize(
    ("band", "num_keys", "head_dims", "softcap"),
    [
        (FULL, 8, (8, 4), None),
        (FULL, 8, (8, 8), 2.0),
        (Band(lower=0), 8, (8, 8), None),
        (LOWER_TRIANGLE, 7, (8, 8), None),
        (Band(lower=-2, upper=0), 8, (8, 8), None),
    ],
)
def test_what_torchs_own_lacks_goes_through_tiles_however_small(
    monkeypatch: pytest.MonkeyPatch, band: Band, num_keys: int, head_dims: tuple[int, int], softcap: float | None
) -> None:
    assert way(monkeypatch, band, (8, num_keys), torch.float64, head_dims, softcap=softcap) == "tiles"


def way(
    monkeypatch: pytest.MonkeyPatch,
    band: Band,
    block: tuple[int, int],
    dtype: torch.dtype,
    head_dims: tuple[int, int],
    *,
    has_amx: bool = False,
    softcap: float | None = None,
) -> str:
    """Which way a block of two heads that share their keys goes."""
    ways = []

    def spied(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        ways.append("tiles")
        return original(*args, **kwargs)

    original: Callable[..., tuple[torch.Tensor, torch.Tensor]] = tiled_attention
    monkeypatch.setattr(torch_cpu, "tiled_attention", spied)
    monkeypatch.setattr(torch_cpu, "_has_amx", lambda: has_amx)
    q, k, v = random_block(*block, dtype, (2, 1), head_dims)
    torch_cpu_kernel(q, k, v, band=band, scale=0.25, softcap=softcap)
    return ways[0] if ways else "torch's own"


def test_products_come_in_few_sizes_whatever_the_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN keeps about a megabyte of code for each size of a product."""
    if not torch_tiles.has_onednn():
        pytest.skip("this torch has no oneDNN product")
    sizes = set()
    product = torch_tiles.product

    def noted(a_MK: torch.Tensor, b_NK: torch.Tensor, **more: Any) -> torch.Tensor:
        sizes.add((*a_MK.shape, len(b_NK)))
        return product(a_MK, b_NK, **more)

    monkeypatch.setattr(torch_tiles, "product", noted)
    for num_tokens in range(257, 700, 13):
        q_HTD = torch.zeros((2, num_tokens, 32))
        torch_tiles.tiled_attention(q_HTD, q_HTD, q_HTD, band=Band(upper=0), scale=1.0)
    assert {number % 128 for *rows, _ in sizes for number in rows} <= {0, 32}
    assert len(sizes) <= 24
