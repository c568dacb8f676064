"""How an unmodified transformers model runs its attention on the ring.

Owns the registered attention and mask functions and the context that tells them, thread by thread, which ring they
belong to (a keyword argument would not do: some models do not pass them on). Refuses whatever would change the result
and is not carried out here: another mask than the ring's, windows, sinks, softcaps, dropout, unknown arguments.
Nothing is registered at import. Legend: B batch, H query heads, G key-value heads, T tokens of this rank, D head
dimension.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from longdoc.errors import ModelError
from longdoc.ring.attention import RingBuffers, ring_attention
from longdoc.ring.exchange import Exchange
from longdoc.ring.kernels import Kernel
from longdoc.ring.layout import Layout
from longdoc.ring.mask import Mask
from longdoc.ring.plan import plan_hops

RING_ATTENTION = "longdoc_ring"

# Passed on by models and without influence on attention: rotary positions are applied before, nothing is cached.
_HARMLESS = frozenset({"cache_position", "position_ids", "use_cache"})
# Ask for more outputs where they are true, for nothing where they are false.
_OUTPUTS = frozenset({"output_attentions", "output_hidden_states", "output_router_logits"})
# Distances at which masks are compared: windows and chunks of any size up to 2^30 show at one of them.
_DISTANCES = sorted({0} | {2**power + near for power in range(31) for near in (-1, 0, 1)})

Report = Callable[[int, int, int], None]


def _no_report(layer: int, hop: int, num_hops: int) -> None:
    """Report to nobody."""


class RingContext:
    """One rank's place in the ring for one document: what the attention of every layer needs.

    `report(layer, hop, num_hops)` is called after each piece of work; layers and hops count from 0.
    """

    def __init__(
        self, *, layout: Layout, mask: Mask, exchange: Exchange, kernel: Kernel, report: Report = _no_report
    ) -> None:
        if exchange.num_ranks != layout.num_ranks:
            raise ValueError(f"a layout for {layout.num_ranks} ranks cannot run on a ring of {exchange.num_ranks}")
        self.layout = layout
        self.mask = mask
        self.exchange = exchange
        self.kernel = kernel
        self.report = report
        self.num_calls = 0
        self._hops = plan_hops(layout, exchange.rank, mask)
        self._max_keys = max(layout.num_tokens_of(rank) for rank in range(layout.num_ranks))
        self._buffers: RingBuffers | None = None

    def attend(self, q_HTD: torch.Tensor, k_GSD: torch.Tensor, v_GSD: torch.Tensor, scale: float) -> torch.Tensor:
        """The ring attention of the next layer: out_HTD. Raises `ValueError` for a shard that is not this rank's.

        A rank that owns no token calls it with none: its neighbours may need it to pass keys on.
        """
        num_tokens = self.layout.num_tokens_of(self.exchange.rank)
        if not q_HTD.shape[1] == k_GSD.shape[1] == num_tokens:
            raise ValueError(
                f"rank {self.exchange.rank} attends with {q_HTD.shape[1]} queries and {k_GSD.shape[1]} keys, but the"
                f" layout gives it {num_tokens} tokens"
            )
        layer = self.num_calls
        self.num_calls += 1
        return ring_attention(
            q_HTD,
            k_GSD,
            v_GSD,
            hops=self._hops,
            exchange=self.exchange,
            kernel=self.kernel,
            scale=scale,
            buffers=self._buffers_for(k_GSD),
            report=lambda hop, num_hops: self.report(layer, hop, num_hops),
        )

    def _buffers_for(self, k_GSD: torch.Tensor) -> RingBuffers:
        if self._buffers is None or not self._buffers.fit(k_GSD, self._max_keys):
            self._buffers = None  # Let go before the larger ones exist.
            self._buffers = RingBuffers.allocate(k_GSD, max_keys=self._max_keys, num_ranks=self.layout.num_ranks)
        return self._buffers

    def release(self) -> None:
        """Let the buffers go; the next layer allocates them anew."""
        self._buffers = None

    def assert_engaged(self, num_layers: int) -> None:
        """Raise `ModelError` unless the ring ran once for each layer since the last check; then count anew."""
        num_calls, self.num_calls = self.num_calls, 0
        if num_calls != num_layers:
            raise ModelError(
                f"the model ran ring attention {num_calls} times in a forward pass of {num_layers} layers: it mixes"
                " tokens elsewhere, so its results would be wrong; choose another model (see `longdoc models list`)"
            )


_active: ContextVar[RingContext | None] = ContextVar("longdoc_ring_context", default=None)


@contextmanager
def use_ring(context: RingContext) -> Iterator[RingContext]:
    """Attention of models that were loaded with "longdoc_ring" runs on this ring, in this thread, until the block ends.

    The buffers are let go at the end.
    """
    token = _active.set(context)
    try:
        yield context
    finally:
        _active.reset(token)
        context.release()


def register_ring_attention() -> None:
    """Make "longdoc_ring" known to transformers as an attention and a mask implementation. Idempotent."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(RING_ATTENTION, _attention)
    AttentionMaskInterface.register(RING_ATTENTION, _mask)


