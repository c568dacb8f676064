"""Attention on CPUs in tiles of queries × keys, from torch's matrix products: every mask, softcap and width of values.

Owns the choice of the matrix product and the sizes of tiles. float32 goes through oneDNN (`mkldnn::_linear_pointwise`,
private to torch, checked with torch 2.13; this file is its only door), which uses 512-bit instructions on every CPU
that has them, while MKL uses them on Intel's alone. Half precision is widened tile by tile and computed in float32.
Legend: H query heads in G groups of R, T queries, S keys, D head dimension of queries and keys, E of values; in a tile
t queries of the R heads of a group are folded into M = R · t rows, and meet N keys.
"""

import math

import torch

from longdoc.ring.mask import Band

# Rows and keys of a tile: 1 MiB of float32 scores, which stay in the second-level cache between the passes over them.
_ROWS = 512
_KEYS = 512
_LOG2_E = math.log2(math.e)


def tiled_attention(
    q_HTD: torch.Tensor,
    k_GSD: torch.Tensor,
    v_GSE: torch.Tensor,
    *,
    band: Band,
    scale: float,
    softcap: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of a checked block: out_HTE and natural lse_HT in float32 (float64 for float64)."""
    num_heads, num_queries, _ = q_HTD.shape
    num_groups, num_keys, value_dim = v_GSE.shape
    heads_in_group = num_heads // num_groups
    dtype = torch.float64 if q_HTD.dtype == torch.float64 else torch.float32
    # Laid out query by query, as the accumulator that this is merged into.
    out_HTE = torch.empty((num_queries, num_heads, value_dim), dtype=dtype).transpose(0, 1)
    lse_HT = torch.empty((num_queries, num_heads), dtype=dtype).transpose(0, 1)
    step = _queries_in_tile(heads_in_group)
    for start in range(0, num_queries, step):
        queries = range(start, min(start + step, num_queries))
        keys = _visible(band, queries, num_keys)
        shifted = Band(
            lower=None if band.lower is None else band.lower + queries.start - keys.start,
            upper=None if band.upper is None else band.upper + queries.start - keys.start,
        )
        for group in range(num_groups):
            tile = slice(group * heads_in_group, (group + 1) * heads_in_group), slice(queries.start, queries.stop)
            out_HTE[tile], lse_HT[tile] = _attend(
                q_HTD[tile].to(dtype),
                k_GSD[group, keys.start : keys.stop],
                v_GSE[group, keys.start : keys.stop],
                band=shifted,
                scale=scale,
                softcap=softcap,
            )
    return out_HTE, lse_HT


def _queries_in_tile(heads_in_group: int) -> int:
    """A power of two, so that ragged last tiles come in few sizes: oneDNN compiles code for each (0.6 ms a size)."""
    return 1 << max(0, (_ROWS // heads_in_group).bit_length() - 1)


def _visible(band: Band, queries: range, num_keys: int) -> range:
    """The keys that at least one of `queries` sees, without gaps because each sees some."""
    start = 0 if band.lower is None else max(0, queries.start + band.lower)
    stop = num_keys if band.upper is None else min(num_keys, queries.stop + band.upper)
    return range(start, stop)


# The online softmax: for each tile of keys with scores s, m' = max(m, max s), p = 2^(s - m'),
#     l' = 2^(m - m') l + Σ p,   o' = 2^(m - m') o + p v;   in the end out = o / l and lse = m + log l.
# Source: Milakov and Gimelshein, arXiv:1805.02867; in tiles: Rabe and Staats, arXiv:2112.05682, and Dao et al.,
# arXiv:2205.14135. Scores are multiplied by log2 e, because exp2 takes a quarter of the time of exp here.
def _attend(
    q_RTD: torch.Tensor,
    k_SD: torch.Tensor,
    v_SE: torch.Tensor,
    *,
    band: Band,
    scale: float,
    softcap: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One tile of queries over all its keys: out_RTE and lse_RT."""
    num_heads, num_queries, head_dim = q_RTD.shape
    q_MD = (q_RTD * (scale * _LOG2_E if softcap is None else scale / softcap)).reshape(-1, head_dim)
    # Finite, so that a tile that a row does not see at all leaves it as it was: -inf - (-inf) is NaN.
    max_M1 = q_MD.new_full((q_MD.shape[0], 1), torch.finfo(q_MD.dtype).min)
    total_M1 = torch.zeros_like(max_M1)
    out_ME = q_MD.new_zeros((q_MD.shape[0], v_SE.shape[1]))
    for start in range(0, k_SD.shape[0], _KEYS):
        # Whole rows: oneDNN takes 400 times as long for keys that lie apart, as a model's own do.
        k_ND, v_NE = (tensor[start : start + _KEYS].to(q_MD.dtype).contiguous() for tensor in (k_SD, v_SE))
        scores_MN = _scores(q_MD, k_ND, softcap)
        _hide(scores_MN.view(num_heads, num_queries, -1), band, start)
        before_M1, max_M1 = max_M1, torch.maximum(max_M1, scores_MN.amax(dim=1, keepdim=True))
        weights_MN = scores_MN.sub_(max_M1).exp2_()
        fading_M1 = before_M1.sub_(max_M1).exp2_()
        torch.addcmul(weights_MN.sum(dim=1, keepdim=True), total_M1, fading_M1, out=total_M1)
        torch.addcmul(_product(weights_MN, v_NE.T), out_ME, fading_M1, out=out_ME)
    lse_M1 = total_M1.log2().add_(max_M1).div_(_LOG2_E)
    return out_ME.div_(total_M1).view(num_heads, num_queries, -1), lse_M1.view(num_heads, num_queries)


def _scores(q_MD: torch.Tensor, k_ND: torch.Tensor, softcap: float | None) -> torch.Tensor:
    """Scores times log2 e: scores_MN of scaled queries."""
    if softcap is None:
        return _product(q_MD, k_ND)
    return _product(q_MD, k_ND, "tanh").mul_(softcap * _LOG2_E)


def _product(a_MK: torch.Tensor, b_NK: torch.Tensor, then: str = "none") -> torch.Tensor:
    """a bᵀ, then nothing or "tanh" (which oneDNN does while the product is in registers, in a tenth of the time)."""
    if a_MK.dtype == torch.float32 and torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]  # torch's
        product_MN: torch.Tensor = torch.ops.mkldnn._linear_pointwise(a_MK, b_NK, None, then, [], "")
        return product_MN
    product_MN = a_MK @ b_NK.T
    return product_MN.tanh_() if then == "tanh" else product_MN


def _hide(scores_RTN: torch.Tensor, band: Band, first_key: int) -> None:
    """Set to -inf, in place, what the band hides in a tile whose first key is `first_key`."""
    _, num_queries, num_keys = scores_RTN.shape
    if band.upper is not None:
        # Query 0 sees the fewest keys on this side: up to `upper`. Columns before that are seen by all.
        start = max(0, band.upper + 1 - first_key)
        if start < num_keys:
            hidden_TN = scores_RTN.new_full((num_queries, num_keys - start), -torch.inf)
            scores_RTN[:, :, start:] += hidden_TN.triu_(band.upper + 1 - first_key - start)
    if band.lower is not None:
        # The last query sees the fewest keys on this side: from T - 1 + `lower` on.
        stop = min(num_keys, num_queries - 1 + band.lower - first_key)
        if stop > 0:
            hidden_TN = scores_RTN.new_full((num_queries, stop), -torch.inf)
            scores_RTN[:, :, :stop] += hidden_TN.tril_(band.lower - 1 - first_key)
