"""The shapes of a model's layers and the weights that a token meets, from its configuration and headers alone.

Owns what memory and time are estimated from, and nothing that results depend on: which mask a layer really has is
learned from the model when it runs (`longdoc.ring.hook`).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_IN_A_LAYER = re.compile(r"\.(layers|layer|h|blocks)\.\d+\.")
_ROUTED_EXPERT = re.compile(r"\.experts\.")
_FUSED = re.compile(r"qkv|kv_b_proj|query_key_value|c_attn")
# How many copies of the queries stand beside each other while rotary positions are applied, and whether in float32:
# q, q·cos, the half-rotated q and its product with sin, unless a family writes it another way (transformers 5.24).
_ROTATIONS = {"cohere2": (4, True), "gpt_oss": (3, False), "modernbert": (4, True), "olmo3": (3, True)}
_NUM_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_EXPERTS_PER_TOKEN = ("num_experts_per_tok", "top_k_experts", "moe_top_k")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """One layer's attention. `window` is how far back a query sees, itself included; None is the whole document.

    `value_dim` differs from `head_dim`, which queries and keys have, under multi-head latent attention. `is_fused`:
    queries and keys come out of one product with the values, and stay alive as long as those. `rotation_copies` of the
    queries stand beside each other while positions are applied, in float32 where `rotates_wide`.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    value_dim: int
    window: int | None
    softcap: float | None = None
    is_fused: bool = False
    rotation_copies: int = 4
    rotates_wide: bool = False


def layer_shapes(config: Any, names: Iterable[str] = ()) -> tuple[LayerShape, ...]:
    """The layers of a transformers text configuration, first to last. `names` are those of the model's tensors."""
    num_layers: int = config.num_hidden_layers
    # Families whose layers differ in heads or head dimensions hold one configuration a layer.
    configs = list(config.per_layer_config) if getattr(config, "is_heterogeneous", False) else [config] * num_layers
    kinds = getattr(config, "layer_types", None) or [None] * num_layers
    is_fused = any(_FUSED.search(name) for name in names)
    return tuple(_layer_shape(layer, kind, is_fused) for layer, kind in zip(configs, kinds, strict=True))


def _layer_shape(config: Any, kind: str | None, is_fused: bool) -> LayerShape:
    num_heads: int = config.num_attention_heads
    head_dim: int = getattr(config, "head_dim", None) or config.hidden_size // num_heads
    if getattr(config, "qk_rope_head_dim", None):  # multi-head latent attention, whose head_dim is the rotated part
        head_dim = config.qk_nope_head_dim + config.qk_rope_head_dim
    copies, wide = _ROTATIONS.get(config.model_type, (4, False))
    return LayerShape(
        num_heads=num_heads,
        num_kv_heads=getattr(config, "num_key_value_heads", None) or num_heads,
        head_dim=head_dim,
        value_dim=getattr(config, "v_head_dim", None) or head_dim,
        window=None if kind == "full_attention" else getattr(config, "sliding_window", None),
        softcap=getattr(config, "attn_logit_softcapping", None),
        is_fused=is_fused,
        rotation_copies=copies,
        rotates_wide=wide,
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
