"""A model in memory, ready for a ring: `load_model` and `RingModel`.

Owns loading (safetensors only, from a folder, never from a network), and the two halves of a forward pass: hidden
states of a shard at its global positions, and the model's own output head over a tile of them. Keeps no K/V cache and
no gradient. Refuses weights that are missing or misshapen: transformers would fill them with noise and go on.
Legend: T tokens of a shard or tile, C hidden size, V vocabulary; B batch (1), H query heads, G key-value heads,
D head dimension.
"""

import contextlib
import copy
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from longdoc.errors import ModelError, StartError
from longdoc.model.local import LocalModel, configurations
from longdoc.model.positions import ContextExtension
from longdoc.model.rotary import RotaryPositions
from longdoc.model.tiling import TILE_BYTES, tile_layers, tile_tokens
from longdoc.ring.hook import RING_ATTENTION, register_ring_attention

_LARGEST_LOGITS_BYTES = 1 << 30


class RingModel:
    """A model whose attention runs on a ring and whose other parts run on the shard alone.

    `module` is transformers' own: with its output head where `local.has_head`, an encoder or a bare model otherwise.
    """

    def __init__(self, module: nn.Module, local: LocalModel, tile_bytes: int = TILE_BYTES) -> None:
        self.module = module
        self.tile_bytes = tile_bytes
        self.local = local
        self._base: nn.Module = module.base_model  # type: ignore[assignment]  # transformers: the model without its head
        self._head = _head_of(module, self._base) if local.has_head else None
        self._rotary = RotaryPositions(self._base)
        # Encoders keep no keys and values, and some pass on what they do not know.
        config: Any = self._base.config
        self._no_cache = {"use_cache": False} if hasattr(config, "use_cache") else {}
        self.num_layers = local.num_layers
        self.embedding_size = local.hidden_size
        self.vocab_size = local.vocab_size

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights, in which hidden states come."""
        return next(self.module.parameters()).dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are, and where token ids, positions and states belong."""
        return next(self.module.parameters()).device

    @property
    def attention(self) -> str:
        """The name of the attention that transformers calls."""
        return str(self._base.config._attn_implementation)  # type: ignore[union-attr]  # transformers' own record of it

    @property
    def extension(self) -> ContextExtension:
        """The context extension that is in place."""
        return self._rotary.current

    def set_positions(self, extension: ContextExtension, num_tokens: int) -> None:
        """Set the rotary positions for a document of `num_tokens`, all ranks' together, stretched or as trained.

        Nothing of one document stays for the next. Raises `ModelError` where they cannot be extended.
        """
        self._rotary.set(extension, num_tokens)

    def restore_positions(self) -> None:
        """Let transformers set the positions itself again: right for a document in one piece, not for shards."""
        self._rotary.restore()

    @torch.no_grad()
    def hidden_states(self, token_ids_T: Tensor, positions_T: Tensor) -> Tensor:
        """hidden_TC after the final norm, in the model's dtype, for int64 ids at int64 global positions.

        On a ring the positions must have been set for the whole document if they depend on its length (`ValueError`).
        T may be 0: a rank without tokens runs the model on one placeholder, because transformers cannot reshape an
        empty shard; the ring lets it take part in every hop and attends with nothing of it.
        """
        if token_ids_T.shape != positions_T.shape or token_ids_T.dim() != 1:
            raise ValueError(f"token ids {tuple(token_ids_T.shape)} at positions {tuple(positions_T.shape)}")
        if self.attention == RING_ATTENTION:
            self._rotary.check(positions_T)
        if len(token_ids_T) == 0:
            placeholder_1 = token_ids_T.new_zeros(1)
            return self._states(placeholder_1, placeholder_1)[:0]
        return self._states(token_ids_T, positions_T)

    def _states(self, token_ids_T: Tensor, positions_T: Tensor) -> Tensor:
        output = self._base(
            input_ids=token_ids_T[None],
            position_ids=positions_T[None] + self.local.positions.first,
            # Without a mask and a cache, positions that jump (zigzag) look like packed documents to transformers.
            attention_mask=torch.ones((1, len(token_ids_T)), dtype=torch.int64, device=token_ids_T.device),
            **self._no_cache,
        )
        hidden_TC: Tensor = output.last_hidden_state[0]
        return hidden_TC

    @torch.no_grad()
    def logits(self, hidden_TC: Tensor) -> Tensor:
        """logits_TV in the model's dtype, with the model's own scaling and capping. For tiles, never for a shard.

        Raises `ValueError` for more tokens than 1 GiB of logits (`head_tile_tokens` is a good number), and for a model
        without a head, which `check_outputs` tells before.
        """
        if self._head is None:
            raise ValueError(f"model {self.local.name} has no output head")
        num_bytes = len(hidden_TC) * self.vocab_size * hidden_TC.element_size()
        if num_bytes > _LARGEST_LOGITS_BYTES:
            raise ValueError(
                f"logits of {len(hidden_TC)} tokens would take {num_bytes} bytes; use tiles of {self.head_tile_tokens}"
            )
        logits_TV: Tensor = self._head(inputs_embeds=hidden_TC[None], use_cache=False).logits[0]
        return logits_TV

    @property
    def head_tile_tokens(self) -> int:
        """How many tokens of logits, in float32 for the softmax, fit the byte budget of a tile."""
        return tile_tokens(4 * self.vocab_size, self.tile_bytes)


