"""The samples run as they stand, but for the model, which is tiny, in a folder with a repository of its own.

What one of them has computed, the next must find done: that the same job in a file, in Python and on a schedule names
the same documents is what makes each a sample of the others.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import duckdb
import pytest
from documented_commands import check_command

from longdoc.config import read_job_file
from longdoc.records import Selection
from pipelines.books import index_books
from pipelines.lists import named_sources
from pipelines.repositories import index_repositories
from pipelines.schedule import index_on_schedule
from pipelines.sources import open_sources

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "samples"
TINY = ("--model", "tiny-random")


def run(folder: Path, *command: object) -> subprocess.CompletedProcess[str]:
    """A command as samples/README.md has it, in that folder."""
    words = [sys.executable, *map(str, command)]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


def longdoc(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    # -P: the folder has a copy of the pipelines, which is read and not run.
    return run(folder, "-P", "-m", "longdoc", *arguments)


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    done = subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def rows(output: Path, table: str, columns: str) -> list[tuple[object, ...]]:
    query = f"SELECT {columns} FROM read_parquet('{output}/{table}/*/*.parquet', hive_partitioning = false)"
    return duckdb.sql(query).fetchall()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository that looks like this one, as far as the samples look."""
    folder = tmp_path_factory.mktemp("root")
    shutil.copytree(SAMPLES, folder / "samples", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "pipelines", folder / "pipelines", ignore=shutil.ignore_patterns("__pycache__"))
    schedule = folder / "samples" / "schedule.toml"
    schedule.write_text(schedule.read_text().replace('"smollm2-135m-instruct"', '"tiny-random"'))
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "pipelines")
    git(folder, "commit", "-q", "-m", "one")
    return folder


@pytest.fixture(scope="module")
def books(root: Path, tiny_model: object) -> Path:
    """What samples/books.toml writes."""
    done = longdoc(root, "run", "--config", "samples/books.toml", *TINY)
    assert done.returncode == 0, done.stderr
    return root / "out"


@pytest.fixture(scope="module")
def index(root: Path, tiny_model: object) -> Path:
    """What samples/repositories.toml writes."""
    done = longdoc(root, "run", "--config", "samples/repositories.toml", *TINY)
    assert done.returncode == 0, done.stderr
    return root / "index"


def test_the_books_job_reads_the_sample_book(books: Path) -> None:
    assert rows(books, "documents", "kind, title, ring_size, layout") == [
        ("book", "The Lighthouse Ledger", 2, "zigzag")
    ]
    chapters = [title for (title,) in rows(books, "segments", "title") if str(title).startswith("Chapter")]
    assert sorted(set(chapters)) == sorted(chapters)
    assert [re.match(r"Chapter (\d)\.", str(title))[1] for title in sorted(chapters)] == list("12345")


def test_the_same_job_in_python_finds_the_work_done(root: Path, books: Path) -> None:
    done = run(root, "samples/index_books.py", "out", "tiny-random")
    assert done.returncode == 0, done.stderr
    assert "Nothing to do: 1 already committed." in done.stderr
    ((num_tokens,),) = rows(books, "documents", "num_tokens")
    assert done.stdout == f"0 computed now, 1 before\nThe Lighthouse Ledger: {num_tokens:,} tokens\n"


def test_the_first_query_names_the_most_surprising_passage(root: Path, books: Path) -> None:
    done = run(root, "samples/first_query.py", "out")
    assert done.returncode == 0, done.stderr
    ((most,),) = rows(books, "spans", "-min(mean_logprob)")
    assert f" {most:.2f} " in done.stdout


def test_the_repositories_job_reads_what_its_globs_choose_at_the_commit(root: Path, index: Path) -> None:
    (document,) = rows(index, "documents", "kind, commit_id, source_uri")
    assert document == ("repository", git(root, "rev-parse", "HEAD"), root.as_uri())
    read = rows(index, "segments", "display_path, reason")
    assert {path for path, reason in read if reason is None and path is not None} == {
        f"pipelines/{path.name}" for path in (ROOT / "pipelines").glob("*.py") if path.name != "__init__.py"
    }
    assert ("pipelines/__init__.py", "excluded") in read


def test_jobs_in_python_find_the_work_of_the_job_files_done(
    root: Path, books: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    told = index_books(["samples/the-lighthouse-ledger.md"], "out", model="tiny-random")
    assert (told.num_planned, told.num_committed_before, told.num_committed) == (1, 1, 0)
    told = index_repositories(
        ["@samples/repositories.txt"],
        "index",
        include=["pipelines/*.py"],
        exclude=["**/__init__.py"],
        model="tiny-random",
        outputs=("embeddings",),
    )
    assert (told.num_planned, told.num_committed_before, told.num_committed) == (1, 1, 0)


def test_the_schedule_finds_the_work_of_the_job_files_done(root: Path, books: Path, index: Path) -> None:
    done = longdoc(root, "schedule", "run", "samples/schedule.toml", "--once", "code")
    assert done.returncode == 0, done.stderr
    assert "Nothing to do: 1 already committed." in done.stderr
    ended = index_on_schedule(str(root / "samples" / "schedule.toml"), once="books", say=lambda line: None)
    assert ended is not None
    assert (ended.outcome, ended.exit_code) == ("unchanged", 0)
    told = longdoc(root, "schedule", "status", "samples/schedule.toml")
    assert told.returncode == 0, told.stderr
    assert len(re.findall(r"unchanged \(exit code 0\) at [^,]*, by hand", told.stdout)) == 2


def test_the_schedule_as_it_stands_has_no_mistakes_and_says_when_it_is_due() -> None:
    for command in ("validate", "next"):
        done = longdoc(ROOT, "schedule", command, "samples/schedule.toml")
        assert done.returncode == 0, done.stderr
        assert "code  " in done.stdout
        assert "books  " in done.stdout


def test_the_commands_in_the_schedules_comments_exist() -> None:
    lines = re.findall(r"^#   longdoc (.*?)(?:  +.*)?$", (SAMPLES / "schedule.toml").read_text(), re.MULTILINE)
    assert len(lines) == 5
    for line in lines:
        check_command(line.split())


@pytest.mark.parametrize("name", ["books.toml", "repositories.toml"])
def test_a_job_file_names_only_options_that_exist_and_the_command_that_runs_it(name: str) -> None:
    text = (SAMPLES / name).read_text()
    assert f"longdoc run --config samples/{name}" in text
    assert set(read_job_file(SAMPLES / name)) == {option.replace("-", "_") for option in tomllib.loads(text)}


def test_every_address_in_the_comments_of_the_list_is_one_that_a_list_takes(tmp_path: Path) -> None:
    lines = (SAMPLES / "repositories.txt").read_text().splitlines()
    shown = [line.removeprefix("# ") for line in lines if re.match(r"# \S+[/:]\S+$", line)]
    assert len(shown) == 3
    (tmp_path / "list.txt").write_text("\n".join(shown))
    assert [named.problem for named in named_sources(f"@{tmp_path / 'list.txt'}")] == [None] * 3


def test_the_list_names_the_repository_that_it_lies_in() -> None:
    (source,) = open_sources([f"@{SAMPLES / 'repositories.txt'}"], Selection(kind="repository"))
    assert source.source_uri == ROOT.as_uri()
