"""What a model's configuration already gives away: its class, its head, its direction, and that no ring can split it.

Owns the rules of refusal before a weight is loaded, which ask for properties and not for names of families: a state
that is carried along, layers of other kinds than full and sliding attention, attention that cannot be replaced,
encoders that feed decoders. What a configuration does not give away is found by proof, see `gates`.
"""

import sys
from typing import Any, Literal

from longdoc.errors import NotShardableError

#: The kinds of layers in which tokens see each other only through attention over distances, by transformers' names.
LAYER_TYPES = frozenset({"full_attention", "sliding_attention"})
Direction = Literal["causal", "bidirectional"]
_ADVICE = "use a model in which tokens meet only in full or sliding attention"
#: What configurations call biases that stand in for positions, in place of transformers' default "absolute" table.
_NO_BIASES = (None, "absolute", "rope", "sans_pos")


def refuse_by_configuration(config: Any, name: str) -> None:
    """Raise `NotShardableError` with every reason that a transformers configuration, and the class it names, give.

    `config` is the whole configuration of a folder, not only its text part. Loads no weights.
    """
    reasons = [*_of_configuration(config), *_of_class(config)]
    if reasons:
        raise refusal(name, *reasons)


def refusal(name: str, *reasons: str) -> NotShardableError:
    """The error that refuses a model, with the reasons in one sentence."""
    return NotShardableError(f"model {name} cannot run on a ring: {'; '.join(reasons)}; {_ADVICE}")


def _of_configuration(config: Any) -> list[str]:
    if getattr(config, "is_encoder_decoder", False):
        return ["it is an encoder with a decoder, whose layers attend to two sequences"]
    text = config.get_text_config()
    reasons = []
    others = sorted(set(getattr(text, "layer_types", None) or ()) - LAYER_TYPES)
    if others:
        reasons.append(f"it has layers of type {', '.join(others)}")
    if getattr(text, "alibi", False) or getattr(getattr(text, "attn_config", None), "alibi", False):
        reasons.append("it has ALiBi biases in place of positions")
    if (kind := getattr(text, "position_embedding_type", None)) not in _NO_BIASES:
        reasons.append(f"it has {kind} position biases")
    if getattr(text, "cross_attention_layers", None) or getattr(text, "add_cross_attention", False):
        reasons.append("it has layers with cross-attention")
    return reasons


def _of_class(config: Any) -> list[str]:
    """What the class that would be loaded says of itself."""
    model_class = text_class(config)
    if model_class is None:
        return [f"transformers has no text model for a configuration of type {config.model_type!r}"]
    reasons = []
    if model_class._is_stateful:
        reasons.append("it carries a state from token to token (recurrent, state-space or linear attention layers)")
    if not model_class._can_set_attn_implementation():
        code = vars(sys.modules[model_class.__module__])
        biases = any("alibi" in name.lower() for name in code) and not hasattr(config.get_text_config(), "alibi")
        reasons.append(
            "its attention cannot be replaced, because its code does not use transformers' attention interface"
            + (" (it adds ALiBi biases itself)" if biases else "")
        )
    return reasons


def text_class(config: Any) -> Any:
    """The transformers class of the text model that a configuration describes, or None where there is none.

    The one with an output head where there is one: of models for pictures and text, the one for text alone.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_MAPPING

    kind = type(config.get_text_config())
    for mapping in (MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_MAPPING):
        if kind in mapping:
            found = mapping[kind]
            return found[0] if isinstance(found, tuple) else found
    return None


def has_head(config: Any) -> bool:
    """Whether a model was saved with a head that predicts the next token, by the class that it names.

    A configuration that names none is taken for a causal language model where its family has one and no other kind.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    saved_as = (getattr(config, "architectures", None) or [None])[0]
    if saved_as is None:
        return text_class(config) is not None and _is_causal_family(config) and not _is_masked_family(config)
    # Models for pictures and text carry the name of a conditional generator; their text part predicts tokens.
    return saved_as in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values() or saved_as.endswith("ForConditionalGeneration")


def attention_direction(config: Any) -> Direction:
    """Which tokens a token sees, as far as a configuration tells; `gates` holds the running model to it."""
    text = config.get_text_config()
    if getattr(text, "use_bidirectional_attention", None) in (True, "all"):
        return "bidirectional"
    if has_head(config) or getattr(text, "is_decoder", False):
        return "causal"
    return "bidirectional" if _is_masked_family(config) or not _is_causal_family(config) else "causal"


def _is_causal_family(config: Any) -> bool:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    return type(config.get_text_config()) in MODEL_FOR_CAUSAL_LM_MAPPING


def _is_masked_family(config: Any) -> bool:
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING

    return type(config.get_text_config()) in MODEL_FOR_MASKED_LM_MAPPING
