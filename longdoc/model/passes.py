"""Short forward passes of one model in other ways than a run's: in one piece, on another attention, on a small ring.

Owns how the gates run a model: which tokens, which attention stands in for the ring's, and that everything is put back
afterwards. Nobody else may use the model meanwhile. Two attentions are registered here: `LOCAL_ATTENTION`, in which no
token sees another, and `FLOAT32_ATTENTION`, the family's own eager code on widened queries, keys and values.
Legend: B batch, H query heads, G key-value heads, T tokens, S keys, D head dimension, E that of values, C hidden size.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from longdoc.errors import ensure
from longdoc.model.load import RingModel
from longdoc.model.positions import UNEXTENDED
from longdoc.model.tiling import tiles_of
from longdoc.ring.exchange import Exchange
from longdoc.ring.exchange.loopback import run_ranks
from longdoc.ring.hook import RING_ATTENTION, RingContext, use_ring
from longdoc.ring.kernels import Kernel
from longdoc.ring.layout import Layout
from longdoc.ring.mask import Mask
from longdoc.ring.model_mask import ModelMask

LOCAL_ATTENTION = "longdoc_local"
FLOAT32_ATTENTION = "longdoc_eager_float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCall:
    """What one layer asked of its attention: its mask, None where it handed on something else, and its arguments."""

    who: str
    mask: Mask | None
    window: int | None


_calls: ContextVar[list[AttentionCall] | None] = ContextVar("longdoc_attention_calls", default=None)


def sample_ids(vocab_size: int, num_tokens: int) -> Tensor:
    """Token ids [T] from all over the vocabulary, the same on every machine."""
    words = np.random.PCG64(97).random_raw(num_tokens) % np.uint64(vocab_size)
    return torch.from_numpy(words.astype(np.int64))


def whole_pass(model: RingModel, token_ids_T: Tensor, positions_T: Tensor, attention: str) -> Tensor:
    """hidden_TC in one piece, without token tiles, with positions as transformers sets them."""
    model.restore_positions()
    with other_attention(model, attention), tiles_of(model.module, None):
        return model.hidden_states(token_ids_T, positions_T)


def local_passes(model: RingModel, token_ids_T: Tensor, positions_T: Tensor, num_shards: int) -> Tensor:
    """hidden_TC of striped shards, each run by itself under `LOCAL_ATTENTION`, put together again.

    In stripes the neighbours of every token are on another shard, so whatever mixes neighbours changes every token.
    """
    model.set_positions(UNEXTENDED, int(positions_T.max()) + 1)
    parts = []
    with other_attention(model, LOCAL_ATTENTION), tiles_of(model.module, None):
        for shard in range(num_shards):
            parts.append(model.hidden_states(token_ids_T[shard::num_shards], positions_T[shard::num_shards]))
    whole_TC = torch.empty((len(token_ids_T), parts[0].shape[1]), dtype=parts[0].dtype, device=parts[0].device)
    for shard, part_TC in enumerate(parts):
        whole_TC[shard::num_shards] = part_TC
    return whole_TC


def ring_pass(model: RingModel, token_ids_T: Tensor, *, num_ranks: int, kernel: Kernel, tile: int) -> Tensor:
    """hidden_TC from a zigzag ring of threads, in token tiles of `tile`. Raises `ModelError` unless it engaged."""
    num_tokens = len(token_ids_T)
    model.set_positions(UNEXTENDED, num_tokens)
    layout = Layout(kind="zigzag", num_tokens=num_tokens, num_ranks=num_ranks)
    positions = [torch.from_numpy(layout.positions(rank)).to(model.device) for rank in range(num_ranks)]

    def run(exchange: Exchange) -> Tensor:
        positions_T = positions[exchange.rank]
        context = RingContext(layout=layout, exchange=exchange, kernel=kernel)
        with use_ring(context):
            hidden_TC = model.hidden_states(token_ids_T[positions_T], positions_T)
        context.assert_engaged(model.num_layers)
        return hidden_TC

    whole_TC = torch.empty((num_tokens, model.embedding_size), dtype=model.dtype, device=model.device)
    with other_attention(model, RING_ATTENTION), tiles_of(model.module, tile):
        for positions_T, part_TC in zip(positions, run_ranks(num_ranks, run), strict=True):
            whole_TC[positions_T] = part_TC
    return whole_TC


@contextmanager
def recorded_calls() -> Iterator[list[AttentionCall]]:
    """What the passes under `LOCAL_ATTENTION` in this block ask of their attention, call by call."""
    calls: list[AttentionCall] = []
    token = _calls.set(calls)
    try:
        yield calls
    finally:
        _calls.reset(token)


@contextmanager
def other_attention(model: RingModel, name: str) -> Iterator[None]:
    """Let the model use another attention for a while."""
    _register()
    module: Any = model.module
    before = model.attention
    module.set_attn_implementation(name)
    try:
        yield
    finally:
        module.set_attn_implementation(before)


@contextmanager
def small_windows(module: nn.Module, window: int) -> Iterator[None]:
    """Let sliding windows wider than `window` be that small for a while: in the configurations and in the layers.

    Families keep the window in both, and in some the layer counts one more than the configuration.
    """
    configs: list[Any] = list(
        {id(part.config): part.config for part in module.modules() if hasattr(part, "config")}.values()
    )
    with ExitStack() as changes:
        for config in configs:
            wide = getattr(config, "sliding_window", None)
            if not isinstance(wide, int) or wide <= window:
                continue
            for part in module.modules():
                own = vars(part).get("sliding_window")
                if isinstance(own, int) and getattr(part, "config", None) is config:
                    changes.callback(setattr, part, "sliding_window", own)
                    part.sliding_window = window + own - wide  # type: ignore[assignment]  # an int, and no module
            changes.callback(setattr, config, "sliding_window", wide)
            config.sliding_window = window
        yield


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    AttentionInterface.register(LOCAL_ATTENTION, _local_attention)
    AttentionMaskInterface.register(LOCAL_ATTENTION, _asked_mask)
    AttentionInterface.register(FLOAT32_ATTENTION, _float32_attention)
    AttentionMaskInterface.register(FLOAT32_ATTENTION, eager_mask)


def _asked_mask(*, mask_function: Any, attention_mask: Tensor | None = None, **_: Any) -> ModelMask:
    return ModelMask(mask_function, attention_mask)


# A fixed function of one token's queries, keys and values, in which all three and their positions count:
#
#     out_h = v · (1 + tanh(a · q_h) + tanh(b · k)),   a_d = cos(d) / √D,  b_d = sin(1 + d) / √D.
#
# A product q · k would not do: rotary positions cancel in that of one token.
def _local_attention(
    module: nn.Module, q_BHTD: Tensor, k_BGTD: Tensor, v_BGTE: Tensor, attention_mask: Any, **kwargs: Any
) -> tuple[Tensor, None]:
    calls = _calls.get()
    if calls is not None:
        mask = attention_mask.mask() if isinstance(attention_mask, ModelMask) else None
        calls.append(AttentionCall(who=type(module).__name__, mask=mask, window=kwargs.get("sliding_window")))
    repeats = q_BHTD.shape[1] // k_BGTD.shape[1]
    dims_D = torch.arange(q_BHTD.shape[-1], device=q_BHTD.device)
    a_D, b_D = torch.cos(dims_D) / len(dims_D) ** 0.5, torch.sin(1 + dims_D) / len(dims_D) ** 0.5
    of_q_BHT = torch.tanh((q_BHTD * a_D.to(q_BHTD.dtype)).sum(dim=-1))
    of_k_BGT = torch.tanh((k_BGTD * b_D.to(k_BGTD.dtype)).sum(dim=-1))
    weight_BHT = 1 + of_q_BHT + of_k_BGT.repeat_interleave(repeats, dim=1)
    out_BHTE = v_BGTE.repeat_interleave(repeats, dim=1) * weight_BHT[..., None]
    return out_BHTE.transpose(1, 2).contiguous(), None


def _float32_attention(
    module: nn.Module, q_BHTD: Tensor, k_BGSD: Tensor, v_BGSE: Tensor, attention_mask: Any, **kwargs: Any
) -> tuple[Tensor, None]:
    """The eager attention of the module's family, in float32, rounded once at its end."""
    eager: Any = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    ensure(eager is not None, f"{type(module).__module__} has no eager attention of its own")
    mask = None if attention_mask is None else attention_mask.float()
    out_BTHE, _ = eager(module, q_BHTD.float(), k_BGSD.float(), v_BGSE.float(), mask, **kwargs)
    return out_BTHE.to(q_BHTD.dtype), None
