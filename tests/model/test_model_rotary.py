"""Rotary positions of a document on shards: equal, bit for bit, to those of transformers given the whole document."""

import copy
import importlib
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoConfig, GPT2Config, GPT2Model, LlamaConfig, LlamaModel, PreTrainedConfig

from longdoc.errors import ModelError, NotShardableError
from longdoc.model.load import load_model
from longdoc.model.positions import UNEXTENDED, ContextExtension
from longdoc.model.rotary import RotaryPositions
from longdoc.model.sources import find_model
from longdoc.ring.layout import Layout

YARN4 = ContextExtension(kind="yarn", factor=4.0)
THETA4 = ContextExtension(kind="theta", factor=4.0)
ORIGINAL, HEAD_DIM = 32, 16
FULL, SLIDING = "full_attention", "sliding_attention"
SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 50,
}
DEFAULT = {"rope_type": "default", "rope_theta": 1e4}
ROPES: dict[str, dict[str, Any]] = {
    "default": DEFAULT,
    "linear": {**DEFAULT, "rope_type": "linear", "factor": 4.0},
    "dynamic": {**DEFAULT, "rope_type": "dynamic", "factor": 2.0},
    "yarn": {**DEFAULT, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": ORIGINAL},
    "llama3": {
        **DEFAULT,
        "rope_type": "llama3",
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": ORIGINAL,
    },
    "proportional": {**DEFAULT, "rope_type": "proportional", "partial_rotary_factor": 0.25},
    "longrope": {
        **DEFAULT,
        "rope_type": "longrope",
        "factor": 4.0,
        "short_factor": [1.0 + 0.1 * i for i in range(HEAD_DIM // 2)],
        "long_factor": [1.0 + 2.0 * i for i in range(HEAD_DIM // 2)],
        "original_max_position_embeddings": ORIGINAL,
    },
}
UPDATING = ("dynamic", "longrope")
#: Families whose rotary module is another class, or whose rope parameters stand elsewhere.
BY_LAYER_TYPE = ("gemma3_text", "gemma4_text", "olmo3", "modernbert")
LENGTHS = (97, 5, ORIGINAL - 1, ORIGINAL, ORIGINAL + 1, 64, 65, 97, ORIGINAL)


def family(model_type: str, rope: dict[str, Any]) -> PreTrainedConfig:
    """A small configuration whose full attention has these rotary parameters."""
    rope = copy.deepcopy(rope)  # configurations write into what they are given
    fields: dict[str, Any] = SMALL | {"max_position_embeddings": ORIGINAL, "head_dim": HEAD_DIM}
    if rope["rope_type"] in ("yarn", "llama3", "longrope"):
        fields["max_position_embeddings"] = 4 * ORIGINAL
    if model_type == "phi3":
        fields["original_max_position_embeddings"] = ORIGINAL
    if model_type == "gemma4_text":
        fields["global_head_dim"] = HEAD_DIM
    if model_type in BY_LAYER_TYPE:
        by_type = {FULL: rope, SLIDING: {**DEFAULT, "rope_theta": 1e2}}
        return AutoConfig.for_model(
            model_type, **fields, layer_types=[SLIDING, FULL], sliding_window=8, rope_parameters=by_type
        )
    return AutoConfig.for_model(model_type, **fields, rope_parameters=rope)


def rotary_of(config: PreTrainedConfig) -> nn.Module:
    """The family's rotary module as transformers makes it."""
    name = type(config).__name__.replace("Config", "RotaryEmbedding").replace("Gemma3Text", "Gemma3")
    module = importlib.import_module(type(config).__module__.replace(".configuration_", ".modeling_"))
    rotary: nn.Module = getattr(module, name)(config)
    return rotary


@pytest.fixture
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "cache"))


class Holder(nn.Module):
    """A base model without anything but its rotary module."""

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__()
        self.rotary_emb = rotary_of(config)

    def at(self, positions_T: Tensor) -> Tensor:
        return cos_and_sin(self.rotary_emb, positions_T)


def cos_and_sin(rotary: nn.Module, positions_T: Tensor) -> Tensor:
    """Every layer type's cos and sin at these positions, side by side: [T, ...]."""
    layers = [(layer,) for layer in rotary.layer_types] if hasattr(rotary, "layer_types") else [()]
    states = torch.zeros(1, len(positions_T), SMALL["hidden_size"])
    return torch.cat([part[0] for layer in layers for part in rotary(states, positions_T[None], *layer)], dim=-1)


CASES = [(model_type, rope) for model_type in ("llama", "gemma3_text") for rope in ROPES]
CASES += [
    ("olmo3", "yarn"),
    ("modernbert", "dynamic"),
    ("gemma4_text", "dynamic"),
    ("gemma4_text", "proportional"),
    ("gpt_oss", "yarn"),
]
CASES += [("phi3", "longrope"), ("cohere2", "dynamic"), ("smollm3", "yarn"), ("ministral3", "yarn")]
CASES += [("deepseek_v3", "yarn"), ("qwen3", "dynamic"), ("eurobert", "longrope"), ("granite", "linear")]


@pytest.mark.parametrize(("model_type", "rope"), CASES)
def test_a_shard_has_the_positions_of_the_whole_document_and_nothing_of_the_one_before(
    model_type: str, rope: str
) -> None:
    config = family(model_type, ROPES[rope])
    model = Holder(config)
    positions = RotaryPositions(model)
    for place, num_tokens in enumerate(LENGTHS):
        whole = cos_and_sin(rotary_of(config), torch.arange(num_tokens))
        positions.set(UNEXTENDED, num_tokens)
        for num_ranks, kind in ((2, "contiguous"), (3, "zigzag")):
            layout = Layout(kind=kind, num_tokens=num_tokens, num_ranks=num_ranks)
            for rank in range(num_ranks):
                shard = torch.from_numpy(layout.positions(rank))
                assert torch.equal(model.at(shard), whole[shard]), f"document {place}, rank {rank} of {num_ranks}"


@pytest.mark.parametrize(("model_type", "rope"), [case for case in CASES if case[1] in UPDATING])
def test_the_stock_module_is_wrong_on_a_shard_and_after_another_document(model_type: str, rope: str) -> None:
    # What the test above would say without us: the first half of a document alone, and a short one after a long one.
    config = family(model_type, ROPES[rope])
    whole = cos_and_sin(rotary_of(config), torch.arange(97))
    alone = cos_and_sin(rotary_of(config), torch.arange(20))
    assert (alone - whole[:20]).abs().max() > 0.01
    kept = rotary_of(config)
    cos_and_sin(kept, torch.arange(97))
    fresh = cos_and_sin(rotary_of(config), torch.arange(ORIGINAL))
    state_stays = not torch.equal(cos_and_sin(kept, torch.arange(ORIGINAL)), fresh)
    assert state_stays == (rope == "dynamic")


def test_a_module_with_a_rule_of_its_own_is_refused() -> None:
    # Phi-MoE takes its scale from the longest position, in its own code.
    rope = ROPES["longrope"] | {"short_mscale": 1.0, "long_mscale": 1.5}
    with pytest.raises(
        NotShardableError, match="its PhimoeRotaryEmbedding gives a token another position when a later"
    ):
        RotaryPositions(Holder(family("phimoe", rope)))
    RotaryPositions(Holder(family("phimoe", DEFAULT)))


def test_a_module_for_the_positions_of_pictures_is_refused() -> None:
    model = Holder(family("llama", DEFAULT))
    model.rotary_emb.forward = lambda states, positions_3BT: positions_3BT[2]
    with pytest.raises(NotShardableError, match="its LlamaRotaryEmbedding does not take one position a token"):
        RotaryPositions(model)


@pytest.mark.parametrize("rope", UPDATING)
def test_restored_positions_are_transformers_own_again(rope: str) -> None:
    config = family("llama", ROPES[rope])
    model = Holder(config)
    positions = RotaryPositions(model)
    for num_tokens in (97, 20):
        assert torch.equal(model.at(torch.arange(num_tokens)), cos_and_sin(rotary_of(config), torch.arange(num_tokens)))
        positions.set(UNEXTENDED, 50)
        positions.restore()


def test_a_ring_does_not_start_before_the_length_is_known() -> None:
    positions = RotaryPositions(Holder(family("llama", ROPES["longrope"])))
    with pytest.raises(ValueError, match="position 3 of a model whose positions are set for None tokens"):
        positions.check(torch.arange(4))
    positions.set(UNEXTENDED, 4)
    positions.check(torch.arange(4))
    positions.check(torch.arange(0))
    with pytest.raises(ValueError, match="position 4 of a model whose positions are set for 4 tokens"):
        positions.check(torch.arange(5))
    RotaryPositions(Holder(family("llama", ROPES["yarn"]))).check(torch.arange(500))


def test_ranks_that_share_a_model_set_it_once() -> None:
    model = Holder(family("llama", ROPES["dynamic"]))
    positions = RotaryPositions(model)
    seen: list[nn.Module] = []

    def rank() -> None:
        positions.set(UNEXTENDED, 97)
        seen.append(model.rotary_emb)

    threads = [threading.Thread(target=rank) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 4
    assert len(set(map(id, seen))) == 1


@pytest.mark.parametrize("model_type", ["llama", "phi3", *BY_LAYER_TYPE])
@pytest.mark.parametrize(
    ("extension", "rope"),
    [
        (YARN4, {**DEFAULT, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": ORIGINAL}),
        (THETA4, {**DEFAULT, "rope_theta": 1e4 * 4 ** (HEAD_DIM / (HEAD_DIM - 2))}),
    ],
    ids=["yarn", "theta"],
)
def test_extended_positions_equal_those_of_a_model_built_that_way_and_windows_keep_theirs(
    model_type: str, extension: ContextExtension, rope: dict[str, Any]
) -> None:
    model = Holder(family(model_type, DEFAULT))
    before = model.rotary_emb
    positions = RotaryPositions(model)
    positions.set(extension, 120)
    if model_type == "phi3" and extension == YARN4:
        # Phi3's configuration takes the name yarn for longrope, but its rotary module computes what it is told.
        model_type = "llama"
    wanted = cos_and_sin(rotary_of(family(model_type, rope)), torch.arange(120))
    assert torch.equal(model.at(torch.arange(120)), wanted)
    if model_type in BY_LAYER_TYPE:
        assert torch.equal(model.rotary_emb.sliding_attention_inv_freq, before.sliding_attention_inv_freq)
        assert not torch.equal(model.rotary_emb.full_attention_inv_freq, before.full_attention_inv_freq)
    positions.set(UNEXTENDED, 120)
    assert model.rotary_emb is before


def test_theta_stretches_the_rotated_part_of_a_head() -> None:
    config = family("phi3", {**DEFAULT, "partial_rotary_factor": 0.5})
    model = Holder(config)
    before = model.rotary_emb.inv_freq
    RotaryPositions(model).set(THETA4, 120)
    after = model.rotary_emb.inv_freq
    assert after.shape == before.shape == (HEAD_DIM // 4,)
    assert after[0] == before[0] == 1
    torch.testing.assert_close(after[-1], before[-1] / 4, rtol=1e-5, atol=0)


def small_llama(**rope: object) -> LlamaModel:
    config = LlamaConfig(**SMALL, max_position_embeddings=128, rope_parameters=rope or None)
    return LlamaModel(config).eval()


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


def frequencies(model: nn.Module) -> dict[str, Tensor]:
    return {name: buffer for name, buffer in model.named_buffers() if name.endswith("inv_freq")}


@pytest.mark.parametrize(("model_type", "rope"), [("llama", "default"), ("llama", "longrope"), ("gemma3_text", "yarn")])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_frequencies_are_those_of_float32_whatever_the_weights_are(
    model_type: str, rope: str, dtype: torch.dtype, save_model: Callable[..., Path], own_cache: None
) -> None:
    config = family(model_type, ROPES[rope])
    config.vocab_size = 400
    folder = find_model(str(save_model(config)))
    model = load_model(folder, dtype=dtype, attention="sdpa")
    assert model.dtype == dtype
    for extension in [UNEXTENDED, YARN4] if rope == "default" else [UNEXTENDED]:
        model.set_positions(extension, 97)
        assert model.extension == extension
        wanted = Holder(config)
        RotaryPositions(wanted).set(extension, 97)
        got = frequencies(model.module)
        assert len(got) == len(frequencies(wanted))
        for (name, buffer), theirs in zip(got.items(), frequencies(wanted).values(), strict=True):
            assert buffer.dtype == torch.float32, name
            assert torch.equal(buffer, theirs), name


def test_frequencies_that_were_cast_to_half_precision_are_refused() -> None:
    model = Holder(family("llama", DEFAULT)).to(torch.bfloat16)
    with pytest.raises(ValueError, match=r"rotary_emb: rotary frequencies were cast to torch\.bfloat16"):
        RotaryPositions(model)
    # Why: 8 significant bits of a frequency of 0.316 are off by 2e-4, at position 10,000 by more than a radian.
    cast, exact = model.rotary_emb.inv_freq.float(), rotary_of(family("llama", DEFAULT)).inv_freq
    assert (10_000 * (cast - exact)).abs().max() > 1


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
