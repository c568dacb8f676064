"""Repositories that are served to a cache of clones of a test's own, and looks into that cache."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from git_plumbing import commit_files, new_repository, run_git

from connectors import clones, remote
from connectors.address import parse_address
from connectors.clones import cache_place, clones_folder
from connectors.repository import RepositoryRef, RepositorySource
from longdoc.records import Selection
from pipelines.sources import open_sources

Make = Callable[..., str]


def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, and none of the user's settings."""
    monkeypatch.setenv("LONGDOC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("no_proxy", "*")
    for said in (remote._note_once, clones._say_too_large):
        said.cache_clear()
    return tmp_path / "cache"


def maker(tmp_path: Path) -> Make:
    """Makes repositories with a file of so many random bytes in hexadecimal digits; gives the address of each."""

    def make(name: str, num_bytes: int = 100_000) -> str:
        folder = new_repository(tmp_path / "served" / f"{name}.git", bare=True)
        run_git(folder, "config", "uploadpack.allowFilter", "true")
        commit_files(folder, {"a": os.urandom(num_bytes).hex().encode(), "b": b"b\n"})
        return folder.as_uri()

    return make


def open_ref(argument: str, **selection: object) -> RepositoryRef:
    (source,) = open_sources([argument], Selection(**selection))  # type: ignore[arg-type]  # a test's shorthand
    assert isinstance(source, RepositorySource)
    return source.ref


def place(uri: str) -> Path:
    return cache_place(parse_address(uri))


def cached() -> set[str]:
    return {folder.name.rpartition("-")[0] for folder in clones_folder().iterdir() if not folder.name.startswith(".")}


def used_ago(uri: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(place(uri) / "use", (then, then))
