"""Attention on CPUs in tiles of queries × keys, from torch's matrix products: every mask, softcap and width of values.

Owns the sizes of tiles. float32 goes through oneDNN wherever it is there, because it fuses the softcap as well; half
precision is widened tile by tile and computed in float32.
Legend: H query heads in G groups of R, T queries, S keys, D head dimension of queries and keys, E of values. In a tile
the queries of a group's R heads are folded, query by query, into M rows, which meet N keys.
"""

import math

import torch

from longdoc.ring.kernels.onednn import has_onednn, product
from longdoc.ring.kernels.tile_threads import for_each, tiles_at_once
from longdoc.ring.mask import Band

# Rows and keys of a tile: 2 MiB of float32 scores, which stay in a core's caches between the passes over them.
_ROWS = 512
_KEYS = 1024
# Tiles at the ends are filled up to multiples of this: oneDNN keeps its code for every size of a product, about 1 MB
# each, and 300 documents of different lengths would leave 340 MB behind.
_STEP = 128
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
    num_groups, _, value_dim = v_GSE.shape
    heads_in_group = num_heads // num_groups
    dtype = torch.float64 if q_HTD.dtype == torch.float64 else torch.float32
    # Laid out query by query, as the accumulator that this is merged into.
    out_THE = torch.empty((num_queries, num_heads, value_dim), dtype=dtype)
    lse_TH = torch.empty((num_queries, num_heads), dtype=dtype)
    # Scores come out multiplied by log2 e, because exp2 takes a quarter of the time of exp here.
    factor = scale * _LOG2_E if softcap is None else scale / softcap
    step = _queries_in_tile(band, heads_in_group)

    def fill(tile: tuple[int, int]) -> None:
        start, group = tile
        queries = range(start, min(start + step, num_queries))
        place = slice(start, queries.stop), slice(group * heads_in_group, (group + 1) * heads_in_group)
        q_TRD = q_HTD.transpose(0, 1)[place].to(dtype) * factor
        rows = _attend(q_TRD.flatten(0, 1), k_GSD[group], v_GSE[group], queries, band, softcap)
        out_THE[place], lse_TH[place] = rows.result(heads_in_group)

    # Backwards, because under a causal mask the last queries see most: the longest tiles come first.
    for_each(fill, [(start, group) for start in reversed(range(0, num_queries, step)) for group in range(num_groups)])
    return out_THE.transpose(0, 1), lse_TH.transpose(0, 1)


