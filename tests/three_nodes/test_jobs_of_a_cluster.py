"""The whole of `make test-cluster`: jobs that are stopped, followed and taken up again on three nodes."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster_commands import left_on, longdoc
from comparing_outputs import assert_same_rows, table_of
from ray_nodes import RayNodes

pytestmark = pytest.mark.cluster

OPTIONS = ("--model", "tiny-random", "--ring-size", 3)
ON_THE_NODES = ("--cluster-python", sys.executable)
WAIT_SECONDS = 300.0
#: Chapters that take a ring of three some tens of seconds: long enough to be stopped in the middle.
NUM_CHAPTERS = 1500


@pytest.fixture(scope="module")
def long_book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A book that takes a while."""
    chapter = "CHAPTER {}. The {}th Night\n\n“Öre,” she said, “count the lamps — all {} of them.” φάρος\n\n"
    path = tmp_path_factory.mktemp("long") / "long.txt"
    path.write_text("".join(chapter.format(n, n, n * 7919 % 1000) for n in range(1, NUM_CHAPTERS + 1)))
    return path


@pytest.fixture(scope="module")
def expected(long_book: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one machine makes of it."""
    output = tmp_path_factory.mktemp("expected") / "out"
    ended = longdoc("run", long_book, *OPTIONS, "--output", output)
    assert ended.code == 0, ended.err
    return output


def until(holds: Callable[[], Any], what: str) -> Any:
    """What `holds` returns, once that is true."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not (found := holds()):
        assert time.monotonic() < deadline, what
        time.sleep(0.2)
    return found


def submit(nodes: RayNodes, book: Path, output: Path) -> str:
    ended = longdoc("submit", book, *OPTIONS, *ON_THE_NODES, "-o", output, "--address", nodes.jobs_url, "--json")
    assert ended.code == 0, ended.err
    job_id = json.loads(ended.out)["job_id"]
    assert isinstance(job_id, str)
    return job_id


def jobs(nodes: RayNodes, *arguments: object) -> Any:
    return longdoc("jobs", *arguments, "--address", nodes.jobs_url)


def computing(nodes: RayNodes, job_id: str) -> bool:
    return ", computing" in jobs(nodes, "logs", job_id).out


@pytest.fixture(scope="module")
def stopped(nodes: RayNodes, long_book: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """An output whose run was stopped while its ring computed, and the id of that job."""
    output = tmp_path_factory.mktemp("stopped") / "out"
    job_id = submit(nodes, long_book, output)
    until(lambda: computing(nodes, job_id), "the ring computes")
    assert any("actor" in each for each in left_on(nodes)), "nothing was running that could be stopped"
    ended = jobs(nodes, "stop", job_id)
    assert ended.code == 0, ended.err
    assert f"Job {job_id} was stopped." in ended.out
    return output, job_id


def test_a_job_that_is_stopped_leaves_nothing_on_the_cluster(nodes: RayNodes, stopped: tuple[Path, str]) -> None:
    until(lambda: left_on(nodes) == [], f"still there: {left_on(nodes)}")


def test_a_job_that_is_stopped_leaves_no_row(stopped: tuple[Path, str]) -> None:
    output, _ = stopped
    for table in ("documents", "segments", "spans", "tokens", "quarantine"):
        assert table_of(output, table) is None
    assert [path for path in (output / "_longdoc" / "staging").rglob("*") if path.is_file()] == []


def test_a_job_that_is_stopped_says_so_whoever_asks(nodes: RayNodes, stopped: tuple[Path, str]) -> None:
    output, job_id = stopped
    assert jobs(nodes, "wait", job_id).code == 130
    told = json.loads(jobs(nodes, "status", job_id, "--json").out)
    assert told["status"] == "STOPPED"
    (listed,) = [job for job in json.loads(jobs(nodes, "list", "--json").out) if job["job_id"] == job_id]
    assert listed["metadata"]["longdoc_output"] == str(output)


def test_the_next_submission_completes_the_work_and_its_wait_may_be_left(
    nodes: RayNodes, stopped: tuple[Path, str], long_book: Path, expected: Path
) -> None:
    output, _ = stopped
    job_id = submit(nodes, long_book, output)
    until(lambda: computing(nodes, job_id), "the ring computes")
    command = [sys.executable, "-m", "longdoc", "jobs", "wait", job_id, "--address", nodes.jobs_url]
    waiting = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert waiting.stdout is not None
    assert waiting.stdout.readline()
    waiting.send_signal(signal.SIGINT)
    _, err = waiting.communicate(timeout=60)
    assert waiting.returncode == 130, err
    assert f"Job {job_id} runs on. Come back with: longdoc jobs wait {job_id} --address {nodes.jobs_url}" in err
    ended = jobs(nodes, "wait", job_id)
    assert ended.code == 0, ended.err
    # The first lines again, and progress in between: whoever comes back has missed nothing.
    assert "1 document to do" in ended.out
    assert re.search(r"long\.txt: \d+%, layer", ended.out) or "long.txt: committed" in ended.out
    assert longdoc("verify", output).code == 0
    assert_same_rows(output, expected)


def test_a_third_submission_finds_nothing_to_do(nodes: RayNodes, stopped: tuple[Path, str], long_book: Path) -> None:
    output, _ = stopped
    ended = longdoc("submit", long_book, *OPTIONS, *ON_THE_NODES, "-o", output, "--address", nodes.jobs_url, "--wait")
    assert ended.code == 0, ended.err
    assert "Nothing to do: 1 already committed." in ended.out + ended.err


def test_a_run_from_a_node_of_the_cluster_finds_the_work_of_a_job_done(
    nodes: RayNodes, stopped: tuple[Path, str], long_book: Path
) -> None:
    output, _ = stopped
    ended = longdoc("run", long_book, *OPTIONS, "--output", output, "--address", nodes.address)
    assert ended.code == 0, ended.err
    assert "Nothing to do: 1 already committed." in ended.err
    assert "3 nodes" in ended.err


def test_nothing_is_left_when_all_is_done(nodes: RayNodes) -> None:
    until(lambda: left_on(nodes) == [], "jobs have ended, and something of them is still there")
