"""The online log-sum-exp merge of partial attention results.

Legend: H query heads, T queries, E head dimension of values. Log-sum-exps are natural logarithms. Accumulators are
float32 (float64 for float64): half-precision partial results would let the error grow with the size of the ring.
"""

from dataclasses import dataclass

import torch

# How many values are brought to the accumulator's dtype at a time: 4 MiB in a CPU's cache, more where every call costs.
_TILE_VALUES = {"cpu": 1 << 20}
_MANY_VALUES = 1 << 26


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulator:
    """Attention over the keys seen so far: out_HTE and lse_HT, updated in place. No key seen: out 0, lse -inf."""

    out_HTE: torch.Tensor
    lse_HT: torch.Tensor

    @classmethod
    def empty_for(cls, q_HTD: torch.Tensor, value_dim: int) -> "Accumulator":
        """An accumulator that has seen no key, for these queries and values of `value_dim` dimensions a head."""
        num_heads, num_queries, _ = q_HTD.shape
        dtype = torch.float64 if q_HTD.dtype == torch.float64 else torch.float32
        # Laid out query by query, as the next layer wants it, so that no transposing copy follows.
        out_THE = torch.zeros((num_queries, num_heads, value_dim), dtype=dtype, device=q_HTD.device)
        lse_TH = torch.full((num_queries, num_heads), -torch.inf, dtype=dtype, device=q_HTD.device)
        return cls(out_HTE=out_THE.transpose(0, 1), lse_HT=lse_TH.transpose(0, 1))

    def merge(self, queries: slice, out_HTE: torch.Tensor, lse_HT: torch.Tensor) -> None:
        """Merge the attention of `queries` over further keys: out_HTE of any float dtype, lse_HT natural."""
        merge_(self.out_HTE[:, queries], self.lse_HT[:, queries], out_HTE, lse_HT)

    # A sink is one more key with score `sink` and value 0: it adds exp(sink) to the denominator exp(lse), so
    # out' = out · exp(lse) / (exp(lse) + exp(sink)) = out · sigmoid(lse - sink),   lse' = log(exp(lse) + exp(sink)).
    # Source: gpt-oss, arXiv:2508.10925 §2.2, and Xiao et al., arXiv:2309.17453.
    def apply_sinks(self, sink_H: torch.Tensor) -> None:
        """Add each head's sink to the denominator; once, after the last merge, because each merge would add it again.

        A sink of -inf is none. A query that saw no key keeps out 0.
        """
        sink_H1 = sink_H.to(self.lse_HT.dtype)[:, None]
        # Only where both are -inf would the difference be NaN, and there out is 0 whatever it is multiplied with.
        delta_HT = torch.where(sink_H1 == -torch.inf, torch.inf, self.lse_HT - sink_H1)
        self.out_HTE.mul_(torch.sigmoid(delta_HT)[..., None])
        torch.logaddexp(self.lse_HT, sink_H1.expand_as(self.lse_HT), out=self.lse_HT)

    def result(self, q_HTD: torch.Tensor, *, overwrite: bool = False) -> torch.Tensor:
        """out_HTE in the dtype of q, laid out query by query.

        With `overwrite` it takes the place of q in memory where it fits exactly, so that no second copy is made.
        """
        if self.out_HTE.dtype == q_HTD.dtype:
            return self.out_HTE
        if overwrite and q_HTD.shape == self.out_HTE.shape and q_HTD.transpose(0, 1).is_contiguous():
            return q_HTD.copy_(self.out_HTE)
        return self.out_HTE.to(q_HTD.dtype)


# lse = log(exp(lse_a) + exp(lse_b)),   out = exp(lse_a - lse) out_a + exp(lse_b - lse) out_b
#     = out_a + sigmoid(lse_b - lse_a) (out_b - out_a)
# Source: Milakov and Gimelshein, arXiv:1805.02867, and Liu, Zaharia and Abbeel (ring attention), arXiv:2310.01889.
# logaddexp and sigmoid never form exp(lse), which overflows.
def merge_(out_a_HTE: torch.Tensor, lse_a_HT: torch.Tensor, out_b_HTE: torch.Tensor, lse_b_HT: torch.Tensor) -> None:
    """Merge b into a, in place. Nothing (-inf) with nothing stays nothing: lse -inf, out as it was, never NaN."""
    lse_b_HT = lse_b_HT.to(lse_a_HT.dtype)
    # -inf - (-inf) is NaN: where b has seen no key its weight is 0, whatever a has seen. A NaN in an lse stays one.
    delta_HT = torch.where(lse_b_HT == -torch.inf, lse_b_HT, lse_b_HT - lse_a_HT)
    weight_HT1 = torch.sigmoid(delta_HT)[..., None]
    for queries in _tiles(out_a_HTE, out_b_HTE):
        out_a_HTE[:, queries].lerp_(out_b_HTE[:, queries].to(out_a_HTE.dtype), weight_HT1[:, queries])
    torch.logaddexp(lse_a_HT, lse_b_HT, out=lse_a_HT)


def _tiles(out_a_HTE: torch.Tensor, out_b_HTE: torch.Tensor) -> list[slice]:
    """Stretches of queries so short that a copy of them in another dtype does not count; all at once without a copy."""
    num_heads, num_queries, value_dim = out_a_HTE.shape
    if out_a_HTE.dtype == out_b_HTE.dtype:
        return [slice(0, num_queries)]
    values = _TILE_VALUES.get(out_a_HTE.device.type, _MANY_VALUES)
    tile = max(1, values // (num_heads * value_dim))
    return [slice(start, start + tile) for start in range(0, num_queries, tile)]
