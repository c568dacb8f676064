"""Models of the Hugging Face hub, from a small hub on loopback: what is fetched, what is pinned, what is refused."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants
from small_hub import Repository, SmallHub, files_of, small_hub
from transformers import LlamaConfig

from longdoc.errors import ModelError
from longdoc.model import hub as hub_module
from longdoc.model.registry import models_folder
from longdoc.model.sources import find_model, list_models, pull_model

LLAMA = LlamaConfig(
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=400,
    max_position_embeddings=256,
)
TOKEN = "hf_" + "s3cret" * 5


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SmallHub]:
    with small_hub() as served:
        monkeypatch.setenv("HF_ENDPOINT", served.endpoint)
        monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HUGGING_FACE_HUB_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        yield served


@pytest.fixture
def folder(save_model: Callable[..., Path]) -> Path:
    return save_model(LLAMA)


@pytest.fixture
def repository(hub: SmallHub, folder: Path) -> Repository:
    hub.repositories["acme/small"] = repository = Repository()
    repository.commit(
        files_of(folder)
        | {
            "README.md": b"hello",
            "pytorch_model.bin": b"pickle",
            "modeling.py": b"raise SystemExit",
            "consolidated.safetensors": b"the same weights again",
            "modules.json": b"[]",
            "1_Pooling/config.json": b"{}",
            "onnx/model.onnx": b"x",
        }
    )
    return repository


def refused(asked: str) -> str:
    with pytest.raises(ModelError) as raised:
        find_model(asked)
    assert raised.value.exit_code == 2
    assert TOKEN not in str(raised.value)
    assert "http://" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("asked", ["hf:acme/small", "acme/small@main"])
def test_a_model_of_the_hub_is_pinned_to_its_commit(
    hub: SmallHub, repository: Repository, folder: Path, asked: str
) -> None:
    commit = repository.branches["main"]
    lines: list[str] = []
    model = find_model(asked, report=lines.append)
    assert (model.name, model.source) == ("acme/small", f"hf:acme/small@{commit}")
    assert model.digest == find_model(str(folder)).digest
    names = sorted(files_of(model.folder))
    assert names == sorted(
        ["1_Pooling/config.json", "config.json", "longdoc.json", "model.safetensors", "modules.json", "tokenizer.json"]
    )
    assert any(commit in line for line in lines)
    fetched = [request for request in hub.requests if request.startswith("GET /acme")]
    assert all(f"/resolve/{commit}/" in request for request in fetched), "a branch may move while files are fetched"
    (entry,) = [entry for entry in list_models() if entry.name == "acme/small"]
    assert (entry.source, entry.path) == (model.source, model.folder)
    assert len(entry.sha256) == 64


def test_a_pulled_name_keeps_its_commit_until_it_is_pulled_again(
    hub: SmallHub, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = find_model("acme/small")
    changed = dict(repository.commits[repository.branches["main"]])
    changed["tokenizer.json"] += b"\n"
    newer = repository.commit(changed)
    asked_before = len(hub.requests)
    lines: list[str] = []
    assert find_model("acme/small", report=lines.append) == first
    assert len(hub.requests) == asked_before, "the hub was asked for what is pinned"
    assert lines == [
        f"hf:acme/small is {first.source}, as pulled before; `longdoc models pull hf:acme/small` looks for a newer one"
    ]
    second = pull_model("acme/small")
    assert second.source == f"hf:acme/small@{newer}"
    assert second.digest != first.digest
    assert find_model("acme/small") == second
    assert find_model(first.source) == first, "a commit that is in the cache needs no hub"


def test_a_commit_is_found_by_branch_and_by_id(hub: SmallHub, repository: Repository) -> None:
    commit = repository.branches["main"]
    repository.branches["v1.0"] = commit
    by_branch = find_model("hf:acme/small@v1.0")
    assert find_model(f"hf:acme/small@{commit}") == by_branch
    assert len([request for request in hub.requests if request.startswith("GET /acme")]) == 5


def test_offline_means_offline(hub: SmallHub, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert refused("acme/small") == (
        "model hf:acme/small: HF_HUB_OFFLINE forbids to ask the hub for it; unset that, or name a model that "
        "`longdoc models list` shows"
    )
    monkeypatch.delenv("HF_HUB_OFFLINE")
    pulled = find_model("acme/small")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert find_model("acme/small") == pulled
    assert hub.requests


def test_a_token_is_sent_and_never_shown(
    hub: SmallHub, repository: Repository, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    repository.token = TOKEN
    assert refused("acme/small") == (
        "model hf:acme/small: the hub has no model of this name, or shows it to some users only; check the name, or "
        "set HF_TOKEN to a token that may read it"
    )
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    lines: list[str] = []
    model = find_model("acme/small", report=lines.append)
    assert f"Bearer {TOKEN}" in hub.tokens
    written = b"".join(path.read_bytes() for path in models_folder().rglob("*") if path.is_file())
    shown = "".join(capfd.readouterr()) + "".join(lines) + repr(model)
    assert TOKEN not in shown
    assert TOKEN.encode() not in written


def test_a_gated_model_says_whose_terms_to_accept(hub: SmallHub, repository: Repository) -> None:
    repository.token, repository.is_gated = TOKEN, True
    assert "its makers give it only to those who accepted their terms" in refused("acme/small")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("hf:acme/absent", "the hub has no model of this name, or shows it to some users only"),
        ("hf:acme/small@v9", "the hub has no revision v9 of it; name a branch, a tag or a commit id"),
        ("hf:acme/sm--all", "the hub has no names of this form"),
        (
            "hf:acme/small@refs/pr/1",
            r"not of the form hf:ORG/NAME[@REVISION]; correct it (name a revision with a slash",
        ),
        ("hf:", "not of the form hf:ORG/NAME[@REVISION]"),
    ],
)
def test_what_the_hub_does_not_have_is_said(hub: SmallHub, repository: Repository, asked: str, said: str) -> None:
    assert said in refused(asked)


@pytest.mark.parametrize("status", [500, 403])
def test_a_hub_that_fails_is_not_taken_for_a_missing_model(hub: SmallHub, repository: Repository, status: int) -> None:
    hub.status = status
    said = {500: "the hub answers with HTTP 500; try again later", 403: "the hub refuses it to this user; set HF_TOKEN"}
    assert said[status] in refused("acme/small")


def test_no_network_is_one_line_with_a_next_action(hub: SmallHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", f"http://user:{TOKEN}@127.0.0.1:9")
    assert refused("acme/small") == (
        "model hf:acme/small: the hub is out of reach (ConnectionRefusedError); check the network, proxies and "
        "HF_ENDPOINT, or name a folder with safetensors"
    )


@pytest.mark.parametrize(
    ("left", "said"),
    [
        ("pytorch_model.bin", "it has pytorch_model.bin and no safetensors, and pickles are never loaded"),
        ("small.gguf", "it has small.gguf and no safetensors; download that file and name its path"),
        ("README.md", "it has no safetensors; name another model"),
    ],
)
def test_a_repository_without_safetensors_says_what_it_has(hub: SmallHub, folder: Path, left: str, said: str) -> None:
    hub.repositories["acme/old"] = repository = Repository()
    files = {name: content for name, content in files_of(folder).items() if not name.endswith(".safetensors")}
    repository.commit(files | {left: b"x"})
    assert said in refused("hf:acme/old")
    assert not [request for request in hub.requests if left in request]
    assert list_models()[-1].name == "tiny-random"


def test_a_tokenizer_or_a_configuration_that_cannot_be_used_costs_no_download_of_weights(
    hub: SmallHub, folder: Path
) -> None:
    hub.repositories["acme/odd"] = repository = Repository()
    config = json.loads((folder / "config.json").read_text()) | {"quantization_config": {"quant_method": "fp8"}}
    repository.commit(files_of(folder) | {"config.json": json.dumps(config).encode()})
    assert "its weights are quantised" in refused("hf:acme/odd")
    repository.commit({name: content for name, content in files_of(folder).items() if name != "tokenizer.json"})
    assert "its repository has no tokenizer.json" in refused("hf:acme/odd")
    assert not [request for request in hub.requests if request.endswith("model.safetensors")]


def test_weights_in_pieces_are_those_that_the_index_names(hub: SmallHub, save_model: Callable[..., Path]) -> None:
    folder = save_model(LLAMA, max_shard_size="100KB")
    hub.repositories["acme/pieces"] = repository = Repository()
    repository.commit(files_of(folder) | {"other.safetensors": b"x"})
    model = find_model("hf:acme/pieces")
    assert model.digest == find_model(str(folder)).digest
    assert not (model.folder / "other.safetensors").exists()
    files = files_of(folder)
    lost = next(name for name in files if name.startswith("model-00002"))
    del files[lost]
    repository.commit(files)
    with pytest.raises(
        ModelError, match=rf"its model\.safetensors\.index\.json names {lost}, which the repository does"
    ):
        pull_model("hf:acme/pieces")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_file_with_another_hash_is_never_used(hub: SmallHub, repository: Repository, name: str) -> None:
    if name == "config.json":  # its first byte is what a test damages: keep it JSON
        files = dict(repository.commits[repository.branches["main"]])
        repository.commit(files | {name: b"\t" + files[name].replace(b"\n", b" ")})
        hub.damaged = {"modules.json"}
        name = "modules.json"
    else:
        hub.damaged = {name}
    message = refused("acme/small")
    assert f"checksum mismatch of {name}: the hub states" in message
    assert "the file was removed and not used" in message
    assert list_models()[-1].name == "tiny-random"
    hub.damaged = set()
    assert find_model("acme/small").source.startswith("hf:acme/small@")


def test_a_pull_that_broke_off_goes_on_with_what_came_whole(
    hub: SmallHub, save_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_model(LLAMA, max_shard_size="100KB")
    hub.repositories["acme/pieces"] = repository = Repository()
    repository.commit(files_of(folder))
    shards = sorted(path.name for path in folder.glob("model-*.safetensors"))
    hub.short = {shards[-1]}
    monkeypatch.setattr("time.sleep", lambda _: None)
    refused("hf:acme/pieces")
    assert list_models()[-1].name == "tiny-random"
    hub.short, hub.requests = set(), []
    model = find_model("hf:acme/pieces")
    fetched = {Path(request).name for request in hub.requests if request.startswith("GET /acme")}
    assert fetched == {shards[-1]}
    assert model.digest == find_model(str(folder)).digest
    left = [path.name for path in models_folder().iterdir() if path.name.startswith((".pull", ".partial"))]
    assert left == []


def test_too_little_room_is_said_with_the_numbers_before_the_download(
    hub: SmallHub, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "_free_bytes", lambda _: 2048)
    message = refused("acme/small")
    assert "has 2.0 KiB free; make room, or set LONGDOC_CACHE" in message
    assert not [request for request in hub.requests if request.endswith("model.safetensors")]


def test_a_full_disk_is_the_cache_s_fault_not_the_hub_s(
    hub: SmallHub, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("huggingface_hub.file_download.http_get", full)
    message = refused("acme/small")
    assert "cannot be written (No space left on device); make room there" in message


def test_a_folder_of_this_name_comes_before_the_hub(
    hub: SmallHub, repository: Repository, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder, tmp_path / "acme" / "small")
    assert find_model("acme/small").source == str(tmp_path / "acme" / "small")
    assert hub.requests == []
