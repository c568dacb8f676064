"""What a ring needs, by formula: memory of one rank, the smallest ring that fits, a generous bound on time.

The formulas count what is alive at the peak of each stage of a forward pass (docs/architecture.md derives them, and a
test holds them against the tensors that torch really keeps alive); weights and the interpreter come on top. Nothing
here measures: what a rank may use is handed in. `longdoc.forecasting` forecasts seconds.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from longdoc.errors import DocumentError
from longdoc.model.layers import LayerShape
from longdoc.model.local import LocalModel
from longdoc.sizes import format_bytes

#: A tile of logits in float32 fills at most this many bytes.
LOGITS_TILE_BYTES = 16 << 20
#: What an MLP or a norm keeps alive for one tile of tokens, where there is room; and where there is little.
MLP_TILE_BYTES, LEAST_TILE_BYTES = 32 << 20, 4 << 20
#: The same on an accelerator, which wants thousands of tokens at once.
LARGE_TILE_BYTES = 512 << 20
# A rank's tiles take at most this share of its memory.
_TILE_SHARE = 128
#: Interpreter, torch, transformers, Ray and Arrow in one rank's process that has worked, before any weight (measured).
PROCESS_BYTES = 515 << 20
#: What a CPU's allocator holds for each byte that is alive: it keeps what was freed in pieces (measured with glibc).
HEAP_FACTOR = 1.4
#: What a token costs outside of the model: ids, labels, positions (60), its row and its pieces (80), scores (16), and
#: its row in Arrow before it is written, names included (200).
BOOKKEEPING_BYTES = 360
#: What a kernel takes for one piece: 8 MiB of results, and its tiles of scores, of widened keys and of sums.
PIECE_BYTES = 24 << 20
#: The same on an accelerator, where many small calls would cost more: 256 MiB of results, and as much as it is merged.
LARGE_PIECE_BYTES = 512 << 20
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
    """The sizes the formulas need. `value_bytes` is the size of one number in the model's dtype.

    `num_active_parameters` are the weights of the layers that one token is multiplied with. On a CPU a rank's memory is
    that of its process; on CUDA it is the tensors' alone.
    """

    hidden_size: int
    intermediate_size: int
    vocab_size: int
    layers: tuple[LayerShape, ...]
    num_parameters: int
    num_active_parameters: int
    value_bytes: int
    is_causal: bool = True
    has_head: bool = True
    device: str = "cpu"

    @classmethod
    def of(cls, model: LocalModel, dtype: str, device: str = "cpu") -> "ModelShape":
        """The shape of a model in one dtype, on one kind of device."""
        return cls(
            hidden_size=model.hidden_size,
            intermediate_size=model.intermediate_size,
            vocab_size=model.vocab_size,
            layers=model.layers,
            num_parameters=model.num_parameters,
            num_active_parameters=model.num_active_parameters,
            value_bytes=_DTYPE_BYTES[dtype],
            is_causal=model.attention_direction == "causal",
            has_head=model.has_head,
            device=device,
        )


def tile_bytes(capacity: int, device: str = "cpu") -> int:
    """What tiles may keep alive on a rank that may use `capacity` bytes in all."""
    return max(LEAST_TILE_BYTES, min(_largest_tile(device), capacity // _TILE_SHARE))


def _largest_tile(device: str) -> int:
    return MLP_TILE_BYTES if device == "cpu" else LARGE_TILE_BYTES


def bytes_per_token(shape: ModelShape, num_ranks: int) -> int:
    """Bytes of one token on the rank that holds it, at the peak of a forward pass of a long document."""
    return max(per_token for per_token, _ in _stages(shape, num_ranks)) + BOOKKEEPING_BYTES


def bytes_per_rank(shape: ModelShape, num_tokens: int, num_ranks: int) -> int:
    """Peak bytes of one rank for a document of `num_tokens`.

    On a CPU all of its process: libraries, weights, and what the allocator holds for what is alive. On CUDA the
    tensors, without the context.
    """
    local_tokens = -(-num_tokens // num_ranks)
    weights = shape.num_parameters * shape.value_bytes
    stages = [local_tokens * per_token + tiles(local_tokens) for per_token, tiles in _stages(shape, num_ranks)]
    alive = local_tokens * BOOKKEEPING_BYTES + max(stages)
    return weights + alive if shape.device != "cpu" else PROCESS_BYTES + weights + int(HEAP_FACTOR * alive)


_Tiles = Callable[[int], int]


def _stages(shape: ModelShape, num_ranks: int) -> list[tuple[int, _Tiles]]:
    """Bytes a token of each stage of the pass, with what its tiles take beside, as a function of the rank's tokens."""
    hidden = shape.value_bytes * shape.hidden_size
    piece = PIECE_BYTES if shape.device == "cpu" else LARGE_PIECE_BYTES
    tile = _largest_tile(shape.device)
    mlp_token = 4 * shape.intermediate_size * shape.value_bytes
    return [
        *((token, lambda _: piece) for layer in set(shape.layers) for token in _attention(shape, layer, num_ranks)),
        # The layer's input, the stream after attention, its norm, the MLP's output.
        (4 * hidden + _angles(shape), lambda tokens: min(tile, tokens * mlp_token)),
        # Final states; a tile of logits, half of the others, and an eighth of it in four float32 copies.
        (hidden, lambda tokens: tile // 2 * 3 // 2 if shape.has_head else 0),
    ]


# With C hidden, q = H·D queries, k = G·D keys, v = G·E values, o = H·E outputs, e bytes a value, a bytes of the
# accumulator (4; 8 for float64), the stream and its norm (2C) stand throughout. While rotary positions are applied,
#     e·(2C + max(4q + k + v, 2q + 4k + v)):  q, q·cos, the half-rotated q and its product with sin; then the same of k;
#     in float32 beside the unrotated ones,  e·(2C + q + k + v) + 4·(4q + k).
# While the ring runs,
#     e·(2C + q + k + v + 2(k + v) for what travels, in a ring of more than one) + a·(o + 3H):  out, and the
#     log-sum-exps of the accumulator, of a piece, and their weights; and once more q and k where they are fused.
def _attention(shape: ModelShape, layer: LayerShape, num_ranks: int) -> tuple[int, int]:
    queries, keys = layer.num_heads * layer.head_dim, layer.num_kv_heads * layer.head_dim
    values, out = layer.num_kv_heads * layer.value_dim, layer.num_heads * layer.value_dim
    angles, once = _angles(shape), 2 * shape.hidden_size + queries + keys + values
    copies = layer.rotation_copies
    if layer.rotates_wide and shape.value_bytes < 4:
        rotating = shape.value_bytes * once + 4 * (copies * queries + keys)
    else:
        rotating = shape.value_bytes * (once + max((copies - 1) * queries, queries + (copies - 1) * keys))
    travelling = 2 * (keys + values) if num_ranks > 1 else 0
    attending = once + travelling + (queries + keys if layer.is_fused else 0)
    accumulator = max(4, shape.value_bytes) * (out + 3 * layer.num_heads)
    return rotating + angles, shape.value_bytes * attending + accumulator + angles


def _angles(shape: ModelShape) -> int:
    """Cosines and sines, once for each kind of layer, which may turn at different speeds."""
    kinds = {(layer.head_dim, layer.window) for layer in shape.layers}
    return sum(2 * shape.value_bytes * head_dim for head_dim, _ in kinds)


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
    fits = most_tokens(shape, num_ranks, capacity)
    other = smallest_ring(shape, num_tokens, capacity_of, most=most)
    action = "Use a machine with more memory." if other is None else f"Use --ring-size {other}, which fits here."
    raise DocumentError(
        f"{name}: {num_tokens:,} tokens need {format_bytes(needed)} on each of {num_ranks} ranks, and each has "
        f"{format_bytes(capacity)}; about {fits:,} tokens would fit. {action}",
        stage="plan",
        reason=OVER_CAPACITY,
        needs=f"{needed} bytes on each of {num_ranks} ranks for {num_tokens} tokens",
    )


def most_tokens(shape: ModelShape, num_ranks: int, capacity: int) -> int:
    """The longest document whose share fits each rank, to the token."""
    fits, too_long = 0, num_ranks * max(1, capacity // BOOKKEEPING_BYTES) + 1
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if bytes_per_rank(shape, middle, num_ranks) <= capacity:
            fits = middle
        else:
            too_long = middle
    return fits


def fits_now(needs: str, shape: ModelShape, num_ranks: int, capacity_bytes: int) -> bool:
    """Whether a document that once was over capacity fits a rank now, by the tokens that its `needs` states."""
    stated = _NEEDS.fullmatch(needs)
    return stated is not None and bytes_per_rank(shape, int(stated["tokens"]), num_ranks) <= capacity_bytes


def forward_seconds_bound(shape: ModelShape, num_tokens: int, num_ranks: int) -> float:
    """How long a rank waits for a peer at most: a whole pass, since a rank that is done early waits for the others.

    4·H·D FLOP for each visible pair and 2 for each weight and token, at a rate that every working machine reaches.
    """
    width = sum(layer.num_heads * (layer.head_dim + layer.value_dim) for layer in shape.layers)
    attention = 2 * width * num_tokens * (num_tokens + 1) / (2 if shape.is_causal else 1)
    linear = 2 * shape.num_parameters * num_tokens
    return _wait((attention + linear) / num_ranks)


def stall_seconds(shape: ModelShape, num_tokens: int, num_ranks: int) -> float:
    """How long a ring may go without any sign of life: one layer's linear part, the longest piece between two signs."""
    layer = 2 * shape.num_parameters / len(shape.layers) * -(-num_tokens // num_ranks)
    return _wait(layer)


def _wait(flops: float) -> float:
    return min(LONGEST_WAIT, max(SHORTEST_WAIT, flops / SLOW_FLOPS))
