"""What ring results are compared with: attention by its definition, and small Llamas that are told apart by it."""

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import AttentionInterface, AttentionMaskInterface, LlamaConfig, LlamaForCausalLM
from transformers.masking_utils import eager_mask

from longdoc.ring.attention import ring_attention
from longdoc.ring.exchange import Exchange
from longdoc.ring.forensics import HopLog
from longdoc.ring.hook import RingContext, register_ring_attention, use_ring
from longdoc.ring.kernels import Kernel, choose_kernel
from longdoc.ring.layout import Layout
from longdoc.ring.mask import CAUSAL, Mask
from longdoc.ring.plan import plan_hops

Float64s = npt.NDArray[np.float64]
NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, VOCABULARY, NUM_LAYERS = 4, 2, 16, 128, 2


QKV = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def random_qkv(num_tokens: int, *, num_kv_heads: int = NUM_KV_HEADS, value_dim: int = HEAD_DIM) -> QKV:
    """q_HTD, k_GTD, v_GTE in float64, wide enough that the softmax is far from flat."""
    generator = torch.Generator().manual_seed(num_tokens)
    q, k, v = (
        2 * torch.randn((heads, num_tokens, dim), generator=generator, dtype=torch.float64)
        for heads, dim in ((NUM_HEADS, HEAD_DIM), (num_kv_heads, HEAD_DIM), (num_kv_heads, value_dim))
    )
    return q, k, v


def attention_by_definition(
    q_HTD: torch.Tensor,
    k_GTD: torch.Tensor,
    v_GTE: torch.Tensor,
    scale: float,
    *,
    mask: Mask = CAUSAL,
    softcap: float | None = None,
    sink_H: torch.Tensor | None = None,
) -> Float64s:
    """Softmax attention in float64 with numpy, a head at a time, nothing online, nothing in blocks."""
    q, k, v = (tensor.double().numpy() for tensor in (q_HTD, k_GTD, v_GTE))
    num_tokens = q.shape[1]
    out = np.empty((q.shape[0], num_tokens, v.shape[2]))
    ahead = np.arange(num_tokens)[None, :] - np.arange(num_tokens)[:, None]
    left, right = (num_tokens if reach is None else reach for reach in (mask.left, mask.right))
    for head in range(q.shape[0]):
        group = head // (q.shape[0] // k.shape[0])
        scores = scale * (q[head] @ k[group].T)
        if softcap is not None:
            scores = softcap * np.tanh(scores / softcap)
        scores[(ahead < -left) | (ahead > right)] = -np.inf
        # A sink is one more column of scores, and its weight is dropped after the softmax.
        sink = np.full((num_tokens, 1), -np.inf if sink_H is None else float(sink_H[head]))
        scores = np.concatenate([scores, sink], axis=1)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        out[head] = (weights / weights.sum(axis=1, keepdims=True))[:, :-1] @ v[group]
    return out


def shard_attention(
    exchange: Exchange,
    layout: Layout,
    kernel: Kernel,
    qkv: QKV,
    report: Callable[[int, int], None] = lambda hop, num_hops: None,
    *,
    mask: Mask = CAUSAL,
    softcap: float | None = None,
    sink_H: torch.Tensor | None = None,
) -> torch.Tensor:
    """One rank's part of the ring attention over whole q, k, v."""
    positions = torch.from_numpy(layout.positions(exchange.rank))
    # As models hand them over: token by token in memory.
    q, k, v = (tensor.transpose(0, 1)[positions].transpose(0, 1) for tensor in qkv)
    return ring_attention(
        q,
        k,
        v,
        hops=plan_hops(layout, exchange.rank, mask),
        exchange=exchange,
        kernel=kernel,
        scale=HEAD_DIM**-0.5,
        softcap=softcap,
        sink_H=sink_H,
        log=HopLog(lambda _, hop, num_hops: report(hop, num_hops)),
    )


