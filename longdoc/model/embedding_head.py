"""What stands between a pooled state and the embedding: the model's linear layers, and its length set to one.

Computed in float64 on the CPU: there are few pooled states, and their number format should add no error of its own.
Legend: K pooled states, C their width, E the embedding's width.
"""

import functools
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from longdoc.errors import ModelError
from longdoc.model.conventions import DenseLayer, EmbeddingConvention
from longdoc.records import display

#: The length below which a vector counts as zero, as in torch.nn.functional.normalize.
_SHORTEST = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingHead:
    """`layers` are (weight [out, in], bias [out] or None, whether tanh follows), float64."""

    layers: tuple[tuple[Tensor, Tensor | None, bool], ...] = field(default=(), repr=False)
    is_normalized: bool = False

    def __call__(self, pooled_KC: Tensor) -> Tensor:
        """embeddings_KE, float64. Rows of NaN stay rows of NaN."""
        embeddings_KE = pooled_KC.to(torch.float64)
        for weight, bias, has_tanh in self.layers:
            embeddings_KE = torch.nn.functional.linear(embeddings_KE, weight, bias)
            if has_tanh:
                embeddings_KE = embeddings_KE.tanh()
        if self.is_normalized:
            embeddings_KE = torch.nn.functional.normalize(embeddings_KE, dim=1, eps=_SHORTEST)
        return embeddings_KE


@functools.lru_cache(maxsize=4)
def load_head(folder: Path, convention: EmbeddingConvention) -> EmbeddingHead:
    """The head of a model in a folder. Raises `ModelError` where its weights are not what the convention states."""
    return EmbeddingHead(
        layers=tuple(_load(folder / layer.weights, layer) for layer in convention.dense),
        is_normalized=convention.is_normalized,
    )


def _load(path: Path, layer: DenseLayer) -> tuple[Tensor, Tensor | None, bool]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    wanted: dict[str, tuple[int, ...]] = {"linear.weight": (layer.out_features, layer.in_features)}
    wanted |= {"linear.bias": (layer.out_features,)} if layer.has_bias else {}
    try:
        found = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{display(str(path))}: cannot be read ({error}); copy or download the model again") from None
    shapes = {name: tuple(tensor.shape) for name, tensor in found.items()}
    if shapes != wanted:
        raise ModelError(
            f"{display(str(path))}: it holds {shapes}, and its config.json states {wanted}; copy or download the model "
            "again"
        )
    weight, bias = found["linear.weight"], found.get("linear.bias")
    return weight.double(), None if bias is None else bias.double(), layer.activation == "tanh"
