"""What positions were made for, the choice of an extension, and position tables. Rotary modules: test_model_rotary."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    AutoConfig,
    AutoModel,
    BertConfig,
    Cohere2Config,
    Gemma3TextConfig,
    Gemma4TextConfig,
    GPT2Config,
    LlamaConfig,
    Ministral3Config,
    MistralConfig,
    Olmo3Config,
    Phi3Config,
    Qwen2Config,
)
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from longdoc.errors import DocumentError, ModelError
from longdoc.model.positions import (
    _POSITIONS_BEHIND_PADDING,
    MOST_TOKENS,
    UNEXTENDED,
    ContextExtension,
    ExtensionMode,
    TrainedPositions,
    choose_extension,
    trained_positions,
)

TRAINED = TrainedPositions(num_tokens=8192)
SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 50}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0] * 4,
    "long_factor": [4.0] * 4,
    "original_max_position_embeddings": 64,
}


def trained_to(num_tokens: int, rope_type: str, factor: float = 1.0) -> TrainedPositions:
    return TrainedPositions(num_tokens=num_tokens, rope_type=rope_type, factor=factor)


@settings(deadline=None, max_examples=200)
@given(num_tokens=st.integers(0, MOST_TOKENS), trained=st.integers(1, 1 << 20), mode=st.sampled_from(["auto", "yarn"]))
def test_the_factor_is_the_smallest_whole_one_that_covers_the_document(
    num_tokens: int, trained: int, mode: ExtensionMode
) -> None:
    chosen = choose_extension(mode, num_tokens, TrainedPositions(num_tokens=trained))
    assert chosen.factor * trained >= num_tokens
    assert chosen.factor == 1 or (chosen.factor - 1) * trained < num_tokens
    assert (chosen.kind == "none") == (num_tokens <= trained)


@pytest.mark.parametrize("mode", ["auto", "none", "yarn", "theta", "error"])
@pytest.mark.parametrize(
    "rope_type", ["default", "llama3", "dynamic", "longrope", "windowed", "window only", "none", "linear"]
)
def test_within_the_trained_context_nothing_is_extended(mode: ExtensionMode, rope_type: str) -> None:
    assert choose_extension(mode, 8192, trained_to(8192, rope_type)) == UNEXTENDED


def test_beyond_it_the_mode_decides() -> None:
    assert choose_extension("auto", 8193, TRAINED) == ContextExtension(kind="yarn", factor=2.0)
    assert choose_extension("theta", 30_000, TRAINED) == ContextExtension(kind="theta", factor=4.0)
    assert choose_extension("none", 30_000, TRAINED) == UNEXTENDED
    with pytest.raises(DocumentError) as raised:
        choose_extension("error", 30_000, TRAINED)
    assert str(raised.value) == (
        "the document has 30,000 tokens and the model is trained to 8,192; use --context-extension auto to extend it"
    )
    assert (raised.value.stage, raised.value.reason) == ("plan", "over_trained_context")
    assert raised.value.needs == "a model trained to 30,000 tokens"


@pytest.mark.parametrize("mode", ["auto", "yarn", "theta"])
@pytest.mark.parametrize("rope_type", ["llama3", "yarn", "longrope", "linear", "proportional"])
def test_positions_that_are_scaled_already_are_not_scaled_again(mode: ExtensionMode, rope_type: str) -> None:
    with pytest.raises(DocumentError, match=f"its {rope_type} positions are scaled already") as raised:
        choose_extension(mode, 300, trained_to(128, rope_type))
    assert raised.value.reason == "over_trained_context"
    assert choose_extension("none", 300, trained_to(128, rope_type)) == UNEXTENDED


@pytest.mark.parametrize("mode", ["auto", "none"])
def test_dynamic_positions_follow_their_own_rule_and_the_factor_is_that_of_their_base(mode: ExtensionMode) -> None:
    chosen = choose_extension(mode, 300, trained_to(128, "dynamic", factor=2.0))
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    rotary = LlamaRotaryEmbedding(LlamaConfig(**SMALL, head_dim=8, max_position_embeddings=128, rope_parameters=rope))
    rotary(torch.zeros(1), torch.arange(300)[None])
    # Frequency i of a rotary embedding of d dimensions is base^(-2i/d); the base grows by s^(d/(d-2)).
    base = float(rotary.inv_freq[1].double()) ** (-8 / 2)
    assert chosen.kind == "dynamic"
    assert chosen.factor == pytest.approx((base / 1e4) ** (6 / 8), rel=1e-5)
    assert not chosen.changes_model


@pytest.mark.parametrize(
    ("mode", "rope_type", "advice"),
    [
        ("yarn", "dynamic", "its dynamic positions follow the document's length by themselves; use --context-ext"),
        ("theta", "windowed", "none of its layers sees farther than its window, so there is nothing to extend"),
        ("auto", "window only", "its layers without a window have no positions that could be extended"),
        ("error", "dynamic", "use --context-extension auto"),
        ("error", "windowed", "use --context-extension auto"),
    ],
)
def test_what_has_nothing_to_extend_says_why(mode: ExtensionMode, rope_type: str, advice: str) -> None:
    with pytest.raises(DocumentError, match=advice):
        choose_extension(mode, 300, trained_to(128, rope_type))


def test_a_model_that_never_looks_beyond_its_windows_is_run_as_it_is() -> None:
    assert choose_extension("auto", 300, trained_to(128, "windowed")) == UNEXTENDED
    assert choose_extension("none", 300, trained_to(128, "window only")) == UNEXTENDED


@pytest.mark.parametrize("mode", ["auto", "none", "yarn", "theta"])
def test_learned_positions_end_with_their_table(mode: ExtensionMode) -> None:
    with pytest.raises(DocumentError, match="its positions end there") as raised:
        choose_extension(mode, 129, trained_to(128, "none"))
    assert raised.value.reason == "over_trained_context"


def test_positions_are_exact_up_to_the_longest_document_and_not_beyond() -> None:
    assert torch.arange(MOST_TOKENS - 3, MOST_TOKENS).float().long().tolist() == [*range(MOST_TOKENS - 3, MOST_TOKENS)]
    assert int(torch.tensor(MOST_TOKENS + 1).float()) != MOST_TOKENS + 1
    assert choose_extension("none", MOST_TOKENS, TRAINED) == UNEXTENDED
    with pytest.raises(DocumentError) as raised:
        choose_extension("none", MOST_TOKENS + 1, trained_to(1 << 40, "yarn"))
    assert str(raised.value) == (
        "the document has 16,777,217 tokens, and positions are exact up to 16,777,216; split the source"
    )
    assert raised.value.reason == "over_exact_positions"


def test_unknown_modes_are_misuse() -> None:
    with pytest.raises(ValueError, match="unknown context extension 'linear'"):
        choose_extension("linear", 1, TRAINED)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ValueError, match="an extension of kind 'yarn' by a factor of 1"):
        ContextExtension(kind="yarn")


def yarn(**fields: Any) -> dict[str, Any]:
    return {"rope_type": "yarn", "rope_theta": 1e4, "original_max_position_embeddings": 256, "factor": 4.0} | fields


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        (LlamaConfig(max_position_embeddings=128), trained_to(128, "default")),
        (LlamaConfig(max_position_embeddings=256, rope_parameters=yarn()), trained_to(1024, "yarn", 4.0)),
        (LlamaConfig(max_position_embeddings=4096, rope_parameters=yarn()), trained_to(4096, "yarn", 4.0)),
        (
            LlamaConfig(max_position_embeddings=64, rope_parameters={"rope_type": "dynamic", "factor": 3.0}),
            trained_to(64, "dynamic", 3.0),
        ),
        (
            Phi3Config(**SMALL, max_position_embeddings=256, rope_parameters=LONGROPE, sliding_window=None),
            trained_to(256, "longrope"),
        ),
        (Ministral3Config(), trained_to(262_144, "yarn", 16.0)),
        # By layer type: what the layers that see everything have.
        (Gemma3TextConfig(), trained_to(131_072, "default")),
        (Gemma4TextConfig(), trained_to(131_072, "proportional")),
        (
            Olmo3Config(rope_parameters={"full_attention": yarn(), "sliding_attention": {"rope_type": "default"}}),
            trained_to(2048, "yarn", 4.0),
        ),
        # Windows: everywhere, none, larger than what is trained, beside layers without positions, in some layers.
        (MistralConfig(max_position_embeddings=8192, sliding_window=4096), trained_to(8192, "windowed")),
        (MistralConfig(max_position_embeddings=8192, sliding_window=None), trained_to(8192, "default")),
        (MistralConfig(max_position_embeddings=2048, sliding_window=4096), trained_to(2048, "default")),
        (Cohere2Config(), trained_to(8192, "window only")),
        (Qwen2Config(use_sliding_window=True, sliding_window=8), trained_to(32_768, "default")),
        (GPT2Config(n_positions=77), trained_to(77, "none")),
        (BertConfig(max_position_embeddings=77), trained_to(77, "none")),
    ],
    ids=lambda value: getattr(value, "model_type", None),
)
def test_what_the_positions_were_made_for(config: Any, wanted: TrainedPositions) -> None:
    assert trained_positions(config, "config.json") == wanted


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"max_position_embeddings": None}, "it gives None for max_position_embeddings; only plain text models"),
        ({"max_position_embeddings": 8, "rope_parameters": {"rope_type": "yarn"}}, "its yarn positions cannot be read"),
        ({"max_position_embeddings": 8, "rope_parameters": yarn(factor="x")}, "its yarn positions cannot be read"),
    ],
)
def test_positions_that_cannot_be_read_are_named(fields: dict[str, Any], cause: str) -> None:
    with pytest.raises(ModelError, match=f"the file: {cause}"):
        trained_positions(SimpleNamespace(**fields), "the file")


def table_model(model_type: str, num_rows: int, padding: int) -> Any:
    config = AutoConfig.for_model(
        model_type, **SMALL, max_position_embeddings=num_rows, pad_token_id=padding, initializer_range=0.5
    )
    if model_type == "xmod":
        config.default_language = config.languages[0]
    torch.manual_seed(2)
    return AutoModel.from_config(config).eval()


@pytest.mark.parametrize("model_type", ["bert", *sorted(_POSITIONS_BEHIND_PADDING)])
@torch.no_grad()
def test_the_first_position_and_the_last_are_the_models_own(model_type: str) -> None:
    model = table_model(model_type, num_rows=21, padding=1)
    trained = trained_positions(model.config, model_type)
    assert trained == TrainedPositions(num_tokens=21 - trained.first, rope_type="none", first=trained.first)
    ids = 2 + torch.arange(trained.num_tokens)[None]
    positions = torch.arange(trained.num_tokens)[None] + trained.first
    own = model(ids).last_hidden_state
    torch.testing.assert_close(model(ids, position_ids=positions).last_hidden_state, own, rtol=0, atol=0)
    if trained.first:
        moved = model(ids, position_ids=positions - trained.first).last_hidden_state
        assert (moved - own).abs().max() > 0.1
    with pytest.raises((IndexError, RuntimeError)):
        model(2 + torch.arange(trained.num_tokens + 1)[None])


def test_a_table_without_a_free_row_is_named() -> None:
    with pytest.raises(ModelError, match="its table of 2 positions starts at 2"):
        trained_positions(AutoConfig.for_model("roberta", max_position_embeddings=2, pad_token_id=1), "the file")
