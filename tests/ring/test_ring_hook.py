"""Unmodified transformers models on the ring: exact where they run, refused where they would be wrong."""

import functools
from typing import Any

import pytest
import torch
from ring_oracles import (
    NUM_LAYERS,
    VOCABULARY,
    document,
    gather,
    register_definition,
    shard_logprobs,
    small_llama,
    whole_logprobs,
)
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    Gemma2Config,
    Gemma2ForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from longdoc.errors import ModelError
from longdoc.ring.exchange import Exchange
from longdoc.ring.exchange.loopback import LoopbackRing, run_ranks
from longdoc.ring.hook import ModelMask, RingContext, register_ring_attention, use_ring
from longdoc.ring.kernels import choose_kernel
from longdoc.ring.layout import LAYOUTS, Layout, LayoutKind
from longdoc.ring.mask import Mask

TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-3}
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


@functools.cache
def llama(attention: str, dtype: torch.dtype) -> LlamaForCausalLM:
    register_definition()
    return small_llama(attention, dtype)


@functools.cache
def expected(num_tokens: int, dtype: torch.dtype) -> torch.Tensor:
    # Eager attention takes its softmax in float32 whatever the model's dtype: in float64 the definition stands in.
    attention = "by_definition" if dtype == torch.float64 else "eager"
    return whole_logprobs(llama(attention, dtype), document(num_tokens))


def ring_logprobs(layout: Layout, dtype: torch.dtype) -> torch.Tensor:
    model, token_ids = llama("longdoc_ring", dtype), document(layout.num_tokens)
    # All ranks share one model object: what differs between them is only the context of their threads.
    return gather(layout, run_ranks(layout.num_ranks, lambda ex: shard_logprobs(ex, layout, model, token_ids)), dim=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("num_tokens", [1, 2, 5, 97, 1000, 4096])
@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4, 7])
def test_a_whole_model_on_the_ring_equals_one_plain_forward(
    num_ranks: int, num_tokens: int, kind: LayoutKind, dtype: torch.dtype
) -> None:
    logprobs = ring_logprobs(Layout(kind=kind, num_tokens=num_tokens, num_ranks=num_ranks), dtype)
    assert float((logprobs - expected(num_tokens, dtype)).abs().max()) <= TOLERANCES[dtype]


def test_the_whole_model_test_would_notice_ranks_that_see_only_their_shard() -> None:
    token_ids, dtype = document(97), torch.float32
    alone = whole_logprobs(llama("eager", dtype), token_ids[50:])
    assert float((alone - expected(97, dtype)[50:]).abs().max()) > 100 * TOLERANCES[dtype]


def context_of(exchange: Exchange, num_tokens: int, **options: Any) -> RingContext:
    layout = Layout(kind="zigzag", num_tokens=num_tokens, num_ranks=exchange.num_ranks)
    kernel = choose_kernel("torch", "cpu")[1]
    return RingContext(layout=layout, exchange=exchange, kernel=kernel, **options)


def one_rank(num_tokens: int) -> RingContext:
    return context_of(LoopbackRing(1).exchange(0), num_tokens)


def forward(model: torch.nn.Module, num_tokens: int, **options: Any) -> None:
    options = {"attention_mask": torch.ones(1, num_tokens), "use_cache": False, **options}
    with torch.no_grad():
        model(input_ids=document(num_tokens)[None], **options)


def test_a_model_that_never_reaches_the_ring_is_found_out() -> None:
    context = one_rank(9)
    with use_ring(context):
        forward(llama("eager", torch.float32), 9)
    with pytest.raises(ModelError) as refusal:
        context.assert_engaged(NUM_LAYERS)
    assert str(refusal.value) == (
        "the model ran ring attention 0 times in a forward pass of 2 layers: it mixes tokens elsewhere, so its results"
        " would be wrong; choose another model (see `longdoc models list`)"
    )


