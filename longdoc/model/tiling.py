"""Token tiles: what works on each token by itself is run over a few tokens at a time, so its intermediates stay small.

Owns the tiling of MLPs and of the norms between layers (which widen to float32 inside), and turns on the one residual
stream. The result is the same up to the rounding of a matrix product over another number of rows. Attention, which
mixes tokens, is never touched.
Legend: B batch (1), T tokens, C hidden size.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

from torch import Tensor, nn

from longdoc.errors import ModelError
from longdoc.estimate import MLP_TILE_BYTES
from longdoc.model.frugal import as_made, keep_one_stream, other_forwards, tile_norm

#: Memory that the intermediates of one tile may take. Larger tiles are no faster: a product is compute-bound at a few
#: hundred rows, and smaller intermediates stay in the cache.
TILE_BYTES = MLP_TILE_BYTES
#: A narrower matrix product wastes most of the machine.
SMALLEST_TILE = 16
#: Names that the families of transformers give to the token-local half of a layer.
_MLP_NAMES = ("mlp", "feed_forward", "ffn")


def token_tiles(num_tokens: int, tile_tokens: int) -> Iterator[slice]:
    """Consecutive slices that tile [0, num_tokens), each of at most `tile_tokens`; none for no tokens."""
    if tile_tokens < 1:
        raise ValueError(f"a tile of {tile_tokens} tokens")
    return (slice(start, min(start + tile_tokens, num_tokens)) for start in range(0, num_tokens, tile_tokens))


def tile_tokens(bytes_per_token: int, budget_bytes: int = TILE_BYTES) -> int:
    """How many tokens fit the budget, and at least 16; a power of two."""
    fitting = max(SMALLEST_TILE, budget_bytes // max(1, bytes_per_token))
    return 1 << (fitting.bit_length() - 1)


def decoder_layers(model: nn.Module, num_layers: int) -> nn.ModuleList:
    """The list of layers of a transformers base model. Raises `ModelError` where there is not exactly one."""
    stacks = {
        path: module
        for path, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == num_layers and _is_stack(module)
    }
    # Of lists inside of lists (experts inside of layers) the outer one holds the layers.
    found = [stacks[path] for path in stacks if not any(path.startswith(f"{other}.") for other in stacks)]
    if len(found) != 1:
        raise ModelError(
            f"{type(model).__name__} has {len(found)} stacks of {num_layers} layers and exactly one was expected; "
            "its layout is not supported, use a plain language model or encoder (see `longdoc models list`)"
        )
    return found[0]


def _is_stack(modules: nn.ModuleList) -> bool:
    """Whether these may be layers: modules of modules with weights, which rotary embeddings are not."""
    return all(any(True for _ in layer.children()) and any(True for _ in layer.parameters()) for layer in modules)


def tile_layers(model: nn.Module, *, num_layers: int, intermediate_size: int, budget_bytes: int = TILE_BYTES) -> int:
    """Tile every layer's MLP and norms, and the final norm, in place; returns the tokens in a tile of an MLP.

    An MLP holds about four [tile, intermediate] matrices at its peak: gate, up, activation, product.
    """
    width = next(model.parameters()).element_size()
    mlp_tile = tile_tokens(4 * intermediate_size * width, budget_bytes)
    layers = decoder_layers(model, num_layers)
    for layer in layers:
        for name, child in layer.named_children():
            if name in _MLP_NAMES:
                tile_module(child, mlp_tile)
    keep_one_stream(layers)
    norms = [child for parent in (*layers, model) for child in parent.children() if _is_norm(child)]
    for norm in norms:
        # Three float32 copies of the hidden states: the widened input, its square, the product.
        tile_module(norm, tile_tokens(3 * 4 * norm.weight.shape[-1], budget_bytes))
    for norm in [module for layer in layers for module in layer.modules() if _is_norm(module) and module not in norms]:
        tile_norm(norm, budget_bytes)
    return mlp_tile


def _is_norm(module: nn.Module) -> bool:
    return type(module).__name__.endswith("Norm") and isinstance(getattr(module, "weight", None), Tensor)


def tile_module(module: nn.Module, tile: int) -> None:
    """Run a token-local module [B, T, C] -> [B, T, C'] in tiles of `tile` tokens from now on, in place.

    The instance's `forward` is replaced and the tree of modules stays as it is: names of parameters do not change.
    """
    module.forward = partial(_tiled, module.forward, tile)


@contextmanager
def tiles_of(model: nn.Module, tile: int | None) -> Iterator[None]:
    """Run what is tiled in tiles of `tile` tokens for a while; nobody else may be using it.

    None: in one piece, and with the layers as transformers made them.
    """

    def instead(tiled: partial[Any]) -> Callable[..., Any]:
        plain: Callable[..., Any] = tiled.args[0]
        return plain if tile is None else partial(_tiled, plain, tile)

    with other_forwards(model, (_tiled,), instead), as_made(model) if tile is None else nullcontext():
        yield


def _tiled(forward: Callable[..., Any], tile: int, *inputs: Tensor) -> Any:
    """Run `forward` tile by tile; every input and output has tokens as its last dimension but one.

    Some mixtures of experts hand out routing scores beside the states: those are tiled like the states.
    """
    num_tokens = inputs[0].shape[-2]
    if num_tokens <= tile:
        return forward(*inputs)
    outs: list[Tensor] = []
    for tokens in token_tiles(num_tokens, tile):
        returned = forward(*(tensor[..., tokens, :] for tensor in inputs))
        parts = _tensors(returned, tokens.stop - tokens.start)
        if not outs:
            outs = [part.new_empty((*part.shape[:-2], num_tokens, part.shape[-1])) for part in parts]
        for out, part in zip(outs, parts, strict=True):
            out[..., tokens, :] = part
    return tuple(outs) if isinstance(returned, tuple) else outs[0]


def _tensors(returned: Any, num_tokens: int) -> tuple[Tensor, ...]:
    """What a token-local layer returned for a tile, each with a row for each of its tokens."""
    parts = returned if isinstance(returned, tuple) else (returned,)
    for part in parts:
        if not isinstance(part, Tensor) or part.dim() < 2 or part.shape[-2] != num_tokens:
            what = f"{tuple(part.shape)}" if isinstance(part, Tensor) else type(part).__name__
            raise ModelError(
                f"a token-local layer returned {what} for {num_tokens} tokens, which cannot be put together from "
                "tiles; use another model"
            )
    return parts
