"""Ring attention: each rank keeps its queries; keys and values travel from rank to rank.

Owns the loop and its buffers. Legend: H query heads, G key-value heads, T queries of this rank, S keys, D head
dimension of queries and keys, E of values. Keys and values of a transfer travel as one flat message: G·S·D keys, then
G·S·E values.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from longdoc.ring.blocks import Block
from longdoc.ring.exchange import Exchange, Transfer
from longdoc.ring.forensics import HopLog
from longdoc.ring.kernels import Kernel
from longdoc.ring.merge import Accumulator
from longdoc.ring.pieces import split_block
from longdoc.ring.plan import BufferSizes, Hop, buffer_sizes
from longdoc.ring.plan import Transfer as PlannedTransfer

# A piece of work between two signs of life: about 2 s on one CPU core (measured: 95 GFLOP/s a core), and not longer on
# an accelerator, where many small calls would cost more than they tell.
_FLOPS_PER_PIECE = {"cpu": 2e11}
_FLOPS_PER_LARGE_PIECE = 2e14
# A piece's result in float32 stays below this, because it stands beside everything that grows with the document.
_PIECE_BYTES = {"cpu": 8 << 20}
_LARGE_PIECE_BYTES = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RingBuffers:
    """Flat buffers for keys and values, shared by all layers, never larger for a larger ring.

    At step t, slot t mod 2 holds what is computed with (and passed on), and the other receives. `packed` is what a rank
    sends of its own where that outlives step 0; otherwise slot 0 serves.
    """

    slots: tuple[torch.Tensor, torch.Tensor]
    packed: torch.Tensor

    @classmethod
    def allocate(
        cls, k_GSD: torch.Tensor, v_GSE: torch.Tensor, sizes: BufferSizes, before: "tuple[int, ...]" = (0, 0, 0)
    ) -> "RingBuffers":
        """Buffers for so many keys and values like these, of at least the numbers of elements in `before`."""
        counts = [max(pair) for pair in zip(_num_elements(k_GSD, v_GSE, sizes), before, strict=True)]
        first, second, packed = (torch.empty(n, dtype=k_GSD.dtype, device=k_GSD.device) for n in counts)
        return cls(slots=(first, second), packed=packed)

    @property
    def num_elements(self) -> tuple[int, ...]:
        """Of slot 0, slot 1 and what is packed."""
        return self.slots[0].numel(), self.slots[1].numel(), self.packed.numel()

    def fit(self, k_GSD: torch.Tensor, v_GSE: torch.Tensor, sizes: BufferSizes) -> bool:
        """Whether these buffers serve so many keys and values like these."""
        needed = _num_elements(k_GSD, v_GSE, sizes)
        large_enough = all(held >= needed for held, needed in zip(self.num_elements, needed, strict=True))
        held = self.slots[0]
        return large_enough and (held.dtype, held.device) == (k_GSD.dtype, k_GSD.device)


def _num_elements(k_GSD: torch.Tensor, v_GSE: torch.Tensor, sizes: BufferSizes) -> tuple[int, ...]:
    per_key = k_GSD.shape[0] * (k_GSD.shape[2] + v_GSE.shape[2])
    return tuple(per_key * num_keys for num_keys in (*sizes.slots, sizes.packed))


class _KeysAndValues:
    """One layer's own keys and values, and its views of the buffers."""

    def __init__(self, k_GSD: torch.Tensor, v_GSE: torch.Tensor, buffers: RingBuffers, sizes: BufferSizes) -> None:
        self._own = k_GSD, v_GSE
        self._buffers = buffers
        self._outgoing = buffers.packed if sizes.packed else buffers.slots[0]

    def message(self, step: int, num_keys: int) -> torch.Tensor:
        """The part of a step's slot that keys and values of `num_keys` keys fill."""
        return self._buffers.slots[step % 2][: num_keys * self._per_key]

    @property
    def _per_key(self) -> int:
        k_GSD, v_GSE = self._own
        return k_GSD.shape[0] * (k_GSD.shape[2] + v_GSE.shape[2])

    def parts(self, message: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """A message as k_GSD and v_GSE."""
        num_heads, _, head_dim = self._own[0].shape
        value_dim = self._own[1].shape[2]
        num_keys = message.numel() // self._per_key
        num_values = num_heads * num_keys * head_dim
        return (
            message[:num_values].view(num_heads, num_keys, head_dim),
            message[num_values:].view(num_heads, num_keys, value_dim),
        )

    def sends(self, hop: Hop) -> list[Transfer]:
        """What a hop sends: packed from this rank's own, or passed on as it came."""
        if hop.send is None:
            return []
        if hop.step > 0 and hop.send.owner == hop.source:
            return [(hop.send.peer, self.message(hop.step, hop.num_keys))]
        return [(hop.send.peer, self._packed(hop.send))]

    def receives(self, hop: Hop) -> list[Transfer]:
        """Where a hop receives what the next one holds."""
        if hop.receive is None:
            return []
        return [(hop.receive.peer, self.message(hop.step + 1, hop.receive.num_keys))]

    def held(self, hop: Hop) -> tuple[torch.Tensor, torch.Tensor]:
        """k_GSD and v_GSE that a hop computes with: this rank's own as they are, or what came in."""
        return self._own if hop.step == 0 else self.parts(self.message(hop.step, hop.num_keys))

    def _packed(self, transfer: PlannedTransfer) -> torch.Tensor:
        message = self._outgoing[: transfer.num_keys * self._per_key]
        for own, packed in zip(self._own, self.parts(message), strict=True):
            start = 0
            for keys in transfer.keys:
                packed[:, start : start + len(keys)].copy_(own[:, keys.slice])
                start += len(keys)
        return message


@torch.no_grad()
def ring_attention(
    q_HTD: torch.Tensor,
    k_GSD: torch.Tensor,
    v_GSE: torch.Tensor,
    *,
    hops: Sequence[Hop],
    exchange: Exchange,
    kernel: Kernel,
    scale: float,
    buffers: RingBuffers,
    softcap: float | None = None,
    sink_H: torch.Tensor | None = None,
    log: HopLog | None = None,
    overwrite_q: bool = False,
) -> torch.Tensor:
    """This rank's attention over the keys of all ranks: out_HTE in the dtype of q, laid out query by query.

    `buffers` must fit `buffer_sizes(hops, rank)`. `log` learns of each piece of work. With `overwrite_q` the result may
    take the place of q in memory. Raises `InfrastructureError` from the exchange, with the place where it happened.
    """
    log = HopLog() if log is None else log
    total = Accumulator.empty_for(q_HTD, v_GSE.shape[2])
    travelling = _KeysAndValues(k_GSD, v_GSE, buffers, buffer_sizes(hops, exchange.rank))
    for number, hop in enumerate(hops):
        with log.hop(number, len(hops)):
            exchange.start(sends=travelling.sends(hop), receives=travelling.receives(hop))
            k_held, v_held = travelling.held(hop)
            for piece in _pieces(hop.blocks, q_HTD, v_GSE.shape[2]):
                q_part, keys = q_HTD[:, piece.queries.slice], piece.keys.slice
                out_HTE, lse_HT = kernel(
                    q_part, k_held[:, keys], v_held[:, keys], band=piece.band, scale=scale, softcap=softcap
                )
                total.merge(piece.queries.slice, out_HTE, lse_HT)
                del out_HTE, lse_HT  # They would outlive the merge by one kernel call.
                log.beat()
            exchange.finish()
    if sink_H is not None:
        total.apply_sinks(sink_H)
    return total.result(q_HTD, overwrite=overwrite_q)


def _pieces(blocks: Sequence[Block], q_HTD: torch.Tensor, value_dim: int) -> list[Block]:
    flops_per_pair = 2 * q_HTD.shape[0] * (q_HTD.shape[2] + value_dim)
    max_flops = _FLOPS_PER_PIECE.get(q_HTD.device.type, _FLOPS_PER_LARGE_PIECE)
    max_bytes = _PIECE_BYTES.get(q_HTD.device.type, _LARGE_PIECE_BYTES)
    max_pairs, max_queries = int(max_flops / flops_per_pair), max_bytes // (4 * q_HTD.shape[0] * value_dim)
    return [piece for block in blocks for piece in split_block(block, max_pairs, max_queries)]
