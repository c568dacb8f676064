"""Attempts: whose they are, and when their owner counts as gone."""

import os
import time
from pathlib import Path

import pytest
from store_actions import owned_elsewhere, rewrite_owner
from synthetic_output import IDENTITY

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
