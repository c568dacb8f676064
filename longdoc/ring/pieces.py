"""How a block is cut into pieces: small enough that progress shows, and hardly larger than what is visible.

Pure geometry. Kernels without windows of their own compute all of a piece's rectangle, so a band is cut along its
diagonal until the rectangles around its pieces are at most twice what is visible, or small.
"""

from collections.abc import Iterator

from longdoc.ring.blocks import Block
from longdoc.ring.layout import TokenRange

# Below this many queries a block is cut along its keys: thin blocks read all the keys for little work.
_MIN_QUERIES = 256
# A band is cut as long as its rectangle is more than this many times its pairs, down to pieces of this many queries:
# below that, calls cost kernels with windows of their own more than they save the others.
_WASTE, _MIN_BAND = 2, 512


def split_block(block: Block, max_pairs: int, max_queries: int | None = None) -> Iterator[Block]:
    """Cut a block into pieces of at most `max_pairs` pairs (one pair if that is less than one), by halving.

    No piece has more than `max_queries`, or 256 if that is less: what a kernel returns grows with them.
    The pairs that count are those that a kernel computes: of a band the rectangle around it, of a lower triangle half.
    """
    few = max_queries is None or len(block.queries) <= max(max_queries, _MIN_QUERIES)
    if few and _cost(block) <= max(max_pairs, 1) and not _wastes(block):
        yield block
        return
    for part in _halves(block):
        yield from split_block(part, max_pairs, max_queries)


def _cost(block: Block) -> int:
    return block.num_pairs if block.is_causal_square else len(block.queries) * len(block.keys)


def _wastes(block: Block) -> bool:
    if block.is_full or block.is_causal_square:
        return False
    return len(block.queries) > _MIN_BAND and _cost(block) > _WASTE * block.num_pairs


def _halves(block: Block) -> Iterator[Block]:
    """The parts of a block: of a lower triangle two triangles and the square between them, otherwise two halves."""
    rows, columns = [block.queries], [block.keys]
    if block.is_causal_square:
        rows, columns = _halved(block.queries), _halved(block.keys)
    elif len(block.queries) > min(_MIN_QUERIES, len(block.keys)):
        rows = _halved(block.queries)
    else:
        columns = _halved(block.keys)
    for queries in rows:
        for keys in columns:
            part = block.restricted(queries, keys)
            if part is not None:
                yield part


def _halved(tokens: TokenRange) -> list[TokenRange]:
    middle = tokens.start + len(tokens) // 2
    return [TokenRange(start=tokens.start, stop=middle), TokenRange(start=middle, stop=tokens.stop)]
