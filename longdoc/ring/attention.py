"""Ring attention: each rank keeps its queries; keys and values travel from rank to rank.

Owns the loop and its buffers. Legend: H query heads, G key-value heads, T queries of this rank, S keys, D head
dimension of queries and keys, E of values. Keys and values of a transfer travel as one flat message: G·S·D keys, then
G·S·E values.
"""

from collections.abc import Iterator, Sequence

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


KeysAndValues = tuple[torch.Tensor, torch.Tensor]


class TravellingKeys:
    """One layer's own keys and values, and the flat buffers in which those of other ranks come and go.

    At step t, slot t mod 2 holds what is computed with (and passed on), and the other receives. What is sent of this
    rank's own after step 0 is packed apart from both. No buffer is larger for a larger ring.
    """

    def __init__(self, k_GSD: torch.Tensor, v_GSE: torch.Tensor, sizes: BufferSizes) -> None:
        self.own = k_GSD, v_GSE
        self._per_key = k_GSD.shape[0] * (k_GSD.shape[2] + v_GSE.shape[2])
        self._slots = tuple(k_GSD.new_empty(num_keys * self._per_key) for num_keys in sizes.slots)
        self._packed = k_GSD.new_empty(sizes.packed * self._per_key) if sizes.packed else self._slots[0]

    def sends(self, hop: Hop) -> list[Transfer]:
        """What a hop sends: packed from this rank's own, or passed on as it came."""
        if hop.send is None:
            return []
        own = hop.step == 0 or hop.send.owner != hop.source
        message = self._pack(hop.send) if own else self._message(hop.step, hop.num_keys)
        return [(hop.send.peer, message)]

    def receives(self, hop: Hop) -> list[Transfer]:
        """Where a hop receives what the next one holds."""
        if hop.receive is None:
            return []
        return [(hop.receive.peer, self._message(hop.step + 1, hop.receive.num_keys))]

    def held(self, hop: Hop) -> KeysAndValues:
        """k_GSD and v_GSE that a hop computes with: this rank's own as they are, or what came in."""
        return self.own if hop.step == 0 else self._parts(self._message(hop.step, hop.num_keys))

    def _message(self, step: int, num_keys: int) -> torch.Tensor:
        """The part of a step's slot that keys and values of `num_keys` keys fill."""
        return self._slots[step % 2][: num_keys * self._per_key]

    def _pack(self, transfer: PlannedTransfer) -> torch.Tensor:
        message = self._packed[: transfer.num_keys * self._per_key]
        for own, packed in zip(self.own, self._parts(message), strict=True):
            start = 0
            for keys in transfer.keys:
                packed[:, start : start + len(keys)].copy_(own[:, keys.slice])
                start += len(keys)
        return message

    def _parts(self, message: torch.Tensor) -> KeysAndValues:
        """A message as k_GSD and v_GSE."""
        num_heads, _, head_dim = self.own[0].shape
        num_keys = message.numel() // self._per_key
        k, v = message.tensor_split([num_heads * num_keys * head_dim])
        return k.view(num_heads, num_keys, head_dim), v.view(num_heads, num_keys, self.own[1].shape[2])


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
    softcap: float | None = None,
    sink_H: torch.Tensor | None = None,
    log: HopLog | None = None,
    overwrite_q: bool = False,
) -> torch.Tensor:
    """This rank's attention over the keys of all ranks: out_HTE in the dtype of q, laid out query by query.

    `log` learns of each piece of work. With `overwrite_q` the result may take the place of q in memory.
    Raises `InfrastructureError` from the exchange, with the place where it happened.
    """
    log = HopLog() if log is None else log
    total = Accumulator.empty_for(q_HTD, v_GSE.shape[2])
    travelling = TravellingKeys(k_GSD, v_GSE, buffer_sizes(hops, exchange.rank))
    for number, hop in enumerate(hops):
        with log.hop(number, len(hops)):
            exchange.start(sends=travelling.sends(hop), receives=travelling.receives(hop))
            for piece, (k_held, v_held) in _pieces(hop, travelling, q_HTD):
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


def _pieces(hop: Hop, travelling: TravellingKeys, q_HTD: torch.Tensor) -> Iterator[tuple[Block, KeysAndValues]]:
    """The pieces of a hop, each with the keys and values that its keys are counted among."""
    num_heads, _, head_dim = q_HTD.shape
    device, value_dim = q_HTD.device.type, travelling.own[1].shape[2]
    max_flops = _FLOPS_PER_PIECE.get(device, _FLOPS_PER_LARGE_PIECE)
    max_pairs = int(max_flops / (2 * num_heads * (head_dim + value_dim)))
    max_queries = _PIECE_BYTES.get(device, _LARGE_PIECE_BYTES) // (4 * num_heads * value_dim)
    for blocks, held in ((hop.own_blocks, travelling.own), (hop.blocks, travelling.held(hop))):
        for block in blocks:
            for piece in split_block(block, max_pairs, max_queries):
                yield piece, held
