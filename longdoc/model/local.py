"""A model in a folder on this machine, before its weights are loaded: `LocalModel`, `open_folder`, `read_config`.

Owns the facts that the configuration, the headers of the weights and the tokenizer state, and whether they fit each
other. Refuses models that no ring can split (see `refusals`), folders with a piece missing or damaged, pickles,
quantised weights, tokenizers of other models, and models whose code would have to come along (`trust_remote_code`).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longdoc.errors import ModelError
from longdoc.model.identity import ModelFiles, model_digest, model_files
from longdoc.model.kept_facts import keep_facts, kept_facts
from longdoc.model.layers import LayerShape, active_parameters, layer_shapes
from longdoc.model.positions import TrainedPositions, trained_positions
from longdoc.model.refusals import Direction, attention_direction, has_head, refuse_by_configuration
from longdoc.model.safetensors_file import tensor_sizes
from longdoc.records import display

if TYPE_CHECKING:
    from longdoc.tokenization.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel:
    """A model on this machine: its folder and what its configuration and the headers of its weights say.

    `digest` identifies config.json, tokenizer.json and the weights by content; `source_sha256` is that of the file a
    built-in model was pulled from.
    """

    name: str
    folder: Path
    source: str
    source_sha256: str | None
    digest: str
    positions: TrainedPositions
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    num_parameters: int
    #: Weights of the layers that one token is multiplied with, and the layers' shapes: for forecasts only.
    num_active_parameters: int
    layers: tuple[LayerShape, ...]
    #: Whether it is saved with an output head that predicts the next token, and which tokens a token sees.
    has_head: bool
    attention_direction: Direction

    @property
    def context_trained(self) -> int:
        """The tokens that the model was trained to read at once, as extended by its makers."""
        return self.positions.num_tokens

    @property
    def rope_type(self) -> str:
        """The kind of its positions, see `TrainedPositions`."""
        return self.positions.rope_type


def open_folder(folder: Path, *, name: str, source: str, source_sha256: str | None) -> LocalModel:
    """The model in a folder. Raises `ModelError` for whatever is missing, damaged or of another model."""
    from longdoc.tokenization.vocabulary import Vocabulary  # not at the top: listing models needs no tokenizer

    files = model_files(folder)
    digest = _digest(files, folder)
    facts = kept_facts(digest)
    if facts is None:
        facts = _read_facts(files, folder, name)
        keep_facts(digest, facts)
    model = LocalModel(name=name, folder=folder, source=source, source_sha256=source_sha256, digest=digest, **facts)
    _check_heads(model)
    check_fits(Vocabulary.load(folder), model)
    return model


def _read_facts(files: ModelFiles, folder: Path, name: str) -> dict[str, Any]:
    """What the configuration and the headers of the weights say. Raises `ModelError`."""
    whole_config, config = configurations(folder)
    refuse_by_configuration(whole_config, name)
    layer = _widest_layer(config)
    num_heads, hidden_size = _field(layer, "num_attention_heads", folder), _field(config, "hidden_size", folder)
    sizes = {name: size for path in files.weights for name, size in tensor_sizes(path).items()}
    return {
        "positions": trained_positions(config, display(str(folder / "config.json"))),
        "hidden_size": hidden_size,
        # Some families leave it out and use four times the width, as GPT-2 did.
        "intermediate_size": _field(config, "intermediate_size", folder, default=4 * hidden_size),
        "num_layers": _field(config, "num_hidden_layers", folder),
        "num_heads": num_heads,
        "num_kv_heads": _field(layer, "num_key_value_heads", folder, default=num_heads),
        "head_dim": _field(layer, "head_dim", folder, default=hidden_size // num_heads),
        "vocab_size": _field(config, "vocab_size", folder),
        "num_parameters": sum(sizes.values()),
        "num_active_parameters": active_parameters(sizes, config),
        "layers": layer_shapes(config, sizes),
        "has_head": has_head(whole_config),
        "attention_direction": attention_direction(whole_config),
    }


def check_outputs(model: LocalModel, outputs: tuple[str, ...]) -> None:
    """Raise `ModelError` where log-probs are asked of a model that has none."""
    if "logprobs" not in outputs:
        return
    if model.attention_direction == "bidirectional":
        cause = "an encoder, and encoders have no log-probs: each token sees the ones after it"
    elif not model.has_head:
        cause = "saved without an output head, so it has no log-probs"
    else:
        return
    raise ModelError(f"model {model.name} is {cause}; use --outputs embeddings")


def check_fits(vocabulary: "Vocabulary", model: LocalModel) -> None:
    """Raise `ModelError` unless the model has an embedding for every token id that its tokenizer can give."""
    around = (*vocabulary.prefix_token_ids, *vocabulary.suffix_token_ids)
    largest = max(vocabulary.vocab_size - 1, *around, 0)
    if largest >= model.vocab_size:
        raise ModelError(
            f"model {display(str(model.folder))}: tokenizer.json gives token ids up to {largest}, and config.json says "
            f"that the model has {model.vocab_size}; put the tokenizer of this very model there"
        )


def _digest(files: ModelFiles, folder: Path) -> str:
    try:
        return model_digest(files)
    except OSError as error:
        path = display(str(error.filename or folder))
        raise ModelError(f"model file {path} cannot be read ({cause_of(error)}); give read access to it") from None


def read_config(folder: Path) -> Any:
    """The text part of a model's configuration, with the defaults of its family filled in. Raises `ModelError`."""
    return configurations(folder)[1]


def configurations(folder: Path) -> tuple[Any, Any]:
    """The whole configuration and its text part: the same object, but for models of pictures and text."""
    from transformers import AutoConfig

    shown = display(str(folder / "config.json"))
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        text_config = config.get_text_config()
    except Exception as error:  # each family checks its fields in code of its own, and raises what it likes
        raise ModelError(
            f"{shown} describes no model that transformers knows without code of its own ({cause_of(error)}); "
            "use a model of a known family, or a newer transformers"
        ) from None
    if getattr(config, "quantization_config", None) or getattr(text_config, "quantization_config", None):
        raise ModelError(f"{shown}: its weights are quantised, which is not supported; use the model as it was trained")
    return config, text_config


def _widest_layer(config: Any) -> Any:
    """The configuration of the layer with the widest keys, where layers differ, or the one of all layers."""
    if not getattr(config, "is_heterogeneous", False):
        return config
    return max(config.per_layer_config, key=lambda layer: layer.num_key_value_heads * layer.head_dim)


def _field(config: Any, field: str, folder: Path, *, default: int | None = None) -> int:
    value = getattr(config, field, None) or default
    if not isinstance(value, int) or value <= 0:
        path = display(str(folder / "config.json"))
        raise ModelError(f"{path}: it gives {value!r} for {field}; only plain text models can be used")
    return value


def _check_heads(model: LocalModel) -> None:
    if model.num_heads % model.num_kv_heads:
        raise ModelError(
            f"{display(str(model.folder / 'config.json'))}: {model.num_heads} attention heads cannot share "
            f"{model.num_kv_heads} key-value heads; copy or download the model again"
        )


def cause_of(error: Exception) -> str:
    """What an error says, in one line."""
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return next((line for line in map(str.strip, said.splitlines()) if line), type(error).__name__)
