"""torch's own flash attention for CPUs, which returns the log-sum-exp: float64, float32, bfloat16, float16.

The op is private to torch (checked with torch 2.13): this file is its only door. Natural logarithm, causal from the
top left, grouped heads un-repeated. On empty queries or keys it kills the process, so blocks are checked first.
Legend: H query heads, G key-value heads, T queries, S keys, D head dimension.
"""

import torch

from longdoc.ring.kernels import check_block


def torch_cpu_kernel(
    q_HTD: torch.Tensor, k_GSD: torch.Tensor, v_GSD: torch.Tensor, *, causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention by `aten::_scaled_dot_product_flash_attention_for_cpu`; out in the dtype of q."""
    check_block(q_HTD, k_GSD, v_GSD, causal=causal)
    out_1HTD, lse_1HT = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q_HTD[None], k_GSD[None], v_GSD[None], 0.0, causal, attn_mask=None, scale=scale
    )
    return out_1HTD[0], lse_1HT[0]
