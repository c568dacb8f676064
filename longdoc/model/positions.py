"""What a model's positions were made for, and which context extension a document gets. Knows nothing of torch.

Owns `TrainedPositions` (read from a configuration) and `choose_extension`. The choice depends on the whole document's
length alone, so every rank makes the same one, whatever shard it holds. Refuses to extend positions that are not
plain rotary ones: their makers have scaled them already, or they end with their table. `rotary` carries the choice out.
"""

from dataclasses import dataclass
from typing import Any, Literal

from longdoc.errors import DocumentError, ModelError

ExtensionMode = Literal["auto", "none", "yarn", "theta", "error"]
EXTENSION_MODES: tuple[ExtensionMode, ...] = ("auto", "none", "yarn", "theta", "error")

#: Said once by a run that extends at all.
EXTENSION_WARNING = (
    "scores of documents with different context extension factors are not comparable, and quality beyond the factors "
    "that were measured (YaRN up to 8) is unproven"
)

#: transformers multiplies positions in float32, which holds every integer up to 2^24 and not every one beyond.
MOST_TOKENS = 1 << 24

# The RoBERTa family: ids start behind the padding token's (`create_position_ids_from_input_ids` in transformers,
# `make_positions` in fairseq), and the table has rows for the ids that no token gets.
_POSITIONS_BEHIND_PADDING = frozenset(
    {
        "camembert",
        "data2vec-text",
        "roberta",
        "roberta-prelayernorm",
        "xlm-roberta",
        "xlm-roberta-xl",
        "xmod",
    }
)
# No positions at all in the layers that see the whole document, rotary ones in those with a window.
_NO_POSITIONS_WITHOUT_WINDOW = frozenset({"cohere2", "exaone4"})
# One `sliding_window` for every layer, and no list of layer types that says so.
_ONE_WINDOW_FOR_ALL = frozenset({"ministral3", "mistral", "mixtral", "phi3", "starcoder2"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextExtension:
    """How a model's rotary positions are stretched for one document; `factor` is 1 for kind "none".

    "yarn" and "theta" are ours; "dynamic" is the model's own rule, which takes the document's length into account.
    """

    kind: Literal["none", "yarn", "theta", "dynamic"] = "none"
    factor: float = 1.0

    def __post_init__(self) -> None:
        if self.factor < 1 or (self.kind == "none") != (self.factor == 1):
            raise ValueError(f"an extension of kind {self.kind!r} by a factor of {self.factor}")

    @property
    def changes_model(self) -> bool:
        """Whether the positions are other ones than the model's own for this length."""
        return self.kind in ("yarn", "theta")


UNEXTENDED = ContextExtension()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedPositions:
    """What a model's positions were made for.

    `num_tokens` is the length it was trained to, as extended by its makers. `rope_type` is transformers' name of the
    rotary positions in the layers that see the whole document ("default" for plain ones), and beside those:
    "windowed" where every layer has a window, so that no distance is ever longer than it; "window only" where
    the layers without a window have no positions at all; "none" where positions are a table, or there are none.
    `factor` is the makers' own (of "dynamic" positions). `first` is the position id of a document's first token.
    """

    num_tokens: int
    rope_type: str = "default"
    factor: float = 1.0
    first: int = 0


def trained_positions(config: Any, where: str) -> TrainedPositions:
    """The facts of a transformers configuration (its text part). Raises `ModelError` that starts with `where`."""
    most = getattr(config, "max_position_embeddings", None)
    if not isinstance(most, int) or most <= 0:
        raise ModelError(f"{where}: it gives {most!r} for max_position_embeddings; only plain text models can be used")
    rope = rope_of_whole_document(config)
    if not rope:
        return _table(config, most, where)
    kind, factor = str(rope.get("rope_type", "default")), rope.get("factor") or 1
    try:
        if kind == "yarn":
            # The makers' own extension counts as trained; some configurations state only the length before it.
            most = max(most, int(rope["original_max_position_embeddings"] * factor))
        return TrainedPositions(num_tokens=most, rope_type=_reach(config, most) or kind, factor=float(factor))
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise ModelError(
            f"{where}: its {kind} positions cannot be read ({error!r}); copy or download the model again"
        ) from None


def rope_of_whole_document(config: Any) -> dict[str, Any]:
    """The rotary parameters of the layers that see the whole document; empty where a model has none.

    Families with two rotary embeddings (gemma3, gemma4, olmo3, modernbert) keep them by layer type.
    """
    rope = getattr(config, "rope_parameters", None) or {}
    if is_by_layer_type(rope):
        rope = rope.get("full_attention") or next((part for part in rope.values() if part), {})
    return dict(rope)


def is_by_layer_type(rope: dict[str, Any]) -> bool:
    """Whether rotary parameters hold one set for each layer type, rather than one for all layers."""
    return "rope_type" not in rope and any(isinstance(part, dict) for part in rope.values())


def _table(config: Any, num_rows: int, where: str) -> TrainedPositions:
    first = 0
    if getattr(config, "model_type", None) in _POSITIONS_BEHIND_PADDING:
        first = int(config.pad_token_id or 0) + 1
    if first >= num_rows:
        raise ModelError(
            f"{where}: its table of {num_rows} positions starts at {first}; copy or download the model again"
        )
    return TrainedPositions(num_tokens=num_rows - first, rope_type="none", first=first)


def _reach(config: Any, trained: int) -> str | None:
    """What windows make of the rotary positions: "windowed", "window only", or None where layers see everything."""
    window, layers = getattr(config, "sliding_window", None), set(getattr(config, "layer_types", None) or ())
    if not window or window > trained:
        return None
    family = getattr(config, "model_type", None)
    if layers == {"sliding_attention"} or (not layers and family in _ONE_WINDOW_FOR_ALL):
        return "windowed"
    return "window only" if family in _NO_POSITIONS_WITHOUT_WINDOW else None


def choose_extension(mode: ExtensionMode, num_tokens: int, trained: TrainedPositions) -> ContextExtension:
    """The extension for a document of `num_tokens` (as the model sees them, special tokens included).

    Within the trained context nothing is extended, whatever the mode. Beyond it `auto` and `yarn` give YaRN, `theta`
    a larger rotary base, both by the factor ceil(tokens / trained): whole factors, so that documents of similar length
    stay comparable. `none` runs the model untouched. Dynamic NTK positions follow their own rule under `auto` and
    `none`, and models in which every layer has a window run untouched under `auto`: no token sees farther than they
    were trained to. Raises `DocumentError` for `error`, for positions that are not plain rotary, and beyond 2^24
    tokens, where positions are no longer exact. docs/decisions/0004-positions.md has the reasons.
    """
    if mode not in EXTENSION_MODES:
        raise ValueError(f"unknown context extension {mode!r}; choose one of {', '.join(EXTENSION_MODES)}")
    if num_tokens > MOST_TOKENS:
        raise _too_long_for_float32(num_tokens)
    if num_tokens <= trained.num_tokens:
        return UNEXTENDED
    kind = trained.rope_type
    if mode == "error":
        raise _over_trained(num_tokens, trained, "use --context-extension auto to extend it")
    if kind == "none":
        raise _over_trained(num_tokens, trained, "its positions end there; use a model with rotary positions")
    if kind == "dynamic" and mode in ("auto", "none"):
        return _dynamic(num_tokens, trained)
    if mode == "none" or (kind == "windowed" and mode == "auto"):
        return UNEXTENDED
    if kind != "default":
        raise _over_trained(num_tokens, trained, _cannot_extend(kind))
    factor = float(-(-num_tokens // trained.num_tokens))
    return ContextExtension(kind="theta" if mode == "theta" else "yarn", factor=factor)


def _dynamic(num_tokens: int, trained: TrainedPositions) -> ContextExtension:
    """Dynamic NTK: the base grows by s^(d / (d - 2)) with s = factor * tokens / trained - (factor - 1).

    `_compute_dynamic_ntk_parameters` in transformers' modeling_rope_utils; s is what is stored as the factor.
    """
    return ContextExtension(
        kind="dynamic", factor=trained.factor * num_tokens / trained.num_tokens - (trained.factor - 1)
    )


def _cannot_extend(kind: str) -> str:
    if kind == "windowed":
        return "none of its layers sees farther than its window, so there is nothing to extend; use auto or none"
    if kind == "window only":
        return (
            "its layers without a window have no positions that could be extended; use a model trained to more, or "
            "--context-extension none"
        )
    if kind == "dynamic":
        return "its dynamic positions follow the document's length by themselves; use --context-extension auto"
    return f"its {kind} positions are scaled already; use a model trained to more, or --context-extension none"


def _over_trained(num_tokens: int, trained: TrainedPositions, advice: str) -> DocumentError:
    return DocumentError(
        f"the document has {num_tokens:,} tokens and the model is trained to {trained.num_tokens:,}; {advice}",
        stage="plan",
        reason="over_trained_context",
        needs=f"a model trained to {num_tokens:,} tokens",
    )


def _too_long_for_float32(num_tokens: int) -> DocumentError:
    return DocumentError(
        f"the document has {num_tokens:,} tokens, and positions are exact up to {MOST_TOKENS:,}; split the source",
        stage="plan",
        reason="over_exact_positions",
    )