def test_engagement_is_counted_anew_for_each_forward() -> None:
    context = one_rank(9)
    with use_ring(context):
        for _ in range(2):
            forward(llama("longdoc_ring", torch.float32), 9)
            context.assert_engaged(NUM_LAYERS)
        for _ in range(2):
            forward(llama("longdoc_ring", torch.float32), 9)
    with pytest.raises(ModelError, match="4 times in a forward pass of 2 layers"):
        context.assert_engaged(NUM_LAYERS)


def test_progress_names_layer_and_hop() -> None:
    model, token_ids = llama("longdoc_ring", torch.float32), document(40)
    layout = Layout(kind="zigzag", num_tokens=40, num_ranks=3)

    def rank_main(exchange: Exchange) -> list[tuple[int, int, int]]:
        reports: list[tuple[int, int, int]] = []
        context = context_of(exchange, 40, report=lambda *report: reports.append(report))
        positions = torch.from_numpy(layout.positions(exchange.rank))[None]
        with use_ring(context):
            ones = torch.ones(1, positions.shape[1])
            model(input_ids=token_ids[positions], position_ids=positions, attention_mask=ones, use_cache=False)
        return reports

    assert run_ranks(3, rank_main) == [[(layer, hop, 3) for layer in range(NUM_LAYERS) for hop in range(3)]] * 3


def test_attention_outside_of_a_ring_is_refused() -> None:
    with pytest.raises(ValueError, match='attention "longdoc_ring" was called outside of `use_ring`'):
        forward(llama("longdoc_ring", torch.float32), 9)


def test_a_shard_of_another_size_than_the_layouts_is_refused() -> None:
    context = context_of(LoopbackRing(2).exchange(1), 9)
    message = "rank 1 attends with 9 queries and 9 keys, but the layout gives it 4 tokens"
    with pytest.raises(ValueError, match=message), use_ring(context):
        forward(llama("longdoc_ring", torch.float32), 9)


def test_a_layout_for_another_ring_is_refused() -> None:
    layout = Layout(kind="zigzag", num_tokens=9, num_ranks=3)
    with pytest.raises(ValueError, match="a layout for 3 ranks cannot run on a ring of 2"):
        RingContext(
            layout=layout,
            exchange=LoopbackRing(2).exchange(0),
            kernel=choose_kernel("reference", "cpu")[1],
        )


def sliding_window() -> torch.nn.Module:
    config = MistralConfig(**SHAPE, sliding_window=8)
    return MistralForCausalLM._from_config(config, attn_implementation="longdoc_ring")


def mixed_layers() -> torch.nn.Module:
    config = Qwen2Config(**SHAPE, use_sliding_window=True, sliding_window=8, max_window_layers=1)
    return Qwen2ForCausalLM._from_config(config, attn_implementation="longdoc_ring")


def soft_capped() -> torch.nn.Module:
    config = Gemma2Config(**SHAPE, layer_types=["full_attention"] * 2)
    return Gemma2ForCausalLM._from_config(config, attn_implementation="longdoc_ring")


def attention_sinks() -> torch.nn.Module:
    config = GptOssConfig(**SHAPE, layer_types=["full_attention"] * 2, num_local_experts=2, num_experts_per_tok=1)
    return GptOssForCausalLM._from_config(config, attn_implementation="longdoc_ring")


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (sliding_window, "MistralAttention asks its attention for sliding_window,"),
        (mixed_layers, "Qwen2Attention asks its attention for sliding_window,"),
        (soft_capped, "Gemma2Attention asks its attention for softcap,"),
        (attention_sinks, "GptOssAttention asks its attention for s_aux,"),
    ],
)
def test_models_that_ask_for_more_than_the_ring_does_are_refused_by_name(make: Any, argument: str) -> None:
    register_ring_attention()
    with pytest.raises(ModelError) as refusal, use_ring(one_rank(9)):
        forward(make(), 9)
    assert str(refusal.value) == (
        f"{argument} which the ring does not support; choose another model (see `longdoc models list`)"
    )


