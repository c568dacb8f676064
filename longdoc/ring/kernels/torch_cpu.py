"""torch on CPUs: torch's own flash attention where it applies, tiles of matrix products for everything else.

The op is private to torch (checked with torch 2.13): this file is its only door. Natural logarithm, causal from the
top left, grouped heads un-repeated. On empty queries or keys it kills the process, so blocks are checked first.
Legend: H query heads, G key-value heads, T queries, S keys, D head dimension of queries and keys, E of values.
"""

import torch

from longdoc.ring.kernels import check_block
from longdoc.ring.kernels.torch_tiles import tiled_attention
from longdoc.ring.mask import Band


def torch_cpu_kernel(
    q_HTD: torch.Tensor,
    k_GSD: torch.Tensor,
    v_GSE: torch.Tensor,
    *,
    band: Band,
    scale: float,
    softcap: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of any block; out in the dtype of q or in float32."""
    check_block(q_HTD, k_GSD, v_GSE, band=band)
    square = band.is_full or band.is_causal_square(q_HTD.shape[1], k_GSD.shape[1])
    if not square or softcap is not None or v_GSE.shape[2] != q_HTD.shape[2]:
        return tiled_attention(q_HTD, k_GSD, v_GSE, band=band, scale=scale, softcap=softcap)
    out_1HTD, lse_1HT = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q_HTD[None], k_GSD[None], v_GSE[None], 0.0, not band.is_full, attn_mask=None, scale=scale
    )
    return out_1HTD[0], lse_1HT[0]
