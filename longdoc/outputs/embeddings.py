"""Late-chunked embeddings and mean scores of pieces: pooled from states that have seen the whole document.

Each rank sums what it holds of a piece; pieces that cross a border are summed across the ring, in float64.
Shapes: N places of the shard, K pieces that the rank touches, C hidden size.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from longdoc.outputs.pieces import RankPieces
from longdoc.records import Int64s
from longdoc.ring.exchange import ReduceOp

#: Adds up (or takes the largest of) a tensor over all ranks of the ring, in place.
AllReduce = Callable[[Tensor, ReduceOp], None]

_TILE = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledPieces:
    """One rank's pieces after the exchange; right for every piece that it owns.

    vectors: float64 [K, C] sums of hidden states, or None when no embeddings are wanted; num_vectors: int64 [K].
    logprob_sum: float64 [K]; num_scored: int64 [K]; max_surprisal: float64 [K], -inf where nothing is scored.
    """

    vectors: Tensor | None
    num_vectors: Tensor
    logprob_sum: Tensor
    num_scored: Tensor
    max_surprisal: Tensor

    def embeddings(self, owned: Int64s) -> np.ndarray[tuple[int, int], np.dtype[np.float32]] | None:
        """float32 [len(owned), C]: the mean of each piece's pooled states; NaN rows where a piece has none."""
        if self.vectors is None:
            return None
        chosen = torch.from_numpy(owned)
        means = self.vectors[chosen] / self.num_vectors[chosen, None]
        return means.to(torch.float32).numpy()

    def mean_logprob(self, owned: Int64s) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """float64 [len(owned)], nats; NaN where nothing is scored."""
        chosen = torch.from_numpy(owned)
        return (self.logprob_sum[chosen] / self.num_scored[chosen]).numpy()


def pool_pieces(
    pieces: RankPieces,
    *,
    hidden_NC: Tensor | None,
    text_places: Int64s,
    last_only: bool,
    logprob: Tensor,
    scored_rows: Int64s,
    all_reduce: AllReduce,
) -> PooledPieces:
    """Pool one partition.

    hidden_NC is None when no embeddings are wanted. `text_places` are the places of the rank's text tokens; with
    `last_only` a piece is its last token's state, else the mean over its tokens. `logprob` belongs to the rows
    `scored_rows` of the rank.
    """
    num_pieces = len(pieces.touched)
    token_piece = torch.from_numpy(pieces.token_piece)
    places = torch.from_numpy(text_places)
    if last_only:
        chosen = torch.from_numpy(pieces.closing)
        token_piece, places = token_piece[chosen], places[chosen]
    vectors = None if hidden_NC is None else _sum_vectors(hidden_NC, places, token_piece, num_pieces)
    row_piece = torch.from_numpy(pieces.row_piece)[torch.from_numpy(scored_rows)]
    logprob = logprob.to(torch.float64)
    counts = torch.zeros(3, num_pieces, dtype=torch.float64)
    counts[0].index_add_(0, token_piece, torch.ones(len(token_piece), dtype=torch.float64))
    counts[1].index_add_(0, row_piece, logprob)
    counts[2].index_add_(0, row_piece, torch.ones(len(row_piece), dtype=torch.float64))
    surprisal = torch.full((num_pieces,), -torch.inf, dtype=torch.float64)
    surprisal.scatter_reduce_(0, row_piece, -logprob, reduce="amax")
    _share(pieces, vectors, counts, surprisal, all_reduce)
    return PooledPieces(
        vectors=vectors,
        num_vectors=counts[0].to(torch.int64),
        logprob_sum=counts[1],
        num_scored=counts[2].to(torch.int64),
        max_surprisal=surprisal,
    )


def _sum_vectors(hidden_NC: Tensor, places: Tensor, piece: Tensor, num_pieces: int) -> Tensor:
    sums_KC = torch.zeros(num_pieces, hidden_NC.shape[1], dtype=torch.float64)
    for start in range(0, len(places), _TILE):
        tile = slice(start, start + _TILE)
        sums_KC.index_add_(0, piece[tile], hidden_NC[places[tile]].to(torch.float64))
    return sums_KC


def _share(
    pieces: RankPieces, vectors: Tensor | None, counts: Tensor, surprisal: Tensor, all_reduce: AllReduce
) -> None:
    """Sum the shared pieces over the ring. Every rank takes part, with zeros where it holds nothing."""
    if pieces.num_shared == 0:
        return
    mine, slot = torch.from_numpy(pieces.shared), torch.from_numpy(pieces.shared_slot)
    width = 3 + (0 if vectors is None else vectors.shape[1])
    sums = torch.zeros(pieces.num_shared, width, dtype=torch.float64)
    sums[slot, :3] = counts[:, mine].T
    if vectors is not None:
        sums[slot, 3:] = vectors[mine]
    largest = torch.full((pieces.num_shared,), -torch.inf, dtype=torch.float64)
    largest[slot] = surprisal[mine]
    all_reduce(sums, "sum")
    all_reduce(largest, "max")
    counts[:, mine] = sums[slot, :3].T
    if vectors is not None:
        vectors[mine] = sums[slot, 3:]
    surprisal[mine] = largest[slot]
