"""A submission to a real Ray: stopped midway it leaves nothing, and the next one gives the rows of a local run."""

import json
import sys
import time
from pathlib import Path

import pytest
from ray_nodes import ray_nodes
from submitted_runs import kept, longdoc, numbered_book, shape

from longdoc.cluster.jobs import JobsClient


@pytest.fixture(scope="module")
def client():
    with ray_nodes((2,)) as nodes:
        yield JobsClient(nodes.jobs_url)


def alive(client: JobsClient, kind: str, dead: str) -> list[dict]:
    """Actors or placement groups that are not gone, without Ray's own, as the state API of the dashboard tells them."""
    answer = client._json("GET", f"/api/v0/{kind}?limit=1000&detail=1")
    found = answer["data"]["result"]["result"]
    return [each for each in found if each["state"] != dead and not str(each.get("class_name")).startswith("JobSuper")]


def test_a_run_that_is_stopped_leaves_nothing_and_the_next_one_completes_it(client, tmp_path: Path) -> None:
    book, output = numbered_book(tmp_path / "book.txt", num_chapters=600), tmp_path / "shared"
    run = (book, "-o", output, "--model", "tiny-random", "--context-extension", "none")
    submit = ("submit", *run, "--address", client.address, "--cluster-python", sys.executable)

    job_id = json.loads(longdoc(*submit, "--json").out)["job_id"]
    deadline = time.monotonic() + 120
    while "computing" not in client.logs(job_id) and time.monotonic() < deadline:
        time.sleep(0.1)
    stopped = longdoc("jobs", "stop", job_id, "--address", client.address)
    assert stopped.out.startswith(f"Job {job_id} was stopped."), stopped
    assert "committed, " not in client.logs(job_id)
    assert not (output / "documents").exists()
    assert not list((output / "_longdoc" / "staging").iterdir())
    deadline = time.monotonic() + 20
    while (left := alive(client, "actors", "DEAD")) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []
    assert alive(client, "placement_groups", "REMOVED") == []

    ended = longdoc(*submit, "--wait")
    assert ended.code == 0, ended
    assert "1 document to do" in ended.out
    here = tmp_path / "here"
    assert longdoc("run", book, "-o", here, *run[3:]).code == 0
    assert shape(output) == shape(here)
    for table in ("documents", "segments", "spans", "tokens"):
        assert kept(output, table) == kept(here, table), table
