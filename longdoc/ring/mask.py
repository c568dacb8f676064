"""The one door to attention masks: which keys a query may see, by global position.

Only causal attention for now. Every other mask is refused by name: a mask that is dropped in silence gives wrong
numbers that look right.
"""

from dataclasses import dataclass
from typing import Literal

from longdoc.errors import ModelError
from longdoc.ring.layout import TokenRange

MaskKind = Literal["causal"]
MASKS: tuple[MaskKind, ...] = ("causal",)
Cover = Literal["full", "diagonal", "empty"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask:
    """A mask over global positions. Raises `ModelError` for a kind that is not supported."""

    kind: MaskKind = "causal"

    def __post_init__(self) -> None:
        if self.kind not in MASKS:
            raise ModelError(
                f"a model with {self.kind!r} attention cannot run on the ring: only {', '.join(MASKS)} attention is"
                " supported; choose a causal language model (see `longdoc models list`)"
            )

    def allows(self, query: int, key: int) -> bool:
        """Whether the token at position `query` sees the token at position `key`."""
        return key <= query

    def cover(self, queries: TokenRange, keys: TokenRange) -> Cover:
        """How much of queries × keys is visible; both are not empty, and either the same range or disjoint."""
        if queries == keys:
            return "diagonal"
        if keys.stop <= queries.start:
            return "full"
        if queries.stop <= keys.start:
            return "empty"
        raise ValueError(f"{queries} and {keys} overlap without being equal")
