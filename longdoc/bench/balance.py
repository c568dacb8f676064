"""How evenly a layout shares the work: the visible query-key pairs of each rank, counted from its plan."""

from collections.abc import Sequence

from longdoc.bench.report import Column, Table, Target
from longdoc.errors import ensure
from longdoc.ring.layout import LAYOUTS, Layout, LayoutKind
from longdoc.ring.mask import CAUSAL
from longdoc.ring.plan import plan_hops

RING_SIZES = range(2, 9)
TOKENS_A_RANK = (1024, 8192)
#: Design: no rank has more than this times the mean.
ZIGZAG_BOUND = 1.02


def pairs_of_ranks(kind: LayoutKind, num_ranks: int, tokens_a_rank: int) -> tuple[int, ...]:
    """The causal query-key pairs that each rank computes. Raises `AssertionError` unless all of them are there."""
    num_tokens = num_ranks * tokens_a_rank
    layout = Layout(kind=kind, num_tokens=num_tokens, num_ranks=num_ranks)
    pairs = tuple(
        sum(
            block.band.num_pairs(len(block.queries), len(block.keys))
            for hop in plan_hops(layout, rank, CAUSAL)
            for block in hop.blocks
        )
        for rank in range(num_ranks)
    )
    ensure(sum(pairs) == num_tokens * (num_tokens + 1) // 2, f"{kind}: the plan has {sum(pairs)} pairs")
    return pairs


def imbalance(pairs: Sequence[int]) -> float:
    """The most loaded rank against the mean: how much longer the ring takes than with even shares."""
    return max(pairs) * len(pairs) / sum(pairs)


def balance_table() -> tuple[Table, Target]:
    """The imbalance of every layout, ring size and length, and the target of the zigzag layout."""
    found = {
        (kind, tokens, ranks): imbalance(pairs_of_ranks(kind, ranks, tokens))
        for kind in LAYOUTS
        for tokens in TOKENS_A_RANK
        for ranks in RING_SIZES
    }
    table = Table(
        title="Balance: pairs of the busiest rank / mean, causal",
        columns=(
            Column(name="layout"),
            Column(name="tokens a rank", spec="{:,}"),
            *(Column(name=f"P={ranks}", spec="{:.4f}") for ranks in RING_SIZES),
        ),
        rows=tuple(
            (kind, tokens, *(found[kind, tokens, ranks] for ranks in RING_SIZES))
            for kind in LAYOUTS
            for tokens in TOKENS_A_RANK
        ),
    )
    worst = max(value for (kind, _, _), value in found.items() if kind == "zigzag")
    return table, Target(
        name="zigzag, busiest rank / mean", value=worst, relation="at most", bound=ZIGZAG_BOUND, spec="{:.4f}"
    )
