"""How an unmodified transformers model runs its attention on the ring.

Owns the registered attention and mask functions and the context that tells them, thread by thread, which ring they
belong to (a keyword argument would not do: some models do not pass them on). Each layer's mask comes from the model.
Refuses whatever would change the result and is not carried out here: dropout, unknown arguments, contradictions.
Nothing is registered at import. Legend: B batch, H query heads, G key-value heads, T tokens of this rank, S of its
keys, D head dimension of queries and keys, E of values.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from longdoc.errors import ModelError
from longdoc.ring.attention import ring_attention
from longdoc.ring.exchange import Exchange
from longdoc.ring.forensics import HopLog, Report, first_nonfinite
from longdoc.ring.kernels import Kernel
from longdoc.ring.layout import Layout
from longdoc.ring.mask import Mask
from longdoc.ring.model_mask import ModelMask, refuse_contradictions
from longdoc.ring.plan import Hop, plan_hops

RING_ATTENTION = "longdoc_ring"

# Passed on by models and without influence on attention: rotary positions are applied before, nothing is cached, and
# `deterministic` is about gradients.
_HARMLESS = frozenset({"cache_position", "deterministic", "position_ids", "use_cache"})
# Carried out by the ring, or compared with the mask.
_CARRIED = frozenset({"is_causal", "s_aux", "sliding_window", "softcap"})
# Ask for more outputs where they are true, for nothing where they are false.
_OUTPUTS = frozenset({"output_attentions", "output_hidden_states", "output_router_logits"})


def _no_report(layer: int, hop: int, num_hops: int) -> None:
    """Report to nobody."""


class RingContext:
    """One rank's place in the ring for one document: what the attention of every layer needs.

    `report(layer, hop, num_hops)` is called after each piece of work; layers and hops count from 0. `nonfinite` is
    (layer, global position) of the first queries, keys or values of this rank that were not finite, or None.
    """

    def __init__(self, *, layout: Layout, exchange: Exchange, kernel: Kernel, report: Report = _no_report) -> None:
        if exchange.num_ranks != layout.num_ranks:
            raise ValueError(f"a layout for {layout.num_ranks} ranks cannot run on a ring of {exchange.num_ranks}")
        self.layout = layout
        self.exchange = exchange
        self.kernel = kernel
        self.log = HopLog(report)
        self.num_calls = 0
        self.nonfinite: tuple[int, int] | None = None
        self._num_tokens = layout.num_tokens_of(exchange.rank)
        self._plans: dict[Mask, tuple[Hop, ...]] = {}

    def attend(
        self,
        q_HTD: torch.Tensor,
        k_GSD: torch.Tensor,
        v_GSE: torch.Tensor,
        *,
        mask: Mask,
        scale: float,
        softcap: float | None = None,
        sink_H: torch.Tensor | None = None,
        overwrite_q: bool = False,
    ) -> torch.Tensor:
        """The ring attention of the next layer: out_HTE. Raises `ValueError` for a shard that is not this rank's.

        A rank that owns no token calls it with one placeholder (models cannot run on none), which nobody sees: it
        passes its neighbours' keys on and gets zeros. With `overwrite_q` the result may take the place of q in memory.
        """
        layer = self.log.layer = self.num_calls
        self.num_calls += 1
        q_own, k_own, v_own = self._own(q_HTD, k_GSD, v_GSE)
        self._look_for_nonfinite(layer, q_own, k_own, v_own)
        out_HTE = ring_attention(
            q_own,
            k_own,
            v_own,
            hops=self._plan(mask),
            exchange=self.exchange,
            kernel=self.kernel,
            scale=scale,
            softcap=softcap,
            sink_H=sink_H,
            log=self.log,
            overwrite_q=overwrite_q,
        )
        return out_HTE if self._num_tokens else q_HTD.new_zeros((*q_HTD.shape[:2], v_GSE.shape[2]))

    def _own(self, *tensors_HTD: torch.Tensor) -> list[torch.Tensor]:
        """The tensors without placeholders, checked to be of this rank."""
        lengths = [tensor_HTD.shape[1] for tensor_HTD in tensors_HTD]
        if len(set(lengths)) == 1 and (lengths[0] == self._num_tokens or (self._num_tokens == 0 and lengths[0] == 1)):
            return [tensor_HTD[:, : self._num_tokens] for tensor_HTD in tensors_HTD]
        raise ValueError(
            f"rank {self.exchange.rank} attends with {lengths[0]} queries, {lengths[1]} keys and {lengths[2]} values,"
            f" but the layout gives it {self._num_tokens} tokens"
        )

    def _look_for_nonfinite(self, layer: int, *tensors_HTD: torch.Tensor) -> None:
        if self.nonfinite is None and (place := first_nonfinite(tensors_HTD)) is not None:
            self.nonfinite = layer, int(self.layout.positions(self.exchange.rank)[place])

    def _plan(self, mask: Mask) -> tuple[Hop, ...]:
        if mask not in self._plans:
            self._plans[mask] = plan_hops(self.layout, self.exchange.rank, mask)
        return self._plans[mask]

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
    """Attention of models that were loaded with "longdoc_ring" runs on this ring, in this thread, in the block."""
    token = _active.set(context)
    try:
        yield context
    finally:
        _active.reset(token)


def register_ring_attention() -> None:
    """Make "longdoc_ring" known to transformers as an attention and a mask implementation. Idempotent."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(RING_ATTENTION, _attention)
    AttentionMaskInterface.register(RING_ATTENTION, _mask)


