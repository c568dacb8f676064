"""Damaged, unusual and mismatched models: one line that names the file, before anything is computed."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from transformers import LlamaConfig

from longdoc.errors import ModelError
from longdoc.model.load import load_model
from longdoc.model.local import check_fits
from longdoc.model.sources import find_model
from longdoc.tokenization.vocabulary import Vocabulary

SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4}
LLAMA = LlamaConfig(**SMALL, num_key_value_heads=2, vocab_size=400, max_position_embeddings=256)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(save_model: Callable[..., Path]) -> Path:
    return save_model(LLAMA)


def change(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def refused(model: Path | str) -> str:
    with pytest.raises(ModelError) as raised:
        find_model(str(model))
    assert raised.value.exit_code == 2
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("cut", [1, 1000, 100_000])
def test_weights_that_were_cut_off_are_named(folder: Path, cut: int) -> None:
    path = folder / "model.safetensors"
    num_bytes = path.stat().st_size
    os.truncate(path, num_bytes - cut)
    assert refused(folder) == (
        f"{path}: has {num_bytes - cut:,} bytes and its header says {num_bytes:,}: it is damaged or was not copied "
        "whole; copy or download it again"
    )


def test_weights_that_break_while_they_are_loaded_are_a_models_fault(folder: Path) -> None:
    model = find_model(str(folder))
    os.truncate(folder / "model.safetensors", 2000)
    with pytest.raises(ModelError, match="model llama-model: it cannot be loaded"):
        load_model(model, dtype=torch.float32, attention="sdpa")


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_size": "abc"},
        {"hidden_size": 66},
        {"hidden_size": None},
        {"vocab_size": -1},
        {"num_attention_heads": 0},
        {"num_key_value_heads": 3},
        {"max_position_embeddings": [1]},
        {"intermediate_size": "x"},
        {"head_dim": "x"},
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}},
        {"rope_parameters": "x"},
        {"model_type": 5},
        {"quantization_config": {"quant_method": "gptq", "bits": 4}},
    ],
    ids=str,
)
def test_a_configuration_that_cannot_be_is_named(folder: Path, changes: dict[str, Any]) -> None:
    change(folder / "config.json", **changes)
    assert refused(folder).startswith(f"{folder / 'config.json'}")


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"[" * 100_000])
def test_a_configuration_that_is_none_is_named(folder: Path, content: bytes) -> None:
    (folder / "config.json").write_bytes(content)
    assert refused(folder).startswith(f"{folder / 'config.json'}")


def test_quantised_weights_are_refused_as_such(folder: Path) -> None:
    change(folder / "config.json", quantization_config={"quant_method": "gptq", "bits": 4})
    assert "its weights are quantised, which is not supported" in refused(folder)


def test_a_damaged_tokenizer_is_named_before_a_run(folder: Path) -> None:
    change(folder / "tokenizer.json", pre_tokenizer="x")
    assert refused(folder).startswith(f"{folder / 'tokenizer.json'}: not a tokenizer.json")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"weight_map": {"a": 5}}', "names 1 files and 1 are missing, the first is 5"),
        ('{"weight_map": ["a"]}', "is not an index of weights"),
        ("[" * 100_000, "is not an index of weights"),
    ],
)
def test_an_index_of_anything_is_named(save_model: Callable[..., Path], content: str, said: str) -> None:
    folder = save_model(LLAMA, max_shard_size="100KB")
    (folder / "model.safetensors.index.json").write_text(content)
    assert f"model.safetensors.index.json {said}" in refused(folder)


def test_names_that_no_folder_can_have_are_refused(tmp_path: Path) -> None:
    assert refused("~nosuchuser/x").startswith("model ~nosuchuser/x: no folder can have this name here (")
    assert refused("m" * 300).startswith(f"model {'m' * 300}: no folder can have this name here (File name too long)")
    (tmp_path / "loop").symlink_to("loop")
    assert refused(tmp_path / "loop")


def test_a_model_whose_folder_is_not_named_in_utf8_can_be_written_down(folder: Path) -> None:
    renamed = folder.with_name(os.fsdecode(b"mod\xe8le"))
    try:
        folder.rename(renamed)
    except OSError:
        pytest.skip("this file system has only names in UTF-8")
    model = find_model(str(renamed))
    assert model.name == "mod\\xe8le"
    assert model.source.endswith("/mod\\xe8le")
    os.truncate(renamed / "model.safetensors", 100)
    refused(renamed).encode("utf-8")


def test_a_file_that_cannot_be_read_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Not by chmod: a superuser reads everything.
    real = Path.open

    def refuse(path: Path, *arguments: Any, **options: Any) -> Any:
        if path.name == "model.safetensors":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", refuse)
    assert f"{folder / 'model.safetensors'} cannot be read (Permission denied)" in refused(folder)


@pytest.mark.parametrize("which", ["vocab", "added_tokens", "post_processor"])
def test_a_tokenizer_with_ids_beyond_the_embedding_is_refused(
    folder: Path, small_tokenizer: Tokenizer, which: str
) -> None:
    content = json.loads(small_tokenizer.to_str())
    if which == "vocab":
        content["model"]["vocab"]["Ġunheard"] = 400
    elif which == "added_tokens":
        content["added_tokens"].append(content["added_tokens"][0] | {"id": 400, "content": "<|more|>"})
    else:
        special = {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [400], "tokens": ["<|endoftext|>"]}}
        single = [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
        content["post_processor"] = {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [*single, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": special,
        }
    (folder / "tokenizer.json").write_text(json.dumps(content))
    assert refused(folder) == (
        f"model {folder}: tokenizer.json gives token ids up to 400, and config.json says that the model has 400; "
        "put the tokenizer of this very model there"
    )


def test_a_tokenizer_with_fewer_ids_than_the_embedding_fits(save_model: Callable[..., Path]) -> None:
    # Many models pad their embedding to a round number.
    folder = save_model(LlamaConfig(**SMALL, vocab_size=512, max_position_embeddings=256))
    model = find_model(str(folder))
    check_fits(Vocabulary.load(folder), model)
    assert Vocabulary.load(folder).vocab_size < 400
