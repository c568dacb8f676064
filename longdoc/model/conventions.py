"""How a model's makers turn token states into one embedding, read from the files that sentence-transformers writes.

Owns `modules.json`, `N_Pooling/config.json`, `N_Dense/`, `N_Normalize`, `config_sentence_transformers.json` and
`sentence_bert_config.json` (https://sbert.net/docs/sentence_transformer/usage/custom_models.html), beside a model's
config.json. A model without `modules.json` states no convention. The end token that some models pool is not said here:
it stands in tokenizer.json, whose post-processor puts it behind a document. Whatever is stated and not implemented is
refused by name: an embedding that is not quite the model's own cannot be told from one that is.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from longdoc.errors import ModelError
from longdoc.model.identity import remembered_sha256
from longdoc.records import display

Pooling = Literal["mean", "last", "cls"]
#: Which tokens the document's own embedding is pooled from, where it is a mean: those of the text, all that the model
#: saw, or all from the text on (the makers leave their prompt out).
DocumentTokens = Literal["text", "all", "from_text"]
Activation = Literal["identity", "tanh"]

_POOLINGS: dict[str, Pooling] = {"mean_tokens": "mean", "lasttoken": "last", "cls_token": "cls"}
_NAMES_OF_POOLINGS: dict[str, Pooling] = {"mean": "mean", "lasttoken": "last", "cls": "cls"}
_ACTIVATIONS: dict[str, Activation] = {"Identity": "identity", "Tanh": "tanh"}
#: In this order sentence-transformers looks for what stands before a document; a query's instruction is none of them.
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseLayer:
    """A linear layer behind the pooling: y = activation(W x + b). `weights` is a safetensors file of the model."""

    weights: str
    weights_sha256: str
    in_features: int
    out_features: int
    has_bias: bool
    activation: Activation


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingConvention:
    """From states to embeddings: pool, then `dense` in order, then L2 where `is_normalized`.

    `prompt` is put once before a document. The default is what a plain language model gets: the mean of its text.
    """

    pooling: Pooling = "mean"
    is_normalized: bool = False
    dense: tuple[DenseLayer, ...] = ()
    prompt: str = ""
    document_tokens: DocumentTokens = "text"

    @property
    def label(self) -> str:
        """For people and for the documents table: the pooling and what follows it."""
        return ", ".join([self.pooling, *["dense"] * bool(self.dense), *["normalized"] * self.is_normalized])

    def embedding_size(self, hidden_size: int) -> int:
        """Numbers of an embedding, for states of `hidden_size`."""
        return self.dense[-1].out_features if self.dense else hidden_size

    def document_range(self, *, num_prefix: int, num_tokens: int) -> tuple[int, int] | None:
        """The places, of `num_tokens`, whose mean is the document's pooled state; None for those of the text."""
        if self.pooling == "last":
            return num_tokens - 1, num_tokens
        if self.pooling == "cls":
            return 0, 1
        return {"text": None, "all": (0, num_tokens), "from_text": (num_prefix, num_tokens)}[self.document_tokens]


def read_convention(folder: Path, hidden_size: int) -> EmbeddingConvention | None:
    """What a model's files state, None where they state nothing. Raises `ModelError` for what is not implemented."""
    if not (folder / "modules.json").is_file():
        return None
    return _Reader(folder, hidden_size).convention()


