"""`tiny-random`: a fixed small Llama shape with drawn weights, for tests and for runs that measure the machinery.

The weights are the same bits on every machine and with every version of numpy and torch: they come from the raw
64-bit words of PCG64, whose stream numpy guarantees, and from integer sums, not from a library's normal distribution.
They are scaled so that attention decides: what stands early in a document changes the log-probs late in it.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from longdoc.model.safetensors_file import Float32s, LazyTensor

_HIDDEN, _INTERMEDIATE, _LAYERS, _HEADS, _KV_HEADS, _HEAD_DIM = 32, 64, 2, 2, 1, 16
# With unit-norm inputs a standard deviation of 0.25 over 32 channels gives attention scores that vary by about 2 and
# logits that vary by about 1.4: neither flat nor a single winner.
_WEIGHT_STD = 0.25


def tiny_config(vocab_size: int) -> dict[str, Any]:
    """config.json of the tiny model over a vocabulary of this size."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "bos_token_id": 1,
        "dtype": "float32",
        "eos_token_id": 2,
        "head_dim": _HEAD_DIM,
        "hidden_act": "silu",
        "hidden_size": _HIDDEN,
        "intermediate_size": _INTERMEDIATE,
        "max_position_embeddings": 8192,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": _HEADS,
        "num_hidden_layers": _LAYERS,
        "num_key_value_heads": _KV_HEADS,
        "pad_token_id": 2,
        "rms_norm_eps": 1e-05,
        "rope_parameters": {"rope_theta": 10_000.0, "rope_type": "default"},
        "tie_word_embeddings": True,
        "vocab_size": vocab_size,
    }


def tiny_tensors(vocab_size: int, seed: int) -> Iterator[LazyTensor]:
    """The weights in the order in which they are drawn; matrices vary by 0.25, norms are ones."""
    words = np.random.PCG64(seed)
    for name, shape in _shapes(vocab_size):
        values = np.ones(shape, np.float32) if len(shape) == 1 else _bell(words, shape)
        yield LazyTensor(name=name, shape=shape, make=partial(np.asarray, values))


def _shapes(vocab_size: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "model.embed_tokens.weight", (vocab_size, _HIDDEN)
    for layer in range(_LAYERS):
        prefix = f"model.layers.{layer}"
        yield f"{prefix}.input_layernorm.weight", (_HIDDEN,)
        yield f"{prefix}.self_attn.q_proj.weight", (_HEADS * _HEAD_DIM, _HIDDEN)
        yield f"{prefix}.self_attn.k_proj.weight", (_KV_HEADS * _HEAD_DIM, _HIDDEN)
        yield f"{prefix}.self_attn.v_proj.weight", (_KV_HEADS * _HEAD_DIM, _HIDDEN)
        yield f"{prefix}.self_attn.o_proj.weight", (_HIDDEN, _HEADS * _HEAD_DIM)
        yield f"{prefix}.post_attention_layernorm.weight", (_HIDDEN,)
        yield f"{prefix}.mlp.gate_proj.weight", (_INTERMEDIATE, _HIDDEN)
        yield f"{prefix}.mlp.up_proj.weight", (_INTERMEDIATE, _HIDDEN)
        yield f"{prefix}.mlp.down_proj.weight", (_HIDDEN, _INTERMEDIATE)
    yield "model.norm.weight", (_HIDDEN,)


def _bell(words: np.random.PCG64, shape: tuple[int, ...]) -> Float32s:
    """A bell-shaped draw: the sum of the four 16-bit quarters of a 64-bit word (Irwin-Hall with n = 4).

    Each quarter is uniform on 0..65535: mean 65535/2, variance (65536^2 - 1)/12.
    """
    quarters = words.random_raw(int(np.prod(shape))).view(np.uint16).reshape(-1, 4)
    centred = quarters.astype(np.int64).sum(axis=1) - 2 * 65_535
    scale = _WEIGHT_STD / np.sqrt(4 * (65_536.0**2 - 1) / 12)
    weights: Float32s = (centred * scale).astype(np.float32).reshape(shape)
    return weights