class _BaseOutput:
    """What a base model returns, with nothing but states in it; families read them by name or as the first item."""

    def __init__(self, hidden_BTC: Tensor) -> None:
        self.last_hidden_state = hidden_BTC

    def __getattr__(self, name: str) -> None:
        # Caches, attentions, routing scores: asked for by some families, wanted by nobody here.
        if name.startswith("__"):
            raise AttributeError(name)

    def __getitem__(self, key: int | slice) -> Any:
        return (self.last_hidden_state,)[key]


class _StatesAsGiven(nn.Module):
    """Stands where the base model stood: hands its input on, so that only the head's part of a forward runs."""

    def forward(self, *_: Any, inputs_embeds: Tensor, **__: Any) -> _BaseOutput:
        return _BaseOutput(inputs_embeds)


def _head_of(module: nn.Module, base: nn.Module) -> nn.Module:
    """The same model without its layers: the family's own forward, so every scaling and capping of logits is its own.

    A shallow copy that shares the weights of the head; the original is not touched.
    """
    names = [name for name, child in module.named_children() if child is base]
    if len(names) != 1:
        raise ModelError(f"{type(module).__name__} has no base model under a head; use a causal language model")
    head = copy.copy(module)
    head._modules = {**module._modules, names[0]: _StatesAsGiven()}
    return head


def load_model(
    local: LocalModel,
    *,
    dtype: torch.dtype,
    device: str = "cpu",
    attention: str = RING_ATTENTION,
    tile_bytes: int = TILE_BYTES,
) -> RingModel:
    """Load a model for inference. `attention` names an entry of transformers' table; the default is the ring's.

    What runs in token tiles keeps about `tile_bytes` alive, see `longdoc.estimate.tile_bytes`.

    On a GPU the weights go there one by one, without a copy of the model in the machine's memory; transformers does
    that through accelerate. Raises `ModelError` for whatever transformers cannot load, and weights that do not fit the
    configuration; `StartError` where accelerate is missing.
    """
    if device != "cpu" and find_spec("accelerate") is None:
        raise StartError(
            f"accelerate is not installed, and weights are loaded to {device} through it: pip install 'longdoc[gpu]'"
        )
    if attention == RING_ATTENTION:
        register_ring_attention()
    module = _from_pretrained(local, dtype, attention, device)
    module.eval()
    module.requires_grad_(False)
    module.to(device)
    model = RingModel(module, local, tile_bytes)
    tile_layers(
        module.base_model,  # type: ignore[arg-type]  # as above
        num_layers=local.num_layers,
        intermediate_size=local.intermediate_size,
        budget_bytes=tile_bytes,
    )
    return model


# Models for pictures and text keep the weights of their text part under a name of their own.
_TEXT_PART = {
    r"^(model\.)?language_model\.(model\.)?(?!lm_head)": "model.",
    r"^(model\.)?language_model\.lm_head": "lm_head",
}


def _from_pretrained(local: LocalModel, dtype: torch.dtype, attention: str, device: str) -> nn.Module:
    from transformers import AutoModel, AutoModelForCausalLM

    options: dict[str, Any] = {} if device == "cpu" else {"device_map": {"": device}}
    whole, text = configurations(local.folder)
    if whole is not text:
        options |= {"config": text, "key_mapping": _TEXT_PART}
    if dtype == torch.float64:
        # The grouped matrix product that transformers takes for mixtures of experts does not know doubles.
        options["experts_implementation"] = "eager"
    try:
        with _quiet_transformers():
            module, loading = (AutoModelForCausalLM if local.has_head else AutoModel).from_pretrained(
                local.folder,
                dtype=dtype,
                attn_implementation=attention,
                use_safetensors=True,
                local_files_only=True,
                trust_remote_code=False,
                output_loading_info=True,
                **options,
            )
    except MemoryError:
        raise
    except Exception as error:  # loading runs code of each family, of safetensors and of packages they miss
        raise ModelError(
            f"model {local.name}: it cannot be loaded ({first_line(error)}); it must be a language model or encoder "
            "of a family that transformers knows, saved whole"
        ) from error
    _refuse_missing(local.name, loading)
    loaded: nn.Module = module
    return loaded


def _refuse_missing(name: str, loading: dict[str, Any]) -> None:
    # The pooler of an encoder works on one token behind the last layer; nobody asks for what it gives.
    missing = [key for key in sorted(loading["missing_keys"]) if not key.startswith("pooler.")]
    wrong = missing + [str(key) for key in loading["mismatched_keys"]]
    if wrong:
        raise ModelError(
            f"model {name}: {len(wrong)} weights are missing or have another shape than config.json says, the first is "
            f"{wrong[0]}; copy or download the model again"
        )


def first_line(error: Exception) -> str:
    """What an error says, in one line; its type where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextlib.contextmanager
def _quiet_transformers() -> Iterator[None]:
    """No progress bars and no remarks while loading; what was set before is set again."""
    from transformers.utils import logging

    verbosity, had_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if had_bars:
            logging.enable_progress_bar()
