"""Reading GGUF, against transformers' own reader and against tokenizers built from vocabulary and merges."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint
from transformers.utils import logging

from longdoc.errors import ModelError
from longdoc.model.gguf import GgufModel
from longdoc.model.local import LocalModel
from longdoc.model.safetensors_file import tensor_sizes, write_safetensors


def test_weights_are_bit_equal_to_what_transformers_reads_from_the_same_file(small_gguf: Path, tmp_path: Path) -> None:
    model = GgufModel(small_gguf)
    write_safetensors(tmp_path / "model.safetensors", list(model.tensors()))
    ours = load_file(tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(model.config()))
    empty = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(tmp_path), dtype=torch.float32)
    logging.disable_progress_bar()
    theirs = load_gguf_checkpoint(str(small_gguf), return_tensors=True, model_to_load=empty)["tensors"]
    assert set(ours) == set(theirs)
    assert [name for name in ours if not torch.equal(ours[name], torch.as_tensor(theirs[name]))] == []
    wanted = sum(parameter.numel() for parameter in empty.parameters())
    assert sum(tensor_sizes(tmp_path / "model.safetensors").values()) == wanted


def test_config_says_what_the_file_says(small_gguf: Path) -> None:
    config = GgufModel(small_gguf).config()
    assert config["rms_norm_eps"] == 1e-5
    assert config["rope_parameters"] == {"rope_type": "default", "rope_theta": 10_000.0}
    assert (config["hidden_size"], config["head_dim"], config["num_key_value_heads"]) == (64, 16, 2)
    assert config["max_position_embeddings"] == 128
    assert config["tie_word_embeddings"] is True


def test_written_safetensors_are_what_the_library_writes_and_always_the_same_bytes(
    small_gguf: Path, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        write_safetensors(tmp_path / name, list(GgufModel(small_gguf).tensors()))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with pytest.raises(FileExistsError):
        write_safetensors(tmp_path / "a", [])


@pytest.mark.parametrize("text", ["a  12 345", "3.14159", "x=007;", "\n 1\n\n22  ", "no digits", "٣٤ ²"])
def test_every_digit_is_a_token_of_its_own(small_gguf: Path, small_tokenizer: Tokenizer, text: str) -> None:
    ours = Tokenizer.from_str(GgufModel(small_gguf).tokenizer_bytes().decode())
    ids = ours.encode(text).ids
    assert ids == small_tokenizer.encode(text).ids
    tokens = [ours.id_to_token(token) for token in ids]
    assert not [token for token in tokens if any(c in "0123456789" for c in token) and len(token) > 1]


def test_digits_of_the_default_model_equal_a_tokenizer_built_from_its_parts(default_model: LocalModel) -> None:
    path = default_model.folder / "tokenizer.json"
    parts = json.loads(path.read_text("utf-8"))["model"]
    built = Tokenizer(models.BPE(parts["vocab"], [tuple(merge) for merge in parts["merges"]]))
    built.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    ours = Tokenizer.from_file(str(path))
    for text in ("a  12 345", "In 1851 Moby-Dick had 135 chapters.\n\n\n  2 3", "for i in range(1000):\n\treturn 0x1F"):
        assert ours.encode(text, add_special_tokens=False).ids == built.encode(text).ids
    assert ours.encode("a  12 345").tokens == ["a", "ĠĠ", "1", "2", "Ġ", "3", "4", "5"]


def test_control_tokens_are_added_tokens(small_gguf: Path) -> None:
    ours = Tokenizer.from_str(GgufModel(small_gguf).tokenizer_bytes().decode())
    assert ours.encode("a<|im_end|>").ids[-1] == 2
    assert ours.decode([2]) == ""
    assert ours.encode("", add_special_tokens=True).ids == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"pre": "llama-bpe"}, "tokenizer.ggml.pre is 'llama-bpe', and only 'smollm' is read"),
        ({"arch": "gemma"}, "general.architecture is 'gemma', and only 'llama' is read"),
    ],
)
def test_other_models_are_refused_by_name(make_gguf: Callable[..., Path], change: dict[str, str], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        GgufModel(make_gguf(**change))


def test_an_unknown_tensor_is_refused_by_name(make_gguf: Callable[..., Path]) -> None:
    model = GgufModel(make_gguf(extra="rope_freqs.weight"))
    with pytest.raises(ModelError, match=r"unknown tensor rope_freqs\.weight"):
        list(model.tensors())


def test_a_file_that_is_not_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"not a model at all, but long enough to be read" * 4)
    with pytest.raises(ModelError, match=r"x\.gguf: not a GGUF file .*; copy or download it again"):
        GgufModel(tmp_path / "x.gguf")
