"""The readable kernel: the definition of attention, for every mask, feature, float dtype and device. The oracle.

Legend: H query heads in G groups of R, T queries, S keys, D head dimension of queries and keys, E of values. Queries
are taken a few at a time, so that the scores of one tile stay within 64 MiB however long the block is.
"""

import torch

from longdoc.ring.kernels import check_block
from longdoc.ring.mask import Band

_SCORE_BYTES = 64 << 20


def reference_kernel(
    q_HTD: torch.Tensor,
    k_GSD: torch.Tensor,
    v_GSE: torch.Tensor,
    *,
    band: Band,
    scale: float,
    softcap: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention by its definition, computed and returned in float32 (float64 for float64)."""
    check_block(q_HTD, k_GSD, v_GSE, band=band)
    dtype = torch.float64 if q_HTD.dtype == torch.float64 else torch.float32
    k_GSD, v_GSE = k_GSD.to(dtype), v_GSE.to(dtype)
    num_queries, num_keys = q_HTD.shape[1], k_GSD.shape[1]
    tile = max(1, _SCORE_BYTES // (q_HTD.shape[0] * num_keys * dtype.itemsize))
    outs, lses = [], []
    for start in range(0, num_queries, tile):
        stop = min(start + tile, num_queries)
        hidden_TS = _hidden(band, range(start, stop), num_keys, q_HTD.device)
        out_HTE, lse_HT = _attend(q_HTD[:, start:stop].to(dtype), k_GSD, v_GSE, hidden_TS, scale, softcap)
        outs.append(out_HTE)
        lses.append(lse_HT)
    return torch.cat(outs, dim=1), torch.cat(lses, dim=1)


def _hidden(band: Band, queries: range, num_keys: int, device: torch.device) -> torch.Tensor:
    """Which keys each of `queries` does not see: bool [len(queries), num_keys]."""
    ahead_TS = torch.arange(num_keys, device=device) - torch.arange(queries.start, queries.stop, device=device)[:, None]
    hidden_TS = torch.zeros_like(ahead_TS, dtype=torch.bool)
    if band.lower is not None:
        hidden_TS |= ahead_TS < band.lower
    if band.upper is not None:
        hidden_TS |= ahead_TS > band.upper
    return hidden_TS


# Attention(q, k, v) = softmax(scale · q kᵀ) v.   Source: Vaswani et al., arXiv:1706.03762, equation 1.
# With a softcap c the scores are c · tanh(scale · q kᵀ / c).   Source: Gemma 2, arXiv:2408.00118, section 2.
def _attend(
    q_HTD: torch.Tensor,
    k_GSD: torch.Tensor,
    v_GSE: torch.Tensor,
    hidden_TS: torch.Tensor,
    scale: float,
    softcap: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    num_groups, num_queries, head_dim = k_GSD.shape[0], *q_HTD.shape[1:]
    q_GRTD = q_HTD.reshape(num_groups, -1, num_queries, head_dim)
    scores_GRTS = torch.einsum("grtd,gsd->grts", q_GRTD, k_GSD) * scale
    if softcap is not None:
        scores_GRTS = softcap * torch.tanh(scores_GRTS / softcap)
    scores_GRTS = scores_GRTS.masked_fill(hidden_TS, -torch.inf)
    lse_GRT = torch.logsumexp(scores_GRTS, dim=-1)
    weights_GRTS = torch.exp(scores_GRTS - lse_GRT[..., None])
    out_GRTE = torch.einsum("grts,gse->grte", weights_GRTS, v_GSE)
    return out_GRTE.flatten(0, 1), lse_GRT.flatten(0, 1)
