"""The part of the cluster's tests that is in `make test`: one submission from its upload to its rows."""

import json
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cluster_commands import Ended, longdoc
from comparing_outputs import assert_same_rows, table_of
from ray_nodes import RayNodes

OPTIONS = ("--model", "tiny-random", "--ring-size", 2)
ON_THE_NODES = ("--cluster-python", sys.executable)


@pytest.fixture(scope="module")
def submitted(nodes: RayNodes, sources: list[Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    """What was written by a submission that was waited for, and how that ended."""
    output = tmp_path_factory.mktemp("submitted") / "out"
    ended = longdoc(
        "submit", *sources, *OPTIONS, *ON_THE_NODES, "-o", output, "--address", nodes.jobs_url, "--wait", "--json"
    )
    return output, ended


@pytest.fixture(scope="module")
def local(sources: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the same run writes on this machine alone."""
    output = tmp_path_factory.mktemp("local") / "out"
    ended = longdoc("run", *sources, *OPTIONS, "--output", output)
    assert ended.code == 3, ended.err
    return output


def test_a_submission_ends_with_the_exit_code_of_its_run(submitted: tuple[Path, Ended]) -> None:
    _, ended = submitted
    assert ended.code == 3, ended.err
    assert "night.txt: committed" in ended.err
    assert "empty.txt: quarantined at read, empty" in ended.err
    assert json.loads(ended.out)["cluster"]["num_nodes"] == 3


def test_its_rows_are_those_of_the_same_run_on_one_machine(submitted: tuple[Path, Ended], local: Path) -> None:
    output, _ = submitted
    assert table_of(output, "documents").num_rows == 2
    assert table_of(output, "quarantine").num_rows == 1
    assert_same_rows(output, local)


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("spans", "text", "other"),
        ("tokens", "logprob", -0.5),
        ("segments", "kind", "other"),
        ("documents", "layout", "x"),
    ],
)
def test_the_comparison_finds_one_value_that_differs(
    local: Path, tmp_path: Path, table: str, column: str, value: object
) -> None:
    shutil.copytree(local, tmp_path / "out")
    path = max((tmp_path / "out" / table).glob("*/*.parquet"), key=lambda path: path.stat().st_size)
    rows = pq.ParquetFile(path).read()
    values = rows[column].to_pylist()
    place = next(place for place, old in enumerate(values) if old not in (None, value))
    values[place] = value
    at = rows.column_names.index(column)
    pq.write_table(
        rows.set_column(at, rows.schema.field(column), pa.array(values, rows.schema.field(column).type)), path
    )
    with pytest.raises(AssertionError, match=f"{table}.{column}"):
        assert_same_rows(tmp_path / "out", local)


def test_its_output_passes_verify(submitted: tuple[Path, Ended]) -> None:
    output, _ = submitted
    ended = longdoc("verify", output)
    assert ended.code == 0, ended.out


def test_a_run_on_one_machine_finds_the_work_of_the_cluster_done(
    submitted: tuple[Path, Ended], sources: list[Path]
) -> None:
    output, _ = submitted
    ended = longdoc("run", *sources[:2], *OPTIONS, "--output", output)
    assert ended.code == 0, ended.err
    assert "Nothing to do: 2 already committed" in ended.err
