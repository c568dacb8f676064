"""What the test of a real submission needs: the command line, a long book, rows without what may differ."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow.dataset as ds

#: What two runs over the same documents do not share: attempts, times, the run, files.
OF_ITS_OWN = {
    *("attempt_id", "run_id", "committed_at", "seconds", "tokens_per_second", "parts", "model_check_error"),
}


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


def longdoc(*arguments: object) -> Ended:
    """Run `longdoc` to its end in a process of its own, with one thread."""
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


def shape(output: Path) -> dict[str, int]:
    """Rows of each table of documents."""
    tables = ("documents", "segments", "spans", "tokens")
    return {table: ds.dataset(output / table, format="parquet").count_rows() for table in tables}


def kept(output: Path, table: str) -> list[dict]:
    """The rows of a table, in a stable order, without what is of one run's own."""
    rows = ds.dataset(output / table, format="parquet").to_table()
    columns = [name for name in rows.column_names if name not in OF_ITS_OWN]
    return sorted(rows.select(columns).to_pylist(), key=repr)