def _queries_in_tile(band: Band, heads_in_group: int) -> int:
    """As many as fill the caches of a tile's threads, but with several threads no more than a window is wide.

    A power of two, so that the tiles at the ends come in few sizes: oneDNN compiles code for each size (0.6 ms).
    """
    num_queries = max(1, _ROWS // heads_in_group)
    most = num_queries * tiles_at_once()[1]
    if band.lower is not None and band.upper is not None:
        most = max(num_queries, min(most, band.upper - band.lower + 1))
    return 1 << (most.bit_length() - 1)


def _attend(
    q_MD: torch.Tensor, k_SD: torch.Tensor, v_SE: torch.Tensor, queries: range, band: Band, softcap: float | None
) -> "_OnlineSoftmax":
    """One tile of queries over all the keys that they see."""
    rows = _OnlineSoftmax(q_MD, v_SE.shape[1])
    heads = len(q_MD) // len(queries)
    visible = _visible(band, queries, len(k_SD))
    for start in range(visible.start, visible.stop, _KEYS):
        keys = range(start, min(start + _KEYS, visible.stop))
        seeing = _seeing(band, queries, keys)
        place = slice((seeing.start - queries.start) * heads, (seeing.stop - queries.start) * heads)
        # Whole rows: oneDNN takes 400 times as long for keys that lie apart, as a model's own do.
        k_ND, v_NE = (_filled_up(tensor[start : keys.stop].to(q_MD.dtype).contiguous()) for tensor in (k_SD, v_SE))
        scores_MN = _scores(q_MD[place], k_ND, softcap)
        scores_MN[:, len(keys) :] = -torch.inf
        _hide(scores_MN[:, : len(keys)].view(len(seeing), heads, len(keys)), band, seeing.start - start)
        rows.add(place, scores_MN, v_NE)
    return rows


def _visible(band: Band, queries: range, num_keys: int) -> range:
    """The keys that at least one of `queries` sees, without gaps because each sees some."""
    start = 0 if band.lower is None else max(0, queries.start + band.lower)
    stop = num_keys if band.upper is None else min(num_keys, queries.stop + band.upper)
    return range(start, stop)


def _seeing(band: Band, queries: range, keys: range) -> range:
    """The queries that see at least one of `keys`."""
    start = queries.start if band.upper is None else max(queries.start, keys.start - band.upper)
    stop = queries.stop if band.lower is None else min(queries.stop, keys.stop - band.lower)
    return range(start, stop)


def _scores(q_MD: torch.Tensor, k_ND: torch.Tensor, softcap: float | None) -> torch.Tensor:
    """Scores times log2 e of scaled queries: scores_MN."""
    if softcap is None:
        return _product(q_MD, k_ND)
    return _product(q_MD, k_ND, "tanh").mul_(softcap * _LOG2_E)


def _product(a_MK: torch.Tensor, b_NK: torch.Tensor, then: str = "none") -> torch.Tensor:
    """a bᵀ, then nothing or "tanh" (which oneDNN does while the product is in registers, in a tenth of the time)."""
    if a_MK.dtype == torch.float32 and has_onednn():
        return product(_filled_up(a_MK), b_NK, then=then)[: len(a_MK)]
    product_MN = a_MK @ b_NK.T
    return product_MN.tanh_() if then == "tanh" else product_MN


def _filled_up(rows_MK: torch.Tensor) -> torch.Tensor:
    """The rows, and rows of zeros up to a multiple of `_STEP`."""
    num_missing = -len(rows_MK) % _STEP
    return torch.nn.functional.pad(rows_MK, (0, 0, 0, num_missing)) if num_missing else rows_MK


def _hide(scores_TRN: torch.Tensor, band: Band, ahead: int) -> None:
    """Set to -inf, in place, what the band hides in a tile whose first query is `ahead` places after its first key."""
    num_queries, _, num_keys = scores_TRN.shape
    if band.upper is not None and (start := max(0, ahead + band.upper + 1)) < num_keys:
        # The first query sees the fewest keys on this side; the columns before `start` are seen by all.
        hidden_TN = scores_TRN.new_full((num_queries, num_keys - start), -torch.inf)
        scores_TRN[:, :, start:] += hidden_TN.triu_(ahead + band.upper + 1 - start)[:, None]
    if band.lower is not None and (stop := min(num_keys, ahead + num_queries - 1 + band.lower)) > 0:
        # The last query sees the fewest keys on this side; the columns from `stop` on are seen by all.
        hidden_TN = scores_TRN.new_full((num_queries, stop), -torch.inf)
        scores_TRN[:, :, :stop] += hidden_TN.tril_(ahead + band.lower - 1)[:, None]


# For each tile of keys with scores s, in powers of two:   m' = max(m, max s),   p = 2^(s - m'),
#     l' = 2^(m - m') l + Σ p,   o' = 2^(m - m') o + p v;   in the end out = o / l and lse = (m + log2 l) / log2 e.
# Source: Milakov and Gimelshein, arXiv:1805.02867; in tiles: Rabe and Staats, arXiv:2112.05682, and Dao et al.,
# arXiv:2205.14135.
class _OnlineSoftmax:
    """The running maximum, sum and weighted values of the rows of a tile."""

    def __init__(self, q_MD: torch.Tensor, value_dim: int) -> None:
        self._max_M1 = q_MD.new_full((len(q_MD), 1), -torch.inf)
        self._total_M1 = q_MD.new_zeros((len(q_MD), 1))
        self._out_ME = q_MD.new_zeros((len(q_MD), value_dim))

    def add(self, place: slice, scores_MN: torch.Tensor, v_NE: torch.Tensor) -> None:
        """Take in further keys for those of the rows that see one of them; overwrites the scores."""
        max_M1, total_M1, out_ME = self._max_M1[place], self._total_M1[place], self._out_ME[place]
        new_max_M1 = torch.maximum(max_M1, scores_MN.amax(dim=1, keepdim=True))
        weights_MN = scores_MN.sub_(new_max_M1).exp2_()
        fading_M1 = torch.sub(max_M1, new_max_M1).exp2_()
        torch.addcmul(weights_MN.sum(dim=1, keepdim=True), total_M1, fading_M1, out=total_M1)
        torch.addcmul(_product(weights_MN, v_NE.T), out_ME, fading_M1, out=out_ME)
        max_M1.copy_(new_max_M1)

    def result(self, heads_in_group: int) -> tuple[torch.Tensor, torch.Tensor]:
        """out_TRE and natural lse_TR."""
        lse_M1 = self._total_M1.log2().add_(self._max_M1).div_(_LOG2_E)
        out_ME = self._out_ME.div_(self._total_M1)
        return out_ME.view(-1, heads_in_group, out_ME.shape[1]), lse_M1.view(-1, heads_in_group)
