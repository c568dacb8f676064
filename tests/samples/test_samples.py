"""The samples run as they stand, but for the model, which is tiny, and the output, which is a temporary folder."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import duckdb
import pytest

from longdoc.config import read_job_file
from longdoc.records import Selection
from pipelines.lists import named_sources
from pipelines.sources import open_sources

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "samples"
TINY = ("--model", "tiny-random")


def at_root(*command: object) -> subprocess.CompletedProcess[str]:
    """A command as samples/README.md has it, run where it says."""
    words = [sys.executable, *map(str, command)]
    return subprocess.run(words, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False)


def rows(output: Path, table: str, columns: str) -> list[tuple[object, ...]]:
    query = f"SELECT {columns} FROM read_parquet('{output}/{table}/*/*.parquet', hive_partitioning = false)"
    return duckdb.sql(query).fetchall()


@pytest.fixture(scope="module")
def book_output(tmp_path_factory, tiny_model) -> Path:
    """What samples/books.toml writes."""
    output = tmp_path_factory.mktemp("books") / "out"
    done = at_root("-m", "longdoc", "run", "--config", "samples/books.toml", *TINY, "--output", output)
    assert done.returncode == 0, done.stderr
    return output


def test_the_books_job_reads_the_sample_book(book_output: Path) -> None:
    assert rows(book_output, "documents", "kind, title, ring_size, layout") == [
        ("book", "The Lighthouse Ledger", 2, "zigzag")
    ]
    # Five chapters, and what stands before the first one.
    titles = rows(book_output, "segments", "title")
    assert [title for (title,) in titles if str(title).startswith("Chapter")] == [
        title for (title,) in titles if title is not None and re.match(r"Chapter [1-5]\.", str(title))
    ]


def test_the_same_job_in_python_finds_the_work_done(book_output: Path) -> None:
    done = at_root("samples/index_books.py", book_output, "tiny-random")
    assert done.returncode == 0, done.stderr
    assert "Nothing to do: 1 already committed." in done.stderr
    ((num_tokens,),) = rows(book_output, "documents", "num_tokens")
    assert done.stdout == f"0 computed now, 1 before\nThe Lighthouse Ledger: {num_tokens:,} tokens\n"


def test_the_first_query_names_five_passages(book_output: Path) -> None:
    done = at_root("samples/first_query.py", book_output)
    assert done.returncode == 0, done.stderr
    ((most,),) = duckdb.sql(
        f"SELECT round(-min(mean_logprob), 2) FROM read_parquet('{book_output}/spans/*/*.parquet')"
    ).fetchall()
    assert f"{most}" in done.stdout


def test_the_repositories_job_reads_this_repository_at_its_commit(tmp_path: Path, tiny_model) -> None:
    done = at_root(
        "-m", "longdoc", "run", "--config", "samples/repositories.toml", *TINY, "--output", tmp_path / "index"
    )
    assert done.returncode == 0, done.stderr
    head = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert rows(tmp_path / "index", "documents", "kind, commit_id") == [("repository", head.stdout.strip())]
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-tree", "-r", "--name-only", "HEAD", "pipelines/"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    read = {
        path
        for (path,) in rows(
            tmp_path / "index", "segments", "CASE WHEN kind = 'file' AND reason IS NULL THEN display_path END"
        )
    }
    assert read - {None} == {path for path in listed if path.endswith(".py") and not path.endswith("__init__.py")}
    assert not (tmp_path / "index" / "tokens").exists() or not rows(tmp_path / "index", "tokens", "logprob")


@pytest.mark.parametrize("name", ["books.toml", "repositories.toml"])
def test_a_job_file_says_what_its_comments_promise(name: str) -> None:
    text = (SAMPLES / name).read_text()
    assert f"longdoc run --config samples/{name}" in text
    assert read_job_file(SAMPLES / name) == {
        key.replace("-", "_"): [value] if key == "sources" and isinstance(value, str) else value
        for key, value in tomllib.loads(text).items()
    }


def test_every_address_in_the_comments_of_the_list_is_one_that_a_list_takes(tmp_path: Path) -> None:
    lines = (SAMPLES / "repositories.txt").read_text().splitlines()
    shown = [line.removeprefix("# ") for line in lines if re.match(r"# \S+[/:]\S+$", line)]
    assert len(shown) == 3
    (tmp_path / "list.txt").write_text("\n".join(shown))
    assert [named.problem for named in named_sources(f"@{tmp_path / 'list.txt'}")] == [None] * 3


def test_the_list_names_this_repository() -> None:
    (source,) = open_sources([f"@{SAMPLES / 'repositories.txt'}"], Selection(kind="repository"))
    assert source.source_uri == ROOT.as_uri()
