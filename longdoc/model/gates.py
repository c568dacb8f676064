"""Refusal by proof: a model runs on a ring only after a small ring gave what the model gives in one piece.

Owns the gates that stand before every run, in this order: what the configuration tells (`refusals`), layers known by
name to mix tokens, attention that is called once a layer and with masks that a ring can carry out, a locality probe
(an attention in which no token sees another: whole and shards must agree, or tokens mix elsewhere), and a ring of
three ranks against transformers' own eager attention, whose code shares nothing with ours.
Legend: T tokens, C hidden size, V vocabulary.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from longdoc.errors import LongdocError, ModelError, NotShardableError
from longdoc.model.load import RingModel, first_line
from longdoc.model.passes import (
    FLOAT32_ATTENTION,
    LOCAL_ATTENTION,
    AttentionCall,
    local_passes,
    recorded_calls,
    ring_pass,
    sample_ids,
    small_windows,
    whole_pass,
)
from longdoc.model.refusals import refusal, refuse_by_configuration
from longdoc.model.tiling import SMALLEST_TILE
from longdoc.ring.kernels import Kernel, choose_kernel
from longdoc.ring.model_mask import refuse_contradictions

_NUM_TOKENS, _NUM_PROBE_TOKENS, _NUM_RANKS = 97, 51, 3
#: Windows of the model are made this small, so that they bind within the tokens of the check.
_WINDOW = 20
#: Largest allowed difference of a log-probability, in nats. transformers' eager softmax is float32 even in a float64
#: model, which costs 3e-6 (tiny-random) to 1.5e-5 (the default model) there.
TOLERANCES = {torch.float64: 1e-4, torch.float32: 1e-3}
#: The same for models without a head, of final states, relative to the largest.
_STATE_TOLERANCES = {torch.float64: 1e-5, torch.float32: 1e-4}
#: Half precision rounds after every layer. A ring may be this many times as far from transformers' eager attention as
#: the same eager code is when only its attention is widened to float32, token by token.
_HALF_PRECISION_FACTOR = 3.0
#: Largest allowed difference of final states, relative to their largest, between whole and shards under an attention
#: that sees nothing. Half precision rounds a matrix product differently over another number of rows.
_LOCALITY = {torch.float64: 1e-5, torch.float32: 1e-4}
_LOCALITY_HALF_PRECISION = 0.1
#: Parts of class names of layers that carry something from token to token without attention.
_MIXERS = ("Alibi", "Conv1d", "DeltaNet", "Lightning", "LinearAttention", "Mamba", "Recurrent", "Rwkv", "ShortConv")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A gate that the model passed, and what was seen or measured there, for people."""

    name: str
    seen: str


def _silent(_: Gate) -> None:
    return None


