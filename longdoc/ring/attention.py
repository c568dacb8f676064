"""Ring attention: each rank keeps its queries; keys and values travel from rank to rank.

Owns the loop and its two buffers. Legend: H query heads, G key-value heads, T queries of this rank, S keys, D head
dimension; 2GSD holds keys and values of one shard together, so that they travel as one message.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from longdoc.ring.exchange import Exchange
from longdoc.ring.kernels import Kernel
from longdoc.ring.merge import Accumulator
from longdoc.ring.plan import Hop, split_block

# A piece of work between two signs of life: about 2 s on one CPU core (measured: 95 GFLOP/s a core).
_FLOPS_PER_PIECE = 2e11


@dataclass(frozen=True, slots=True, kw_only=True)
class RingBuffers:
    """Two flat buffers, each large enough for the keys and values of the largest shard; shared by all layers.

    At step t, slot t mod 2 holds what is computed with and sent on, and the other receives.
    """

    slots: tuple[torch.Tensor, torch.Tensor]

    @classmethod
    def allocate(cls, k_GSD: torch.Tensor, *, max_keys: int, num_ranks: int) -> "RingBuffers":
        """Buffers for keys and values like k_GSD, up to `max_keys` of them. A ring of one receives nothing."""
        num_elements = 2 * k_GSD.shape[0] * max_keys * k_GSD.shape[2]
        held = torch.empty(num_elements, dtype=k_GSD.dtype, device=k_GSD.device)
        return cls(slots=(held, torch.empty_like(held if num_ranks > 1 else held[:0])))

    def hold(self, k_GSD: torch.Tensor, v_GSD: torch.Tensor) -> None:
        """Put a rank's own keys and values where step 0 finds them, contiguous for the kernel and the exchange."""
        k_held, v_held = self.view(0, k_GSD.shape[1], k_GSD)
        k_held.copy_(k_GSD)
        v_held.copy_(v_GSD)

    def view(self, step: int, num_keys: int, k_GSD: torch.Tensor) -> torch.Tensor:
        """The buffer of a step as 2GSD with `num_keys` keys, heads and dtype like k_GSD."""
        shape = (2, k_GSD.shape[0], num_keys, k_GSD.shape[2])
        return self.slots[step % 2][: shape[0] * shape[1] * shape[2] * shape[3]].view(shape)

    def fit(self, k_GSD: torch.Tensor, max_keys: int) -> bool:
        """Whether these buffers serve keys like k_GSD."""
        held = self.slots[0]
        needed = 2 * k_GSD.shape[0] * max_keys * k_GSD.shape[2]
        return held.numel() >= needed and (held.dtype, held.device) == (k_GSD.dtype, k_GSD.device)


@torch.no_grad()
def ring_attention(
    q_HTD: torch.Tensor,
    k_GSD: torch.Tensor,
    v_GSD: torch.Tensor,
    *,
    hops: Sequence[Hop],
    exchange: Exchange,
    kernel: Kernel,
    scale: float,
    buffers: RingBuffers,
    report: Callable[[int, int], None],
) -> torch.Tensor:
    """This rank's attention over the keys of all ranks: out_HTD in the dtype of q, laid out query by query.

    `report(hop, num_hops)` is called after each piece of work. Raises `InfrastructureError` from the exchange.
    """
    total = Accumulator.empty_for(q_HTD)
    buffers.hold(k_GSD, v_GSD)
    max_pairs = int(_FLOPS_PER_PIECE / (4 * q_HTD.shape[0] * q_HTD.shape[2]))
    for number, hop in enumerate(hops):
        held_2GSD = buffers.view(hop.step, hop.num_keys, k_GSD)
        incoming_2GSD = buffers.view(hop.step + 1, hop.num_keys_received, k_GSD)
        exchange.start(
            sends=[] if hop.send_to is None else [(hop.send_to, held_2GSD)],
            receives=[] if hop.receive_from is None else [(hop.receive_from, incoming_2GSD)],
        )
        for piece in (piece for block in hop.blocks for piece in split_block(block, max_pairs)):
            queries, (k_part, v_part) = piece.queries.slice, held_2GSD[:, :, piece.keys.slice]
            out_HTD, lse_HT = kernel(q_HTD[:, queries], k_part, v_part, causal=piece.causal, scale=scale)
            total.merge(queries, out_HTD, lse_HT)
            report(number, len(hops))
        exchange.finish()
    return total.out_HTD.to(q_HTD.dtype)