@pytest.mark.parametrize(
    "options",
    [{"novel_argument": 0.5}, {"is_causal": False}, {"dropout": 0.1}, {"output_attentions": True}],
)
def test_anything_unknown_that_could_change_the_result_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=f"asks its attention for {next(iter(options))}"):
        _attend(**options)


@pytest.mark.parametrize(
    "options", [{}, {"sliding_window": None}, {"position_ids": torch.arange(9)}, {"output_attentions": False}]
)
def test_what_changes_nothing_is_let_through(options: dict[str, Any]) -> None:
    out, weights = _attend(**options)
    assert out.shape == (1, 9, 2, 16)
    assert out.is_contiguous()
    assert weights is None


class LlamaAttention(torch.nn.Module):
    is_causal = True


def _attend(mask: Any = None, batch: int = 1, **options: Any) -> Any:
    register_ring_attention()
    attend = AttentionInterface()["longdoc_ring"]
    q, k, v = torch.randn(batch, 2, 9, 16), torch.randn(batch, 1, 9, 16), torch.randn(batch, 1, 9, 16)
    mask = causal_mask() if mask is None else mask
    with use_ring(one_rank(9)):
        return attend(LlamaAttention(), q, k, v, mask, scaling=0.25, **options)


def causal_mask() -> ModelMask:
    return AttentionMaskInterface()["longdoc_ring"](
        batch_size=1, q_length=9, kv_length=9, mask_function=lambda b, h, q, k: k <= q, attention_mask=torch.ones(1, 9)
    )


@pytest.mark.parametrize(
    ("mask_function", "fault"),
    [
        (lambda b, h, q, k: (k <= q) & (k > q - 4096), "hides the token at 0 to the one at 4096"),
        (lambda b, h, q, k: (k <= q) & (k > q - 3_000_000), "hides the token at 0 to the one at 4194303"),
        (lambda b, h, q, k: (k <= q) & (k // 100 == q // 100), "hides the token at 0 to the one at 127"),
        (lambda b, h, q, k: q >= 0, "shows the token at 1 to the one at 0"),
        (lambda b, h, q, k: k < q, "hides the token at 0 to the one at 0"),
    ],
    ids=["window", "huge window", "chunks", "bidirectional", "strictly before"],
)
def test_a_mask_that_is_not_exactly_causal_is_refused(mask_function: Any, fault: str) -> None:
    mask = ModelMask(mask_function, None)
    with pytest.raises(ModelError) as refusal:
        mask.assert_equals(Mask())
    assert str(refusal.value) == (
        f"the model's attention is not causal: it {fault}; choose another model (see `longdoc models list`)"
    )


def test_padding_and_packed_documents_are_refused() -> None:
    model = llama("longdoc_ring", torch.float32)
    padding = torch.tensor([[0.0] + [1.0] * 8])
    with pytest.raises(ModelError, match="padding cannot run on the ring"), use_ring(one_rank(9)):
        forward(model, 9, attention_mask=padding)
    packed = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]])
    with pytest.raises(ModelError, match="for example on packed documents"), use_ring(one_rank(9)):
        forward(model, 9, attention_mask=None, position_ids=packed)


def test_a_mask_that_went_past_the_ring_is_refused() -> None:
    with pytest.raises(ModelError) as refusal:
        _attend(mask=torch.ones(1, 1, 9, 9))
    assert str(refusal.value) == (
        "LlamaAttention hands a Tensor to its attention instead of the ring's mask, so its mask cannot be checked;"
        " choose another model (see `longdoc models list`)"
    )


def test_a_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="one document at a time, not a batch of 2"):
        _attend(batch=2)


def test_registering_twice_changes_nothing() -> None:
    register_ring_attention()
    before = AttentionInterface()["longdoc_ring"], AttentionMaskInterface()["longdoc_ring"]
    register_ring_attention()
    assert (AttentionInterface()["longdoc_ring"], AttentionMaskInterface()["longdoc_ring"]) == before
