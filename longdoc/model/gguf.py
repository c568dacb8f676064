"""The one reader of GGUF: a Llama-shaped model becomes config.json, float32 safetensors and tokenizer.json.

Why not transformers' own `from_pretrained(gguf_file=...)`: its tokenizer conversion forgets what
`tokenizer.ggml.pre = smollm` says (each digit by itself), and it needs the whole model in memory. It is the oracle of
the tests instead: the same GGUF read both ways must give bit-equal weights.

Weights are kept in float32. A Q4_1 value is d*q + m with d, m in float16 and q in 0..15, a Q8_0 value d*q with q in
-128..127: the products need 15 and 18 significant bits, and float16 (11) or bfloat16 (8) would round what the file
says. The price is 4 bytes a parameter on disk.

Refused by name: other architectures, other tokenizers, unknown tensors, tokenizers that add tokens of their own.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from longdoc.errors import ModelError
from longdoc.model.safetensors_file import Float32s, LazyTensor

_CONTROL = 3  # token_type of the format: 1 normal, 3 control
_GLOBAL_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class GgufModel:
    """A GGUF file of a Llama-shaped model, opened by memory map. Raises `ModelError` for what it does not know."""

    def __init__(self, path: Path) -> None:
        import gguf

        try:
            self._reader = gguf.GGUFReader(path)
        except (ValueError, KeyError, IndexError) as error:
            raise ModelError(f"{path.name}: not a GGUF file ({error}); copy or download it again") from None
        self._name = path.name
        self._expect("general.architecture", "llama")
        self._expect("tokenizer.ggml.model", "gpt2")
        self._expect("tokenizer.ggml.pre", "smollm")
        for key in ("add_bos_token", "add_eos_token", "add_space_prefix"):
            self._expect(f"tokenizer.ggml.{key}", False, default=False)

    def _field(self, key: str, default: Any = None) -> Any:
        found = self._reader.get_field(key)
        return default if found is None else found.contents()

    def _expect(self, key: str, wanted: Any, default: Any = None) -> None:
        found = self._field(key, default)
        if found != wanted:
            raise ModelError(
                f"{self._name}: {key} is {found!r}, and only {wanted!r} is read from GGUF; "
                "convert the model to safetensors with tokenizer.json and name the folder"
            )

    def config(self) -> dict[str, Any]:
        """The model's config.json, every field spelled out so that no library default can change it."""
        num_heads = self._field("llama.attention.head_count")
        hidden_size = self._field("llama.embedding_length")
        return {
            "architectures": ["LlamaForCausalLM"],
            "attention_bias": False,
            "bos_token_id": self._field("tokenizer.ggml.bos_token_id"),
            "dtype": "float32",
            "eos_token_id": self._field("tokenizer.ggml.eos_token_id"),
            "head_dim": self._field("llama.attention.key_length", hidden_size // num_heads),
            "hidden_act": "silu",
            "hidden_size": hidden_size,
            "intermediate_size": self._field("llama.feed_forward_length"),
            "max_position_embeddings": self._field("llama.context_length"),
            "mlp_bias": False,
            "model_type": "llama",
            "num_attention_heads": num_heads,
            "num_hidden_layers": self._field("llama.block_count"),
            "num_key_value_heads": self._field("llama.attention.head_count_kv", num_heads),
            "pad_token_id": self._field("tokenizer.ggml.padding_token_id"),
            # GGUF stores float32: the shortest decimal that rounds to it is what the authors wrote (1e-05).
            "rms_norm_eps": _shortest(self._field("llama.attention.layer_norm_rms_epsilon")),
            "rope_parameters": {
                "rope_theta": _shortest(self._field("llama.rope.freq_base", 10_000.0)),
                "rope_type": "default",
            },
            "tie_word_embeddings": all(tensor.name != "output.weight" for tensor in self._reader.tensors),
            "vocab_size": len(self._field("tokenizer.ggml.tokens")),
        }

    def tensors(self) -> Iterator[LazyTensor]:
        """The weights under the names transformers gives them, dequantised one by one when they are made."""
        config = self.config()
        heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
        for tensor in self._reader.tensors:
            layer = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", tensor.name)
            part = layer[2] if layer else ""
            name = _GLOBAL_NAMES.get(tensor.name)
            if layer and part in _LAYER_NAMES:
                name = f"model.layers.{layer[1]}.{_LAYER_NAMES[part]}.weight"
            if name is None:
                raise ModelError(f"{self._name}: unknown tensor {tensor.name}; name a folder of safetensors instead")
            # GGUF lists dimensions innermost first.
            shape = tuple(int(size) for size in reversed(tensor.shape.tolist()))
            yield LazyTensor(name=name, shape=shape, make=_maker(tensor, heads.get(part)))

    def tokenizer(self) -> dict[str, Any]:
        """The model's tokenizer.json: byte-level BPE behind a pre-tokenizer that isolates every digit."""
        tokens = self._field("tokenizer.ggml.tokens")
        types = self._field("tokenizer.ggml.token_type")
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [
                _added_token(token_id, token)
                for token_id, (token, kind) in enumerate(zip(tokens, types, strict=True))
                if kind == _CONTROL
            ],
            "normalizer": None,
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
            },
            "post_processor": None,
            "decoder": byte_level,
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": False,
                "vocab": {token: token_id for token_id, token in enumerate(tokens)},
                "merges": [merge.split(" ") for merge in self._field("tokenizer.ggml.merges")],
            },
        }

    def tokenizer_bytes(self) -> bytes:
        """tokenizer.json as it is written: the same bytes on every machine."""
        return json.dumps(self.tokenizer(), ensure_ascii=False, indent=1).encode("utf-8")


def _shortest(value: float) -> float:
    return float(str(np.float32(value)))


def _added_token(token_id: int, token: str) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": token_id, "content": token, **flags}


def _maker(tensor: Any, num_heads: int | None) -> Any:
    def make() -> Float32s:
        import gguf

        weights: Float32s = gguf.dequantize(tensor.data, tensor.tensor_type)
        return weights if num_heads is None else _unpermute(weights, num_heads)

    return make


def _unpermute(weights: npt.NDArray[np.float32], num_heads: int) -> Float32s:
    """Rows of q and k from GGUF's order to the one of transformers.

    GGUF rotates neighbouring pairs (x0, x1), (x2, x3), ...; transformers rotates halves (x0, x_{D/2}), ...
    So within a head row 2i + j of the file is row j * D/2 + i here (llama.cpp, convert_hf_to_gguf.py, `permute`).
    """
    rows, columns = weights.shape
    pairs = weights.reshape(num_heads, rows // num_heads // 2, 2, columns)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows, columns)
