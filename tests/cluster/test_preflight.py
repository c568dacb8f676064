"""What must hold on every node before a run reads anything, asked of nodes that are plain function calls here."""

import dataclasses
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from longdoc.cluster import nodes as asking
from longdoc.cluster import preflight
from longdoc.cluster.nodes import Node
from longdoc.cluster.preflight import answer_beside, check_model, check_shared, check_software, find_there
from longdoc.errors import ModelError, OutputError, RingError, StartError

HERE = Node(node_id="a" * 56, host="10.0.0.1", resources={}, is_driver=True)
THERE = Node(node_id="b" * 56, host="10.0.0.2", resources={})


@pytest.fixture
def answering(monkeypatch):
    """Let nodes answer by calling the function here; `changed` maps a node to what it makes of the answer."""

    def install(changed=None):
        def ask(nodes, function, arguments, *, doing, seconds=60.0):
            told = {}
            for node in nodes:
                change = (changed or {}).get(node.host, lambda answer: answer())
                try:
                    told[node.node_id] = change(lambda node=node: function(*arguments(node)))
                except (ModelError, RingError) as error:
                    told[node.node_id] = error
            return told

        monkeypatch.setattr(preflight, "ask", ask)

    return install


def with_version(**versions):
    return lambda answer: (told := answer()) | {"versions": told["versions"] | versions}


def test_nodes_with_the_same_software_tell_their_cores_and_memory(answering):
    answering()
    facts = check_software([HERE, THERE])
    assert set(facts) == {HERE.node_id, THERE.node_id}
    assert facts[HERE.node_id].num_cores >= 1
    assert facts[HERE.node_id].free_bytes > 0


def test_every_version_that_differs_is_named_with_both_sides(answering):
    import torch

    answering({"10.0.0.2": with_version(torch="2.1.0", Python="3.9.1")})
    with pytest.raises(StartError) as refusal:
        check_software([HERE, THERE])
    ours = torch.__version__.partition("+")[0]
    assert f"node 10.0.0.2 has torch 2.1.0, this one has {ours}" in str(refusal.value)
    assert "node 10.0.0.2 has Python 3.9.1, this one has " in str(refusal.value)
    assert str(refusal.value).endswith("install the same on every node, and run again.")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"problem": "ModuleNotFoundError: No module named 'longdoc'"}, "cannot import longdoc: ModuleNotFoundError"),
        ({"code": "0" * 64}, "has another longdoc 0.1.0: its code differs from this one's"),
    ],
)
def test_a_node_whose_longdoc_is_missing_or_another_is_named(answering, change, said):
    answering({"10.0.0.2": lambda answer: answer() | change})
    with pytest.raises(StartError) as refusal:
        check_software([HERE, THERE])
    assert f"node 10.0.0.2 {said}" in str(refusal.value)


def test_a_node_without_a_package_is_named(answering):
    answering({"10.0.0.2": with_version(transformers=None)})
    with pytest.raises(StartError, match=r"node 10\.0\.0\.2 has no transformers, this one has"):
        check_software([HERE, THERE])


def test_builds_of_one_version_count_as_equal(monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", {"torch": "2.13.0+cpu", "ray": "2.60.0"}.__getitem__)
    assert preflight._questioner()(("torch", "ray"))["versions"]["torch"] == "2.13.0"


WITHOUT_LONGDOC = """
import pickle, sys
sys.modules["longdoc"] = None
told = pickle.loads(sys.stdin.buffer.read())(("ray",))
print(told["problem"], told["versions"]["ray"])
"""


def test_a_node_without_longdoc_can_say_so():
    import ray
    from ray import cloudpickle

    question = cloudpickle.dumps(preflight._questioner())
    told = subprocess.run([sys.executable, "-c", WITHOUT_LONGDOC], input=question, capture_output=True, check=True)
    problem, _, version = told.stdout.decode().strip().rpartition(" ")
    assert problem.startswith("ModuleNotFoundError: ")
    assert "longdoc" in problem
    assert version == ray.__version__


def test_a_shared_output_is_left_as_it_was_found(answering, tmp_path):
    answering()
    check_shared(str(tmp_path / "new#1" / "out"), [HERE, THERE])
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "out" / "_longdoc").mkdir(parents=True)
    (tmp_path / "out" / "_longdoc" / "output.json").touch()
    check_shared(str(tmp_path / "out"), [HERE, THERE])
    assert [path.name for path in (tmp_path / "out").rglob("*")] == ["_longdoc", "output.json"]


def test_a_node_that_does_not_see_the_output_is_named_and_makes_nothing(answering, tmp_path, monkeypatch):
    monkeypatch.setattr(preflight, "SIGHT_SECONDS", 0.0)
    elsewhere = tmp_path / "elsewhere"

    def blind(answer):
        with monkeypatch.context() as patch:
            patch.setattr(preflight, "Path", lambda path: elsewhere / str(path).lstrip("/"))
            return answer()

    answering({"10.0.0.2": blind})
    with pytest.raises(OutputError) as refusal:
        check_shared(str(tmp_path / "out"), [HERE, THERE])
    assert str(refusal.value) == (
        f"{tmp_path / 'out'} is not one folder for all nodes that may hold a rank (node 10.0.0.2: it does not see what "
        "this one writes there). Ranks write there: choose shared storage with --output."
    )
    assert list(tmp_path.iterdir()) == []


