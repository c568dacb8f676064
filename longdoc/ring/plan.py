"""What happens at each hop of the ring: who sends to whom, and which queries meet which keys.

Pure functions of the layout, the rank and the mask. At step t a rank holds the keys and values of rank r-t (mod P) and
hands them to rank r+1. A transfer is made only as far as somebody needs it, and a hop that neither computes nor
transfers is not made. Together the blocks of all ranks and hops are exactly the mask, each pair once.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from longdoc.errors import ensure
from longdoc.ring.layout import Layout, TokenRange
from longdoc.ring.mask import Mask

# Below this many queries a block is cut along its keys: thin blocks read all the keys for little work.
_MIN_QUERIES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Queries (places in this rank's shard) that meet keys (places in the source's shard).

    `causal` blocks are square and show their lower triangle, diagonal included; the others show everything.
    """

    queries: TokenRange
    keys: TokenRange
    causal: bool

    @property
    def num_pairs(self) -> int:
        """The query-key pairs that are visible."""
        n = len(self.queries)
        return n * (n + 1) // 2 if self.causal else n * len(self.keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One step of one rank. `num_keys` are held, from rank `source`; `num_keys_received` come in for the next step."""

    step: int
    source: int
    num_keys: int
    send_to: int | None
    receive_from: int | None
    num_keys_received: int
    blocks: tuple[Block, ...]


def plan_hops(layout: Layout, rank: int, mask: Mask) -> tuple[Hop, ...]:
    """The hops of one rank, in order. Neighbours agree: a send at a step is a receive of the next rank at that step."""
    num_ranks = layout.num_ranks
    before, after = (rank - 1) % num_ranks, (rank + 1) % num_ranks
    reach = [_reach(layout, source, mask) for source in range(num_ranks)]
    hops = []
    for step in range(num_ranks):
        source, incoming = (rank - step) % num_ranks, (before - step) % num_ranks
        sends, receives = step < reach[source], step < reach[incoming]
        blocks = plan_blocks(layout, rank, source, mask)
        if not (blocks or sends or receives):
            continue
        hop = Hop(
            step=step,
            source=source,
            num_keys=layout.num_tokens_of(source),
            send_to=after if sends else None,
            receive_from=before if receives else None,
            num_keys_received=layout.num_tokens_of(incoming) if receives else 0,
            blocks=blocks,
        )
        hops.append(hop)
    return tuple(hops)


def _reach(layout: Layout, source: int, mask: Mask) -> int:
    """How many ranks beyond its own the keys of `source` must travel so that everybody who needs them has had them."""
    distances = range(layout.num_ranks - 1, 0, -1)
    return next((d for d in distances if plan_blocks(layout, (source + d) % layout.num_ranks, source, mask)), 0)


def plan_blocks(layout: Layout, rank: int, source: int, mask: Mask) -> tuple[Block, ...]:
    """The blocks in which queries of `rank` see keys of `source`, none of them empty, as few as possible."""
    if rank == source:
        # Both sides are the same ascending positions, so causal order in the shard is causal order in the document.
        ensure(mask.kind == "causal", mask.kind)
        whole = TokenRange(start=0, stop=layout.num_tokens_of(rank))
        return (Block(queries=whole, keys=whole, causal=True),) if len(whole) else ()
    blocks: list[Block] = []
    for queries, local_queries in _localised(layout.ranges(rank)):
        seen = [local for keys, local in _localised(layout.ranges(source)) if mask.cover(queries, keys) == "full"]
        if seen:
            # The keys a query sees are a prefix of the shard, so the ranges found are neighbours there.
            keys = TokenRange(start=seen[0].start, stop=seen[-1].stop)
            _append_joined(blocks, Block(queries=local_queries, keys=keys, causal=False))
    return tuple(blocks)


def _localised(ranges: tuple[TokenRange, ...]) -> Iterator[tuple[TokenRange, TokenRange]]:
    """Each global range with its place in the shard."""
    start = 0
    for tokens in ranges:
        yield tokens, TokenRange(start=start, stop=start + len(tokens))
        start += len(tokens)


def _append_joined(blocks: list[Block], block: Block) -> None:
    """Append a block, joined with the one before where both see the same keys: one kernel call instead of two."""
    if blocks and blocks[-1].keys == block.keys and blocks[-1].queries.stop == block.queries.start:
        start = blocks.pop().queries.start
        block = Block(queries=TokenRange(start=start, stop=block.queries.stop), keys=block.keys, causal=False)
    blocks.append(block)


def split_block(block: Block, max_pairs: int) -> Iterator[Block]:
    """Cut a block into pieces of at most `max_pairs` pairs (one pair if that is less than one), by halving."""
    if block.num_pairs <= max(max_pairs, 1):
        yield block
        return
    first, second = _halves(block.queries)
    if block.causal:
        # Top-left triangle, the full square below it, bottom-right triangle.
        parts = [
            Block(queries=first, keys=first, causal=True),
            Block(queries=second, keys=first, causal=False),
            Block(queries=second, keys=second, causal=True),
        ]
    elif len(block.queries) > min(_MIN_QUERIES, len(block.keys)):
        parts = [Block(queries=queries, keys=block.keys, causal=False) for queries in (first, second)]
    else:
        parts = [Block(queries=block.queries, keys=keys, causal=False) for keys in _halves(block.keys)]
    for part in parts:
        yield from split_block(part, max_pairs)


def _halves(tokens: TokenRange) -> tuple[TokenRange, TokenRange]:
    middle = tokens.start + len(tokens) // 2
    return TokenRange(start=tokens.start, stop=middle), TokenRange(start=middle, stop=tokens.stop)
