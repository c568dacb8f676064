"""One residual stream for a whole forward pass: a layer's states replace, in place, those it was given.

Owns that wrapping of a model's layers. transformers' models keep their input embeddings alive to the end of the pass,
which is one more copy of the hidden states than the pass needs. A model that reads the embeddings again after its
first layer would go wrong, and the check of `longdoc.model.gates` compares with a pass without this wrapping.
Legend: B batch (1), T tokens, C hidden size.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import nn


def keep_one_stream(layers: Iterable[nn.Module]) -> None:
    """From now on each layer [B, T, C] -> [B, T, C] writes its result over its input; names of parameters stay."""
    for layer in layers:
        layer.forward = partial(_in_place, layer.forward)


@contextmanager
def separate_streams(model: nn.Module) -> Iterator[None]:
    """Run the layers as transformers made them for a while; nobody else may be using the model."""
    before = [(module, forward) for module in model.modules() if (forward := _in_place_forward(module))]
    for module, in_place in before:
        module.forward = in_place.args[0]
    try:
        yield
    finally:
        for module, in_place in before:
            module.forward = in_place


def _in_place_forward(module: nn.Module) -> partial[Any] | None:
    forward: object = module.forward
    return forward if isinstance(forward, partial) and forward.func is _in_place else None


def _in_place(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The layer's output with its states moved into the tensor of its input."""
    given = args[0] if args else kwargs["hidden_states"]
    output = forward(*args, **kwargs)
    states = output[0] if isinstance(output, tuple) else output
    given.copy_(states)
    return (given, *output[1:]) if isinstance(output, tuple) else given
