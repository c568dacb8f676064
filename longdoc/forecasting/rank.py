"""What one rank's work takes on this machine, measured in a process of its own while the other ranks measure too.

Owns the timing of the pieces that a forecast is put together from: layers without their attention, blocks of attention,
tiles of the output head. Layers are those of the model's own configuration, as few as hold each kind, with drawn
weights, so that no weight is read: what is timed does not depend on their values.
Legend: T tokens, C hidden size, V vocabulary, H query heads, G key-value heads, S keys, D and E head dimensions.
"""

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from longdoc.model.layers import LayerShape
from longdoc.ring.exchange import Exchange
from longdoc.ring.exchange.loopback import LoopbackRing
from longdoc.ring.hook import RING_ATTENTION, RingContext, register_ring_attention, use_ring
from longdoc.ring.kernels import Kernel, choose_kernel
from longdoc.ring.layout import Layout
from longdoc.ring.mask import FULL, Mask
from longdoc.ring.merge import Accumulator

#: About this much work is timed at once, in FLOP, and that so many times after once for nothing.
_FLOPS, _REPEATS = 2e10, 3
_FEWEST_TOKENS, _MOST_TOKENS = 256, 4096
#: Entries of the vocabulary that are timed; the head is as fast with more.
_MOST_ENTRIES = 49_152
_LEAST_WIDTH = 512


def build_rank(_: Exchange | None, folder: Path, dtype: str, kernel: str) -> Callable[..., Any]:
    """A contestant (see `longdoc.bench.processes`) that answers what `calibration` asks."""
    rank = _Rank(folder, getattr(torch, dtype), kernel)
    return lambda question, *arguments: getattr(rank, question)(*arguments)


class _Rank:
    """Answers in seconds, each for one unit of work."""

    def __init__(self, folder: Path, dtype: torch.dtype, kernel: str) -> None:
        self._folder, self._dtype = folder, dtype
        self._kernel: Kernel = choose_kernel(kernel, "cpu", dtype)[1]

    def weight(self, num_layers: int, intermediate_size: int) -> float:
        """A token's time in everything of a layer but its attention, for one weight that it meets."""
        model, active = drawn_layers(self._folder, self._dtype, num_layers, intermediate_size)
        num_tokens = _tokens(2 * active)
        layout = Layout(kind="contiguous", num_tokens=num_tokens, num_ranks=1)
        ids = torch.arange(num_tokens)[None] % 64 + 3

        def forward() -> None:
            context = _NoAttention(layout=layout, exchange=LoopbackRing(1).exchange(0), kernel=self._kernel)
            with use_ring(context):
                model(input_ids=ids, position_ids=torch.arange(num_tokens)[None], attention_mask=torch.ones_like(ids))

        return _seconds(forward) / (num_tokens * active)

    def logit(self, hidden_size: int, vocab_size: int) -> float:
        """One entry of the vocabulary for one token: its product and its part of the scores."""
        from longdoc.outputs.scores import score_places

        entries = min(vocab_size, _MOST_ENTRIES)
        # In a narrow model the scores take longer than the product.
        num_tokens = _tokens(2 * max(hidden_size, _LEAST_WIDTH) * entries)
        head = nn.Linear(hidden_size, entries, bias=False, dtype=self._dtype)
        hidden_TC = torch.ones((num_tokens, hidden_size), dtype=self._dtype)
        places, labels = torch.arange(num_tokens), torch.zeros(num_tokens, dtype=torch.int64)

        def score() -> None:
            score_places(hidden_TC, places, labels, head, vocab_size=entries)

        return _seconds(score) / (num_tokens * entries)

    def pairs(self, layer: LayerShape, mask: Mask) -> tuple[float, float]:
        """One visible pair in a layer of this shape: in a full block, and in one that `mask` shows a part of."""
        num_queries = _queries(layer)
        q_HTD = torch.ones((layer.num_heads, num_queries, layer.head_dim), dtype=self._dtype)
        k_GSD = torch.ones((layer.num_kv_heads, num_queries, layer.head_dim), dtype=self._dtype)
        v_GSE = torch.ones((layer.num_kv_heads, num_queries, layer.value_dim), dtype=self._dtype)
        total = Accumulator.empty_for(q_HTD, layer.value_dim)

        def full() -> None:
            out, lse = self._kernel(q_HTD, k_GSD, v_GSE, band=FULL, scale=0.01, softcap=layer.softcap)
            total.merge(slice(0, num_queries), out, lse)

        layout = Layout(kind="contiguous", num_tokens=num_queries, num_ranks=1)

        def masked() -> None:
            context = RingContext(layout=layout, exchange=LoopbackRing(1).exchange(0), kernel=self._kernel)
            context.attend(q_HTD, k_GSD, v_GSE, mask=mask, scale=0.01, softcap=layer.softcap)

        seen = sum(_num_keys(mask, query, num_queries) for query in range(num_queries))
        return _seconds(full) / num_queries**2, _seconds(masked) / seen