class _Reader:
    """Reads one folder. The checks are in the order of the modules, so the first thing refused is the first one met."""

    def __init__(self, folder: Path, hidden_size: int) -> None:
        self._folder, self._width = folder, hidden_size
        self._shown = display(str(folder))

    def convention(self) -> EmbeddingConvention:
        modules = self._modules()
        kinds = [kind for kind, _ in modules]
        after = kinds[2:]
        if kinds[:2] != ["Transformer", "Pooling"] or after != ["Dense"] * after.count("Dense") + ["Normalize"] * (
            "Normalize" in after
        ):
            raise self._refused(f"its modules.json lists {' then '.join(kinds) or 'nothing'}")
        if modules[0][1]:
            raise self._refused(f"its modules.json keeps the transformer in {modules[0][1]}, not beside it")
        if self._optional("sentence_bert_config.json").get("do_lower_case"):
            raise self._refused("its sentence_bert_config.json lowers the case of the text")
        pooling, pools_prompt = self._pooling(modules[1][1])
        return EmbeddingConvention(
            pooling=pooling,
            is_normalized="Normalize" in after,
            dense=tuple(self._dense(path) for kind, path in modules[2:] if kind == "Dense"),
            prompt=self._prompt(),
            document_tokens="all" if pools_prompt else "from_text",
        )

    def _modules(self) -> list[tuple[str, str]]:
        """The kind of each module, the last word of its class, and its folder."""
        listed = self._json("modules.json")
        try:
            return [(str(module["type"]).rpartition(".")[2], str(module["path"])) for module in listed]
        except (TypeError, KeyError) as error:
            raise self._damaged("modules.json", error) from None

    def _pooling(self, path: str) -> tuple[Pooling, bool]:
        """The one pooling of a Pooling module, and whether the prompt is pooled too."""
        config = self._object(f"{path}/config.json")
        if "pooling_mode" in config:  # the newer form: one name, or several
            named = config["pooling_mode"]
            modes = [named] if isinstance(named, str) else list(named)
            known = _NAMES_OF_POOLINGS
        else:
            prefix = "pooling_mode_"
            modes = [key.removeprefix(prefix) for key, value in config.items() if key.startswith(prefix) and value]
            known = _POOLINGS
        if len(modes) != 1 or modes[0] not in known:
            raise self._refused(f"its {path}/config.json pools {' and '.join(map(str, modes)) or 'nothing'}")
        return known[modes[0]], bool(config.get("include_prompt", True))

    def _dense(self, path: str) -> DenseLayer:
        config = self._object(f"{path}/config.json")
        # The class's own default is Tanh; the configuration states the activation as the path of its class.
        name = str(config.get("activation_function", "Tanh")).rpartition(".")[2]
        weights = f"{path}/model.safetensors"
        if name not in _ACTIVATIONS:
            raise self._refused(f"its {path}/config.json applies {name}")
        for option in ("module_input_name", "module_output_name"):
            if config.get(option) not in (None, "sentence_embedding"):
                raise self._refused(f"its {path}/config.json works on {config[option]}")
        try:
            in_features, out_features = int(config["in_features"]), int(config["out_features"])
        except (KeyError, TypeError, ValueError) as error:
            raise self._damaged(f"{path}/config.json", error) from None
        if in_features != self._width:
            raise self._damaged(f"{path}/config.json", ValueError(f"it takes {in_features} numbers of {self._width}"))
        self._width = out_features
        if not (self._folder / weights).is_file():
            raise ModelError(
                f"model {self._shown}: no {weights}, which modules.json needs; add it (pickles are never loaded)"
            )
        return DenseLayer(
            weights=weights,
            weights_sha256=remembered_sha256(self._folder / weights),
            in_features=in_features,
            out_features=out_features,
            has_bias=bool(config.get("bias", True)),
            activation=_ACTIVATIONS[name],
        )

    def _prompt(self) -> str:
        config = self._optional("config_sentence_transformers.json")
        prompts, default = config.get("prompts") or {}, config.get("default_prompt_name")
        names = [*_DOCUMENT_PROMPTS, *([default] if default not in (None, "query") else [])]
        return str(next((prompts[name] for name in names if name in prompts), "") or "")

    def _optional(self, name: str) -> dict[str, Any]:
        return self._object(name) if (self._folder / name).is_file() else {}

    def _object(self, name: str) -> dict[str, Any]:
        found = self._json(name)
        if not isinstance(found, dict):
            raise self._damaged(name, TypeError(f"it holds a {type(found).__name__}"))
        return found

    def _json(self, name: str) -> Any:
        try:
            return json.loads((self._folder / name).read_bytes())
        except FileNotFoundError:
            raise ModelError(f"model {self._shown}: no {name}, which modules.json needs; add it") from None
        except (OSError, ValueError, RecursionError) as error:
            raise self._damaged(name, error) from None

    def _refused(self, what: str) -> ModelError:
        return ModelError(
            f"model {self._shown}: {what}, which is not supported for embeddings; "
            "use --outputs logprobs, or another model"
        )

    def _damaged(self, name: str, error: Exception) -> ModelError:
        return ModelError(f"model {self._shown}: {name} cannot be read ({error}); copy or download the model again")
