"""How a block is cut into pieces: small enough that progress shows, and hardly larger than what is visible.

Pure geometry. A kernel without windows of its own computes all of a piece's rectangle, so a band is cut along its
diagonal until the rectangles around its pieces waste little.
"""

from collections.abc import Iterator

from longdoc.ring.blocks import Block
from longdoc.ring.layout import TokenRange

# Below this many queries a block is cut along its keys: thin blocks read all the keys for little work.
_MIN_QUERIES = 256
# A band is cut as long as its rectangle is this many times its pairs, and more urgently where it is twice them. Below
# the second size a kernel call costs more than what it wastes.
_WASTE, _MIN_BAND = 1.25, 256
_MUCH_WASTE, _MIN_NARROW_BAND = 2.0, 64


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
    rectangle, num_pairs, size = _cost(block), block.num_pairs, min(len(block.queries), len(block.keys))
    return (rectangle > _WASTE * num_pairs and size > _MIN_BAND) or (
        rectangle > _MUCH_WASTE * num_pairs and size > _MIN_NARROW_BAND
    )


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
