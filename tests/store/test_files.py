"""The door to files: whole or not at all, whatever fails, and nothing left beside."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

import longdoc.files
from longdoc.files import create_exclusive, make_folder, replace_file, write_new
from longdoc.model.identity import ModelFiles, model_digest
from longdoc.tokenization.proof import Verdict, read_verdict, write_verdict


def fill_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on nothing reaches the disk any more."""

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(longdoc.files.os, "fsync", full)


@pytest.mark.parametrize("write", [write_new, create_exclusive, replace_file])
def test_a_write_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path, bytes], object]
) -> None:
    fill_disk(monkeypatch)
    with pytest.raises(OSError, match="No space left"):
        write(tmp_path / "a", b"content")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_replaced_whole_or_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "below" / "a"
    replace_file(path, b"old")
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    (tmp_path / "folder" / "full").mkdir(parents=True)
    with pytest.raises(OSError, match=r"Is a directory|Directory not empty"):
        replace_file(tmp_path / "folder", b"x")
    fill_disk(monkeypatch)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"newer")
    assert path.read_bytes() == b"new"
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["a", "below", "folder", "full"]


def test_a_file_that_exists_is_not_created_again(tmp_path: Path) -> None:
    assert create_exclusive(tmp_path / "a", b"first")
    assert not create_exclusive(tmp_path / "a", b"second")
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "a", b"third")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a", b"first")]


def test_a_folder_is_made_with_its_parents_only_where_that_is_wanted(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        make_folder(tmp_path / "a" / "b", parents=False)
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b" / "c", parents=False)
    assert (tmp_path / "a" / "b" / "c").is_dir()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


VERDICT = Verdict(prefix_token_ids=(1,), suffix_token_ids=(), more_digits="", not_tiktoken="")


def remember_a_digest(folder: Path) -> None:
    paths = [folder / name for name in ("config.json", "tokenizer.json", "model.safetensors")]
    for path in paths:
        path.write_bytes(b"{}")
    model_digest(ModelFiles(config=paths[0], tokenizer=paths[1], weights=(paths[2],)))


def remember_a_verdict(folder: Path) -> None:
    write_verdict("a" * 64, VERDICT)


@pytest.mark.parametrize("remember", [remember_a_digest, remember_a_verdict])
def test_a_cache_on_a_full_disk_stays_clean_and_stops_nobody(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, remember: Callable[[Path], None]
) -> None:
    with monkeypatch.context() as patch:
        fill_disk(patch)
        remember(tmp_path)
    assert [path for path in cache.rglob("*") if path.is_file()] == []
    remember(tmp_path)
    assert len([path for path in cache.rglob("*") if path.is_file()]) == 1


def test_a_verdict_that_was_kept_is_found_again(cache: Path) -> None:
    write_verdict("a" * 64, VERDICT)
    assert read_verdict("a" * 64) == VERDICT
    assert [path.name for path in cache.iterdir()] == ["tokenizers"]
