"""Unmodified transformers models on the ring: exact where they run, refused where they would be wrong."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from ring_oracles import (
    NUM_LAYERS,
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
    LlamaForCausalLM,
)

from longdoc.errors import ModelError
from longdoc.ring.exchange import Exchange
from longdoc.ring.exchange.loopback import LoopbackRing, run_ranks
from longdoc.ring.hook import RingContext, register_ring_attention, use_ring
from longdoc.ring.kernels import choose_kernel
from longdoc.ring.layout import LAYOUTS, Layout, LayoutKind
from longdoc.ring.model_mask import ModelMask

TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-3}


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
    message = "rank 1 attends with 9 queries, 9 keys and 9 values, but the layout gives it 4 tokens"
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


@pytest.mark.parametrize(
    "options",
    [{"novel_argument": 0.5}, {"position_bias": torch.zeros(1)}, {"dropout": 0.1}, {"output_attentions": True}],
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
    return ring_mask(lambda b, h, q, k: k <= q)


def ring_mask(mask_function: Callable[..., Any]) -> ModelMask:
    mask: ModelMask = AttentionMaskInterface()["longdoc_ring"](
        batch_size=1, q_length=9, kv_length=9, mask_function=mask_function, attention_mask=torch.ones(1, 9)
    )
    return mask


DROPPED = "one of the two would be dropped in silence"


def window_of_4(b: Any, h: Any, q: Any, k: Any) -> Any:
    return (k <= q) & (k > q - 4)


@pytest.mark.parametrize(
    ("mask_function", "options", "fault"),
    [
        (
            window_of_4,
            {},
            "asks its attention for no window, but its mask is causal with a window of 4: " + DROPPED,
        ),
        (
            None,
            {"sliding_window": 4},
            "asks its attention for a window of 4, but its mask is causal: " + DROPPED,
        ),
        (
            window_of_4,
            {"sliding_window": 5},
            "asks its attention for a window of 5, but its mask is causal with a window of 4: " + DROPPED,
        ),
        (None, {"is_causal": False}, "says is_causal=False, but its mask is causal"),
        (lambda b, h, q, k: q >= 0, {"is_causal": True}, "says is_causal=True, but its mask is bidirectional"),
        (lambda b, h, q, k: q >= 0, {}, "says is_causal=True, but its mask is bidirectional"),
    ],
)
def test_a_layer_whose_arguments_and_mask_disagree_is_refused(
    mask_function: Callable[..., Any] | None, options: dict[str, Any], fault: str
) -> None:
    with pytest.raises(ModelError) as refusal:
        _attend(mask=None if mask_function is None else ring_mask(mask_function), **options)
    assert str(refusal.value) == f"LlamaAttention {fault}; choose another model (see `longdoc models list`)"


def test_a_layer_that_says_its_direction_in_an_argument_may_be_bidirectional() -> None:
    _attend(mask=ring_mask(lambda b, h, q, k: q >= 0), is_causal=False)


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