def check_shardable(
    model: RingModel, kernel: Kernel | None = None, *, report: Callable[[Gate], None] = _silent
) -> float:
    """The largest difference between a ring of three and one piece: of log-probs in nats, without a head of states.

    `kernel` is the one that will compute, by default what `auto` chooses. In the model's own dtype, on its device, with
    its positions as trained; on the ring MLPs and norms run in tiles of 16 tokens, in one piece they do not. `report`
    is called with each gate that is passed. Raises `ModelError` naming the reason at the first one that is not.
    """
    kernel = choose_kernel("auto", model.device)[1] if kernel is None else kernel
    refuse_by_configuration(model.module.config, model.local.name)
    _refuse_mixers(model)
    report(
        Gate(name="configuration", seen="no state is carried along, attention can be replaced, no layer mixes tokens")
    )
    try:
        return _prove(model, kernel, report)
    except ModelError as error:
        # Whatever refuses inside of a layer does not know which model it belongs to.
        if f"model {model.local.name}" not in str(error):
            error.args = (f"model {model.local.name}: {error}",)
        raise
    except (LongdocError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # a pass runs code of each family, which raises what it likes
        raise ModelError(
            f"model {model.local.name}: its forward pass fails ({type(error).__name__}: {first_line(error)}); copy or "
            "download the model again, or use another one"
        ) from error


def _prove(model: RingModel, kernel: Kernel, report: Callable[[Gate], None]) -> float:
    with ExitStack() as windows:
        whole_TC, calls = _without_attention(model, windows)
        report(_layers(model, calls))
        report(_locality(model, whole_TC))
        error, gate = _ring(model, kernel)
        report(gate)
    return error


def _refuse_mixers(model: RingModel) -> None:
    classes = sorted({type(module).__name__ for module in model.module.modules()})
    found = [f"it has {name}" for name in classes if any(part in name for part in _MIXERS)]
    if found:
        raise refusal(model.local.name, *found)


def _without_attention(model: RingModel, windows: ExitStack) -> tuple[Tensor, list[AttentionCall]]:
    """The states [T, C] in one piece where no token sees another, and what the layers asked of their attention.

    From here on windows are small enough to bind in the check. Where a layer keeps its window in a place of its own,
    the two would contradict each other: windows then stay as they are.
    """
    windows.enter_context(small_windows(model.module, _WINDOW))
    whole_TC, calls = _recorded(model)
    if any(call.mask and call.window and call.mask.left != call.window - 1 for call in calls):
        windows.close()
        whole_TC, calls = _recorded(model)
    return whole_TC, calls


def _recorded(model: RingModel) -> tuple[Tensor, list[AttentionCall]]:
    positions_T = _probe_positions(model)
    with recorded_calls() as calls:
        whole_TC = whole_pass(model, _ids(model)[: len(positions_T)], positions_T, LOCAL_ATTENTION)
    return whole_TC, calls


def _layers(model: RingModel, calls: list[AttentionCall]) -> Gate:
    if len(calls) != model.num_layers:
        reason = f"a pass through its {model.num_layers} layers calls attention {len(calls)} times"
        raise refusal(model.local.name, f"{reason}, so tokens meet elsewhere or attention cannot be replaced")
    masks = [call.mask for call in calls if call.mask]
    for call in calls:
        if call.mask:
            refuse_contradictions(call.mask, window=call.window, is_causal=None, who=call.who)
    if len(masks) < len(calls):
        reason = f"{len(calls) - len(masks)} of its layers hand a mask of their own making to attention"
        raise refusal(model.local.name, f"{reason}, which may depend on more than distances")
    seen = ", ".join(f"{count} × {name}" for name, count in Counter(mask.name for mask in masks).items())
    causal = all(mask.is_causal for mask in masks)
    if causal != (model.local.attention_direction == "causal"):
        reason = f"its configuration describes {model.local.attention_direction} attention and its masks are {seen}"
        raise refusal(model.local.name, reason)
    return Gate(name="attention", seen=f"called once a layer: {seen}")


def _refuse_nonfinite(model: RingModel, whole: Tensor) -> None:
    """NaN differs from everything: without this it would be taken for tokens that mix."""
    if not bool(torch.isfinite(whole).all()):
        raise ModelError(
            f"model {model.local.name}: in one piece already it gives NaN or infinite numbers for {len(whole)} sample "
            f"tokens in {str(model.dtype).removeprefix('torch.')}, so its weights are damaged or it is too narrow for "
            "them; copy or download the model again, or use another --dtype"
        )


def _locality(model: RingModel, whole_TC: Tensor) -> Gate:
    _refuse_nonfinite(model, whole_TC)
    shards_TC = local_passes(model, _ids(model)[: len(whole_TC)], _probe_positions(model), _NUM_RANKS)
    difference_TC = (whole_TC.double() - shards_TC.double()).abs() / whole_TC.double().abs().max()
    allowed = _LOCALITY.get(model.dtype)
    # Half precision: the mean, because some token may visit another expert for a rounding.
    measured = float(difference_TC.max()) if allowed else float(difference_TC.amax(dim=1).mean())
    allowed = allowed or _LOCALITY_HALF_PRECISION
    if not measured <= allowed:  # NaN is refused as well
        reason = (
            f"without attention its shards differ by {measured:.2g} from the whole (allowed: {allowed:.2g}), so tokens"
        )
        raise refusal(model.local.name, f"{reason} mix elsewhere, or positions depend on the length of a shard")
    return Gate(name="locality", seen=f"without attention shards differ by {measured:.1e} (allowed: {allowed:.0e})")


def _ring(model: RingModel, kernel: Kernel) -> tuple[float, Gate]:
    token_ids_T, positions_T = _ids(model), torch.arange(_num_tokens(model), device=model.device)
    whole = _outputs(model, whole_pass(model, token_ids_T, positions_T, "eager"))
    _refuse_nonfinite(model, whole)
    ring = _outputs(model, ring_pass(model, token_ids_T, num_ranks=_NUM_RANKS, kernel=kernel, tile=SMALLEST_TILE))
    error = float((whole - ring).abs().max())
    measured, allowed = error, (TOLERANCES if model.local.has_head else _STATE_TOLERANCES).get(model.dtype)
    if allowed is None:
        widened = _outputs(model, whole_pass(model, token_ids_T, positions_T, FLOAT32_ATTENTION))
        measured, rounding = (_by_token(model, whole, other) for other in (ring, widened))
        allowed = _HALF_PRECISION_FACTOR * rounding
    what = "log-probabilities" if model.local.has_head else "final states"
    if not measured <= allowed:  # NaN is refused as well
        raise NotShardableError(
            f"model {model.local.name} cannot run on a ring: on {len(token_ids_T)} tokens its {what} differ by "
            f"{measured:.2g} from those in one piece (allowed: {allowed:.2g}), so something beside attention mixes "
            "tokens; use another model"
        )
    seen = f"on {len(token_ids_T)} tokens and {_NUM_RANKS} ranks {what} differ by {error:.1e}"
    limit = f"allowed: {allowed:.1e}" if error == measured else f"{measured:.1e} at a token, allowed: {allowed:.1e}"
    return error, Gate(name="ring", seen=f"{seen} ({limit})")


def _outputs(model: RingModel, hidden_TC: Tensor) -> Tensor:
    """Log-probabilities [T, V], or where there is no head the states [T, C] relative to the largest; in float64."""
    if model.local.has_head:
        return torch.log_softmax(model.logits(hidden_TC).to(torch.float64), dim=-1)
    return hidden_TC.to(torch.float64) / hidden_TC.abs().max().to(torch.float64)


def _by_token(model: RingModel, a_TV: Tensor, b_TV: Tensor) -> float:
    """The mean difference at the token where it is largest.

    Which expert a token visits may hang on a rounding, in transformers' own passes as well: where there are experts,
    the quarter of the tokens that differ most does not count.
    """
    has_experts = model.module._can_set_experts_implementation()  # type: ignore[operator]  # transformers
    return float((a_TV - b_TV).abs().mean(dim=-1).quantile(0.75 if has_experts else 1.0))


def _num_tokens(model: RingModel) -> int:
    """97, or as many as a table of positions holds."""
    has_table = model.local.rope_type == "none"
    return min(_NUM_TOKENS, model.local.context_trained) if has_table else _NUM_TOKENS


def _ids(model: RingModel) -> Tensor:
    return sample_ids(model.vocab_size, _num_tokens(model)).to(model.device)


def _probe_positions(model: RingModel) -> Tensor:
    """Half of the tokens at the start, half on both sides of the length at which rotary positions may change."""
    num_tokens = min(_NUM_PROBE_TOKENS, _num_tokens(model))
    near, num_far = range(num_tokens // 2), num_tokens - num_tokens // 2
    if model.local.rope_type == "none":
        return torch.arange(num_tokens, device=model.device)
    config: Any = model.module.config.get_text_config()  # type: ignore[operator, union-attr]  # transformers
    start = max(len(near), _rope_threshold(config) - num_far // 2)
    return torch.tensor([*near, *range(start, start + num_far)], device=model.device)


def _rope_threshold(config: Any) -> int:
    rope = getattr(config, "rope_parameters", None) or {}
    for parameters in (rope, *(part for part in rope.values() if isinstance(part, dict))):
        if original := parameters.get("original_max_position_embeddings"):
            return int(original)
    return int(config.max_position_embeddings)
