"""Encoders, models without a head, text parts of models for pictures: what is loaded, and what they refuse to give."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from families import FAMILIES, document, draw_weights, save_family
from tokenizers import Tokenizer
from torch import nn
from transformers import (
    AutoModelForImageTextToText,
    AutoModelForMaskedLM,
    BertConfig,
    Gemma3Config,
    Gemma4Config,
    Mistral3Config,
    PreTrainedConfig,
    Qwen3Model,
    RobertaConfig,
)

from longdoc.errors import ModelError
from longdoc.model.gates import check_shardable
from longdoc.model.load import RingModel, load_model
from longdoc.model.local import check_outputs
from longdoc.model.sources import find_model

EYES = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
SEEING: dict[str, PreTrainedConfig] = {
    "gemma3": Gemma3Config(
        text_config=FAMILIES["gemma3"].to_dict(),
        vision_config=EYES | {"image_size": 28, "patch_size": 14},
        mm_tokens_per_image=4,
    ),
    "gemma4": Gemma4Config(text_config=FAMILIES["gemma4"].to_dict(), vision_config=None, audio_config=None),
    "mistral3": Mistral3Config(
        text_config=FAMILIES["ministral3"].to_dict(),
        vision_config=EYES | {"model_type": "pixtral", "image_size": 28, "patch_size": 14},
        tie_word_embeddings=False,
    ),
}
SMALL: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
ENCODERS = [BertConfig(**SMALL, vocab_size=400), RobertaConfig(**SMALL, vocab_size=400, pad_token_id=1)]


@pytest.fixture
def open_model(tmp_path: Path, small_tokenizer: Tokenizer) -> Callable[..., RingModel]:
    def load(whole: nn.Module, **options: Any) -> RingModel:
        whole.save_pretrained(tmp_path / "saved")  # type: ignore[operator]  # transformers
        small_tokenizer.save(str(tmp_path / "saved" / "tokenizer.json"))
        return load_model(find_model(str(tmp_path / "saved")), dtype=torch.float32, **options)

    return load


@pytest.mark.parametrize("kind", SEEING)
def test_of_a_model_for_pictures_only_the_text_part_is_loaded(kind: str, open_model: Callable[..., RingModel]) -> None:
    whole = AutoModelForImageTextToText.from_config(SEEING[kind]).eval()
    draw_weights(whole, seed=3)
    model = open_model(whole, attention="eager")
    ids, places = document(40), torch.arange(40)
    with torch.no_grad():
        # gemma3 wants to be told that none of the tokens is a picture.
        extra = {"token_type_ids": torch.zeros_like(ids)[None]} if kind == "gemma3" else {}
        wanted_TV = whole(input_ids=ids[None], **extra).logits[0]
    torch.testing.assert_close(model.logits(model.hidden_states(ids, places)), wanted_TV, rtol=1e-5, atol=1e-4)
    assert not any("vision" in name for name, _ in model.module.named_parameters())


def test_a_seeing_model_passes_the_gates(open_model: Callable[..., RingModel]) -> None:
    whole = AutoModelForImageTextToText.from_config(SEEING["gemma3"]).eval()
    draw_weights(whole, seed=3)
    assert check_shardable(open_model(whole)) < 1e-3


@pytest.mark.parametrize("config", ENCODERS, ids=lambda config: config.model_type)
def test_older_encoders_pass_too(config: PreTrainedConfig, open_model: Callable[..., RingModel]) -> None:
    whole = AutoModelForMaskedLM.from_config(config).eval()
    draw_weights(whole, seed=4)
    model = open_model(whole)
    assert check_shardable(model) < 1e-4
    assert model.local.attention_direction == "bidirectional"


def test_an_encoder_has_states_and_no_logits(tmp_path: Path, small_tokenizer: Tokenizer) -> None:
    local = find_model(str(save_family("modernbert", tmp_path / "encoder", small_tokenizer.to_str())))
    model = load_model(local, dtype=torch.float32, attention="sdpa")
    hidden_TC = model.hidden_states(document(5), torch.arange(5))
    with pytest.raises(ValueError, match="model encoder has no output head"):
        model.logits(hidden_TC)
    with pytest.raises(ModelError, match=r"model encoder is an encoder, and encoders have no log-probs: .*; use"):
        check_outputs(local, ("embeddings", "logprobs"))
    check_outputs(local, ("embeddings",))


def test_a_model_saved_without_its_head_has_no_log_probs(open_model: Callable[..., RingModel]) -> None:
    bare = Qwen3Model(FAMILIES["qwen3"])
    model = open_model(bare, attention="sdpa")
    assert (model.local.has_head, model.local.attention_direction) == (False, "causal")
    ids = document(9)
    with torch.no_grad():
        wanted_TC = bare.eval()(input_ids=ids[None]).last_hidden_state[0]
    torch.testing.assert_close(model.hidden_states(ids, torch.arange(9)), wanted_TC, rtol=1e-5, atol=1e-5)
    with pytest.raises(ModelError, match="model saved is saved without an output head, so it has no log-probs; "):
        check_outputs(model.local, ("logprobs",))
