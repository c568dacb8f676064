"""Refusal by proof: a model runs on a ring only after a small ring gave what the model gives in one piece.

Owns the check that stands before every run. It refuses by name what is known to mix tokens outside of attention, then
runs 97 tokens over a ring of three ranks (threads of this process, unequal shards, zigzag), each shard in token tiles,
and compares every log-probability with a plain forward pass without tiles on transformers' own eager attention, whose
code shares nothing with ours.
Legend: T tokens, C hidden size, V vocabulary.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from longdoc.errors import ModelError
from longdoc.model.load import RingModel
from longdoc.model.positions import UNEXTENDED
from longdoc.model.tiling import SMALLEST_TILE, tiles_of
from longdoc.ring.exchange import Exchange
from longdoc.ring.exchange.loopback import run_ranks
from longdoc.ring.hook import RING_ATTENTION, RingContext, use_ring
from longdoc.ring.kernels import Kernel, choose_kernel
from longdoc.ring.layout import Layout

_NUM_TOKENS, _NUM_RANKS = 97, 3
#: Largest allowed difference of a log-probability, in nats. transformers' eager softmax is float32 even in a float64
#: model, which costs 3e-6 (tiny-random) to 1.5e-5 (the default model) there.
TOLERANCES = {torch.float64: 1e-4, torch.float32: 1e-3}
#: Half precision rounds after every layer, so the largest difference is as large between transformers' own eager and
#: sdpa (0.2 to 1.8 nats measured). A ring may be this many times as far from eager as sdpa is, token by token.
_HALF_PRECISION_FACTOR = 3.0
#: Parts of class names of layers that carry something from token to token without attention.
_MIXERS = ("Alibi", "Conv1d", "DeltaNet", "Lightning", "LinearAttention", "Mamba", "Recurrent", "Rwkv", "ShortConv")


def check_shardable(model: RingModel, kernel: Kernel | None = None) -> float:
    """The largest difference of a log-probability, in nats, between a ring of three and one piece.

    `kernel` is the one that will compute, by default what `auto` chooses. In the model's own dtype, on its device, with
    its positions as trained; on the ring MLPs and norms run in tiles of 16 tokens, in one piece they do not.
    Raises `ModelError` naming the reason when the model has parts that cannot be split, does not call the ring once a
    layer, or differs too much.
    """
    _refuse_known(model)
    token_ids_T = _sample_ids(model.vocab_size).to(model.device)
    whole_TV = _whole(model, token_ids_T, "eager")
    ring_TV = _on_ring(model, token_ids_T, choose_kernel("auto", model.device)[1] if kernel is None else kernel)
    error = float((whole_TV - ring_TV).abs().max())
    measured, allowed = error, TOLERANCES.get(model.dtype)
    if allowed is None:
        measured = _worst_token(whole_TV, ring_TV)
        allowed = _HALF_PRECISION_FACTOR * _worst_token(whole_TV, _whole(model, token_ids_T, "sdpa"))
    if not measured <= allowed:  # NaN is refused as well
        raise ModelError(
            f"model {model.local.name} cannot run on a ring: on {_NUM_TOKENS} tokens its log-probabilities differ by "
            f"{measured:.2g} from those in one piece (allowed: {allowed:.2g}), so something beside attention mixes "
            "tokens; use another model"
        )
    return error


def _worst_token(a_TV: Tensor, b_TV: Tensor) -> float:
    """The mean difference over the vocabulary at the token where it is largest."""
    return float((a_TV - b_TV).abs().mean(dim=-1).max())


def _refuse_known(model: RingModel) -> None:
    config: Any = model.causal_model.config.get_text_config()  # type: ignore[operator, union-attr]  # transformers
    layer_types = set(getattr(config, "layer_types", None) or ())
    found = [f"layers of type {name}" for name in sorted(layer_types - {"full_attention"})]
    if getattr(config, "alibi", False):
        found.append("ALiBi biases in place of positions")
    classes = sorted({type(module).__name__ for module in model.causal_model.modules()})
    found += [name for name in classes if any(part in name for part in _MIXERS)]
    if found:
        raise ModelError(
            f"model {model.local.name} cannot run on a ring: it has {', '.join(found)}, and only full attention can be "
            "split; use another model"
        )


def _sample_ids(vocab_size: int) -> Tensor:
    """97 ids from all over the vocabulary, the same on every machine."""
    words = np.random.PCG64(97).random_raw(_NUM_TOKENS) % np.uint64(vocab_size)
    return torch.from_numpy(words.astype(np.int64))


def _whole(model: RingModel, token_ids_T: Tensor, attention: str) -> Tensor:
    model.restore_positions()
    positions_T = torch.arange(_NUM_TOKENS, device=model.device)
    with _attention(model, attention), tiles_of(model.causal_model, None):
        return _logprobs(model, model.hidden_states(token_ids_T, positions_T))


def _on_ring(model: RingModel, token_ids_T: Tensor, kernel: Kernel) -> Tensor:
    model.set_positions(UNEXTENDED, _NUM_TOKENS)
    layout = Layout(kind="zigzag", num_tokens=_NUM_TOKENS, num_ranks=_NUM_RANKS)
    positions = [torch.from_numpy(layout.positions(rank)).to(model.device) for rank in range(_NUM_RANKS)]

    def run(exchange: Exchange) -> Tensor:
        positions_T = positions[exchange.rank]
        context = RingContext(layout=layout, exchange=exchange, kernel=kernel)
        with use_ring(context):
            hidden_TC = model.hidden_states(token_ids_T[positions_T], positions_T)
        context.assert_engaged(model.num_layers)
        return _logprobs(model, hidden_TC)

    whole_TV = torch.empty((_NUM_TOKENS, model.vocab_size), dtype=torch.float64, device=model.device)
    with _attention(model, RING_ATTENTION), tiles_of(model.causal_model, SMALLEST_TILE):
        for positions_T, part_TV in zip(positions, run_ranks(_NUM_RANKS, run), strict=True):
            whole_TV[positions_T] = part_TV
    return whole_TV


def _logprobs(model: RingModel, hidden_TC: Tensor) -> Tensor:
    return torch.log_softmax(model.logits(hidden_TC).to(torch.float64), dim=-1)


@contextmanager
def _attention(model: RingModel, name: str) -> Iterator[None]:
    """Let the model use another attention for a while; nobody else may be using it."""
    before = model.attention
    model.causal_model.set_attn_implementation(name)  # type: ignore[operator]  # transformers
    try:
        yield
    finally:
        model.causal_model.set_attn_implementation(before)  # type: ignore[operator]  # transformers
