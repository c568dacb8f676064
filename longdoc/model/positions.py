"""Beyond the trained context: which extension of the rotary positions a document gets, and putting it into a model.

The choice depends on the whole document's length alone, so every rank makes the same one, whatever shard it holds.
Refuses to extend positions that are not plain rotary ones: their makers have scaled them already, or they end with
their table. Rotary modules are replaced, never changed: putting the untouched one back is exact.
"""

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from longdoc.errors import DocumentError, ModelError

if TYPE_CHECKING:
    from torch import nn

ExtensionMode = Literal["auto", "none", "yarn", "theta", "error"]
EXTENSION_MODES: tuple[ExtensionMode, ...] = ("auto", "none", "yarn", "theta", "error")

#: Said once by a run that extends at all.
EXTENSION_WARNING = (
    "scores of documents with different context extension factors are not comparable, and quality beyond the factors "
    "that were measured (YaRN up to 8) is unproven"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextExtension:
    """How a model's rotary positions are stretched for one document; `factor` is 1 for kind "none"."""

    kind: Literal["none", "yarn", "theta"] = "none"
    factor: float = 1.0

    def __post_init__(self) -> None:
        if self.factor < 1 or (self.kind == "none") != (self.factor == 1):
            raise ValueError(f"an extension of kind {self.kind!r} by a factor of {self.factor}")


UNEXTENDED = ContextExtension()


def choose_extension(
    mode: ExtensionMode, num_tokens: int, context_trained: int, *, rope_type: str = "default"
) -> ContextExtension:
    """The extension for a document of `num_tokens` (as the model sees them, special tokens included).

    Within the trained context nothing is extended, whatever the mode. Beyond it `auto` and `yarn` give YaRN, `theta`
    a larger rotary base, both by the factor ceil(tokens / trained): whole factors, so that documents of similar length
    stay comparable. `none` runs the model untouched. Raises `DocumentError` for `error`, and where `rope_type` (see
    `LocalModel`) is not plain rotary.
    """
    if mode not in EXTENSION_MODES:
        raise ValueError(f"unknown context extension {mode!r}; choose one of {', '.join(EXTENSION_MODES)}")
    if num_tokens <= context_trained:
        return UNEXTENDED
    if mode == "error":
        raise _over_trained(num_tokens, context_trained, "use --context-extension auto to extend it")
    if rope_type == "none":
        raise _over_trained(num_tokens, context_trained, "its positions end there; use a model with rotary positions")
    if mode == "none":
        return UNEXTENDED
    if rope_type != "default":
        advice = (
            f"its {rope_type} positions are scaled already; use a model trained to more, or --context-extension none"
        )
        raise _over_trained(num_tokens, context_trained, advice)
    factor = float(-(-num_tokens // context_trained))
    return ContextExtension(kind="theta" if mode == "theta" else "yarn", factor=factor)


def _over_trained(num_tokens: int, context_trained: int, advice: str) -> DocumentError:
    return DocumentError(
        f"the document has {num_tokens:,} tokens and the model is trained to {context_trained:,}; {advice}",
        stage="plan",
        reason="over_trained_context",
        needs=f"a model trained to {num_tokens:,} tokens",
    )


class RotaryPositions:
    """The rotary module of one model: as loaded, or replaced for a document."""

    def __init__(self, model: "nn.Module") -> None:
        self._model = model
        # Modules that hold inverse frequencies; a model has one, shared by its layers.
        self._untouched = {path: module for path, module in model.named_modules() if hasattr(module, "inv_freq")}
        self.current = UNEXTENDED

    def set(self, extension: ContextExtension) -> None:
        """Put an extension into the model, or take it out. Raises `ModelError` where it cannot be extended."""
        if extension == self.current:
            return
        replaced = {path: self._extended(module, extension) for path, module in self._untouched.items()}
        if not replaced and extension.kind != "none":
            raise ModelError(_cannot_extend("it has no rotary positions"))
        for path, module in replaced.items():
            self._model.set_submodule(path, module)
        self.current = extension

    def _extended(self, untouched: Any, extension: ContextExtension) -> Any:
        if extension.kind == "none":
            return untouched
        # A new module computes its frequencies in float32 and is never cast: half precision ruins long positions.
        built = type(untouched)(extended_config(untouched.config, extension))
        return built.to(device=untouched.inv_freq.device)


def extended_config(config: Any, extension: ContextExtension) -> Any:
    """A deep copy of a transformers configuration whose rotary parameters carry the extension.

    yarn: Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", arXiv:2309.00071, with its
    constants (beta 32 and 1, attention scaled by 0.1 ln(factor) + 1), as transformers computes it.
    theta: "NTK-aware" scaling, section 3.1 of the same paper. The base becomes

        theta * factor ^ (dim / (dim - 2)),

    so that the slowest frequency is divided by exactly `factor` and the fastest stays as it is.

    Raises `ModelError` unless the configuration's rotary positions are plain.
    """
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") != "default":
        raise ModelError(_cannot_extend(f"its rotary positions are {rope.get('rope_type', 'given per layer type')}"))
    extended = copy.deepcopy(config)
    trained = config.max_position_embeddings
    if extension.kind == "yarn":
        extended.rope_parameters = {
            **rope,
            "rope_type": "yarn",
            "factor": extension.factor,
            "original_max_position_embeddings": trained,
        }
    elif extension.kind == "theta":
        dim = _rotary_dim(config, rope)
        extended.rope_parameters = {**rope, "rope_theta": rope["rope_theta"] * extension.factor ** (dim / (dim - 2))}
    extended.max_position_embeddings = round(trained * extension.factor)
    return extended


def _rotary_dim(config: Any, rope: dict[str, Any]) -> int:
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(head_dim * rope.get("partial_rotary_factor", 1.0))


def _cannot_extend(cause: str) -> str:
    return f"the model's context cannot be extended, {cause}; use --context-extension none, or a model trained to more"
