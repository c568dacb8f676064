"""Models whose layers differ in mask, softcap and sinks: each layer gets its own, and a forgotten one shows."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from ring_oracles import VOCABULARY, document, gather
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    ModernBertConfig,
    ModernBertModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from longdoc.ring.exchange import Exchange
from longdoc.ring.exchange.loopback import LoopbackRing, run_ranks
from longdoc.ring.hook import RingContext, register_ring_attention, use_ring
from longdoc.ring.kernels import choose_kernel
from longdoc.ring.layout import Layout
from longdoc.ring.mask import BIDIRECTIONAL, CAUSAL, Mask

NUM_TOKENS = 61
SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "intermediate_size": 64,
    "vocab_size": VOCABULARY,
    "pad_token_id": 0,
}


def mistral() -> Any:
    return MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=8))


def qwen2() -> Any:
    config = Qwen2Config(**SHAPE, use_sliding_window=True, sliding_window=8, max_window_layers=1)
    return Qwen2ForCausalLM(config)


def gemma2() -> Any:
    return Gemma2ForCausalLM(Gemma2Config(**SHAPE, sliding_window=8, attn_logit_softcapping=2.0))


def gpt_oss() -> Any:
    config = GptOssConfig(**SHAPE, sliding_window=8, num_local_experts=2, num_experts_per_tok=1)
    model = GptOssForCausalLM(config)
    for layer in model.model.layers:
        layer.self_attn.sinks.data = torch.tensor([0.1, -0.1])  # Multiplied like all other weights.
    return model


def modernbert() -> Any:
    config = ModernBertConfig(**{**SHAPE, "num_hidden_layers": 3}, local_attention=16, global_attn_every_n_layers=3)
    return ModernBertModel(config)


def random_model(make: Callable[[], Any]) -> Any:
    """A model whose weights are so large that attention matters."""
    register_ring_attention()
    torch.manual_seed(0)
    model = make().eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        if "norm" not in name:
            parameter.mul_(10)
    return model


def states(model: Any, positions: torch.Tensor) -> torch.Tensor:
    """The final states, or the logits, of one pass over the tokens at these positions: [T, …]."""
    cache = {} if isinstance(model, ModernBertModel) else {"use_cache": False}
    output = model(
        input_ids=document(NUM_TOKENS)[positions][None],
        position_ids=positions[None],
        attention_mask=torch.ones(1, len(positions)),
        **cache,
    )
    found: torch.Tensor = output[0][0]
    return found


def eager_states(model: Any) -> torch.Tensor:
    model.set_attn_implementation("eager")
    found = states(model, torch.arange(NUM_TOKENS))
    model.set_attn_implementation("longdoc_ring")
    return found


def difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize(
    ("make", "masks"),
    [
        (mistral, [Mask.sliding(8)] * 2),
        (qwen2, [CAUSAL, Mask.sliding(8)]),
        (gemma2, [Mask.sliding(8), CAUSAL]),
        (gpt_oss, [Mask.sliding(8), CAUSAL]),
        # transformers halves its local attention: 16 are 8 tokens on each side.
        (modernbert, [BIDIRECTIONAL, *[Mask(left=8, right=8)] * 2]),
    ],
)
@pytest.mark.parametrize("num_ranks", [1, 3])
def test_each_layer_has_the_mask_that_its_model_says_and_equals_eager(
    make: Callable[[], Any], masks: list[Mask], num_ranks: int
) -> None:
    model = random_model(make)
    plain = eager_states(model)
    layout = Layout(kind="zigzag", num_tokens=NUM_TOKENS, num_ranks=num_ranks)

    def rank_main(exchange: Exchange) -> torch.Tensor:
        context = Observed(layout=layout, exchange=exchange, kernel=choose_kernel("torch", "cpu")[1])
        with use_ring(context):
            part = states(model, torch.from_numpy(layout.positions(exchange.rank)))
        assert context.masks == masks
        return part

    assert difference(gather(layout, run_ranks(num_ranks, rank_main), dim=0), plain) <= 2e-5


class Observed(RingContext):
    """A context that remembers the masks it was asked for, and can forget what it was told."""

    forgets: str | None = None

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.masks: list[Mask] = []

    def attend(self, *qkv: torch.Tensor, **options: Any) -> torch.Tensor:
        self.masks.append(options["mask"])
        if self.forgets == "window":
            options["mask"] = CAUSAL if options["mask"].is_causal else BIDIRECTIONAL
        elif self.forgets is not None:
            options[self.forgets] = None
        return super().attend(*qkv, **options)


@pytest.mark.parametrize(
    ("make", "forgets"),
    [
        (mistral, "window"),
        (qwen2, "window"),
        (gemma2, "window"),
        (gemma2, "softcap"),
        (gpt_oss, "window"),
        (gpt_oss, "sink_H"),
        (modernbert, "window"),
    ],
)
def test_a_window_a_softcap_or_a_sink_that_is_forgotten_shows(make: Callable[[], Any], forgets: str) -> None:
    model = random_model(make)
    plain = eager_states(model)
    layout = Layout(kind="zigzag", num_tokens=NUM_TOKENS, num_ranks=1)
    exchange = LoopbackRing(1).exchange(0)
    context = Observed(layout=layout, exchange=exchange, kernel=choose_kernel("torch", "cpu")[1])
    context.forgets = forgets
    with use_ring(context):
        assert difference(states(model, torch.arange(NUM_TOKENS)), plain) > 1e-3
