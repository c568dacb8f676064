"""A forward pass of a large Llama shape on one GPU, random weights, a ring of one: time, and memory against forecast.

The path is that of a run, from token ids to final states: the same model wrapper, tiles, hook and kernel. Nothing is
downloaded. Legend: T tokens.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longdoc.bench.gpu_device import BenchDevice
from longdoc.bench.report import Cell
from longdoc.estimate import LARGE_TILE_BYTES, ModelShape, bytes_per_rank
from longdoc.model.layers import layer_shapes
from longdoc.model.load import RingModel
from longdoc.model.local import LocalModel
from longdoc.model.positions import ContextExtension, trained_positions
from longdoc.model.tiling import tile_layers
from longdoc.ring.exchange.loopback import LoopbackRing
from longdoc.ring.hook import RING_ATTENTION, RingContext, register_ring_attention, use_ring
from longdoc.ring.kernels import choose_kernel
from longdoc.ring.layout import Layout

_DTYPE = "bfloat16"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardShape:
    """A Llama: the numbers of its configuration."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    vocab_size: int

    @property
    def head_dim(self) -> int:
        """Dimensions of one head."""
        return self.hidden_size // self.num_heads

    @property
    def num_parameters(self) -> int:
        """Weights: embedding and head; for each layer four projections of attention, three of the MLP, two norms."""
        attention = 2 * self.hidden_size * (self.num_heads + self.num_kv_heads) * self.head_dim
        layer = attention + 3 * self.hidden_size * self.intermediate_size + 2 * self.hidden_size
        return 2 * self.vocab_size * self.hidden_size + self.num_layers * layer + self.hidden_size

    def flops(self, num_tokens: int) -> float:
        """Two operations for each weight of a layer and each token, 4·D for each head and each visible pair."""
        weights = self.num_parameters - 2 * self.vocab_size * self.hidden_size
        pairs = num_tokens * (num_tokens + 1) / 2
        return 2.0 * weights * num_tokens + 4.0 * self.num_layers * self.hidden_size * pairs


#: Llama 3.1 8B (arXiv:2407.21783, table 3).
LARGE_SHAPE = ForwardShape(
    hidden_size=4096, intermediate_size=14336, num_layers=32, num_heads=32, num_kv_heads=8, vocab_size=128256
)
SMALL_SHAPE = ForwardShape(
    hidden_size=64, intermediate_size=96, num_layers=2, num_heads=4, num_kv_heads=2, vocab_size=128
)


class RandomModel:
    """A model of one shape with random weights, made on the device when it is first needed."""

    def __init__(self, shape: ForwardShape, device: BenchDevice) -> None:
        self.shape, self.device = shape, device

    @cached_property
    def model(self) -> RingModel:
        """The model, wrapped for a ring."""
        from transformers import AutoModelForCausalLM, LlamaConfig

        shape = self.shape
        config = LlamaConfig(
            hidden_size=shape.hidden_size,
            intermediate_size=shape.intermediate_size,
            num_hidden_layers=shape.num_layers,
            num_attention_heads=shape.num_heads,
            num_key_value_heads=shape.num_kv_heads,
            vocab_size=shape.vocab_size,
            max_position_embeddings=1 << 20,
            rope_parameters={"rope_type": "default", "rope_theta": 500_000.0},
            tie_word_embeddings=False,
        )
        register_ring_attention()
        with self.device.device:
            module: Any = AutoModelForCausalLM.from_config(
                config, dtype=getattr(torch, _DTYPE), attn_implementation=RING_ATTENTION
            )
        module.eval().requires_grad_(False)
        tile_layers(
            module.base_model,
            num_layers=shape.num_layers,
            intermediate_size=shape.intermediate_size,
            budget_bytes=LARGE_TILE_BYTES,
        )
        return RingModel(module, _local(shape, config))

    def forward(self, num_tokens: int) -> dict[str, Cell]:
        """One pass over `num_tokens` random tokens that does not count, over few tokens, and one that does."""
        self._states(min(num_tokens, 1024))
        self.device.reset_peak()
        seconds = self.device.timed(lambda: self._states(num_tokens))
        peak, forecast = self.device.peak_bytes(), self.forecast_bytes(num_tokens)
        return {
            "seconds": seconds,
            "tokens/s": num_tokens / seconds,
            "peak GiB": None if peak is None else peak / 2**30,
            "forecast GiB": forecast / 2**30,
            "peak / forecast": None if peak is None else peak / forecast,
            **self.device.rates(self.shape.flops(num_tokens), seconds),
        }

    def forecast_bytes(self, num_tokens: int) -> int:
        """What the formula says of a rank on a GPU: the interpreter and its libraries lie elsewhere."""
        return bytes_per_rank(ModelShape.of(self.model.local, _DTYPE, "cuda"), num_tokens, 1)

    def _states(self, num_tokens: int) -> Tensor:
        layout = Layout(kind="zigzag", num_tokens=num_tokens, num_ranks=1)
        kernel = choose_kernel("auto", self.device.device, getattr(torch, _DTYPE))[1]
        context = RingContext(layout=layout, exchange=LoopbackRing(1).exchange(0), kernel=kernel)
        token_ids = torch.randint(0, self.shape.vocab_size, (num_tokens,), device=self.device.device)
        self.model.set_positions(ContextExtension(), num_tokens)
        with torch.inference_mode(), use_ring(context):
            states = self.model.hidden_states(token_ids, torch.arange(num_tokens, device=self.device.device))
        context.assert_engaged(self.shape.num_layers)
        return states


def _local(shape: ForwardShape, config: Any) -> LocalModel:
    """What a folder would have said about it."""
    return LocalModel(
        name="random",
        folder=Path(),
        source="random",
        source_sha256=None,
        digest="",
        positions=trained_positions(config, "random"),
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_layers=shape.num_layers,
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        vocab_size=shape.vocab_size,
        num_parameters=shape.num_parameters,
        num_active_parameters=shape.num_parameters - 2 * shape.vocab_size * shape.hidden_size,
        layers=layer_shapes(config),
        has_head=True,
        attention_direction="causal",
    )
