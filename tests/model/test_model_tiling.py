"""Token tiles: the same result as in one piece, and never more rows at once than a tile."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import LlamaConfig, LlamaModel, MixtralConfig, MixtralModel

from longdoc.errors import ModelError
from longdoc.model.tiling import decoder_layers, tile_layers, tile_module, tile_tokens, token_tiles

SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}


def small_llama() -> LlamaModel:
    torch.manual_seed(3)
    config = LlamaConfig(**SMALL, vocab_size=50, dtype="float64", attn_implementation="sdpa")
    return LlamaModel(config).to(torch.float64).eval().requires_grad_(False)


@settings(deadline=None, max_examples=200)
@given(num_tokens=st.integers(0, 500), tile=st.integers(1, 600))
def test_tiles_cover_every_token_once_in_order(num_tokens: int, tile: int) -> None:
    tiles = list(token_tiles(num_tokens, tile))
    assert [token for tokens in tiles for token in range(num_tokens)[tokens]] == list(range(num_tokens))
    assert all(0 < tokens.stop - tokens.start <= tile for tokens in tiles)


def test_a_tile_fits_its_budget_and_is_never_too_thin() -> None:
    assert tile_tokens(1000, 64_000) == 64
    assert tile_tokens(1000, 127_999) == 64, "a power of two"
    assert tile_tokens(1 << 40, 1 << 20) == 16
    with pytest.raises(ValueError, match="a tile of 0 tokens"):
        token_tiles(5, 0)


@pytest.mark.parametrize("num_tokens", [1, 15, 16, 17, 100])
def test_a_tiled_model_gives_what_the_whole_gives_and_sees_only_tiles(num_tokens: int) -> None:
    whole, tiled = small_llama(), small_llama()
    # Smallest tile: 16 tokens, whatever the budget.
    assert tile_layers(tiled, num_layers=2, intermediate_size=96, budget_bytes=1) == 16
    rows: dict[str, list[int]] = {}
    for name in ("layers.0.mlp.gate_proj", "layers.1.mlp.down_proj", "layers.0.mlp.act_fn"):
        seen = rows.setdefault(name, [])
        tiled.get_submodule(name).register_forward_hook(lambda _m, args, _o, seen=seen: seen.append(args[0].shape[1]))
    ids = torch.arange(num_tokens)[None] % 50
    with torch.no_grad():
        wanted, got = whole(ids).last_hidden_state, tiled(ids).last_hidden_state
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)
    for seen in rows.values():
        assert sum(seen) == num_tokens
        assert max(seen) <= 16


def test_norms_between_layers_are_tiled_and_parameters_keep_their_names() -> None:
    model = small_llama()
    names = [name for name, _ in model.named_parameters()]
    tile_layers(model, num_layers=2, intermediate_size=96, budget_bytes=1)
    assert [name for name, _ in model.named_parameters()] == names
    tiled = {name for name, module in model.named_modules() if "forward" in vars(module)}
    parts = ("", ".mlp", ".input_layernorm", ".post_attention_layernorm")
    assert tiled == {"norm"} | {f"layers.{layer}{part}" for layer in range(2) for part in parts}


def test_a_wrong_tile_shows() -> None:
    linear = nn.Linear(4, 6).to(torch.float64)
    states = torch.randn(1, 40, 4, dtype=torch.float64)
    wanted = linear(states)
    tile_module(linear, 16)
    torch.testing.assert_close(linear(states), wanted, rtol=1e-13, atol=1e-13)
    assert linear(states[:, :0]).shape == (1, 0, 6)


def test_routing_scores_beside_the_states_are_tiled_like_them() -> None:
    class Routed(nn.Module):
        def forward(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            assert states.shape[1] <= 16
            # Scores without a batch dimension, as gpt-oss has them.
            return states * 2, states[0, :, :3] + 1

    routed, states = Routed(), torch.randn(1, 37, 4)
    tile_module(routed, 16)
    doubled, scores = routed(states)
    assert torch.equal(doubled, states * 2)
    assert torch.equal(scores, states[0, :, :3] + 1)


def test_experts_are_tiled_with_the_choices_of_their_router() -> None:
    class Experts(nn.Module):
        def forward(self, states: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
            assert len(states) == len(chosen) == len(weights) <= 16
            return states * chosen[:, :1] * weights[:, :1]

    experts, states, chosen, weights = Experts(), torch.randn(37, 4), torch.arange(74).view(37, 2), torch.rand(37, 2)
    tile_module(experts, 16)
    assert torch.equal(experts(states, chosen, weights), states * chosen[:, :1] * weights[:, :1])


@pytest.mark.parametrize("extra", [None, torch.zeros(5, 3)], ids=["no tensor", "no row for each token"])
def test_what_cannot_be_put_together_from_tiles_is_refused(extra: torch.Tensor | None) -> None:
    class Odd(nn.Module):
        def forward(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
            return states, extra

    odd = Odd()
    tile_module(odd, 16)
    with pytest.raises(ModelError, match=r"returned (NoneType|\(5, 3\)) for 16 tokens, which cannot be put together"):
        odd(torch.zeros(1, 17, 4))


def test_mixtures_of_experts_give_the_same_in_tiles() -> None:
    config = MixtralConfig(
        **SMALL, num_key_value_heads=2, vocab_size=50, num_local_experts=4, attn_implementation="sdpa"
    )
    torch.manual_seed(1)
    model = MixtralModel(config).eval().requires_grad_(False)
    ids = torch.arange(50)[None]
    wanted = model(ids).last_hidden_state
    tile_layers(model, num_layers=2, intermediate_size=96, budget_bytes=1)
    torch.testing.assert_close(model(ids).last_hidden_state, wanted, rtol=1e-5, atol=1e-5)


def test_a_model_without_one_stack_of_layers_is_refused() -> None:
    with pytest.raises(ModelError, match="has 0 stacks of 7 layers and exactly one was expected"):
        decoder_layers(small_llama(), 7)