class ModelMask:
    """The mask that a model wants, passed through the model in place of a tensor, and compared where it is used."""

    def __init__(self, mask_function: Callable[..., Any], padding: torch.Tensor | None) -> None:
        self._mask_function = mask_function
        self._padding = padding
        self._equals: Mask | None = None

    def assert_equals(self, mask: Mask) -> None:
        """Raise `ModelError` unless the model's mask is `mask` at all sample distances and hides no padding."""
        if self._equals == mask:
            return
        if self._padding is not None and not bool(self._padding.all()):
            raise ModelError("padding cannot run on the ring: every token of a shard is a token of the document")
        queries, keys = _sample_pairs()
        first = torch.zeros_like(queries)
        try:
            seen = torch.as_tensor(self._mask_function(first, first, queries, keys)).expand(queries.shape)
        except (IndexError, RuntimeError, TypeError, ValueError) as error:
            raise ModelError(
                "the model's attention mask depends on more than distances, for example on packed documents:"
                f" {type(error).__name__} at a sample distance; choose another model (see `longdoc models list`)"
            ) from error
        wanted = torch.tensor([mask.allows(int(q), int(k)) for q, k in zip(queries, keys, strict=True)])
        if not torch.equal(seen.cpu().bool(), wanted):
            place = int((seen.cpu().bool() != wanted).nonzero()[0])
            verb = "hides" if wanted[place] else "shows"
            raise ModelError(
                f"the model's attention is not {mask.kind}: it {verb} the token at {int(keys[place])} to the one at"
                f" {int(queries[place])}; choose another model (see `longdoc models list`)"
            )
        self._equals = mask


def _sample_pairs() -> tuple[torch.Tensor, torch.Tensor]:
    """Queries and keys, both directions at every sample distance, near the start and far from it."""
    pairs = [(start + distance, start) for start in (0, 1, 1000) for distance in _DISTANCES]
    pairs += [(key, query) for query, key in pairs]
    queries, keys = torch.tensor(pairs).unbind(dim=1)
    return queries, keys


def _mask(*, mask_function: Callable[..., Any], attention_mask: torch.Tensor | None = None, **_: Any) -> ModelMask:
    """The registered mask function: no tensor of any size, only what the model asked for."""
    return ModelMask(mask_function, attention_mask)


def _attention(
    module: torch.nn.Module,
    q_BHTD: torch.Tensor,
    k_BGTD: torch.Tensor,
    v_BGTD: torch.Tensor,
    attention_mask: object,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """The registered attention function: out_BTHD, contiguous, and no attention weights."""
    context = _active.get()
    if context is None:
        raise ValueError('attention "longdoc_ring" was called outside of `use_ring`')
    _refuse_arguments(module, dropout, kwargs)
    _refuse_shapes(q_BHTD, k_BGTD, v_BGTD)
    if not isinstance(attention_mask, ModelMask):
        raise ModelError(
            f"{type(module).__name__} hands a {type(attention_mask).__name__} to its attention instead of the ring's"
            " mask, so its mask cannot be checked; choose another model (see `longdoc models list`)"
        )
    attention_mask.assert_equals(context.mask)
    scale = q_BHTD.shape[-1] ** -0.5 if scaling is None else scaling
    out_HTD = context.attend(q_BHTD[0], k_BGTD[0], v_BGTD[0], scale)
    return out_HTD.transpose(0, 1)[None].contiguous(), None


def _refuse_arguments(module: torch.nn.Module, dropout: float, kwargs: dict[str, Any]) -> None:
    """Refuse what would change the result, by name. An argument that is None is absent."""
    present = {name: value for name, value in kwargs.items() if value is not None and name not in _HARMLESS}
    present = {name: value for name, value in present.items() if name not in _OUTPUTS or value is not False}
    # transformers lets the argument win over the module's attribute.
    is_causal = present.pop("is_causal", getattr(module, "is_causal", True))
    refused = sorted(present) + ([] if is_causal else ["is_causal=False"]) + (["dropout"] if dropout else [])
    if refused:
        raise ModelError(
            f"{type(module).__name__} asks its attention for {', '.join(refused)}, which the ring does not support;"
            " choose another model (see `longdoc models list`)"
        )


def _refuse_shapes(q_BHTD: torch.Tensor, k_BGTD: torch.Tensor, v_BGTD: torch.Tensor) -> None:
    if q_BHTD.shape[0] != 1:
        raise ValueError(f"the ring runs one document at a time, not a batch of {q_BHTD.shape[0]}")
    if k_BGTD.shape != v_BGTD.shape or q_BHTD.shape[-1] != k_BGTD.shape[-1]:
        raise ModelError(
            f"queries, keys and values of {q_BHTD.shape[-1]}, {k_BGTD.shape[-1]} and {v_BGTD.shape[-1]} dimensions a"
            " head are not supported: they must be equal; choose another model (see `longdoc models list`)"
        )
    if not q_BHTD.dtype == k_BGTD.dtype == v_BGTD.dtype:
        raise ModelError(
            f"queries, keys and values differ in dtype ({q_BHTD.dtype}, {k_BGTD.dtype}, {v_BGTD.dtype});"
            " load the model in one dtype"
        )
