"""Seconds of a document on a ring, from its work and from rates that were measured on this machine.

Owns the time model and nothing that measures: `calibration` does. Work is counted from the very plan that the ring
carries out, so layouts, windows and the number of ranks count as they do in a run. What is forecast is the `seconds` of
a documents row: from the ranks' first tensor to their last finished part; reading, encoding and starting are not in it.
Transfers count nothing: they hide behind compute, except over a slow network.
"""

import functools
from dataclasses import dataclass

from longdoc.estimate import LONGEST_WAIT, ModelShape
from longdoc.model.layers import LayerShape
from longdoc.ring.layout import Layout
from longdoc.ring.mask import Mask
from longdoc.ring.plan import plan_hops

#: How many times its forecast something may take before it counts as stuck, and for how long at least nobody doubts.
PATIENCE, LEAST_PATIENCE_SECONDS = 10.0, 60.0
#: Attention reports after each piece of about so many seconds.
PIECE_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRate:
    """Seconds of one visible query-key pair in one kind of layer, all of its heads together, the merge included.

    `full` is of pairs in blocks that show everything, `masked` of those in blocks with a diagonal or a band.
    """

    layer: LayerShape
    full: float
    masked: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What one rank's work takes while the other ranks of its ring work beside it, in seconds.

    `weight`: one weight of a layer with one token, everything of a layer but its attention included; `logit`: one
    entry of the vocabulary for one token, its scores included; `token`: one token's rows, pooling and writing;
    `document`: what any document takes.
    """

    weight: float
    logit: float
    token: float
    document: float
    pairs: tuple[PairRate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Visible query-key pairs of one rank in one layer, by the kind of block they lie in."""

    full: int
    masked: int


def mask_of(shape: ModelShape, layer: LayerShape) -> Mask:
    """The mask of a layer, as the configuration tells it."""
    if layer.window is not None:
        return Mask.sliding(layer.window, causal=shape.is_causal)
    return Mask() if shape.is_causal else Mask(left=None, right=None)


@functools.lru_cache(maxsize=1024)
def pairs_of(layout: Layout, rank: int, mask: Mask) -> Pairs:
    """What one rank's plan computes."""
    blocks = [block for hop in plan_hops(layout, rank, mask) for block in (*hop.blocks, *hop.own_blocks)]
    full = sum(block.num_pairs for block in blocks if block.is_full)
    return Pairs(full=full, masked=sum(block.num_pairs for block in blocks) - full)


def attention_seconds(shape: ModelShape, rates: Rates, layout: Layout) -> float:
    """Attention of all layers on the rank that has most of it."""
    known = {rate.layer: rate for rate in rates.pairs}
    return max(
        sum(
            known[layer].full * pairs.full + known[layer].masked * pairs.masked
            for layer in shape.layers
            for pairs in (pairs_of(layout, rank, mask_of(shape, layer)),)
        )
        for rank in range(layout.num_ranks)
    )


def document_seconds(shape: ModelShape, rates: Rates, layout: Layout, *, with_scores: bool = True) -> float:
    """The seconds of a whole document; ranks wait for each other, so the slowest one counts."""
    local_tokens = max(layout.num_tokens_of(rank) for rank in range(layout.num_ranks))
    logits = shape.vocab_size * rates.logit if with_scores and shape.has_head else 0.0
    a_token = shape.num_active_parameters * rates.weight + logits + rates.token
    return rates.document + local_tokens * a_token + attention_seconds(shape, rates, layout)


def longest_block_seconds(shape: ModelShape, rates: Rates, layout: Layout) -> float:
    """The longest time without a sign of life: all of a layer that is not attention, and a piece of attention."""
    local_tokens = max(layout.num_tokens_of(rank) for rank in range(layout.num_ranks))
    return PIECE_SECONDS + local_tokens * shape.num_active_parameters / len(shape.layers) * rates.weight


def patience(forecast_seconds: float) -> float:
    """How long to wait for what should take so long."""
    return min(LONGEST_WAIT, max(LEAST_PATIENCE_SECONDS, PATIENCE * forecast_seconds))


def kinds_of(shape: ModelShape) -> tuple[LayerShape, ...]:
    """Each kind of layer once, in order: what must be measured."""
    return tuple(dict.fromkeys(shape.layers))
