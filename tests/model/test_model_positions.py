"""Which extension is chosen, what it does to the rotary positions, and that nothing of it stays behind."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GPT2Config, GPT2Model, LlamaConfig, LlamaModel
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from longdoc.errors import DocumentError, ModelError
from longdoc.model.load import load_model
from longdoc.model.local import LocalModel
from longdoc.model.positions import (
    MOST_TOKENS,
    UNEXTENDED,
    ContextExtension,
    ExtensionMode,
    TrainedPositions,
    choose_extension,
)
from longdoc.model.rotary import RotaryPositions

SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
YARN4 = ContextExtension(kind="yarn", factor=4.0)
TRAINED = TrainedPositions(num_tokens=8192)
THETA4 = ContextExtension(kind="theta", factor=4.0)


def small_llama(**rope: object) -> LlamaModel:
    config = LlamaConfig(**SMALL, vocab_size=50, max_position_embeddings=128, rope_parameters=rope or None)
    return LlamaModel(config).eval()


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
def test_within_the_trained_context_nothing_is_extended(mode: ExtensionMode) -> None:
    assert choose_extension(mode, 8192, TRAINED) == UNEXTENDED
    assert choose_extension(mode, 8192, TrainedPositions(num_tokens=8192, rope_type="llama3")) == UNEXTENDED


def test_beyond_it_the_mode_decides() -> None:
    assert choose_extension("auto", 8193, TRAINED) == ContextExtension(kind="yarn", factor=2.0)
    assert choose_extension("theta", 30_000, TRAINED) == THETA4
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
    with pytest.raises(DocumentError, match=f"its {rope_type} positions are scaled already"):
        choose_extension(mode, 300, TrainedPositions(num_tokens=128, rope_type=rope_type))
    assert choose_extension("none", 300, TrainedPositions(num_tokens=128, rope_type=rope_type)) == UNEXTENDED


@pytest.mark.parametrize("mode", ["auto", "none", "yarn", "theta"])
def test_learned_positions_end_with_their_table(mode: ExtensionMode) -> None:
    with pytest.raises(DocumentError, match="its positions end there"):
        choose_extension(mode, 129, TrainedPositions(num_tokens=128, rope_type="none"))


def test_unknown_modes_are_misuse() -> None:
    with pytest.raises(ValueError, match="unknown context extension 'linear'"):
        choose_extension("linear", 1, TRAINED)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ValueError, match="an extension of kind 'yarn' by a factor of 1"):
        ContextExtension(kind="yarn")


@pytest.mark.parametrize(
    ("extension", "rope"),
    [
        (
            YARN4,
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "rope_theta": 10_000.0},
        ),
        (THETA4, {"rope_type": "default", "rope_theta": 10_000.0 * 4 ** (16 / 14)}),
    ],
)
def test_cos_and_sin_equal_those_of_a_model_built_with_that_configuration(
    extension: ContextExtension, rope: dict[str, object]
) -> None:
    model = small_llama()
    RotaryPositions(model).set(extension, 500)
    config = LlamaConfig(**SMALL, vocab_size=50, max_position_embeddings=512, rope_parameters=rope)
    wanted = LlamaRotaryEmbedding(config)
    positions, states = torch.arange(500)[None], torch.zeros(1, 500, 64)
    for ours, theirs in zip(model.rotary_emb(states, positions), wanted(states, positions), strict=True):
        assert torch.equal(ours, theirs)


def test_yarn_keeps_fast_frequencies_divides_slow_ones_and_scales_attention() -> None:
    model = small_llama()
    before = model.rotary_emb.inv_freq.clone()
    RotaryPositions(model).set(YARN4, 500)
    after = model.rotary_emb.inv_freq
    # arXiv:2309.00071, equations 17 to 23: turns within the trained context decide; more than 32 stay, less than 1
    # are divided by the factor.
    turns = 128 * before / (2 * math.pi)
    assert turns.max() < 32, "with so few positions no frequency stays exactly"
    slow = turns < 0.5
    assert slow.sum() >= 2
    torch.testing.assert_close(after[slow], before[slow] / 4, rtol=1e-6, atol=0)
    assert torch.all(after <= before)
    assert model.rotary_emb.attention_scaling == pytest.approx(0.1 * math.log(4) + 1)


def test_theta_divides_the_slowest_frequency_by_the_factor_and_keeps_the_fastest() -> None:
    model = small_llama()
    before = model.rotary_emb.inv_freq.clone()
    RotaryPositions(model).set(THETA4, 500)
    after = model.rotary_emb.inv_freq
    assert after[0] == before[0] == 1
    torch.testing.assert_close(after[-1], before[-1] / 4, rtol=1e-5, atol=0)
    assert model.rotary_emb.attention_scaling == 1


def test_switching_back_and_forth_leaves_no_state() -> None:
    model = small_llama()
    untouched, config = model.rotary_emb, model.config.to_dict()
    ids = torch.arange(50)[None]
    with torch.no_grad():
        before = model(ids).last_hidden_state
        rotary = RotaryPositions(model)
        seen = []
        for extension in (YARN4, THETA4, ContextExtension(kind="yarn", factor=9.0), YARN4, UNEXTENDED, YARN4):
            rotary.set(extension, 500)
            seen.append(model(ids).last_hidden_state)
            assert rotary.current == extension
        rotary.set(UNEXTENDED, 500)
        after = model(ids).last_hidden_state
    assert model.rotary_emb is untouched
    assert model.config.to_dict() == config
    assert torch.equal(before, after)
    assert torch.equal(before, seen[4])
    assert torch.equal(seen[0], seen[3])
    assert torch.equal(seen[0], seen[5])
    assert not torch.equal(seen[0], before)
    assert not torch.equal(seen[0], seen[2])


def test_frequencies_stay_float32_in_a_bfloat16_model(tiny_model: LocalModel) -> None:
    model = load_model(tiny_model, dtype=torch.bfloat16, attention="sdpa")
    rotary = model.causal_model.base_model.rotary_emb
    assert rotary.inv_freq.dtype == torch.float32
    wanted = load_model(tiny_model, dtype=torch.float32, attention="sdpa")
    wanted.set_positions(YARN4, 500)
    model.set_positions(YARN4, 500)
    assert model.extension == YARN4
    extended = model.causal_model.base_model.rotary_emb
    assert extended is not rotary
    assert torch.equal(extended.inv_freq, wanted.causal_model.base_model.rotary_emb.inv_freq)


def test_a_model_that_cannot_be_extended_says_so() -> None:
    llama3 = small_llama(
        rope_type="llama3",
        rope_theta=1e4,
        factor=8.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=64,
    )
    rotary = RotaryPositions(llama3)
    rotary.set(UNEXTENDED, 500)
    with pytest.raises(ModelError, match="cannot be extended, its rotary positions are llama3; use --context-extens"):
        rotary.set(YARN4, 500)
    assert rotary.current == UNEXTENDED
    gpt2 = GPT2Model(GPT2Config(n_embd=64, n_layer=1, n_head=4, vocab_size=50, n_positions=32))
    with pytest.raises(ModelError, match="cannot be extended, it has no rotary positions"):
        RotaryPositions(gpt2).set(YARN4, 500)
