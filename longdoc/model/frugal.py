"""Copies of the hidden states that a forward pass can do without.

Owns two wrappings of a model's layers. One residual stream: a layer's states replace, in place, those it was given,
because transformers' models keep their input embeddings alive to the end of the pass. Norms of queries and keys a few
tokens at a time, because they widen to float32. A model that reads the embeddings again after its first layer would
go wrong, and the check of `longdoc.model.gates` compares with a pass without these wrappings.
Legend: B batch (1), T tokens, C hidden size.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn


def keep_one_stream(layers: Iterable[nn.Module]) -> None:
    """From now on each layer [B, T, C] -> [B, T, C] writes its result over its input; names of parameters stay."""
    for layer in layers:
        layer.forward = partial(_in_place, layer.forward)


def tile_norm(norm: nn.Module, budget_bytes: int) -> None:
    """Run a norm over the last dimension, whatever the others are, in tiles of `budget_bytes` from now on."""
    norm.forward = partial(_in_tiles, norm.forward, budget_bytes)


@contextmanager
def as_made(model: nn.Module) -> Iterator[None]:
    """Run layers and norms as transformers made them for a while; nobody else may be using the model."""
    with other_forwards(model, (_in_place, _in_tiles), lambda wrapped: wrapped.args[0]):
        yield


@contextmanager
def other_forwards(
    model: nn.Module, wrappings: tuple[Callable[..., Any], ...], instead: Callable[[partial[Any]], Callable[..., Any]]
) -> Iterator[None]:
    """Let every module whose forward is one of `wrappings` around its own run `instead(that)` for a while.

    A wrapping is a `functools.partial` of a function over the forward that it wraps. Nobody else may use the model.
    """
    before = [
        (module, forward)
        for module in model.modules()
        if isinstance(forward := module.forward, partial) and forward.func in wrappings
    ]
    for module, wrapped in before:
        module.forward = instead(wrapped)
    try:
        yield
    finally:
        for module, wrapped in before:
            module.forward = wrapped


def _in_place(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The layer's output with its states moved into the tensor of its input."""
    given = args[0] if args else kwargs["hidden_states"]
    output = forward(*args, **kwargs)
    states = output[0] if isinstance(output, tuple) else output
    given.copy_(states)
    return (given, *output[1:]) if isinstance(output, tuple) else given


def _in_tiles(forward: Callable[[Tensor], Tensor], budget_bytes: int, x: Tensor) -> Tensor:
    """The norm along the longest dimension but the last: three float32 copies of a tile fit the budget."""
    dim = max(range(x.dim() - 1), key=lambda place: x.shape[place])
    tile = max(1, budget_bytes // max(1, 3 * 4 * x.numel() // x.shape[dim])) if x.numel() else 1
    if x.shape[dim] <= tile:
        return forward(x)
    out = torch.empty_like(x)
    for start in range(0, x.shape[dim], tile):
        size = min(tile, x.shape[dim] - start)
        out.narrow(dim, start, size).copy_(forward(x.narrow(dim, start, size)))
    return out
