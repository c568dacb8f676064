"""What the cluster answers: everything that is wrong at once, in the words of a run."""

import contextlib
import json
import subprocess
import sys

import pytest

from longdoc import __version__
from longdoc.cluster.nodes import Node
from longdoc.cluster.preflight import NodeFacts
from longdoc.errors import OutputError
from longdoc.records import Selection
from longdoc.runs import site
from longdoc.submission import probe
from longdoc.submission.probe import MARK, Answer, Question, answer

CHOSEN = Selection(kind="repository", include=("a b/**", "'"), exclude=('"',), revision="v1", submodules=True, lfs=True)


def question(**fields) -> Question:
    values = {"output": "/o", "device": "auto", "ring_size": None, "sources": (), "model_path": None}
    values["selection"] = Selection()
    return Question(**values | fields)


@pytest.mark.parametrize("selection", [Selection(), CHOSEN])
def test_a_question_travels_as_one_argument(selection) -> None:
    asked = question(sources=("https://example.org/a", "/b c"), selection=selection, model_path="/m")
    assert Question.from_json(asked.to_json()) == asked
    assert "\n" not in asked.to_json()


def test_all_that_is_wrong_is_told_at_once(monkeypatch, tmp_path) -> None:
    def refuse(asked) -> int:
        raise OutputError(f"{asked.output} is not one folder")

    monkeypatch.setattr(probe, "_check_nodes", refuse)
    found = answer(question(sources=(str(tmp_path / "none"),), model_path=str(tmp_path / "model")))
    first, second, third = found.problems
    assert first.startswith(f"No such file or folder: '{tmp_path}/none'.")
    assert (
        second == f"model {tmp_path}/model: no such folder or file on the cluster. Put it there, or name one that is."
    )
    assert third == "/o is not one folder"


def test_nothing_wrong_is_no_problem(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(probe, "_check_nodes", lambda asked: 3)
    (tmp_path / "book.txt").write_text("a book")
    found = answer(question(sources=(str(tmp_path),), model_path=str(tmp_path)))
    assert (found.problems, found.num_nodes, found.longdoc) == ((), 3, __version__)


def test_a_folder_that_holds_something_else_is_refused_before_anything_is_sent(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(probe, "_check_nodes", lambda asked: 3)
    (tmp_path / "thesis.doc").touch()
    (problem,) = answer(question(output=str(tmp_path))).problems
    assert problem.startswith(f"{tmp_path} is not empty and not an output of longdoc.")


def test_a_ring_larger_than_the_cluster_is_refused_before_anything_is_sent(monkeypatch) -> None:
    node = Node(node_id="1", host="10.0.0.1", resources={"CPU": 2.0})
    facts = NodeFacts(num_cores=2, free_bytes=1 << 30, gpu_bytes=0)
    monkeypatch.setattr(site, "free_resources", dict)  # other jobs hold all of it, which is no reason to refuse
    cluster = site.Cluster(address="10.0.0.1:6379", nodes=(node,), facts={"1": facts})
    monkeypatch.setattr(site, "site_of", lambda config, reporter: contextlib.nullcontext(cluster))
    assert answer(question(ring_size=8, device="cpu")).problems == ()
    (problem,) = answer(question(ring_size=9, device="cpu")).problems
    assert problem == (
        "A ring of 9 needs 2.25 CPU (0.25 a rank), and this cluster has 2 on 1 node; ranks too many: 1. "
        "Use --ring-size 8 or less, or a larger cluster."
    )


def test_outside_a_cluster_the_answer_is_that_there_is_none(tmp_path) -> None:
    command = [sys.executable, "-m", "longdoc.submission.probe", question().to_json()]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "RAY_ADDRESS": "127.0.0.1:1"}
    told = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    (line,) = [line for line in told.stdout.splitlines() if line.startswith(MARK)]
    found = Answer.from_json(line.removeprefix(MARK))
    assert json.loads(found.to_json())["num_nodes"] == 0
    assert "127.0.0.1:1: nothing answers" in found.problems[0]
