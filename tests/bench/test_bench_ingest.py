"""`longdoc bench ingest`: the repositories it makes, the processes it times, and what it holds against what."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from longdoc.bench import ingest as bench
from longdoc.bench.ingest import Contestant, IngestSettings, bench_ingest
from longdoc.bench.repositories import RepositorySize, make_repository
from longdoc.cli.bench_ingest import ingest as command
from longdoc.errors import InfrastructureError
from longdoc.model.local import LocalModel

SMALL = RepositorySize(num_bytes=60_000)


def listing(repository: Path) -> list[tuple[str, int, str]]:
    """(blob id, size, path) of every file of the one commit."""
    shown = subprocess.run(
        ["git", f"--git-dir={repository}", "ls-tree", "-r", "-l", "main"], capture_output=True, text=True, check=True
    ).stdout
    lines = (line.split(None, 4) for line in shown.splitlines())
    return [(blob_id, int(size), path) for _, _, blob_id, size, path in lines]


@pytest.mark.parametrize(
    ("size", "num_files"),
    [(RepositorySize(num_bytes=300_000), None), (RepositorySize(num_bytes=300_000, num_files=40), 40)],
)
def test_a_repository_has_the_size_that_was_asked_for(
    tmp_path: Path, size: RepositorySize, num_files: int | None
) -> None:
    make_repository(tmp_path / "r", size)
    files = listing(tmp_path / "r")
    num_bytes = sum(num_bytes for _, num_bytes, _ in files)
    assert num_files is None or len(files) == num_files
    assert 0.7 * size.num_bytes < num_bytes < 1.5 * size.num_bytes
    assert len({blob_id for blob_id, _, _ in files}) == len(files)


def test_the_same_size_is_the_same_repository(tmp_path: Path) -> None:
    for name in ("one", "two"):
        make_repository(tmp_path / name, SMALL)
    assert listing(tmp_path / "one") == listing(tmp_path / "two")


def test_code_that_does_not_suffice_is_taken_again_and_never_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [(Path("a.py"), b"x = 1\ny = 2\n"), (Path("b.h"), b"int x;\n")]
    monkeypatch.setattr("longdoc.bench.repositories._code", lambda: iter(found))
    make_repository(tmp_path / "r", RepositorySize(num_bytes=100))
    files = listing(tmp_path / "r")
    assert len({blob_id for blob_id, _, _ in files}) == len(files) > 4
    shown = subprocess.run(
        ["git", f"--git-dir={tmp_path / 'r'}", "cat-file", "blob", files[3][0]], capture_output=True, check=True
    )
    assert shown.stdout == b"// copy 1\nint x;\n"


def test_a_python_without_a_library_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longdoc.bench.repositories._code", lambda: iter(()))
    with pytest.raises(InfrastructureError, match="no library of source files"):
        make_repository(tmp_path / "r", SMALL)


@pytest.fixture
def peers(tmp_path: Path) -> Path:
    """Stands for the Python of an environment that has gitingest but not markitdown."""
    script = tmp_path / "python"
    script.write_text(
        f"#!{sys.executable}\nimport json, sys\n"
        "if len(sys.argv) == 4 and sys.argv[3] == 'gitingest': print('9.9')\n"
        "elif sys.argv[3] == 'markitdown': sys.exit(1)\n"
        "else: print('a line of a log'); print(json.dumps({'seconds': 0.5, 'text': 7}))\n"
    )
    script.chmod(0o755)
    return script


def test_ingest_is_held_against_tiktoken_and_gitingest(tmp_path: Path, peers: Path, default_model: LocalModel) -> None:
    (tmp_path / "book.txt").write_text("CHAPTER I\n\nWords.\n")
    settings = IngestSettings(
        model=default_model.name, repeats=1, large=SMALL, small=SMALL, books=(tmp_path / "book.txt",), peers=peers
    )
    lines: list[str] = []
    report = bench_ingest(settings, report=lines.append)
    assert (report.facts["gitingest"], report.facts["markitdown"]) == ("9.9", None)
    large, small, books = report.tables
    names = [row[0] for row in large.rows]
    assert names[0] == "tiktoken, 1 thread"
    alone, ours = large.rows[0], large.rows[-1]
    columns = [column.name for column in large.columns]
    rates = [row[columns.index("MB/s")] for row in (alone, ours)]
    share = rates[1] / rates[0] / bench.num_cores()  # type: ignore[operator]  # both are numbers
    assert report.targets[0].value == pytest.approx(share)
    # The headers of files and of the repository are tokens too; tiktoken alone has only the files.
    assert ours[columns.index("tokens")] > alone[columns.index("tokens")] > 0  # type: ignore[operator]
    assert [row[0] for row in small.rows][-1] == "gitingest, read only"
    assert small.rows[-1][1] == 0.5
    assert report.targets[1].value == pytest.approx(small.rows[0][2] / small.rows[1][2])  # type: ignore[operator]
    assert [row[0] for row in books.rows] == ["longdoc book.txt"]
    assert len(report.targets) == 2
    assert any(line.startswith("1/1 tiktoken, 1 thread: ") for line in lines)


def test_a_format_with_a_target_is_missed_without_the_peer(tmp_path: Path) -> None:
    (tmp_path / "book.html").write_text("<!DOCTYPE html><p>Words.")
    settings = IngestSettings(model="m", repeats=1, large=SMALL, small=SMALL, books=(tmp_path / "book.html",))
    _, targets = bench._beside_markitdown(settings, lambda line: None)
    assert [(target.value, target.bound, target.met) for target in targets] == [(None, 2.0, False)]


def test_a_contestant_that_fails_says_why() -> None:
    failing = Contestant(name="broken", command=(sys.executable, "-c", "import sys; sys.exit('no such thing')"))
    with pytest.raises(InfrastructureError, match="broken ended with code 1: no such thing"):
        bench._run(failing)


@pytest.mark.skipif(sys.platform != "linux", reason="memory of another process is read from /proc")
def test_memory_is_that_of_the_process() -> None:
    code = "import time; x = bytearray({}); time.sleep(0.2); print('{{}}')"
    peaks = [
        bench._run(Contestant(name="some", command=(sys.executable, "-c", code.format(size)))).peak_bytes
        for size in (0, 80_000_000)
    ]
    assert None not in peaks
    assert peaks[1] - peaks[0] > 70_000_000  # type: ignore[operator]  # neither is None


def test_a_large_repository_is_inspected(tmp_path: Path) -> None:
    make_repository(tmp_path / "r", SMALL)
    table = bench._inspected(tmp_path / "r", lambda line: None)
    assert [row[0] for row in table.rows] == ["longdoc inspect", "longdoc inspect --json"]
    assert all(0 < row[2] < 1000 for row in table.rows)  # type: ignore[operator]  # a number of MiB


def test_the_command_prints_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[IngestSettings] = []

    def measured(settings: IngestSettings, report: object) -> object:
        asked.append(settings)
        return bench.Report(bench="ingest", facts={}, tables=())

    monkeypatch.setattr(bench, "bench_ingest", measured)
    result = CliRunner().invoke(command, ["--quick", "--kernel-sized", "--json"])
    assert json.loads(result.output)["bench"] == "ingest"
    assert (asked[0].repeats, asked[0].large.num_bytes, asked[0].kernel) == (1, 1_000_000, bench.KERNEL)
