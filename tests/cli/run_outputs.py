"""What the tests of runs share: books to read, tables to look into, processes to look for."""

import hashlib
import time
from pathlib import Path

import duckdb
import psutil

TINY = ("--model", "tiny-random")
CHAPTER = "CHAPTER {}. The {}th Night\r\n\r\n“Öre,” she said, “count the lamps — all 212 of them.” φάρος 🕯\r\n\r\n"


def book(path: Path, num_chapters: int = 3) -> Path:
    path.write_bytes("".join(CHAPTER.format(n, n) for n in range(1, num_chapters + 1)).encode())
    return path


def rows(output: Path, table: str, columns: str = "*"):
    query = f"SELECT {columns} FROM read_parquet('{output}/{table}/*/*.parquet', hive_partitioning=false)"
    return duckdb.sql(query).fetchall()


def rows_or_none(output: Path, table: str):
    return rows(output, table) if (output / table).is_dir() else None


def snapshot(output: Path):
    """Every published file: its inode, time and content."""
    files = sorted(output.glob("*/bucket=*/*.parquet"))
    return {
        str(path.relative_to(output)): (
            path.stat().st_ino,
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        for path in files
    }


def processes_of(marker: str) -> list[int]:
    """Processes, children of children too, that carry `marker` in their environment."""
    found = []
    for process in psutil.process_iter(["pid"]):
        try:
            if process.environ().get("LONGDOC_TEST_MARK") == marker:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def assert_all_gone(marker: str) -> None:
    # Ray's own processes notice a killed driver within seconds; beside other tests they were seen to take 30.
    deadline = time.monotonic() + 90
    while (left := processes_of(marker)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not left, [name_of(pid) for pid in left]


def name_of(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except psutil.Error as error:
        return str(error)
