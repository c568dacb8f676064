"""A cluster's head that goes away while a run depends on it."""

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from longdoc.cluster import lifeline


@contextlib.contextmanager
def listening() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifeline, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(lifeline, "LOST_SECONDS", 0.1)


def test_a_head_that_is_gone_is_told_once(quick: None) -> None:
    told: list[str] = []
    gone = threading.Event()

    def lost(address: str) -> None:
        told.append(address)
        gone.set()

    with contextlib.ExitStack() as head:
        address = head.enter_context(listening())
        with lifeline.watched_head(address, lost=lost):
            assert not gone.wait(0.5)
            head.close()
            assert gone.wait(30)
    assert told == [address]


def test_nobody_is_looked_for_once_the_run_is_over(quick: None) -> None:
    told: list[str] = []
    with listening() as address, lifeline.watched_head(address, lost=told.append):
        pass
    assert not any(thread.name == "longdoc-head" for thread in threading.enumerate())
    assert told == []


def test_a_lost_head_ends_the_process_with_the_code_for_infrastructure() -> None:
    code = (
        "import threading, longdoc.cluster.lifeline as lifeline\n"
        "lifeline.LOOK_SECONDS, lifeline.LOST_SECONDS = 0.02, 0.1\n"
        "with lifeline.watched_head('127.0.0.1:1'):\n"
        "    threading.Event().wait(60)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 4
    assert ended.stderr == (
        "Error: the cluster's head at 127.0.0.1:1 has not answered for 0 s. What was committed stays; run again once "
        "the cluster is up.\n"
    )
