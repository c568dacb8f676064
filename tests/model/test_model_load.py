"""A loaded model: both halves of its forward pass equal the whole, and damaged weights are refused."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    Gemma2Config,
    GPT2Config,
    GraniteConfig,
    LlamaConfig,
    MixtralConfig,
)
from transformers.utils import logging

from longdoc.errors import ModelError
from longdoc.model.load import RingModel, load_model
from longdoc.model.local import LocalModel
from longdoc.model.sources import find_model
from longdoc.ring.exchange import Exchange
from longdoc.ring.exchange.loopback import run_ranks
from longdoc.ring.hook import RingContext, use_ring
from longdoc.ring.kernels.reference import reference_kernel
from longdoc.ring.layout import Layout

SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA = LlamaConfig(**SMALL, num_key_value_heads=2, vocab_size=400, max_position_embeddings=256)
SCALED_HEADS = {
    "llama": LLAMA,
    "gpt2": GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=400, n_positions=128),
    "cohere, logits scaled": CohereConfig(**SMALL, num_key_value_heads=2, vocab_size=400, logit_scale=0.3),
    "mixtral, routing scores": MixtralConfig(**SMALL, num_key_value_heads=2, vocab_size=400, num_local_experts=4),
    "granite, logits divided": GraniteConfig(**SMALL, num_key_value_heads=2, vocab_size=400, logits_scaling=7.0),
    "gemma2, logits capped": Gemma2Config(
        **SMALL, num_key_value_heads=2, head_dim=16, vocab_size=400, final_logit_softcapping=0.5
    ),
}


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if "tiny_model" not in request.fixturenames:
        monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("family", SCALED_HEADS)
def test_states_and_head_together_are_the_models_own_logits(family: str, save_model: Callable[..., Path]) -> None:
    folder = save_model(SCALED_HEADS[family])
    model = load_model(find_model(str(folder)), dtype=torch.float32, attention="eager")
    whole = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    ids = torch.arange(64) * 6 % 400
    with torch.no_grad():
        wanted_TV = whole(input_ids=ids[None]).logits[0]
    hidden_TC = model.hidden_states(ids, torch.arange(64))
    got_TV = torch.cat([model.logits(hidden_TC[:50]), model.logits(hidden_TC[50:])])
    torch.testing.assert_close(got_TV, wanted_TV, rtol=1e-5, atol=1e-6)
    assert (model.num_layers, model.embedding_size, model.vocab_size) == (2, 64, 400)


def test_the_default_models_logits_are_transformers_own(default_model: LocalModel) -> None:
    model = load_model(default_model, dtype=torch.float32, attention="sdpa")
    ids = torch.arange(64) * 700
    with torch.no_grad():
        wanted_TV = model.module(input_ids=ids[None]).logits[0]
    got_TV = model.logits(model.hidden_states(ids, torch.arange(64)))
    torch.testing.assert_close(got_TV, wanted_TV, rtol=1e-5, atol=1e-4)


def test_nothing_is_kept_for_a_gradient_or_a_cache(tiny_model: LocalModel) -> None:
    model = load_model(tiny_model, dtype=torch.float32, attention="sdpa")
    assert not any(parameter.requires_grad for parameter in model.module.parameters())
    assert not model.module.training
    hidden_TC = model.hidden_states(torch.arange(5), torch.arange(5))
    assert not hidden_TC.requires_grad
    assert not model.logits(hidden_TC).requires_grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_weights_and_states_have_the_dtype_that_was_asked_for(tiny_model: LocalModel, dtype: torch.dtype) -> None:
    model = load_model(tiny_model, dtype=dtype, attention="sdpa")
    assert model.dtype == dtype
    hidden_TC = model.hidden_states(torch.arange(5), torch.arange(5))
    assert (hidden_TC.dtype, model.logits(hidden_TC).dtype) == (dtype, dtype)


def test_two_loaded_models_do_not_share_their_choice_of_attention(tiny_model: LocalModel) -> None:
    ring = load_model(tiny_model, dtype=torch.float32)
    plain = load_model(tiny_model, dtype=torch.float32, attention="sdpa")
    assert (ring.attention, plain.attention) == ("longdoc_ring", "sdpa")


def on_ring(model: RingModel, ids: torch.Tensor, num_ranks: int, kind: str) -> torch.Tensor:
    layout = Layout(kind=kind, num_tokens=len(ids), num_ranks=num_ranks)

    def run(exchange: Exchange) -> tuple[torch.Tensor, torch.Tensor]:
        positions = torch.from_numpy(layout.positions(exchange.rank))
        with use_ring(RingContext(layout=layout, exchange=exchange, kernel=reference_kernel)) as context:
            hidden = model.hidden_states(ids[positions], positions)
        context.assert_engaged(model.num_layers)
        return positions, hidden

    whole = torch.full((len(ids), model.embedding_size), torch.nan, dtype=model.dtype)
    for positions, hidden in run_ranks(num_ranks, run, timeout_s=30):
        whole[positions] = hidden
    return whole


@pytest.mark.parametrize("num_tokens", [1, 2, 3, 41])
@pytest.mark.parametrize("kind", ["zigzag", "contiguous"])
def test_a_ring_gives_the_whole_models_states_with_empty_shards_too(
    tiny_model: LocalModel, num_tokens: int, kind: str
) -> None:
    ids = torch.arange(num_tokens) * 1000
    plain = load_model(tiny_model, dtype=torch.float64, attention="sdpa")
    wanted = plain.hidden_states(ids, torch.arange(num_tokens))
    got = on_ring(load_model(tiny_model, dtype=torch.float64), ids, 4, kind)
    # Norms round to float32 inside.
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


def test_an_empty_shard_has_no_states_and_no_logits(tiny_model: LocalModel) -> None:
    model = load_model(tiny_model, dtype=torch.float32, attention="sdpa")
    empty = torch.empty(0, dtype=torch.int64)
    hidden_TC = model.hidden_states(empty, empty)
    assert hidden_TC.shape == (0, 32)
    assert model.logits(hidden_TC).shape == (0, 49_152)


def test_more_logits_than_a_tile_may_hold_are_misuse(tiny_model: LocalModel) -> None:
    model = load_model(tiny_model, dtype=torch.float32, attention="sdpa")
    with pytest.raises(ValueError, match=rf"logits of 6000 tokens .*use tiles of {model.head_tile_tokens}"):
        model.logits(torch.zeros(6000, 32))
    assert model.logits(torch.zeros(model.head_tile_tokens, 32)).shape == (model.head_tile_tokens, 49_152)
    with pytest.raises(ValueError, match=r"token ids \(3,\) at positions \(2,\)"):
        model.hidden_states(torch.arange(3), torch.arange(2))


def test_sharded_weights_load_like_single_ones(save_model: Callable[..., Path]) -> None:
    ids = torch.arange(30)
    states = [
        load_model(
            find_model(str(save_model(LLAMA, max_shard_size=size))), dtype=torch.float32, attention="sdpa"
        ).hidden_states(ids, ids)
        for size in ("1GB", "100KB")
    ]
    assert torch.equal(states[0], states[1])


def _damage(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> LocalModel:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return find_model(str(folder))


def test_missing_weights_are_never_filled_with_noise(save_model: Callable[..., Path]) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    model = _damage(save_model(LLAMA), lambda weights: weights.pop(name))
    with pytest.raises(ModelError, match=rf"1 weights are missing or have another shape .* the first is {name}"):
        load_model(model, dtype=torch.float32, attention="sdpa")


def test_misshapen_weights_are_refused(save_model: Callable[..., Path]) -> None:
    name = "model.layers.0.self_attn.k_proj.weight"
    model = _damage(save_model(LLAMA), lambda weights: weights.update({name: torch.zeros(8, 64)}))
    with pytest.raises(ModelError, match=r"model llama-model: .*; "):
        load_model(model, dtype=torch.float32, attention="sdpa")


def test_loading_leaves_transformers_logging_as_it_was(tiny_model: LocalModel) -> None:
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    try:
        logging.set_verbosity_info()
        logging.enable_progress_bar()
        load_model(tiny_model, dtype=torch.float32, attention="sdpa")
        assert logging.get_verbosity() == logging.INFO
        assert logging.is_progress_bar_enabled()
    finally:
        logging.set_verbosity(verbosity)
        if not bars:
            logging.disable_progress_bar()
