"""The readable kernel: the definition of attention, for any float dtype and device. The oracle of the others.

Legend: H query heads in G groups of R, T queries, S keys, D head dimension. Queries are taken a few at a time, so that
the scores of one tile stay within 64 MiB however long the block is.
"""

import torch

from longdoc.ring.kernels import check_block

_SCORE_BYTES = 64 << 20


def reference_kernel(
    q_HTD: torch.Tensor, k_GSD: torch.Tensor, v_GSD: torch.Tensor, *, causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention by its definition, computed and returned in float32 (float64 for float64)."""
    check_block(q_HTD, k_GSD, v_GSD, causal=causal)
    dtype = torch.float64 if q_HTD.dtype == torch.float64 else torch.float32
    k_GSD, v_GSD = k_GSD.to(dtype), v_GSD.to(dtype)
    tile = max(1, _SCORE_BYTES // (q_HTD.shape[0] * k_GSD.shape[1] * dtype.itemsize))
    outs, lses = [], []
    for start in range(0, q_HTD.shape[1], tile):
        q_tile = q_HTD[:, start : start + tile].to(dtype)
        out_HTD, lse_HT = _attend(q_tile, k_GSD, v_GSD, first=start if causal else None, scale=scale)
        outs.append(out_HTD)
        lses.append(lse_HT)
    return torch.cat(outs, dim=1), torch.cat(lses, dim=1)


# Attention(q, k, v) = softmax(scale · q kᵀ) v.   Source: Vaswani et al., arXiv:1706.03762, equation 1.
def _attend(
    q_HTD: torch.Tensor, k_GSD: torch.Tensor, v_GSD: torch.Tensor, *, first: int | None, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """One tile; under a causal mask its first query is the block's query `first`, which sees keys 0 … first."""
    num_groups, num_queries, head_dim = k_GSD.shape[0], *q_HTD.shape[1:]
    q_GRTD = q_HTD.reshape(num_groups, -1, num_queries, head_dim)
    scores_GRTS = torch.einsum("grtd,gsd->grts", q_GRTD, k_GSD) * scale
    if first is not None:
        hidden_TS = torch.ones(scores_GRTS.shape[-2:], dtype=torch.bool, device=scores_GRTS.device).triu(1 + first)
        scores_GRTS = scores_GRTS.masked_fill(hidden_TS, -torch.inf)
    lse_GRT = torch.logsumexp(scores_GRTS, dim=-1)
    weights_GRTS = torch.exp(scores_GRTS - lse_GRT[..., None])
    out_GRTD = torch.einsum("grts,gsd->grtd", weights_GRTS, v_GSD)
    return out_GRTD.flatten(0, 1), lse_GRT.flatten(0, 1)
