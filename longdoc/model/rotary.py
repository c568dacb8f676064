"""A model's rotary positions for one document: the model's own for that length, or stretched ones.

Owns the rotary modules of a loaded model. They are replaced, never changed, so nothing of one document is left for
the next. Two kinds of positions change with the length of what a module is given (`dynamic_rope_update` in
transformers' modeling_rope_utils): dynamic NTK takes its base from it, longrope its short or long factors. A rank
gives it a shard. Such a module is therefore run once on the last position of the whole document, by transformers' own
code, and then kept from updating. Every other kind is static. Refuses modules that depend on what they are given in
yet another way, frequencies that were cast below float32 (half precision ruins long positions), and to run on a ring
before the length is known. Legend: B batch (1), T positions.
"""

import copy
import threading
from typing import Any

import torch
from torch import Tensor, nn

from longdoc.errors import ModelError, NotShardableError
from longdoc.model.positions import (
    MOST_TOKENS,
    UNEXTENDED,
    ContextExtension,
    is_by_layer_type,
    rope_of_whole_document,
)

_FREQUENCIES = "inv_freq"
#: A rope type that transformers does not update.
_FROZEN = "frozen"


class RotaryPositions:
    """The rotary modules of one model: as loaded, or made for a document.

    Ranks that are threads share a model: they may all call `set` with the same arguments, the first one acts.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._loaded = {path: module for path, module in model.named_modules() if _own_frequencies(module)}
        for path, module in self._loaded.items():
            _refuse_half_precision(path, module)
            _refuse_shard_dependence(module)
        self._depends_on_length = any(map(_updating_types, self._loaded.values()))
        self._lock = threading.Lock()
        self._current: tuple[ContextExtension, int | None] = (UNEXTENDED, None)
        self.restore()

    @property
    def current(self) -> ContextExtension:
        """The extension that is in place."""
        return self._current[0]

    def restore(self) -> None:
        """The positions as transformers has them, updates included: for a document in one piece, never for a shard."""
        with self._lock:
            self._replace({path: _copy_of(module) for path, module in self._loaded.items()})
            self._current = (UNEXTENDED, None)

    def set(self, extension: ContextExtension, num_tokens: int) -> None:
        """Put the positions of a document of `num_tokens` (all ranks' together) into the model.

        Raises `ModelError` where the model's positions cannot be extended; they then stay as they were.
        """
        with self._lock:
            if self._current == (extension, num_tokens):
                return
            if extension.changes_model and not self._loaded:
                raise ModelError(_cannot_extend("it has no rotary positions"))
            made = {path: _made(module, extension, num_tokens) for path, module in self._loaded.items()}
            self._replace(made)
            self._current = (extension, num_tokens)

    def check(self, positions_T: Tensor) -> None:
        """Raise `ValueError` unless the model is set for a document that holds these positions [T]."""
        num_tokens = self._current[1]
        if not self._depends_on_length or len(positions_T) == 0:
            return
        last = int(positions_T.max())
        if num_tokens is None or last >= num_tokens:
            raise ValueError(f"position {last} of a model whose positions are set for {num_tokens} tokens")

    def _replace(self, modules: dict[str, nn.Module]) -> None:
        for path, module in modules.items():
            self._model.set_submodule(path, module)


def _own_frequencies(module: nn.Module) -> list[Tensor]:
    return [buffer for name, buffer in module.named_buffers(recurse=False) if name.endswith(_FREQUENCIES)]


def _refuse_half_precision(path: str, module: nn.Module) -> None:
    for frequencies in _own_frequencies(module):
        if frequencies.dtype.itemsize < torch.float32.itemsize:
            raise ValueError(f"{path}: rotary frequencies were cast to {frequencies.dtype}; load weights in that dtype")


def _rope_types(module: nn.Module) -> dict[str | None, str]:
    """The rope type for each layer type, under None where there is one for all."""
    rope_type = getattr(module, "rope_type", None)
    if isinstance(rope_type, dict):
        return dict(rope_type)
    return {} if rope_type is None else {None: str(rope_type)}


def _updating_types(module: nn.Module) -> list[str | None]:
    """The layer types whose frequencies transformers updates in the forward pass."""
    return [layer for layer, name in _rope_types(module).items() if "dynamic" in name or name == "longrope"]


def _copy_of(loaded: nn.Module) -> nn.Module:
    """A module that may update itself without changing the loaded one; the loaded one where it never does."""
    if not _updating_types(loaded):
        return loaded
    config = loaded.config
    copied: nn.Module = copy.deepcopy(loaded, {id(config): config})
    return copied


def _refuse_shard_dependence(loaded: nn.Module) -> None:
    """Prove that the first position, given alone, is what it is beside the last of the longest document."""
    device = _own_frequencies(loaded)[0].device
    alone, together = torch.tensor([[0]], device=device), torch.tensor([[0, MOST_TOKENS - 1]], device=device)
    try:
        frozen = _frozen(loaded, MOST_TOKENS)
        pairs = [
            (first, both[..., :1, :])
            for layer in _rope_types(loaded)
            for first, both in zip(_run(frozen, alone, layer), _run(frozen, together, layer), strict=True)
        ]
    except (IndexError, RuntimeError, TypeError, ValueError) as error:  # positions of pictures, for example
        raise _cannot_run(loaded, f"does not take one position a token ({error})") from error
    if not all(torch.allclose(first, again, rtol=0, atol=1e-5) for first, again in pairs):
        raise _cannot_run(loaded, "gives a token another position when a later one is present, which no shard can know")


def _cannot_run(loaded: nn.Module, cause: str) -> NotShardableError:
    return NotShardableError(
        f"the model cannot run on a ring: its {type(loaded).__name__} {cause}; use another model (see `longdoc models "
        "list`)"
    )


def _run(rotary: Any, positions_BT: Tensor, layer: str | None) -> tuple[Tensor, ...]:
    """The cos and sin of a rotary module in float32, for one layer type where it keeps several."""
    states = torch.zeros((*positions_BT.shape, 1), device=positions_BT.device)
    # Outside of inference mode, so that what it may keep is an ordinary tensor whoever calls.
    with torch.inference_mode(False), torch.no_grad():
        return tuple(rotary(states, positions_BT) if layer is None else rotary(states, positions_BT, layer))


def _made(loaded: nn.Module, extension: ContextExtension, num_tokens: int) -> nn.Module:
    if not extension.changes_model:
        return _frozen(loaded, num_tokens)
    # A new module computes its frequencies in float32 and is never cast.
    frequencies = getattr(loaded, f"full_attention_{_FREQUENCIES}", None)
    if frequencies is None:
        frequencies = _own_frequencies(loaded)[0]
    config = extended_config(getattr(loaded, "config", None), extension, rotary_dim=2 * len(frequencies))
    built: nn.Module = type(loaded)(config)
    return built.to(device=frequencies.device)


def _frozen(loaded: nn.Module, num_tokens: int) -> nn.Module:
    """The module with the frequencies that it has for a document of this length, and no more updates."""
    frozen: Any = _copy_of(loaded)
    last = torch.tensor([[num_tokens - 1]], device=_own_frequencies(loaded)[0].device)
    for layer in _updating_types(loaded):
        _run(frozen, last, layer)
        if layer is None:
            frozen.rope_type = _FROZEN
        else:
            frozen.rope_type = {**frozen.rope_type, layer: _FROZEN}
    module: nn.Module = frozen
    return module


def extended_config(config: Any, extension: ContextExtension, *, rotary_dim: int) -> Any:
    """A deep copy of a transformers configuration whose rotary parameters carry the extension.

    yarn: Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", arXiv:2309.00071, with its
    constants (beta 32 and 1, attention scaled by 0.1 ln(factor) + 1), as `_compute_yarn_parameters` of transformers.
    theta: "NTK-aware" scaling, section 3.1 of the same paper. With d rotated dimensions of a head (`rotary_dim`) the
    base becomes

        theta * factor ^ (d / (d - 2)),

    so that the slowest frequency is divided by exactly `factor` and the fastest stays as it is.

    Where parameters are kept by layer type only those of full attention are extended: the other layers never see
    farther than their window. Raises `ModelError` unless the rotary positions in question are plain.
    """
    rope = rope_of_whole_document(config)
    if rope.get("rope_type") != "default":
        raise ModelError(_cannot_extend(f"its rotary positions are {rope.get('rope_type', 'of its own kind')}"))
    extended, trained = copy.deepcopy(config), config.max_position_embeddings
    if extension.kind == "yarn":
        stretched = {"rope_type": "yarn", "factor": extension.factor, "original_max_position_embeddings": trained}
    else:
        exponent = rotary_dim / (rotary_dim - 2)
        stretched = {"rope_theta": rope["rope_theta"] * extension.factor**exponent}
    rope |= stretched
    by_layer_type = is_by_layer_type(config.rope_parameters)
    extended.rope_parameters = {**config.rope_parameters, "full_attention": rope} if by_layer_type else rope
    extended.max_position_embeddings = round(trained * extension.factor)
    if hasattr(extended, "original_max_position_embeddings"):  # Phi3: wins over the rotary parameters' own
        extended.original_max_position_embeddings = trained
    return extended


def _cannot_extend(cause: str) -> str:
    return f"the model's context cannot be extended, {cause}; use --context-extension none, or a model trained to more"