class _NoAttention(RingContext):
    """Attention that gives zeros at once, so that only the rest of a layer is timed."""

    def attend(self, q_HTD: Tensor, k_GSD: Tensor, v_GSE: Tensor, **_: Any) -> Tensor:
        out_THE = q_HTD.new_zeros((q_HTD.shape[1], q_HTD.shape[0], v_GSE.shape[2]))
        return out_THE.transpose(0, 1)


def drawn_layers(folder: Path, dtype: torch.dtype, num_layers: int, intermediate_size: int) -> tuple[nn.Module, int]:
    """The model's base with its first layers, as many as hold each kind, tiled as for a run; their weights are drawn.

    Returns the model and how many of its layers' weights a token meets.
    """
    from transformers import AutoModel

    from longdoc.model.layers import active_parameters
    from longdoc.model.local import configurations
    from longdoc.model.tiling import decoder_layers, tile_layers

    register_ring_attention()
    _, config = configurations(folder)
    with torch.device("meta"):
        model: Any = AutoModel.from_config(config, dtype=dtype, attn_implementation=RING_ATTENTION)
    model.eval().requires_grad_(False)
    layers = decoder_layers(model, num_layers)
    sizes = [sum(weight.numel() for weight in layer.parameters()) for layer in layers]
    kept = 1 + max(sizes.index(size) for size in set(sizes))
    del layers[kept:]
    model.to_empty(device="cpu")
    for tensor in [*model.parameters(), *model.buffers()]:
        if tensor.is_floating_point():
            tensor.uniform_(-0.02, 0.02)
        else:
            tensor.zero_()
    model.config.num_hidden_layers, model.config.use_cache = kept, False
    tile_layers(model, num_layers=kept, intermediate_size=intermediate_size)
    named = {name: weight.numel() for name, weight in model.named_parameters()}
    return model, active_parameters(named, config)


def _tokens(flops_per_token: float) -> int:
    return int(min(_MOST_TOKENS, max(_FEWEST_TOKENS, _FLOPS / flops_per_token)))


def _queries(layer: LayerShape) -> int:
    """So many queries and keys that a causal block takes about the usual work."""
    flops_per_pair = 2 * layer.num_heads * (layer.head_dim + layer.value_dim)
    return int(min(_MOST_TOKENS, max(_FEWEST_TOKENS, (2 * _FLOPS / flops_per_pair) ** 0.5)))


def _num_keys(mask: Mask, query: int, num_tokens: int) -> int:
    first = 0 if mask.left is None else max(0, query - mask.left)
    last = num_tokens - 1 if mask.right is None else min(num_tokens - 1, query + mask.right)
    return last - first + 1


def _seconds(work: Callable[[], None]) -> float:
    """The median of a few goes, after one for nothing: pages, caches and generated code come first."""
    times = []
    with torch.inference_mode():
        for _ in range(1 + _REPEATS):
            started = time.perf_counter()
            work()
            times.append(time.perf_counter() - started)
    return median(times[1:])