def gather(layout: Layout, parts: list[torch.Tensor], dim: int) -> torch.Tensor:
    """The parts of all ranks in the order of the document."""
    positions = torch.cat([torch.from_numpy(layout.positions(rank)) for rank in range(layout.num_ranks)])
    return torch.cat(parts, dim=dim).index_select(dim, torch.argsort(positions))


def relative_error(result: torch.Tensor, expected: Float64s) -> float:
    """max|Δ| / max|expected|."""
    return float(np.abs(result.double().numpy() - expected).max() / np.abs(expected).max())


def small_llama(attention: str, dtype: torch.dtype) -> LlamaForCausalLM:
    """A random Llama, the same weights at every call, scaled so that attention matters."""
    register_ring_attention()
    config = LlamaConfig(
        hidden_size=32,
        num_hidden_layers=NUM_LAYERS,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=64,
        vocab_size=VOCABULARY,
        max_position_embeddings=8192,
        initializer_range=0.2,
    )
    model = LlamaForCausalLM._from_config(copy.deepcopy(config), attn_implementation=attention, dtype=dtype)
    generator = torch.Generator().manual_seed(1)
    for name, weight in sorted(model.named_parameters()):
        if weight.dim() == 2:
            values = 0.2 * torch.randn(weight.shape, generator=generator, dtype=torch.float64)
            weight.data.copy_(values)
        else:
            assert "norm" in name
    return model.eval().requires_grad_(False)


def document(num_tokens: int) -> torch.Tensor:
    """Token ids of a random document."""
    return torch.randint(0, VOCABULARY, (num_tokens,), generator=torch.Generator().manual_seed(num_tokens))


def shard_logprobs(
    exchange: Exchange, layout: Layout, model: LlamaForCausalLM, token_ids: torch.Tensor
) -> torch.Tensor:
    """One rank's log-probs [T, vocabulary] of a model on the ring."""
    positions = torch.from_numpy(layout.positions(exchange.rank))
    context = RingContext(layout=layout, exchange=exchange, kernel=choose_kernel("torch", "cpu")[1])
    if len(positions) == 0:
        # transformers cannot reshape an empty shard; the rank takes part in the ring's layers all the same.
        q, kv = torch.zeros((2, 1, 16), dtype=model.dtype), torch.zeros((1, 1, 16), dtype=model.dtype)
        for _ in range(NUM_LAYERS):
            assert context.attend(q, kv, kv, mask=CAUSAL, scale=0.25).shape == q.shape
        context.assert_engaged(NUM_LAYERS)
        return torch.empty((0, VOCABULARY), dtype=model.dtype)
    with use_ring(context), torch.inference_mode():
        logits = model(
            input_ids=token_ids[positions][None],
            position_ids=positions[None],
            attention_mask=torch.ones(1, len(positions)),
            use_cache=False,
        ).logits[0]
    context.assert_engaged(NUM_LAYERS)
    return logits.log_softmax(-1)


def whole_logprobs(model: LlamaForCausalLM, token_ids: torch.Tensor) -> torch.Tensor:
    """Log-probs [N, vocabulary] of one plain forward pass of transformers."""
    with torch.no_grad():
        return model(input_ids=token_ids[None], use_cache=False).logits[0].log_softmax(-1)


def register_definition() -> None:
    """Register "by_definition": eager attention, but with its softmax in the model's dtype.

    transformers' own eager attention takes the softmax in float32, which in a float64 model is an error of its own.
    """
    AttentionInterface.register("by_definition", _definition)
    AttentionMaskInterface.register("by_definition", eager_mask)


def _definition(
    module: torch.nn.Module,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    attention_mask: torch.Tensor,
    scaling: float = math.nan,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    repeats = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1)
    weights = torch.softmax(q @ k.transpose(2, 3) * scaling + attention_mask, dim=-1)
    return (weights @ v).transpose(1, 2).contiguous(), None