def test_a_node_whose_answer_does_not_come_back_is_named(answering, tmp_path, monkeypatch):
    monkeypatch.setattr(preflight, "SIGHT_SECONDS", 0.0)
    answering({"10.0.0.2": lambda answer: None})
    with pytest.raises(OutputError, match=r"\(node 10\.0\.0\.2: what it wrote there does not appear here\)"):
        check_shared(str(tmp_path / "out"), [HERE, THERE])
    assert not (tmp_path / "out").exists()


def test_a_node_that_reads_and_cannot_write_says_why(tmp_path):
    (tmp_path / ".shared.x").write_text("token")
    assert answer_beside(str(tmp_path), ".shared.x", "token", "no/such/folder") == (
        "it cannot write there: No such file or directory"
    )


def test_shared_storage_may_be_late(tmp_path):
    threading.Timer(0.3, (tmp_path / "late").write_text, ("token",)).start()
    assert preflight._appears(tmp_path / "late", "token")


def test_an_output_that_cannot_be_made_is_refused_as_always(answering, tmp_path):
    answering()
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"is not writable: (Not a directory|File exists)\. Choose another folder"):
        check_shared(str(tmp_path / "file" / "out"), [HERE])


def test_each_node_has_the_model_in_a_folder_of_its_own(answering, tiny_model):
    answering({"10.0.0.2": lambda answer: "/models/there"})
    found = check_model("tiny-random", tiny_model, [HERE, THERE])
    assert found[HERE.node_id] == tiny_model
    assert found[THERE.node_id] == dataclasses.replace(tiny_model, folder=Path("/models/there"))


def test_nodes_without_the_model_are_named_with_the_cause(answering, tiny_model):
    def missing(answer):
        raise ModelError("model /models/tiny: no such folder")

    answering({"10.0.0.2": missing})
    with pytest.raises(ModelError) as refusal:
        check_model("/models/tiny", tiny_model, [HERE, THERE])
    assert str(refusal.value) == (
        "model tiny-random is not on every node that may hold a rank (node 10.0.0.2: model /models/tiny: no such "
        "folder). Put it into the same folder on each, or name one that can be fetched there (see `longdoc models "
        "list`)."
    )


def test_a_node_finds_the_model_by_its_name_where_the_folder_is_another(tiny_model, tmp_path):
    elsewhere = dataclasses.replace(tiny_model, folder=tmp_path / "not-there")
    assert find_there("tiny-random", elsewhere) == str(tiny_model.folder)
    with pytest.raises(ModelError, match="tiny-random is another model there"):
        find_there("tiny-random", dataclasses.replace(elsewhere, digest="0" * 64))


def test_a_node_that_dies_while_it_is_asked_is_left_out(monkeypatch):
    import ray

    class Task:
        def __call__(self, function):
            return self

        def options(self, **_):
            return self

        def remote(self, host):
            return host

    lost = RingError("lost")
    monkeypatch.setattr(ray, "remote", lambda **_: Task())
    monkeypatch.setattr(ray, "wait", lambda references, **_: (references, []))
    monkeypatch.setattr(asking, "pinned", lambda _: None)
    monkeypatch.setattr(asking, "_outcome", lambda reference, *_: lost if reference == "10.0.0.2" else "fine")
    monkeypatch.setattr(asking, "alive_nodes", lambda: [HERE])
    assert asking.ask([HERE, THERE], len, lambda node: (node.host,), doing="answering") == {HERE.node_id: "fine"}
    monkeypatch.setattr(asking, "alive_nodes", lambda: [HERE, THERE])
    assert asking.ask([HERE, THERE], len, lambda node: (node.host,), doing="answering")[THERE.node_id] is lost


def test_a_node_that_does_not_answer_is_named_in_time(monkeypatch):
    import ray

    cancelled = []

    class Task:
        def __call__(self, function):
            return self

        def options(self, **_):
            return self

        def remote(self, host):
            return host

    monkeypatch.setattr(ray, "remote", lambda **_: Task())
    monkeypatch.setattr(ray, "wait", lambda references, **_: (references[:1], references[1:]))
    monkeypatch.setattr(ray, "cancel", lambda reference, force: cancelled.append(reference))
    monkeypatch.setattr(asking, "pinned", lambda _: None)
    with pytest.raises(StartError) as refusal:
        asking.ask([HERE, THERE], len, lambda node: (node.host,), doing="telling its versions")
    assert str(refusal.value) == (
        "node 10.0.0.2, telling its versions: no answer within 60 s. Look at it with `ray status`, and run again."
    )
    assert cancelled == ["10.0.0.2"]
