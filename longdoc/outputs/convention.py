"""What a run computes with one model, once the model's own convention and the user's options are both known.

Owns what stands behind `--outputs` where it is not given and behind `--pooling auto`, and the document's prompt. A
forced pooling replaces the model's pooling and nothing else of its convention.
"""

import dataclasses
from collections.abc import Callable

from longdoc.config import RunConfig
from longdoc.errors import ModelError
from longdoc.model.conventions import EmbeddingConvention, read_convention
from longdoc.model.local import LocalModel, check_outputs
from longdoc.records import fingerprint
from longdoc.store.schemas import OUTPUTS
from longdoc.tokenization.vocabulary import Vocabulary


def settled(config: RunConfig, model: LocalModel, note: Callable[[str], None]) -> RunConfig:
    """The configuration with its outputs decided. `note` is told where the default is less than everything.

    Raises `ModelError` for outputs that the model does not have, and conventions that are not implemented.
    """
    if config.outputs is None:
        outputs: tuple[str, ...] = OUTPUTS
        if model.attention_direction == "bidirectional" or not model.has_head:
            outputs = ("embeddings",)
            why = "an encoder" if model.attention_direction == "bidirectional" else "saved without an output head"
            note(f"{model.name} is {why} and has no log-probs: --outputs embeddings")
        config = dataclasses.replace(config, outputs=outputs)
    check_outputs(model, config.chosen_outputs)
    convention_of(config, model)
    return config


def convention_of(config: RunConfig, model: LocalModel) -> EmbeddingConvention:
    """How this run makes embeddings; the plain mean where it makes none. Raises `ModelError`."""
    if "embeddings" not in config.chosen_outputs:
        return EmbeddingConvention()
    convention = read_convention(model.folder, model.hidden_size) or EmbeddingConvention()
    if config.pooling != "auto":
        convention = dataclasses.replace(convention, pooling=config.pooling)
    if convention.pooling == "cls" and not Vocabulary.load(model.folder).prefix_token_ids:
        raise ModelError(
            f"model {model.name}: pooling cls takes the first token's state, and its tokenizer puts none before a "
            "document; use --pooling mean"
        )
    return convention


def prompt_token_ids(config: RunConfig, model: LocalModel) -> tuple[int, ...]:
    """The tokens of the prompt before a document, encoded by itself; they follow the tokenizer's own first tokens."""
    prompt = convention_of(config, model).prompt
    return tuple(Vocabulary.load(model.folder).encode(prompt).tolist()) if prompt else ()


def configuration_of(config: RunConfig, model: LocalModel) -> str:
    """The configuration's part of every doc_key of a run."""
    return config.fingerprint(
        model_digest=model.digest,
        tokenizer_sha256=Vocabulary.load(model.folder).identity,
        # The digest of the model does not cover the files of its convention, so what they say counts by itself.
        convention=fingerprint(
            (name, repr(value)) for name, value in dataclasses.asdict(convention_of(config, model)).items()
        ),
    )
