"""A submission to a real Ray: stopped midway it leaves nothing, and the next one completes it.

That its rows are those of a local run is tested on three nodes, see tests/three_nodes.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from ray_nodes import ray_nodes

from longdoc.cluster.jobs import JobsClient


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


def longdoc(*arguments: object) -> Ended:
    command = [sys.executable, "-m", "longdoc", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    return Ended(code=done.returncode, out=done.stdout, err=done.stderr)


def numbered_book(path: Path, num_chapters: int) -> Path:
    chapters = (
        f"CHAPTER {n}. The {n}th Night\n\n“Öre,” she said, “count lamp {n * 7}.”\n\n" for n in range(num_chapters)
    )
    path.write_text("".join(chapters))
    return path


@pytest.fixture(scope="module")
def cluster():
    with ray_nodes((2,)) as nodes:
        yield nodes


def test_a_run_that_is_stopped_leaves_nothing_and_the_next_one_completes_it(cluster, tmp_path: Path) -> None:
    book, output = numbered_book(tmp_path / "book.txt", num_chapters=400), tmp_path / "shared"
    client = JobsClient(cluster.jobs_url)
    run = (book, "-o", output, "--model", "tiny-random", "--context-extension", "none")
    submit = ("submit", *run, "--address", client.address, "--cluster-python", sys.executable)

    job_id = json.loads(longdoc(*submit, "--json").out)["job_id"]
    deadline = time.monotonic() + 200
    while "computing" not in client.logs(job_id) and time.monotonic() < deadline:
        time.sleep(0.1)
    stopped = longdoc("jobs", "stop", job_id, "--address", client.address)
    assert stopped.out.startswith(f"Job {job_id} was stopped."), (stopped, client.logs(job_id))
    assert "committed, " not in client.logs(job_id)
    assert not (output / "documents").exists()
    assert not list((output / "_longdoc" / "staging").iterdir())
    assert cluster.left_behind() == []

    ended = longdoc(*submit, "--wait")
    assert ended.code == 0, ended
    assert "1 document to do" in ended.out
    verified = longdoc("verify", output)
    assert verified.code == 0, verified
    assert ": checked 1 documents" in verified.out
    again = longdoc("run", *run)
    assert "Nothing to do: 1 already committed." in again.err
