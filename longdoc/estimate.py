"""What a ring needs, by formula: memory of one rank, the smallest ring that fits, a generous bound on time.

The formula counts what is alive at the peak of a layer's forward pass (see docs/architecture.md for its derivation);
weights and the interpreter come on top. Nothing here measures: what a rank may use is handed in.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from longdoc.errors import DocumentError
from longdoc.model.local import LocalModel

#: A tile of logits in float32 fills at most this many bytes.
LOGITS_TILE_BYTES = 16 << 20
#: Interpreter, torch, transformers and Ray in one rank's process, before any weight.
PROCESS_BYTES = 440 << 20
#: What a token costs outside of the model: ids, labels, positions (60), its row and its pieces (80), scores (16), and
#: its row in Arrow before it is written, names included (200).
BOOKKEEPING_BYTES = 360
#: What one rank does even on a slow, busy machine, in FLOP/s; only bounds how long to wait, never shown.
SLOW_FLOPS = 5e9
#: Nobody waits longer than this for a peer, nor less than that for a sign of life, in seconds.
LONGEST_WAIT, SHORTEST_WAIT = 86_400.0, 120.0

#: The reason of documents that a larger machine would take; they are planned again when there is one.
OVER_CAPACITY = "over_capacity"
_NEEDS = re.compile(r"\d+ bytes on each of \d+ ranks for (?P<tokens>\d+) tokens")
_DTYPE_BYTES = {"float32": 4, "float64": 8, "bfloat16": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The sizes the formulas need. `value_bytes` is the size of one number in the model's dtype."""

    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    num_parameters: int
    value_bytes: int

    @classmethod
    def of(cls, model: LocalModel, dtype: str) -> "ModelShape":
        """The shape of a model in one dtype."""
        return cls(
            hidden_size=model.hidden_size,
            num_layers=model.num_layers,
            num_heads=model.num_heads,
            num_kv_heads=model.num_kv_heads,
            head_dim=model.head_dim,
            num_parameters=model.num_parameters,
            value_bytes=_DTYPE_BYTES[dtype],
        )


def bytes_per_token(shape: ModelShape) -> int:
    """Bytes of one token on the rank that holds it, at the peak of a forward pass.

    With e bytes a value, C hidden, H·D query width, G·D key or value width:
    e·(4C residual, normed, output, final  +  3HD queries before and after rotation, output  +  2GD keys, values
    +  4GD two receive buffers  +  2D cos, sin)  +  4·(HD + 2H) float32 accumulator and log-sum-exp  +  bookkeeping.
    """
    width, kv_width = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    in_dtype = 4 * shape.hidden_size + 3 * width + 6 * kv_width + 2 * shape.head_dim
    return shape.value_bytes * in_dtype + 4 * (width + 2 * shape.num_heads) + BOOKKEEPING_BYTES


def bytes_per_rank(shape: ModelShape, num_tokens: int, num_ranks: int) -> int:
    """Peak bytes of one rank for a document of `num_tokens`. The fixed part does not depend on the document."""
    tiles = 4 * LOGITS_TILE_BYTES
    fixed = PROCESS_BYTES + shape.num_parameters * shape.value_bytes + tiles
    return fixed + -(-num_tokens // num_ranks) * bytes_per_token(shape)


def smallest_ring(shape: ModelShape, num_tokens: int, capacity_of: Callable[[int], int], *, most: int) -> int | None:
    """The fewest ranks, at most `most`, whose share of the document fits each of them; None where none do.

    `capacity_of(n)` is what each of n ranks may use. Ranks that share one machine's memory only add their fixed part,
    so there the answer is 1 or None; GPUs bring memory of their own.
    """
    for num_ranks in range(1, most + 1):
        if bytes_per_rank(shape, num_tokens, num_ranks) <= capacity_of(num_ranks):
            return num_ranks
    return None


def check_capacity(
    shape: ModelShape, num_tokens: int, num_ranks: int, capacity_of: Callable[[int], int], *, most: int, name: str
) -> None:
    """Raise `DocumentError` when one rank's share does not fit what a rank may use, naming a ring that would do."""
    needed, capacity = bytes_per_rank(shape, num_tokens, num_ranks), capacity_of(num_ranks)
    if needed <= capacity:
        return
    fits = max(0, (capacity - bytes_per_rank(shape, 0, num_ranks)) // bytes_per_token(shape)) * num_ranks
    other = smallest_ring(shape, num_tokens, capacity_of, most=most)
    action = "Use a machine with more memory." if other is None else f"Use --ring-size {other}, which fits here."
    raise DocumentError(
        f"{name}: {num_tokens:,} tokens need {format_bytes(needed)} on each of {num_ranks} ranks, and each has "
        f"{format_bytes(capacity)}; about {fits:,} tokens would fit. {action}",
        stage="plan",
        reason=OVER_CAPACITY,
        needs=f"{needed} bytes on each of {num_ranks} ranks for {num_tokens} tokens",
    )


def fits_now(needs: str, shape: ModelShape, num_ranks: int, capacity_bytes: int) -> bool:
    """Whether a document that once was over capacity fits a rank now, by the tokens that its `needs` states."""
    stated = _NEEDS.fullmatch(needs)
    return stated is not None and bytes_per_rank(shape, int(stated["tokens"]), num_ranks) <= capacity_bytes


def forward_seconds_bound(shape: ModelShape, num_tokens: int, num_ranks: int) -> float:
    """How long a rank waits for a peer at most: a whole pass, since a rank that is done early waits for the others.

    4·H·D FLOP for each visible pair and 2 for each weight and token, at a rate that every working machine reaches.
    """
    attention = 4 * shape.num_heads * shape.head_dim * num_tokens * (num_tokens + 1) / 2 * shape.num_layers
    linear = 2 * shape.num_parameters * num_tokens
    return _wait((attention + linear) / num_ranks)


def stall_seconds(shape: ModelShape, num_tokens: int, num_ranks: int) -> float:
    """How long a ring may go without any sign of life: one layer's linear part, the longest piece between two signs."""
    layer = 2 * shape.num_parameters / shape.num_layers * -(-num_tokens // num_ranks)
    return _wait(layer)


def _wait(flops: float) -> float:
    return min(LONGEST_WAIT, max(SHORTEST_WAIT, flops / SLOW_FLOPS))


def format_bytes(count: float) -> str:
    """A number of bytes for people, in binary units."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
