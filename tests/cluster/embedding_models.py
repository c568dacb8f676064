"""Small embedding models in folders, as sentence-transformers lays them out, and what it would make of a text.

The oracle is the definition of the modules (https://sbert.net), written out on one unsharded transformers pass.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from torch import Tensor
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    EuroBertConfig,
    ModernBertConfig,
    PreTrainedConfig,
    Qwen3Config,
)

from longdoc.model.sources import find_model

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "max_position_embeddings": 4096,
    # Attention must matter: with the usual 0.02 every state is nearly its own token's.
    "initializer_range": 0.25,
}


@dataclass(frozen=True, kw_only=True)
class EmbeddingModel:
    """`around` is what the tokenizer puts before and after; `widths` are those of linear layers behind the pooling.

    `loader` decides whether the folder's configuration names a class with an output head.
    """

    config: PreTrainedConfig
    pooling: str
    around: tuple[str, str] = ("", "")
    is_normalized: bool = True
    prompts: dict[str, str] = field(default_factory=dict)
    widths: tuple[int, ...] = ()
    loader: Any = AutoModel

    def save(self, folder: Path, tokenizer_path: Path) -> Any:
        """Write the folder and open it."""
        torch.manual_seed(11)
        self.loader.from_config(self.config, dtype=torch.float32).save_pretrained(folder)
        tokenizer = Tokenizer.from_file(str(tokenizer_path))
        before, after = self.around
        if before or after:
            special = [(token, tokenizer.token_to_id(token)) for token in {before, after} - {""}]
            tokenizer.post_processor = TemplateProcessing(single=f"{before} $A {after}".strip(), special_tokens=special)
        tokenizer.save(str(folder / "tokenizer.json"))
        self._write_modules(folder)
        return find_model(str(folder))

    def _write_modules(self, folder: Path) -> None:
        kinds = ["Transformer", "Pooling", *["Dense"] * (len(self.widths) - 1), *["Normalize"] * self.is_normalized]
        paths = ["" if at == 0 else f"{at}_{kind}" for at, kind in enumerate(kinds)]
        modules = [
            {"idx": at, "name": str(at), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for at, (kind, path) in enumerate(zip(kinds, paths))
        ]
        (folder / "modules.json").write_text(json.dumps(modules))
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{self.pooling}": True}))
        (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": self.prompts}))
        for at, (width, next_width) in enumerate(zip(self.widths, self.widths[1:]), start=2):
            path = folder / f"{at}_Dense"
            path.mkdir()
            config = {"in_features": width, "out_features": next_width, "bias": False}
            config["activation_function"] = "torch.nn.modules.linear.Identity"
            (path / "config.json").write_text(json.dumps(config))
            save_file({"linear.weight": torch.randn(next_width, width)}, path / "model.safetensors")


def encoder(**fields: Any) -> EmbeddingModel:
    """A ModernBERT with windows in two of three layers, and its own tokens around a text."""
    config = ModernBertConfig(
        **SIZES,
        **dict.fromkeys(("pad_token_id", "bos_token_id", "cls_token_id"), 1),
        **dict.fromkeys(("eos_token_id", "sep_token_id"), 2),
        vocab_size=49152,
        global_attn_every_n_layers=3,
        local_attention=16,
    )
    return EmbeddingModel(config=config, around=("<|im_start|>", "<|im_end|>"), **fields)


def eurobert(**fields: Any) -> EmbeddingModel:
    config = EuroBertConfig(**SIZES, num_key_value_heads=1, vocab_size=49152, pad_token_id=0)
    return EmbeddingModel(config=config, around=("<|im_start|>", "<|im_end|>"), **fields)


def qwen3(**fields: Any) -> EmbeddingModel:
    """A Qwen3 whose tokenizer puts the end token behind a text, as Qwen3-Embedding's does."""
    config = Qwen3Config(**SIZES, num_key_value_heads=1, head_dim=16, vocab_size=49152, tie_word_embeddings=True)
    return EmbeddingModel(config=config, around=("", "<|endoftext|>"), loader=AutoModelForCausalLM, **fields)


def states_of(folder: Path, token_ids: list[int]) -> Tensor:
    """hidden_TC of one plain pass, float64."""
    plain = AutoModel.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="sdpa", local_files_only=True
    ).eval()
    with torch.no_grad():
        output = plain(input_ids=torch.tensor([token_ids]), attention_mask=torch.ones(1, len(token_ids)))
    return output.last_hidden_state[0].double()


def unit(vector: Tensor) -> Tensor:
    return vector / vector.norm()
