"""The readable kernel: the definition of attention, for any float dtype and device. The oracle of the others.

Legend: H query heads in G groups of R, T queries, S keys, D head dimension. Holds all scores at once.
"""

import torch

from longdoc.ring.kernels import check_block


# Attention(q, k, v) = softmax(scale · q kᵀ) v.   Source: Vaswani et al., arXiv:1706.03762, equation 1.
def reference_kernel(
    q_HTD: torch.Tensor, k_GSD: torch.Tensor, v_GSD: torch.Tensor, *, causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention by its definition, computed and returned in float32 (float64 for float64)."""
    check_block(q_HTD, k_GSD, v_GSD, causal=causal)
    dtype = torch.float64 if q_HTD.dtype == torch.float64 else torch.float32
    q_HTD, k_GSD, v_GSD = q_HTD.to(dtype), k_GSD.to(dtype), v_GSD.to(dtype)
    num_groups, num_queries, head_dim = k_GSD.shape[0], *q_HTD.shape[1:]
    q_GRTD = q_HTD.reshape(num_groups, -1, num_queries, head_dim)
    scores_GRTS = torch.einsum("grtd,gsd->grts", q_GRTD, k_GSD) * scale
    if causal:
        hidden_TS = torch.ones(scores_GRTS.shape[-2:], dtype=torch.bool, device=scores_GRTS.device).triu(1)
        scores_GRTS = scores_GRTS.masked_fill(hidden_TS, -torch.inf)
    lse_GRT = torch.logsumexp(scores_GRTS, dim=-1)
    weights_GRTS = torch.exp(scores_GRTS - lse_GRT[..., None])
    out_GRTD = torch.einsum("grts,gsd->grtd", weights_GRTS, v_GSD)
    return out_GRTD.flatten(0, 1), lse_GRT.flatten(0, 1)
