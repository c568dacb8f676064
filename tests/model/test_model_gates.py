"""Whether a model may run on a ring: sound ones pass with a small error, planted faults are named."""

import dataclasses
import functools
import re
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from families import FAMILIES, save_family
from tokenizers import Tokenizer
from torch import nn
from transformers import GPT2Config, LlamaConfig, MistralConfig, Phi3Config, Qwen2Config, Qwen2MoeConfig, Qwen3Config

from longdoc.errors import ModelError, NotShardableError
from longdoc.model import rotary
from longdoc.model.gates import Gate, check_shardable
from longdoc.model.load import RingModel, load_model
from longdoc.model.local import LocalModel, open_folder
from longdoc.model.sources import find_model
from longdoc.ring.kernels.reference import reference_kernel
from longdoc.ring.mask import Band

SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
GROUPED = {**SMALL, "num_key_value_heads": 2, "vocab_size": 400, "max_position_embeddings": 256}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 1e4}
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
WINDOWED: dict[str, Any] = {
    "use_sliding_window": True,
    "sliding_window": 64,
    "layer_types": ["full_attention", "sliding_attention"],
}


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
        GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=400, n_positions=20),
    ],
    ids=lambda config: config.model_type,
)
def test_families_that_mix_tokens_only_in_full_attention_pass(config: Any, load: Callable[..., RingModel]) -> None:
    assert check_shardable(load(config)) < 1e-4