def _mask(*, mask_function: Callable[..., Any], attention_mask: torch.Tensor | None = None, **_: Any) -> ModelMask:
    """The registered mask function: no tensor of any size, only what the model asked for."""
    return ModelMask(mask_function, attention_mask)


def _attention(
    module: torch.nn.Module,
    q_BHTD: torch.Tensor,
    k_BGSD: torch.Tensor,
    v_BGSE: torch.Tensor,
    attention_mask: object,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """The registered attention function: out_BTHE, contiguous, and no attention weights."""
    context = _active.get()
    if context is None:
        raise ValueError('attention "longdoc_ring" was called outside of `use_ring`')
    _refuse_arguments(module, dropout, kwargs)
    _refuse_shapes(q_BHTD, k_BGSD, v_BGSE)
    if not isinstance(attention_mask, ModelMask):
        raise ModelError(
            f"{type(module).__name__} hands a {type(attention_mask).__name__} to its attention instead of the ring's"
            " mask, so its mask cannot be checked; choose another model (see `longdoc models list`)"
        )
    mask = attention_mask.mask()
    # transformers lets the argument win over the module's attribute.
    is_causal = kwargs.get("is_causal") if kwargs.get("is_causal") is not None else getattr(module, "is_causal", None)
    refuse_contradictions(mask, window=kwargs.get("sliding_window"), is_causal=is_causal, who=type(module).__name__)
    out_HTE = context.attend(
        q_BHTD[0],
        k_BGSD[0],
        v_BGSE[0],
        mask=mask,
        scale=q_BHTD.shape[-1] ** -0.5 if scaling is None else scaling,
        softcap=kwargs.get("softcap"),
        sink_H=kwargs.get("s_aux"),
        # No model reads its queries again; one that does is found out by the check that stands before every run.
        overwrite_q=True,
    )
    return out_HTE.transpose(0, 1)[None].contiguous(), None


def _refuse_arguments(module: torch.nn.Module, dropout: float, kwargs: dict[str, Any]) -> None:
    """Refuse what would change the result and is not carried out, by name. An argument that is None is absent."""
    present = {name: value for name, value in kwargs.items() if value is not None and name not in _HARMLESS | _CARRIED}
    present = {name: value for name, value in present.items() if name not in _OUTPUTS or value is not False}
    refused = sorted(present) + (["dropout"] if dropout else [])
    if refused:
        raise ModelError(
            f"{type(module).__name__} asks its attention for {', '.join(refused)}, which the ring does not support;"
            " choose another model (see `longdoc models list`)"
        )


def _refuse_shapes(q_BHTD: torch.Tensor, k_BGSD: torch.Tensor, v_BGSE: torch.Tensor) -> None:
    if q_BHTD.shape[0] != 1:
        raise ValueError(f"the ring runs one document at a time, not a batch of {q_BHTD.shape[0]}")
    if k_BGSD.shape[:-1] != v_BGSE.shape[:-1] or q_BHTD.shape[-1] != k_BGSD.shape[-1]:
        raise ModelError(
            f"queries of {_shape(q_BHTD)}, keys of {_shape(k_BGSD)} and values of {_shape(v_BGSE)} heads × tokens ×"
            " dimensions do not belong together; choose another model (see `longdoc models list`)"
        )
    if not q_BHTD.dtype == k_BGSD.dtype == v_BGSE.dtype:
        raise ModelError(
            f"queries, keys and values differ in dtype ({q_BHTD.dtype}, {k_BGSD.dtype}, {v_BGSE.dtype});"
            " load the model in one dtype"
        )


def _shape(tensor_BHTD: torch.Tensor) -> str:
    return " × ".join(map(str, tensor_BHTD.shape[1:]))
