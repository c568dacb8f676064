"""Which queries of one shard see which keys of another, as few rectangular blocks as possible.

Pure geometry. A block is never empty, and never has a query that sees none of its keys or a key that no query sees:
kernels return nonsense for such rows (or die), so blocks are trimmed to what is visible.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from longdoc.ring.layout import Layout, TokenRange, TokenRun
from longdoc.ring.mask import LOWER_TRIANGLE, Band, Mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Queries (places in this rank's shard) that meet keys (places among the keys that are held), as `band` says."""

    queries: TokenRange
    keys: TokenRange
    band: Band

    @property
    def num_pairs(self) -> int:
        """The query-key pairs that are visible."""
        return self.band.num_pairs(len(self.queries), len(self.keys))

    @property
    def is_full(self) -> bool:
        """Whether every query sees every key."""
        return self.band.is_full

    @property
    def is_causal_square(self) -> bool:
        """Whether it is a lower triangle, diagonal included."""
        return self.band.is_causal_square(len(self.queries), len(self.keys))

    def restricted(self, queries: TokenRange, keys: TokenRange) -> "Block | None":
        """What of the block lies in `queries` × `keys`, trimmed; None where nothing does. Both lie in the block."""
        # With t' = t - a and s' = s - b, s - t <= u is s' - t' <= u + a - b.
        shift = (queries.start - self.queries.start) - (keys.start - self.keys.start)
        lower, upper = (None if edge is None else edge + shift for edge in (self.band.lower, self.band.upper))
        return trimmed(queries, keys, lower, upper)

    def held_from(self, start: int) -> "Block":
        """The same block where place `start` of the source's shard is the first that is held."""
        keys = TokenRange(start=self.keys.start - start, stop=self.keys.stop - start)
        return Block(queries=self.queries, keys=keys, band=self.band)


# With T queries and S keys, query t sees a key if some s in 0 … S-1 has t + lower <= s <= t + upper, that is if
# t + upper >= 0 and t + lower <= S - 1; a key s is seen if s - upper <= T - 1 and s - lower >= 0.
def trimmed(queries: TokenRange, keys: TokenRange, lower: int | None, upper: int | None) -> Block | None:
    """The visible part of queries × keys under a band that counts from their first ones; None if nothing is visible."""
    num_queries, num_keys = len(queries), len(keys)
    lower = -num_queries if lower is None else lower
    upper = num_keys if upper is None else upper
    t_start, t_stop = max(0, -upper), min(num_queries, num_keys - lower)
    s_start, s_stop = max(0, lower), min(num_keys, num_queries + upper)
    if t_start >= t_stop or s_start >= s_stop or lower > upper:
        return None
    shift = t_start - s_start
    lower, upper = lower + shift, upper + shift
    return Block(
        queries=TokenRange(start=queries.start + t_start, stop=queries.start + t_stop),
        keys=TokenRange(start=keys.start + s_start, stop=keys.start + s_stop),
        # An edge that no pair of the block reaches is none: kernels know full blocks best.
        band=Band(
            lower=lower if lower > -(t_stop - t_start - 1) else None,
            upper=upper if upper < s_stop - s_start - 1 else None,
        ),
    )


def plan_blocks(layout: Layout, rank: int, source: int, mask: Mask) -> tuple[Block, ...]:
    """The blocks in which queries of `rank` see keys of `source`, all of them places in the two shards."""
    if rank == source and mask.right == 0 and mask.left is None:
        # Both sides are the same ascending positions, so causal order in the shard is causal order in the document.
        num_tokens = layout.num_tokens_of(rank)
        whole = TokenRange(start=0, stop=num_tokens)
        block = trimmed(whole, whole, LOWER_TRIANGLE.lower, LOWER_TRIANGLE.upper) if num_tokens else None
        return () if block is None else (block,)
    blocks: list[Block] = []
    for queries, local_queries in _localised(layout.runs(rank)):
        row: list[Block] = []
        for keys, local_keys in _localised(layout.runs(source)):
            lower, upper = _edges(queries, keys, mask)
            block = trimmed(local_queries, local_keys, lower, upper)
            if block is not None:
                _append_joined(row, block)
        for block in row:
            _append_joined(blocks, block)
    return tuple(blocks)


def sees(layout: Layout, rank: int, source: int, mask: Mask) -> bool:
    """Whether any query of `rank` sees any key of `source`."""
    return any(
        trimmed(local_queries, local_keys, *_edges(queries, keys, mask)) is not None
        for queries, local_queries in _localised(layout.runs(rank))
        for keys, local_keys in _localised(layout.runs(source))
    )


# Query t of a run stands at a + p·t and key s of another at b + p·s (the runs of a layout have one step p), so
# -left <= j - i <= right says ceil((-left - (b - a)) / p) <= s - t <= floor((right - (b - a)) / p).
def _edges(queries: TokenRun, keys: TokenRun, mask: Mask) -> tuple[int | None, int | None]:
    ahead, step = keys.start - queries.start, queries.step
    lower = None if mask.left is None else -((mask.left + ahead) // step)
    upper = None if mask.right is None else (mask.right - ahead) // step
    return lower, upper


def _localised(runs: tuple[TokenRun, ...]) -> Iterator[tuple[TokenRun, TokenRange]]:
    """Each run with its place in the shard."""
    start = 0
    for run in runs:
        yield run, TokenRange(start=start, stop=start + run.num_tokens)
        start += run.num_tokens


def _append_joined(blocks: list[Block], block: Block) -> None:
    """Append a block, joined with the one before where both are full and share a side: one kernel call, not two."""
    if blocks and blocks[-1].is_full and block.is_full:
        before = blocks[-1]
        if before.keys == block.keys and before.queries.stop == block.queries.start:
            queries = TokenRange(start=before.queries.start, stop=block.queries.stop)
            blocks[-1] = Block(queries=queries, keys=block.keys, band=block.band)
            return
        if before.queries == block.queries and before.keys.stop == block.keys.start:
            keys = TokenRange(start=before.keys.start, stop=block.keys.stop)
            blocks[-1] = Block(queries=block.queries, keys=keys, band=block.band)
            return
    blocks.append(block)
