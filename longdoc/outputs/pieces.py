"""Which pieces of a document (spans, segments, the document itself) a rank sums, shares and writes.

A partition cuts the N text tokens into consecutive pieces. A piece's embedding is pooled from the hidden states of
its own tokens; its scores come from the places *before* its tokens, which predict them. So piece [a, b) draws on the
model positions a - 1 … b - 1 (shifted by the document's prefix), and it is shared exactly when a border between two
ranks lies among them. Every border lies in one piece: a ring of P ranks shares at most 2P - 1 pieces of a partition.
The document as a whole is a piece in which every rank takes part: it may be pooled from special tokens around the
text, and those lie on any rank.
"""

from dataclasses import dataclass

import numpy as np

from longdoc.records import Int64s
from longdoc.ring.layout import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPieces:
    """One rank's view of a partition.

    touched: int64 [K], ascending indices of the pieces this rank draws on or writes.
    token_piece, row_piece: int64, for each text token and each scored row of the rank, an index into `touched`.
    closing: int64, indices into the rank's text tokens of those that are the last of their piece.
    owned: int64, the indices into `touched` of the pieces this rank writes.
    shared: int64 [S], indices into `touched` of shared pieces; `shared_slot` their places in the common sum,
    which has `num_shared` places on every rank.
    """

    touched: Int64s
    token_piece: Int64s
    row_piece: Int64s
    closing: Int64s
    owned: Int64s
    shared: Int64s
    shared_slot: Int64s
    num_shared: int

    @property
    def owned_indices(self) -> Int64s:
        """The pieces that this rank writes, by their index in the partition, ascending."""
        return self.touched[self.owned]


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition on a layout, as every rank sees it.

    starts: int64 [M + 1], tokens before each piece, the last one is N; pieces without tokens are allowed.
    owners: int64 [M], the rank that writes each piece; shared: int64, the pieces that draw on more than one rank;
    `is_everywhere`: every rank touches and shares every piece.
    """

    starts: Int64s
    owners: Int64s
    shared: Int64s
    is_everywhere: bool = False

    @classmethod
    def of(cls, starts: Int64s, layout: Layout, *, num_prefix: int) -> "Partition":
        """Plan what all ranks have in common, once."""
        return cls(
            starts=starts,
            owners=piece_owners(starts, layout, num_prefix=num_prefix),
            shared=shared_pieces(starts, layout, num_prefix=num_prefix),
        )

    @classmethod
    def whole(cls, num_tokens: int, layout: Layout, *, num_prefix: int) -> "Partition":
        """The document as one piece."""
        starts = np.asarray([0, num_tokens], dtype=np.int64)
        owners = piece_owners(starts, layout, num_prefix=num_prefix)
        return cls(starts=starts, owners=owners, shared=np.zeros(1, dtype=np.int64), is_everywhere=True)


def pieces_of_rank(partition: Partition, rank: int, *, tokens: Int64s, rows: Int64s) -> RankPieces:
    """Plan one rank's share of a partition.

    tokens, rows: int64, the text positions whose hidden states, and whose scores, this rank computes; ascending.
    """
    starts, shared = partition.starts, partition.shared
    token_piece = np.searchsorted(starts, tokens, side="right") - 1
    row_piece = np.searchsorted(starts, rows, side="right") - 1
    owned = np.flatnonzero(partition.owners == rank)
    all_pieces = np.arange(len(starts) - 1) if partition.is_everywhere else owned
    touched = np.unique(np.concatenate([token_piece, row_piece, owned, all_pieces]))
    mine = np.intersect1d(shared, touched, assume_unique=True)
    return RankPieces(
        touched=touched,
        token_piece=np.searchsorted(touched, token_piece),
        row_piece=np.searchsorted(touched, row_piece),
        closing=np.flatnonzero(np.isin(tokens + 1, starts)),
        owned=np.searchsorted(touched, owned),
        shared=np.searchsorted(touched, mine),
        shared_slot=np.searchsorted(shared, mine),
        num_shared=len(shared),
    )


def piece_owners(starts: Int64s, layout: Layout, *, num_prefix: int) -> Int64s:
    """The rank that writes each piece: the owner of its first token; for a piece without tokens, of the next one."""
    num_tokens = int(starts[-1])
    first = np.minimum(starts[:-1], max(num_tokens - 1, 0)) + num_prefix
    edges = np.asarray([0, *layout.borders()], dtype=np.int64)
    owners = np.asarray([layout.owner(int(edge)) for edge in edges], dtype=np.int64)
    return owners[np.searchsorted(edges, first, side="right") - 1]


def shared_pieces(starts: Int64s, layout: Layout, *, num_prefix: int) -> Int64s:
    """The pieces that draw on more than one rank, ascending."""
    borders = np.asarray(layout.borders(), dtype=np.int64) - num_prefix
    # A border before a piece's first token still splits it: that token's scores come from the place before it.
    inside = borders[(borders >= 0) & (borders < int(starts[-1]))]
    return np.unique(np.searchsorted(starts, inside, side="right") - 1)
