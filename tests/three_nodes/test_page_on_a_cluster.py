"""docs/cluster.md, steps 3 and 4: its commands run as they are written, one after the other.

Put in their places: the head's address, a temporary folder for /shared, the job's id for ID, the tiny model, and for a
submission the Python that has longdoc here.
"""

import json
import re
import sys
from pathlib import Path

import pytest
from cluster_commands import Ended, left_on, longdoc
from documented_commands import shell_lines, words_of
from ray_nodes import RayNodes

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "cluster.md").read_text()


def steps() -> list[list[str]]:
    (part,) = re.findall(r"^## 3\. .*?(?=^## 5\. )", PAGE, re.MULTILINE | re.DOTALL)
    return [words_of(line) for line in shell_lines(part)]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What all nodes share, with a book in it."""
    folder = tmp_path_factory.mktemp("shared")
    (folder / "novels").mkdir()
    (folder / "novels" / "night.txt").write_text("CHAPTER I\n\nOne night.\n\nCHAPTER II\n\nAnother.\n")
    return folder


def as_here(words: list[str], nodes: RayNodes, shared: Path, job_id: str) -> list[str]:
    """The words of a command with what only a reader's cluster has put in its place."""
    there = {"http://HEAD:8265": nodes.jobs_url, "ID": job_id}
    words = [there.get(word, word).replace("/shared", str(shared)) for word in words]
    if words[1] in ("run", "submit"):
        words += ["--model", "tiny-random"]
    return words + (["--cluster-python", sys.executable] if words[1] == "submit" else [])


def test_the_commands_of_the_page_run_as_written(nodes: RayNodes, shared: Path) -> None:
    environment = {"RAY_ADDRESS": nodes.address}
    ended: list[tuple[list[str], Ended]] = []
    for words in steps():
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            environment[name] = value.replace("http://HEAD:8265", nodes.jobs_url)
            continue
        listed = json.loads(longdoc("jobs", "list", "--json", "--address", nodes.jobs_url).out)
        command = as_here(words, nodes, shared, listed[0]["job_id"] if listed else "")
        ended.append((words, longdoc(*command[1:], cwd=ROOT, **environment)))
        assert ended[-1][1].code == 0, (words, ended[-1][1].err)
    assert [words[1] for words, _ in ended] == ["run", "submit", "submit", "submit", *["jobs"] * 5]
    assert "is done: everything is committed" in ended[-2][1].err
    assert (shared / "index" / "documents").is_dir()
    assert len(list((shared / "books" / "documents").glob("*/*.parquet"))) == 2


def test_the_page_leaves_nothing_on_the_cluster(nodes: RayNodes) -> None:
    assert left_on(nodes) == []
