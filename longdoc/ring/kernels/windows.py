"""How a band is said to kernels that count windows from the bottom right: flash-attn, and torch's copy of it.

Pure arithmetic, for T queries and S keys. Query t sees the keys from t + S - T - left to t + S - T + right; None is
unbounded. Negative bounds do not exist there (they mean unbounded), and a bound that looks wider than the keys is
widened or narrowed in silence, so a block that cannot be said in one call is cut along its queries.
Source: flash-attn 2.8.3, csrc/flash_attn/flash_api.cpp (`mha_fwd`, `set_params_fprop`) and src/mask.h.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from longdoc.errors import ensure
from longdoc.ring.mask import Band


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPart:
    """One call: queries [query_start, query_stop) of the block against its keys from `key_start` on."""

    query_start: int
    query_stop: int
    key_start: int
    left: int | None
    right: int | None

    @property
    def queries(self) -> slice:
        """The queries, as an index into the block's."""
        return slice(self.query_start, self.query_stop)

    @property
    def keys(self) -> slice:
        """The keys, as an index into the block's."""
        return slice(self.key_start, None)

    @property
    def is_full(self) -> bool:
        """Whether every query sees every key."""
        return self.left is None and self.right is None

    @property
    def is_causal(self) -> bool:
        """Whether the last query sees every key, and each one before it one key less."""
        return self.left is None and self.right == 0


def window_parts(band: Band, num_queries: int, num_keys: int) -> tuple[WindowPart, ...]:
    """The calls that together show each query of a block its keys: disjoint in the queries, ascending.

    Relies on the planner: every query sees a key, every key is seen. At most three parts.
    """
    return tuple(_parts(band.lower, band.upper, num_queries, num_keys, first_query=0, first_key=0))


def _parts(
    lower: int | None, upper: int | None, num_queries: int, num_keys: int, *, first_query: int, first_key: int
) -> Iterator[WindowPart]:
    # Bounds that hide nothing are none.
    lower = None if lower is None or lower <= 1 - num_queries else lower
    upper = None if upper is None or upper >= num_keys - 1 else upper
    cut = _cut(lower, upper, num_queries, num_keys)
    if cut is not None:
        yield from _parts(lower, upper, cut, num_keys, first_query=first_query, first_key=first_key)
        # Keys before the first one that is still seen are left out; bounds are counted from the new corner.
        skipped = 0 if lower is None else max(0, cut + lower)
        yield from _parts(
            None if lower is None else lower + cut - skipped,
            None if upper is None else upper + cut - skipped,
            num_queries - cut,
            num_keys - skipped,
            first_query=first_query + cut,
            first_key=first_key + skipped,
        )
        return
    offset = num_keys - num_queries
    left = None if lower is None else offset - lower
    right = None if upper is None else upper - offset
    ensure(left is None or left >= 0, f"the last of {num_queries} queries sees none of {num_keys} keys: {lower}")
    ensure(right is None or right >= 0, f"none of {num_queries} queries sees the last of {num_keys} keys: {upper}")
    yield WindowPart(
        query_start=first_query, query_stop=first_query + num_queries, key_start=first_key, left=left, right=right
    )


def _cut(lower: int | None, upper: int | None, num_queries: int, num_keys: int) -> int | None:
    """How many queries make a part of their own, where the block as a whole would be misunderstood."""
    if upper is not None and upper + num_queries - num_keys >= num_keys:
        # A right bound of S or more is taken for none. From this query on, every key is below the bound.
        return num_keys - upper
    if lower is not None and upper is None and num_queries > num_keys + 1:
        # Beside a left bound, no right bound is taken for one of S, too narrow here. These queries see every key.
        return 1 - lower
    return None
