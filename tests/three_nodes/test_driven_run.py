"""`longdoc run --address` from a node of the cluster: rings over several nodes, and how such runs end early."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_commands import longdoc
from comparing_outputs import assert_same_rows, table_of
from ray_nodes import RayNodes

# Two cores a node: with one rank on each, a ring of three gets them all.
OPTIONS = ("--model", "tiny-random", "--ring-size", 3)
ON_THE_NODES = ("--cluster-python", sys.executable)
HOSTS = ["127.0.0.2", "127.0.0.3", "127.0.0.4"]


@pytest.fixture(scope="module")
def long_book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A book that takes a ring of three some seconds."""
    chapter = "CHAPTER {}. The {}th Night\n\n“Öre,” she said, “count the lamps — all {} of them.” φάρος\n\n"
    path = tmp_path_factory.mktemp("long") / "long.txt"
    path.write_text("".join(chapter.format(n, n, n * 7919 % 1000) for n in range(1, 500)))
    return path


def start(nodes: RayNodes, *arguments: object) -> "subprocess.Popen[str]":
    """Start a run, and return when its ring computes."""
    process = subprocess.Popen(
        [sys.executable, "-m", "longdoc", "run", *map(str, arguments), "--address", nodes.address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if "tokens, computing" in line:
            return process
    raise AssertionError(f"it ended with {process.wait()} before it computed: {said}")


def assert_nothing_left(nodes: RayNodes, output: Path) -> None:
    assert nodes.left_behind() == []
    assert [path for path in (output / "_longdoc").rglob("*") if path.is_file() and "staging" in path.parts] == []
    assert list((output / "_longdoc").glob(".*")) == []


def test_a_ring_over_three_nodes_writes_the_rows_of_one_machine(
    nodes: RayNodes, sources: list[Path], tmp_path: Path
) -> None:
    ended = longdoc("run", *sources, *OPTIONS, "-o", tmp_path / "out", "--address", nodes.address)
    assert ended.code == 3, ended.err
    assert f"Ray cluster at {nodes.address}: 3 nodes, 6 CPUs, 0 GPUs; sources are read on 127.0.0.2" in ended.err
    (line,) = [line for line in ended.err.splitlines() if line.startswith("ranks in ring order on ")]
    assert sorted(line.removeprefix("ranks in ring order on ").split(", ")) == HOSTS
    alone = longdoc("run", *sources, *OPTIONS, "-o", tmp_path / "alone")
    assert alone.code == 3, alone.err
    assert "ranks in ring order" not in alone.err
    assert table_of(tmp_path / "out", "documents")["ring_size"].to_pylist() == [3, 3]
    assert_same_rows(tmp_path / "out", tmp_path / "alone")
    assert_nothing_left(nodes, tmp_path / "out")


def test_a_ring_that_the_cluster_cannot_hold_is_refused_with_the_shortfall(
    nodes: RayNodes, sources: list[Path], tmp_path: Path
) -> None:
    ended = longdoc(
        "run", *sources, *OPTIONS[:2], "--ring-size", 25, "-o", tmp_path / "out", "--address", nodes.address
    )
    assert ended.code == 2
    assert (
        "Error: A ring of 25 needs 6.25 CPU (0.25 a rank), and this cluster has 6 on 3 nodes; ranks too many: 1. "
        "Use --ring-size 24 or less, or a larger cluster.\n" in ended.err
    )
    assert not (tmp_path / "out").exists()


def test_ctrl_c_leaves_nothing_on_the_cluster_and_no_row(nodes: RayNodes, long_book: Path, tmp_path: Path) -> None:
    process = start(nodes, long_book, *OPTIONS, "-o", tmp_path / "out")
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert table_of(tmp_path / "out", "documents") is None
    assert_nothing_left(nodes, tmp_path / "out")


def test_an_output_that_one_node_does_not_see_is_refused_before_any_work(
    nodes: RayNodes, long_book: Path, tmp_path: Path
) -> None:
    hide = ("unshare", "--mount", "sh", "-c", f'mount -t tmpfs none "{tmp_path}" && exec "$@"', "sh")
    if subprocess.run([*hide, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no mount can be hidden from a process here")
    (blind,) = nodes.add_workers([2], before=hide)
    try:
        ended = longdoc("run", long_book, *OPTIONS, "-o", tmp_path / "out", "--address", nodes.address)
        made = list(Path(f"/proc/{blind.process.pid}/root{tmp_path}").iterdir())
    finally:
        blind.stop()
        nodes.nodes.remove(blind)
    assert ended.code == 2
    assert (
        f"is not one folder for all nodes that may hold a rank (node {blind.host}: it does not see what this one "
        "writes there). Ranks write there: choose shared storage with --output." in ended.err
    )
    assert "reading" not in ended.err
    assert made == [], "the other node's folder"
    assert not (tmp_path / "out").exists(), "this node's"


def test_a_lost_node_ends_the_run_with_its_name(nodes: RayNodes, long_book: Path, tmp_path: Path) -> None:
    process = start(nodes, long_book, *OPTIONS, "-o", tmp_path / "out")
    lost = nodes.workers[-1]
    lost.kill()
    _, err = process.communicate(timeout=240)
    assert process.returncode == 4, err
    assert f"on node {lost.host}" in err
    assert "Traceback" not in err
    nodes.nodes.remove(lost)
    assert_nothing_left(nodes, tmp_path / "out")
