"""The online log-sum-exp merge of partial attention results.

Legend: H query heads, T queries, D head dimension. Log-sum-exps are natural logarithms. Accumulators are float32
(float64 for float64): half-precision partial results would let the error grow with the size of the ring.
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulator:
    """Attention over the keys seen so far: out_HTD and lse_HT, updated in place. No key seen: out 0, lse -inf."""

    out_HTD: torch.Tensor
    lse_HT: torch.Tensor

    @classmethod
    def empty_for(cls, q_HTD: torch.Tensor) -> "Accumulator":
        """An accumulator that has seen no key, for these queries."""
        num_heads, num_queries, head_dim = q_HTD.shape
        dtype = torch.float64 if q_HTD.dtype == torch.float64 else torch.float32
        # Laid out query by query, as the next layer wants it, so that no transposing copy follows.
        out_THD = torch.zeros((num_queries, num_heads, head_dim), dtype=dtype, device=q_HTD.device)
        lse_TH = torch.full((num_queries, num_heads), -torch.inf, dtype=dtype, device=q_HTD.device)
        return cls(out_HTD=out_THD.transpose(0, 1), lse_HT=lse_TH.transpose(0, 1))

    def merge(self, queries: slice, out_HTD: torch.Tensor, lse_HT: torch.Tensor) -> None:
        """Merge the attention of `queries` over further keys: out_HTD of any float dtype, lse_HT natural."""
        merge_(self.out_HTD[:, queries], self.lse_HT[:, queries], out_HTD, lse_HT)


# lse = log(exp(lse_a) + exp(lse_b)),   out = exp(lse_a - lse) out_a + exp(lse_b - lse) out_b
#     = out_a + sigmoid(lse_b - lse_a) (out_b - out_a)
# Source: Milakov and Gimelshein, arXiv:1805.02867, and Liu, Zaharia and Abbeel (ring attention), arXiv:2310.01889.
# logaddexp and sigmoid never form exp(lse), which overflows.
def merge_(out_a_HTD: torch.Tensor, lse_a_HT: torch.Tensor, out_b_HTD: torch.Tensor, lse_b_HT: torch.Tensor) -> None:
    """Merge b into a, in place. Nothing (-inf) with nothing stays nothing: lse -inf, out as it was, never NaN."""
    lse_b_HT = lse_b_HT.to(lse_a_HT.dtype)
    # -inf - (-inf) is NaN: where b has seen no key its weight is 0, whatever a has seen. A NaN in an lse stays one.
    delta_HT = torch.where(lse_b_HT == -torch.inf, lse_b_HT, lse_b_HT - lse_a_HT)
    out_a_HTD.lerp_(out_b_HTD.to(out_a_HTD.dtype), torch.sigmoid(delta_HT)[..., None])
    torch.logaddexp(lse_a_HT, lse_b_HT, out=lse_a_HT)
