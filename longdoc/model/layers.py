"""The shapes of a model's layers and the weights that a token meets, from its configuration and headers alone.

Owns what memory and time are estimated from, and nothing that results depend on: which mask a layer really has is
learned from the model when it runs (`longdoc.ring.hook`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_IN_A_LAYER = re.compile(r"\.(layers|layer|h|blocks)\.\d+\.")
_ROUTED_EXPERT = re.compile(r"\.experts\.")
_NUM_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_EXPERTS_PER_TOKEN = ("num_experts_per_tok", "top_k_experts", "moe_top_k")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """One layer's attention. `window` is how far back a query sees, itself included; None is the whole document.

    `value_dim` differs from `head_dim`, which queries and keys have, under multi-head latent attention.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    value_dim: int
    window: int | None


def layer_shapes(config: Any) -> tuple[LayerShape, ...]:
    """The layers of a transformers text configuration, first to last."""
    num_layers: int = config.num_hidden_layers
    # Families whose layers differ in heads or head dimensions hold one configuration a layer.
    configs = list(config.per_layer_config) if getattr(config, "is_heterogeneous", False) else [config] * num_layers
    kinds = getattr(config, "layer_types", None) or [None] * num_layers
    return tuple(_layer_shape(layer, kind) for layer, kind in zip(configs, kinds, strict=True))


def _layer_shape(config: Any, kind: str | None) -> LayerShape:
    num_heads: int = config.num_attention_heads
    head_dim: int = getattr(config, "head_dim", None) or config.hidden_size // num_heads
    if getattr(config, "qk_rope_head_dim", None):  # multi-head latent attention, whose head_dim is the rotated part
        head_dim = config.qk_nope_head_dim + config.qk_rope_head_dim
    return LayerShape(
        num_heads=num_heads,
        num_kv_heads=getattr(config, "num_key_value_heads", None) or num_heads,
        head_dim=head_dim,
        value_dim=getattr(config, "v_head_dim", None) or head_dim,
        window=None if kind == "full_attention" else getattr(config, "sliding_window", None),
    )


def active_parameters(sizes: Mapping[str, int], config: Any) -> int:
    """The weights of all layers that one token is multiplied with: of routed experts, as many as a token visits.

    `sizes` are the tensors' names and counts. Embeddings are looked up and the head is run apart: neither counts.
    """
    share = _first(config, _EXPERTS_PER_TOKEN, 1) / _first(config, _NUM_EXPERTS, 1)
    in_layers = {name: size for name, size in sizes.items() if _IN_A_LAYER.search("." + name)}
    routed = sum(size for name, size in in_layers.items() if _ROUTED_EXPERT.search(name))
    return sum(in_layers.values()) - routed + round(routed * min(1.0, share))


def _first(config: Any, names: tuple[str, ...], default: int) -> int:
    return next((value for name in names if (value := getattr(config, name, None))), default)