def test_positions_that_would_depend_on_the_shard_are_those_of_the_document(
    load: Callable[..., RingModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The sample is longer than the 16 tokens up to which these positions are plain; wide weights make them matter.
    shape = GROUPED | {"max_position_embeddings": 16, "initializer_range": 0.2}
    config = LlamaConfig(**shape, rope_parameters=DYNAMIC)
    assert check_shardable(load(config)) < 1e-4
    frozen = rotary._frozen
    monkeypatch.setattr(rotary, "_frozen", lambda loaded, num_tokens: frozen(loaded, num_tokens // 3))
    with pytest.raises(NotShardableError, match=r"shards differ by .* or positions depend on the length of a shard"):
        check_shardable(load(config))


def test_a_known_mixer_is_refused_by_name(load: Callable[..., RingModel]) -> None:
    model = load(LlamaConfig(**GROUPED))
    model.module.base_model.layers[0].mixer = nn.Conv1d(64, 64, 3)
    with pytest.raises(NotShardableError, match="model llama-model cannot run on a ring: it has Conv1d; use"):
        check_shardable(model)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_layer_that_mixes_neighbours_in_secret_is_found(load: Callable[..., RingModel], dtype: torch.dtype) -> None:
    model = load(LlamaConfig(**GROUPED), dtype)
    mlp = model.module.base_model.layers[1].mlp
    plain = mlp.forward

    def shifted(hidden: torch.Tensor) -> torch.Tensor:
        before = torch.cat([torch.zeros_like(hidden[:, :1]), hidden[:, :-1]], dim=1)
        return plain(hidden) + 0.3 * before

    mlp.forward = shifted
    with pytest.raises(NotShardableError, match=r"without attention its shards differ by .*, so tokens mix elsewhere"):
        check_shardable(model)


@pytest.mark.parametrize("local", ["ids", "scale"])
def test_rotary_positions_from_the_length_of_a_shard_are_found(load: Callable[..., RingModel], local: str) -> None:
    model = load(LlamaConfig(**GROUPED, initializer_range=0.3))
    rotary_module = model.module.base_model.rotary_emb
    plain = rotary_module.forward

    def counted(states: torch.Tensor, position_ids: torch.Tensor) -> Any:
        num_tokens = position_ids.shape[1]
        wrong = torch.arange(num_tokens)[None] if local == "ids" else position_ids / num_tokens
        return plain(states, wrong)

    rotary_module.forward = counted
    with pytest.raises(NotShardableError, match=r"shards differ by .* or positions depend on the length of a shard"):
        check_shardable(model)


def test_rotary_positions_that_change_beyond_a_length_are_found(load: Callable[..., RingModel]) -> None:
    # As dynamic NTK does: another base once a position is beyond the trained length, which one shard may not hold.
    model = load(LlamaConfig(**GROUPED, initializer_range=0.3))
    rotary_module = model.module.base_model.rotary_emb
    plain = rotary_module.forward

    def stretched(states: torch.Tensor, position_ids: torch.Tensor) -> Any:
        longest = int(position_ids.max())
        return plain(states, position_ids * (0.5 if longest >= 256 + 11 else 1.0))

    rotary_module.forward = stretched
    with pytest.raises(NotShardableError, match=r"shards differ by .* or positions depend on the length of a shard"):
        check_shardable(model)


def test_a_layer_that_does_not_call_the_ring_is_found(load: Callable[..., RingModel]) -> None:
    model = load(LlamaConfig(**GROUPED))
    attention = model.module.base_model.layers[0].self_attn

    def skipped(_self: nn.Module, hidden_states: torch.Tensor, **_: Any) -> tuple[torch.Tensor, None]:
        return hidden_states * 0.5, None

    attention.forward = types.MethodType(skipped, attention)
    with pytest.raises(NotShardableError, match="a pass through its 2 layers calls attention 1 times"):
        check_shardable(model)


def test_a_window_that_layers_hand_on_and_their_mask_does_not_is_found(load: Callable[..., RingModel]) -> None:
    model = load(Qwen2Config(**GROUPED, **WINDOWED))
    model.module.base_model.layers[0].self_attn.sliding_window = 8
    with pytest.raises(ModelError, match="asks its attention for a window of 8, but its mask is causal"):
        check_shardable(model)


def test_a_window_in_the_mask_alone_is_refused_because_attention_is_never_told(load: Callable[..., RingModel]) -> None:
    config = Qwen2MoeConfig(
        **GROUPED,
        use_sliding_window=True,
        sliding_window=8,
        max_window_layers=2,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=32,
    )
    assert "sliding_attention" in config.layer_types
    model = load(config)
    seen: list[Gate] = []
    with pytest.raises(
        ModelError,
        match=r"^model qwen2_moe-model: Qwen2MoeAttention asks its attention for no window, but its mask is causal",
    ):
        check_shardable(model, report=seen.append)
    assert [gate.name for gate in seen] == ["configuration"], (
        "refused by what the layers ask, before anything is compared"
    )


def without_windows(*args: Any, band: Band, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return reference_kernel(*args, band=Band(upper=band.upper), **kwargs)


@pytest.mark.parametrize("window", [8, 200])
def test_a_kernel_that_drops_windows_is_found_however_wide(load: Callable[..., RingModel], window: int) -> None:
    model = load(MistralConfig(**GROUPED, sliding_window=window, initializer_range=0.3))
    with pytest.raises(NotShardableError, match="on 97 tokens its log-probabilities differ by"):
        check_shardable(model, without_windows)
    assert check_shardable(model, reference_kernel) < 1e-3
    assert model.module.config.sliding_window == window, "the check leaves the model as it was"
    assert model.module.base_model.layers[0].self_attn.config is model.module.config


def test_windows_that_layers_keep_elsewhere_stay_as_they_are(load: Callable[..., RingModel]) -> None:
    # The layer hands on a window that nobody can set: making the mask's small would contradict it.
    model = load(Qwen2Config(**GROUPED, **WINDOWED))
    layer = model.module.base_model.layers[1].self_attn
    del layer.sliding_window
    layer.__class__ = type("Fixed", (type(layer),), {"sliding_window": 64})
    seen: list[str] = []
    check_shardable(model, report=lambda gate: seen.append(gate.seen))
    assert seen[1] == "called once a layer: 1 × causal, 1 × causal with a window of 64"


def test_every_gate_says_what_it_saw(load: Callable[..., RingModel]) -> None:
    gates: list[Gate] = []
    error = check_shardable(load(Qwen2Config(**GROUPED, **WINDOWED)), report=gates.append)
    assert [gate.name for gate in gates] == ["configuration", "attention", "locality", "ring"]
    # Windows are made small enough to bind.
    assert gates[1].seen == "called once a layer: 1 × causal, 1 × causal with a window of 20"
    assert re.fullmatch(r"without attention shards differ by \S+ \(allowed: 1e-04\)", gates[2].seen)
    assert f"on 97 tokens and 3 ranks log-probabilities differ by {error:.1e} (allowed: 1.0e-03)" == gates[3].seen


def test_a_layer_that_makes_its_own_mask_is_refused(load: Callable[..., RingModel]) -> None:
    model = load(LlamaConfig(**GROUPED))
    attention = model.module.base_model.layers[1].self_attn
    plain = attention.forward
    attention.forward = lambda *args, **kwargs: plain(*args, **kwargs | {"attention_mask": torch.zeros(1)})
    with pytest.raises(NotShardableError, match="1 of its layers hand a mask of their own making to attention"):
        check_shardable(model)


def test_a_direction_that_the_configuration_does_not_tell_is_refused(load: Callable[..., RingModel]) -> None:
    model = load(LlamaConfig(**GROUPED))
    model.local = dataclasses.replace(model.local, attention_direction="bidirectional")
    with pytest.raises(
        NotShardableError, match="its configuration describes bidirectional attention and its masks are 2 × causal"
    ):
        check_shardable(model)


def biased(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    out, lse = reference_kernel(*args, **kwargs)
    return out, lse + 0.5 * (not kwargs["band"].is_full)


def test_the_kernel_that_will_compute_is_the_one_that_is_proved(load: Callable[..., RingModel]) -> None:
    model = load(LlamaConfig(**GROUPED, initializer_range=0.5))
    with pytest.raises(NotShardableError, match="cannot run on a ring: on 97 tokens its log-probabilities differ by"):
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

    layer = model.module.base_model.layers[0]
    for module in (layer.mlp, layer.input_layernorm, model.module.base_model.norm):
        plant(module)
        before = module.forward
        sizes.clear()
        check_shardable(model)
        # Shards of 33, 32 and 32 tokens in tiles, 97 in one piece to compare with; without attention, and untiled, 51
        # and thirds of them.
        assert sizes == {97, 16, 1, 51, 17}
        assert module.forward is before


def test_a_layer_that_cannot_be_tiled_is_found(load: Callable[..., RingModel]) -> None:
    model = load(LlamaConfig(**GROUPED))
    mlp = model.module.base_model.layers[1].mlp
    tiled = mlp.forward

    def depends_on_the_tile(hidden: torch.Tensor) -> torch.Tensor:
        return tiled.args[0](hidden) * (0.5 if hidden.shape[1] <= 16 else 1.0)

    mlp.forward = functools.partial(tiled.func, depends_on_the_tile, *tiled.args[1:])
    with pytest.raises(NotShardableError, match="log-probabilities differ by"):
        check_shardable(model)


def test_a_model_that_reads_its_embeddings_again_is_found(load: Callable[..., RingModel]) -> None:
    # On the ring layers write over them; what is compared with is the model as transformers made it.
    model = load(LlamaConfig(**GROUPED, initializer_range=0.3))
    base, of_thread = model.module.base_model, threading.local()
    embed, layer = base.embed_tokens.forward, base.layers[1].forward

    def embedding(token_ids: torch.Tensor) -> torch.Tensor:
        of_thread.embeddings = embed(token_ids)
        return of_thread.embeddings

    def reading(hidden: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return layer.args[0](hidden + of_thread.embeddings, *args, **kwargs)

    base.embed_tokens.forward = embedding
    base.layers[1].forward = functools.partial(layer.func, reading, *layer.args[1:])
    with pytest.raises(NotShardableError, match="on 97 tokens its log-probabilities differ by"):
        check_shardable(model)


def test_a_forward_pass_that_fails_is_told_in_one_line(load: Callable[..., RingModel]) -> None:
    model = load(LlamaConfig(**GROUPED))

    def fails(*_: Any, **__: Any) -> None:
        raise AttributeError("no dtype\nand more")

    model.module.base_model.layers[0].self_attn.forward = fails
    with pytest.raises(ModelError, match=r"model llama-model: its forward pass fails \(AttributeError: no dtype\); "):
        check_shardable(model)


@pytest.mark.parametrize(
    ("weight", "value"), [("layers.1.mlp.down_proj", torch.nan), ("layers.0.self_attn.v_proj", torch.inf)]
)
def test_damaged_weights_are_not_taken_for_tokens_that_mix(
    load: Callable[..., RingModel], weight: str, value: float
) -> None:
    model = load(LlamaConfig(**GROUPED))
    with torch.no_grad():
        model.module.base_model.get_submodule(weight).weight[3, 3] = value
    with pytest.raises(ModelError) as refused:
        check_shardable(model)
    assert str(refused.value) == (
        "model llama-model: in one piece already it gives NaN or infinite numbers for 51 sample tokens in float32, so"
        " its weights are damaged or it is too narrow for them; copy or download the model again, or use another"
        " --dtype"
    )


def test_a_damaged_head_is_not_taken_for_tokens_that_mix(load: Callable[..., RingModel]) -> None:
    model = load(LlamaConfig(**GROUPED))
    with torch.no_grad():
        model.module.lm_head.weight[7, 0] = torch.nan
    with pytest.raises(ModelError, match="in one piece already it gives NaN or infinite numbers for 97 sample tokens"):
        check_shardable(model)


IN_BF16 = ("llama", "gemma2", "gpt_oss", "gemma4, experts", "modernbert")


@pytest.mark.parametrize(
    ("family", "dtype"),
    [*((family, torch.float32) for family in FAMILIES), *((family, torch.bfloat16) for family in IN_BF16)],
)
def test_every_supported_family_passes(
    family: str, dtype: torch.dtype, tmp_path: Path, small_tokenizer: Tokenizer
) -> None:
    folder = save_family(family, tmp_path / "family", small_tokenizer.to_str())
    model = load_model(open_folder(folder, name=family, source="", source_sha256=None), dtype=dtype)
    # In half precision the limit is measured in the check itself.
    assert check_shardable(model) < (1e-3 if dtype == torch.float32 else torch.inf)
