"""One residual stream and norms in tiles: the same bits as without, in less memory."""

import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaModel
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from longdoc.model.frugal import as_made, keep_one_stream, tile_norm


def small_llama() -> LlamaModel:
    torch.manual_seed(4)
    config = LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, vocab_size=50, dtype="float64"
    )
    return LlamaModel(config).to(torch.float64).eval().requires_grad_(False)


def test_one_stream_gives_the_same_bits() -> None:
    ids = torch.arange(40)[None]
    model = small_llama()
    wanted = model(ids).last_hidden_state
    keep_one_stream(model.layers)
    assert torch.equal(model(ids).last_hidden_state, wanted)


def test_the_states_of_every_layer_stand_where_the_embeddings_stood() -> None:
    model = small_llama()
    keep_one_stream(model.layers)
    places: list[int] = []
    model.embed_tokens.register_forward_hook(lambda _m, _a, out: places.append(out.data_ptr()))
    for layer in model.layers:
        layer.register_forward_hook(lambda _m, _a, out: places.append(out.data_ptr()))
    model(torch.arange(40)[None])
    assert len(places) == 3
    assert len(set(places)) == 1
    places.clear()
    with as_made(model):
        model(torch.arange(40)[None])
    assert len(set(places)) == 3


class _Layer(nn.Module):
    def forward(self, hidden_states: Tensor, scale: float) -> tuple[Tensor, str]:
        return hidden_states * scale, "scores"


@pytest.mark.parametrize("by_name", [False, True])
def test_layers_that_return_more_than_states_keep_the_rest(by_name: bool) -> None:
    layer, given = _Layer(), torch.ones(1, 3, 2)
    keep_one_stream([layer])
    states, rest = layer(hidden_states=given, scale=2.0) if by_name else layer(given, 2.0)
    assert rest == "scores"
    assert states is given
    assert torch.equal(given, torch.full((1, 3, 2), 2.0))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("num_tokens", [1, 3, 50])
def test_norms_of_heads_see_a_few_tokens_at_a_time(num_tokens: int, transposed: bool) -> None:
    norm, x = Qwen3RMSNorm(8).requires_grad_(False), torch.randn(1, num_tokens, 2, 8)
    x = x.transpose(1, 2) if transposed else x
    wanted = norm(x)
    seen: list[int] = []
    plain = norm.forward
    norm.forward = lambda x: (seen.append(x.numel()), plain(x))[1]
    tile_norm(norm, 7 * 3 * 4 * 2 * 8)
    assert torch.equal(norm(x), wanted)
    assert sum(seen) == x.numel()
    assert max(seen) <= 7 * 2 * 8
    with as_made(norm):
        seen.clear()
        norm(x)
    assert seen == [x.numel()]
