"""Late-chunked embeddings and mean scores of pieces: pooled from states that have seen the whole document.

A span or a segment is pooled from its own tokens: their mean, or, where the model pools its last token, the state of
its own last one. The document is pooled as the model's convention says, special tokens included where it includes
them; `cls` is a matter of the document alone, its spans and segments are means. Each rank sums what it holds of a
piece; pieces that cross a border are summed across the ring, in float64.
Shapes: N places of the shard, K pieces that the rank touches, C hidden size.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from longdoc.model.conventions import EmbeddingConvention
from longdoc.model.embedding_head import EmbeddingHead
from longdoc.outputs.pieces import RankPieces
from longdoc.outputs.work import RankWork
from longdoc.records import Int64s
from longdoc.ring.exchange import ReduceOp

#: Adds up (or takes the largest of) a tensor over all ranks of the ring, in place.
AllReduce = Callable[[Tensor, ReduceOp], None]

_TILE = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledTokens:
    """The places of the shard whose states are pooled, and the piece of each, by its index into `touched`; int64."""

    places: Int64s
    piece: Int64s

    @classmethod
    def of_pieces(cls, work: RankWork, pieces: RankPieces, convention: EmbeddingConvention) -> "PooledTokens":
        """The rank's tokens of spans or segments."""
        if convention.pooling == "last":
            return cls(places=work.shard.text_places[pieces.closing], piece=pieces.token_piece[pieces.closing])
        return cls(places=work.shard.text_places, piece=pieces.token_piece)

    @classmethod
    def of_document(cls, work: RankWork, convention: EmbeddingConvention) -> "PooledTokens":
        """The rank's tokens of the document as a whole."""
        wanted = convention.document_range(num_prefix=work.num_prefix, num_tokens=work.shard.layout.num_tokens)
        positions = work.shard.positions
        places = (
            work.shard.text_places
            if wanted is None
            else np.flatnonzero((positions >= wanted[0]) & (positions < wanted[1])).astype(np.int64)
        )
        return cls(places=places, piece=np.zeros(len(places), dtype=np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledPieces:
    """One rank's pieces after the exchange; right for every piece that it owns.

    vectors: float64 [K, C] sums of hidden states, or None when no embeddings are wanted; num_vectors: int64 [K].
    `head` makes embeddings of pooled states.
    logprob_sum: float64 [K]; num_scored: int64 [K]; max_surprisal: float64 [K], -inf where nothing is scored.
    """

    vectors: Tensor | None
    num_vectors: Tensor
    logprob_sum: Tensor
    num_scored: Tensor
    max_surprisal: Tensor
    head: EmbeddingHead

    def embeddings(self, owned: Int64s) -> np.ndarray[tuple[int, int], np.dtype[np.float32]] | None:
        """float32 [len(owned), E]: each piece's embedding; NaN rows where it has no pooled state."""
        if self.vectors is None:
            return None
        chosen = torch.from_numpy(owned)
        means = self.vectors[chosen] / self.num_vectors[chosen, None]
        return self.head(means).to(torch.float32).numpy()

    def mean_logprob(self, owned: Int64s) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """float64 [len(owned)], nats; NaN where nothing is scored."""
        chosen = torch.from_numpy(owned)
        return (self.logprob_sum[chosen] / self.num_scored[chosen]).numpy()


def pool_pieces(
    pieces: RankPieces,
    *,
    hidden_NC: Tensor | None,
    pooled: PooledTokens,
    head: EmbeddingHead,
    logprob: Tensor,
    scored_rows: Int64s,
    all_reduce: AllReduce,
) -> PooledPieces:
    """Pool one partition.

    hidden_NC is None when no embeddings are wanted. A piece's pooled state is the mean over its `pooled` tokens on all
    ranks. `logprob` belongs to the rows `scored_rows` of the rank.
    """
    num_pieces = len(pieces.touched)
    token_piece, places = torch.from_numpy(pooled.piece), torch.from_numpy(pooled.places)
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
        head=head,
    )


def _sum_vectors(hidden_NC: Tensor, places: Tensor, piece: Tensor, num_pieces: int) -> Tensor:
    """Summed where the states are; the sums, a row a piece, go to the CPU, where the rest is done."""
    places, piece = places.to(hidden_NC.device), piece.to(hidden_NC.device)
    sums_KC = torch.zeros(num_pieces, hidden_NC.shape[1], dtype=torch.float64, device=hidden_NC.device)
    for start in range(0, len(places), _TILE):
        tile = slice(start, start + _TILE)
        sums_KC.index_add_(0, piece[tile], hidden_NC[places[tile]].to(torch.float64))
    return sums_KC.cpu()


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
