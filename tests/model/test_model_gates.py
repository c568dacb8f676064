"""Whether a model may run on a ring: sound ones pass with a small error, planted faults are named."""

import functools
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import GPT2Config, LlamaConfig, MistralConfig, Phi3Config, Qwen2Config, Qwen3Config

from longdoc.errors import ModelError
from longdoc.model import rotary
from longdoc.model.gates import check_shardable
from longdoc.model.load import RingModel, load_model
from longdoc.model.local import LocalModel
from longdoc.model.sources import find_model
from longdoc.ring.kernels.reference import reference_kernel

SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
GROUPED = {**SMALL, "num_key_value_heads": 2, "vocab_size": 400, "max_position_embeddings": 256}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 1e4}
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}


@pytest.fixture
def load(save_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., RingModel]:
    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "cache"))

    def load(config: Any, dtype: torch.dtype = torch.float32) -> RingModel:
        return load_model(find_model(str(save_model(config))), dtype=dtype)

    return load


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_tiny_model_passes_in_every_dtype(tiny_model: LocalModel, dtype: torch.dtype) -> None:
    model = load_model(tiny_model, dtype=dtype)
    error = check_shardable(model)
    assert 0 < error < (1.0 if dtype == torch.bfloat16 else 1e-4)
    assert model.attention == "longdoc_ring", "the check leaves the model as it was"


def test_the_default_model_passes(default_model: LocalModel) -> None:
    assert 0 < check_shardable(load_model(default_model, dtype=torch.float32)) < 1e-3


@pytest.mark.parametrize(
    "config",
    [
        LlamaConfig(**GROUPED),
        LlamaConfig(**GROUPED, rope_parameters=YARN),
        Qwen2Config(**GROUPED),
        Qwen3Config(**GROUPED, head_dim=16),
        Phi3Config(**GROUPED, pad_token_id=0),
        MistralConfig(**GROUPED, sliding_window=None),
        GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=400, n_positions=128),
    ],
    ids=lambda config: config.model_type,
)
def test_families_that_mix_tokens_only_in_full_attention_pass(config: Any, load: Callable[..., RingModel]) -> None:
    assert check_shardable(load(config)) < 1e-4


def test_a_window_is_refused_by_name(load: Callable[..., RingModel]) -> None:
    with pytest.raises(ModelError, match="sliding_window"):
        check_shardable(load(MistralConfig(**GROUPED, sliding_window=8)))


def test_layer_types_other_than_full_attention_are_refused_by_name(load: Callable[..., RingModel]) -> None:
    config = Qwen2Config(
        **GROUPED, use_sliding_window=True, sliding_window=8, layer_types=["full_attention", "sliding_attention"]
    )
    with pytest.raises(
        ModelError, match="cannot run on a ring: it has layers of type sliding_attention, and only full"
    ):
        check_shardable(load(config))


def test_positions_that_would_depend_on_the_shard_are_those_of_the_document(
    load: Callable[..., RingModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The sample is longer than the 16 tokens up to which these positions are plain; wide weights make them matter.
    shape = GROUPED | {"max_position_embeddings": 16, "initializer_range": 0.2}
    config = LlamaConfig(**shape, rope_parameters=DYNAMIC)
    assert check_shardable(load(config)) < 1e-4
    frozen = rotary._frozen
    monkeypatch.setattr(rotary, "_frozen", lambda loaded, num_tokens: frozen(loaded, num_tokens // 3))
    with pytest.raises(ModelError, match="its log-probabilities differ"):
        check_shardable(load(config))


def test_a_known_mixer_is_refused_by_name(load: Callable[..., RingModel]) -> None:
    model = load(LlamaConfig(**GROUPED))
    model.causal_model.base_model.layers[0].mixer = nn.Conv1d(64, 64, 3)
    with pytest.raises(ModelError, match="it has Conv1d, and only full attention can be split"):
        check_shardable(model)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_layer_that_mixes_neighbours_in_secret_is_found(load: Callable[..., RingModel], dtype: torch.dtype) -> None:
    model = load(LlamaConfig(**GROUPED), dtype)
    mlp = model.causal_model.base_model.layers[1].mlp
    plain = mlp.forward

    def shifted(hidden: torch.Tensor) -> torch.Tensor:
        before = torch.cat([torch.zeros_like(hidden[:, :1]), hidden[:, :-1]], dim=1)
        return plain(hidden) + before

    mlp.forward = shifted
    with pytest.raises(ModelError, match=r"log-probabilities differ by .* something beside attention mixes tokens"):
        check_shardable(model)


def test_a_layer_that_does_not_call_the_ring_is_found(load: Callable[..., RingModel]) -> None:
    model = load(LlamaConfig(**GROUPED))
    attention = model.causal_model.base_model.layers[0].self_attn

    def skipped(_self: nn.Module, hidden_states: torch.Tensor, **_: Any) -> tuple[torch.Tensor, None]:
        return hidden_states * 0.5, None

    attention.forward = types.MethodType(skipped, attention)
    with pytest.raises(ModelError, match="the model ran ring attention 1 times in a forward pass of 2 layers"):
        check_shardable(model)


def biased(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    out, lse = reference_kernel(*args, **kwargs)
    return out, lse + 0.5 * kwargs["causal"]


def test_the_kernel_that_will_compute_is_the_one_that_is_proved(load: Callable[..., RingModel]) -> None:
    model = load(LlamaConfig(**GROUPED, initializer_range=0.5))
    with pytest.raises(ModelError, match="cannot run on a ring: on 97 tokens its log-probabilities differ by"):
        check_shardable(model, biased)
    assert check_shardable(model, reference_kernel) < 1e-3


def test_the_ring_is_proved_in_small_tiles_and_the_model_is_whole(load: Callable[..., RingModel]) -> None:
    model = load(LlamaConfig(**GROUPED))
    sizes = set()

    def plant(module: nn.Module) -> None:
        tiled = module.forward
        plain = tiled.args[0]

        def noting(hidden: torch.Tensor) -> torch.Tensor:
            sizes.add(hidden.shape[1])
            return plain(hidden)

        module.forward = functools.partial(tiled.func, noting, *tiled.args[1:])

    layer = model.causal_model.base_model.layers[0]
    for module in (layer.mlp, layer.input_layernorm, model.causal_model.base_model.norm):
        plant(module)
        before = module.forward
        sizes.clear()
        check_shardable(model)
        # Shards of 33, 32 and 32 tokens; 97 for what they are compared with.
        assert sizes == {97, 16, 1}
        assert module.forward is before


def test_a_layer_that_cannot_be_tiled_is_found(load: Callable[..., RingModel]) -> None:
    model = load(LlamaConfig(**GROUPED))
    mlp = model.causal_model.base_model.layers[1].mlp
    tiled = mlp.forward

    def depends_on_the_tile(hidden: torch.Tensor) -> torch.Tensor:
        return tiled.args[0](hidden) * (0.5 if hidden.shape[1] <= 16 else 1.0)

    mlp.forward = functools.partial(tiled.func, depends_on_the_tile, *tiled.args[1:])
    with pytest.raises(ModelError, match="log-probabilities differ by"):
        check_shardable(model)
