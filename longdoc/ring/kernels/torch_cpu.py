"""torch on CPUs: tiles of matrix products, and torch's own flash attention for the blocks on which it is faster.

Owns the choice between the two, which depends on dtypes, shapes and the CPU alone. torch's op is private to it (checked
with torch 2.13) and this file is its only door: natural logarithm, causal from the top left, grouped heads un-repeated;
on empty queries or keys it kills the process, so blocks are checked first.
Legend: H query heads, G key-value heads, T queries, S keys, D head dimension of queries and keys, E of values.
"""

import torch

from longdoc.ring.kernels import check_block
from longdoc.ring.kernels.torch_tiles import tiled_attention
from longdoc.ring.mask import Band

# Smaller blocks than these are faster in one call of torch's own (measured with D from 16 to 128; docs/log.md).
_MIN_KEYS = 256
_MIN_HEAD_DIM = 32
_MIN_SCORES = 1 << 17


def torch_cpu_kernel(
    q_HTD: torch.Tensor,
    k_GSD: torch.Tensor,
    v_GSE: torch.Tensor,
    *,
    band: Band,
    scale: float,
    softcap: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of any block: out in float32 from tiles (float64 for float64), in the dtype of q from torch's own."""
    check_block(q_HTD, k_GSD, v_GSE, band=band)
    if softcap is not None or _needs_tiles(q_HTD, k_GSD, v_GSE, band) or _prefers_tiles(q_HTD, k_GSD):
        return tiled_attention(q_HTD, k_GSD, v_GSE, band=band, scale=scale, softcap=softcap)
    out_1HTD, lse_1HT = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q_HTD[None], k_GSD[None], v_GSE[None], 0.0, not band.is_full, attn_mask=None, scale=scale
    )
    return out_1HTD[0], lse_1HT[0]


def _needs_tiles(q_HTD: torch.Tensor, k_GSD: torch.Tensor, v_GSE: torch.Tensor, band: Band) -> bool:
    """Whether torch's own lacks the mask (it has full and causal blocks), or values of another width."""
    has_mask = band.is_full or band.is_causal_square(q_HTD.shape[1], k_GSD.shape[1])
    return not has_mask or v_GSE.shape[2] != q_HTD.shape[2]


def _prefers_tiles(q_HTD: torch.Tensor, k_GSD: torch.Tensor) -> bool:
    num_heads, num_queries, head_dim = q_HTD.shape
    num_groups, num_keys, _ = k_GSD.shape
    # In float64 both are one product after another, and torch's own makes fewer calls. With AMX it multiplies half
    # precision in that unit, which float32 tiles leave idle (not measured: no such machine was at hand).
    if q_HTD.dtype == torch.float64 or (q_HTD.dtype != torch.float32 and _has_amx()):
        return False
    num_scores = num_heads // num_groups * num_queries * num_keys
    return num_keys >= _MIN_KEYS and head_dim >= _MIN_HEAD_DIM and num_scores >= _MIN_SCORES


def _has_amx() -> bool:
    return bool(torch.cpu.get_capabilities().get("amx_tile"))
