"""Models that no ring can split are refused by their configuration, by name and with the reason, before any weight."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from transformers import (
    BambaConfig,
    BertConfig,
    BloomConfig,
    DeepseekV32Config,
    FalconConfig,
    FalconH1Config,
    Gemma3Config,
    Gemma3TextConfig,
    GraniteMoeHybridConfig,
    JambaConfig,
    Lfm2Config,
    Llama4Config,
    Llama4TextConfig,
    LlamaConfig,
    MambaConfig,
    MiniMaxConfig,
    MllamaConfig,
    ModernBertConfig,
    MptConfig,
    NemotronHConfig,
    PreTrainedConfig,
    Qwen3Config,
    Qwen3NextConfig,
    RecurrentGemmaConfig,
    RwkvConfig,
    SwitchTransformersConfig,
    T5Config,
    XLNetConfig,
    Zamba2Config,
)

from longdoc.cli.models import models
from longdoc.errors import CheckFailed, NotShardableError
from longdoc.model.refusals import attention_direction, has_head, refuse_by_configuration
from longdoc.model.sources import find_model

STATE = r"it carries a state from token to token \(recurrent, state-space or linear attention layers\)"
NO_INTERFACE = "its attention cannot be replaced, because its code does not use transformers' attention interface"
ENCODER_DECODER = "it is an encoder with a decoder, whose layers attend to two sequences"
REFUSED: dict[str, tuple[PreTrainedConfig, str]] = {
    "llama4": (Llama4TextConfig(), "it has layers of type chunked_attention"),
    "llama4 with pictures": (Llama4Config(), "it has layers of type chunked_attention"),
    "qwen3_next": (Qwen3NextConfig(), f"it has layers of type linear_attention; {STATE}"),
    "lfm2": (Lfm2Config(full_attn_idxs=[2], num_hidden_layers=4), "it has layers of type conv"),
    "minimax": (MiniMaxConfig(), "it has layers of type linear_attention"),
    "bamba": (BambaConfig(), STATE),
    "rwkv": (RwkvConfig(), STATE),
    "mamba": (MambaConfig(), STATE),
    "bloom": (BloomConfig(), rf"{NO_INTERFACE} \(it adds ALiBi biases itself\)"),
    "mpt": (MptConfig(), f"it has ALiBi biases in place of positions; {NO_INTERFACE}"),
    "falcon with ALiBi": (FalconConfig(alibi=True), f"it has ALiBi biases in place of positions; {NO_INTERFACE}"),
    "switch_transformers": (SwitchTransformersConfig(), ENCODER_DECODER),
    "t5": (T5Config(), ENCODER_DECODER),
    "xlnet": (XLNetConfig(), NO_INTERFACE),
    "recurrent_gemma": (RecurrentGemmaConfig(), STATE),
    "jamba": (JambaConfig(), STATE),
    "zamba2": (Zamba2Config(), STATE),
    "falcon_h1": (FalconH1Config(), f"it has layers of type hybrid; {STATE}"),
    "granitemoehybrid": (GraniteMoeHybridConfig(), STATE),
    "nemotron_h": (NemotronHConfig(), STATE),
    "deepseek_v32": (DeepseekV32Config(), "it has layers of type indexed_attention"),
    "mllama": (MllamaConfig(), "it has layers with cross-attention"),
    "bert with relative positions": (
        BertConfig(position_embedding_type="relative_key"),
        "it has relative_key position biases",
    ),
}


@pytest.mark.parametrize("family", REFUSED)
def test_a_family_is_refused_with_its_reason(family: str) -> None:
    config, reason = REFUSED[family]
    with pytest.raises(
        NotShardableError, match=f"model {family} cannot run on a ring: .*{reason}.*; use a model in which"
    ):
        refuse_by_configuration(config, family)


@pytest.mark.parametrize(
    "config", [LlamaConfig(), Gemma3Config(), ModernBertConfig(), BertConfig()], ids=lambda c: c.model_type
)
def test_sound_families_are_not_refused(config: PreTrainedConfig) -> None:
    refuse_by_configuration(config, config.model_type)


@pytest.fixture
def folder_of(tmp_path: Path, small_tokenizer: Tokenizer) -> Callable[[PreTrainedConfig], Path]:
    """A folder with a configuration, a tokenizer and one tensor that belongs to no model."""

    def make(config: PreTrainedConfig) -> Path:
        folder = tmp_path / "some-model"
        config.save_pretrained(folder)
        small_tokenizer.save(str(folder / "tokenizer.json"))
        save_file({"nothing": np.zeros(1, np.float32)}, folder / "model.safetensors", metadata={"format": "pt"})
        return folder

    return make


@pytest.mark.parametrize("config", [MambaConfig(), T5Config(), Llama4TextConfig()], ids=lambda c: c.model_type)
def test_the_reason_comes_before_anything_that_only_attention_models_have(
    config: PreTrainedConfig, folder_of: Callable[[PreTrainedConfig], Path]
) -> None:
    with pytest.raises(NotShardableError, match="model some-model cannot run on a ring: it "):
        find_model(str(folder_of(config)))


def test_models_check_says_no_to_a_refused_model(folder_of: Callable[[PreTrainedConfig], Path]) -> None:
    result = CliRunner().invoke(models, ["check", str(folder_of(MambaConfig()))])
    assert isinstance(result.exception, CheckFailed)
    assert result.exception.exit_code == 1
    assert str(result.exception).startswith(
        "model some-model cannot run on a ring: it has layers of type linear_attention; it"
    )


@pytest.mark.parametrize(
    ("config", "saved_as", "head", "direction"),
    [
        (LlamaConfig(), "LlamaForCausalLM", True, "causal"),
        (LlamaConfig(), None, True, "causal"),
        (Qwen3Config(), "Qwen3Model", False, "causal"),
        (Gemma3Config(), "Gemma3ForConditionalGeneration", True, "causal"),
        (Gemma3TextConfig(use_bidirectional_attention=True), "Gemma3TextModel", False, "bidirectional"),
        (ModernBertConfig(), "ModernBertForMaskedLM", False, "bidirectional"),
        (ModernBertConfig(), "ModernBertModel", False, "bidirectional"),
        (ModernBertConfig(), None, False, "bidirectional"),
        (BertConfig(), "BertForMaskedLM", False, "bidirectional"),
        (BertConfig(), None, False, "bidirectional"),
    ],
)
def test_heads_and_directions_are_read_from_the_configuration(
    config: Any, saved_as: str | None, head: bool, direction: str
) -> None:
    config.architectures = None if saved_as is None else [saved_as]
    assert (has_head(config), attention_direction(config)) == (head, direction)
