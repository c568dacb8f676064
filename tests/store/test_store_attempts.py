"""Attempts: whose they are, and when their owner counts as gone."""

import errno
import os
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from store_actions import owned_elsewhere, rewrite_owner
from synthetic_output import IDENTITY, make_document, write_parts

import longdoc.files
import longdoc.store.attempts
from longdoc.store.commit import OutputStore


@pytest.mark.parametrize(("seconds", "is_removed"), [(3500, False), (3700, True)])
def test_an_attempt_on_another_host_lives_as_long_as_its_heartbeat(
    tmp_path: Path, seconds: int, is_removed: bool
) -> None:
    store = OutputStore.open(str(tmp_path), IDENTITY)
    attempt = store.begin("ab" * 32)
    owned_elsewhere(attempt.staging, beat_seconds_ago=seconds)
    report = store.recover()
    assert (report.removed, report.live) == (((attempt.attempt_id,), ()) if is_removed else ((), (attempt.attempt_id,)))
    assert attempt.staging.exists() is not is_removed


def test_an_attempt_of_a_living_process_is_left_alone_however_old(tmp_path: Path) -> None:
    store = OutputStore.open(str(tmp_path), IDENTITY)
    attempt = store.begin("ab" * 32)
    os.utime(attempt.staging / "heartbeat", (1.0, 1.0))
    assert store.recover().live == (attempt.attempt_id,)


def test_an_attempt_whose_process_number_was_given_to_another_is_gone(tmp_path: Path) -> None:
    store = OutputStore.open(str(tmp_path), IDENTITY)
    attempt = store.begin("ab" * 32)
    rewrite_owner(attempt.staging, process_started="1")
    assert store.recover().removed == (attempt.attempt_id,)


def test_the_heartbeat_beats_until_the_attempt_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(longdoc.store.attempts, "HEARTBEAT_SECONDS", 0.02)
    store = OutputStore.open(str(tmp_path), IDENTITY)
    attempt = store.begin("ab" * 32)
    beat = attempt.staging / "heartbeat"
    os.utime(beat, (1.0, 1.0))
    deadline = time.monotonic() + 20
    while beat.stat().st_mtime == 1.0:
        assert time.monotonic() < deadline, "the heart does not beat"
        time.sleep(0.02)
    store.discard(attempt)
    assert not attempt.staging.exists()


@pytest.mark.parametrize("answer", ["kill", "psutil"])
def test_an_attempt_whose_process_is_hidden_lives_as_long_as_its_heartbeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    """/proc with hidepid shows nothing of a process of another user; that it is there is all the system says."""
    store = OutputStore.open(str(tmp_path), IDENTITY)
    young, old = (store.begin(unit * 32) for unit in ("ab", "cd"))
    then = time.time() - 3700
    os.utime(old.staging / "heartbeat", (then, then))
    hide_processes(monkeypatch, psutil.AccessDenied if answer == "psutil" else psutil.NoSuchProcess)

    def not_permitted(pid: int, number: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    if answer == "kill":
        monkeypatch.setattr(os, "kill", not_permitted)
    report = store.recover()
    assert (report.live, report.removed) == ((young.attempt_id,), (old.attempt_id,))


def test_an_attempt_whose_process_is_nowhere_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = OutputStore.open(str(tmp_path), IDENTITY)
    attempt = store.begin("ab" * 32)
    hide_processes(monkeypatch, psutil.NoSuchProcess)

    def no_such_process(pid: int, number: int) -> None:
        raise ProcessLookupError(errno.ESRCH, "No such process")

    monkeypatch.setattr(os, "kill", no_such_process)
    assert store.recover().removed == (attempt.attempt_id,)


def hide_processes(monkeypatch: pytest.MonkeyPatch, error: type[psutil.Error]) -> None:
    """/proc shows no process, and psutil finds it out in its own words."""
    real = Path.read_text

    def read_text(path: Path, *arguments: Any, **options: Any) -> str:
        if path.match("/proc/*/stat"):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        return real(path, *arguments, **options)

    def process(pid: int) -> None:
        raise error(pid)

    monkeypatch.setattr(Path, "read_text", read_text)
    monkeypatch.setattr(psutil, "Process", process)


def test_every_folder_of_an_attempt_is_durable_in_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = OutputStore.open(str(tmp_path), IDENTITY)
    synced: list[Path] = []
    real = longdoc.files.fsync_path

    def noted(path: Path) -> None:
        synced.append(path)
        real(path)

    monkeypatch.setattr(longdoc.files, "fsync_path", noted)
    document = make_document(1)
    attempt = store.begin(document.doc_key)
    parts = write_parts(attempt, document)
    made = {attempt.staging, *((attempt.staging / part.path).parent for part in parts)}
    made |= {folder.parent for folder in made if folder.parent != store.places.staging_root}
    assert {folder.parent for folder in made} <= set(synced)
