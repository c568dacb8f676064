"""The one door to attention masks: which keys a query may see, by their distance.

Owns the masks of whole sequences (`Mask`) and of single blocks (`Band`), pure arithmetic. Whatever depends on more
than a distance (chunks, packed documents, padding) cannot be said here, and is refused where a model asks for it.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask:
    """A query at position i sees a key at position j exactly where -left <= j - i <= right; None is unbounded.

    The default is causal. Raises `ValueError` for a negative bound: every query sees at least itself.
    """

    left: int | None = None
    right: int | None = 0

    def __post_init__(self) -> None:
        if min(self.left or 0, self.right or 0) < 0:
            raise ValueError(f"a query must see itself, which a mask from -{self.left} to {self.right} does not allow")

    @classmethod
    def sliding(cls, window: int, *, causal: bool = True) -> "Mask":
        """Keys at a distance below `window`, on both sides where not `causal`: the convention of transformers.

        flash-attn names the same window by its reach, (window - 1, 0) or (window - 1, window - 1).
        """
        return cls(left=window - 1, right=0 if causal else window - 1)

    @property
    def is_causal(self) -> bool:
        """Whether no query sees a later key."""
        return self.right == 0

    @property
    def is_windowed(self) -> bool:
        """Whether a query sees only keys up to some distance, on a side where it sees any."""
        return self.left is not None or self.right not in (None, 0)

    @property
    def reaches(self) -> tuple[int | None, int | None]:
        """(left, right)."""
        return self.left, self.right

    @property
    def name(self) -> str:
        """What it is called in messages."""
        if not self.is_windowed:
            return "causal" if self.is_causal else "bidirectional"
        if self.is_causal:
            return f"causal with a window of {(self.left or 0) + 1}"
        if self.left == self.right:
            return f"bidirectional with a window of {(self.left or 0) + 1} on each side"
        ends = ("all" if reach is None else str(reach) for reach in self.reaches)
        return "limited to {} tokens before and {} after".format(*ends)

    def allows(self, query: int, key: int) -> bool:
        """Whether the token at position `query` sees the token at position `key`."""
        ahead = key - query
        return (self.left is None or -self.left <= ahead) and (self.right is None or ahead <= self.right)

    def within(self, num_tokens: int) -> "Mask":
        """The same mask for a sequence of `num_tokens`, without the bounds that no pair of its tokens reaches."""
        last = num_tokens - 1
        left = None if self.left is None or self.left >= last else self.left
        right = None if self.right is None or 0 < self.right >= last else self.right
        return Mask(left=left, right=right)


CAUSAL = Mask()
BIDIRECTIONAL = Mask(left=None, right=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """What is visible inside one block: query t sees key s exactly where lower <= s - t <= upper; None is unbounded.

    Queries and keys are counted from the block's own first ones, so the top left corner is s = t = 0.
    """

    lower: int | None = None
    upper: int | None = None

    @property
    def is_full(self) -> bool:
        """Whether every query sees every key."""
        return self.lower is None and self.upper is None

    def is_causal_square(self, num_queries: int, num_keys: int) -> bool:
        """Whether it is the lower triangle of a square block, diagonal included: the causal flag of most kernels."""
        return num_queries == num_keys and self.lower is None and self.upper == 0

    def num_pairs(self, num_queries: int, num_keys: int) -> int:
        """The visible pairs of a block of this size."""
        upper = num_keys if self.upper is None else self.upper
        lower = -num_queries if self.lower is None else self.lower
        return _pairs_up_to(upper, num_queries, num_keys) - _pairs_up_to(lower - 1, num_queries, num_keys)


FULL = Band()
LOWER_TRIANGLE = Band(upper=0)


# Query t sees clamp(t + upper + 1, 0, S) keys s with s - t <= upper. With F(x) = Σ_{y <= x} clamp(y, 0, S), which is
# x(x+1)/2 up to S and grows by S from there on, the sum over t = 0 … T-1 is F(T + upper) - F(upper).
def _pairs_up_to(upper: int, num_queries: int, num_keys: int) -> int:
    def summed(x: int) -> int:
        inner = max(0, min(x, num_keys))
        return inner * (inner + 1) // 2 + max(0, x - num_keys) * num_keys

    return summed(num_queries + upper) - summed(upper)
