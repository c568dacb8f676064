"""What the tests of the store do to an output: die in it, age it, look at its files."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from synthetic_output import IDENTITY, make_document, sha256, write_parts

from longdoc.store.rows import read_rows
from longdoc.verify import verify

HELPER = Path(__file__).with_name("synthetic_output.py")


def fingerprints(output: Path) -> dict[str, tuple[int, int, str]]:
    """Inode, modification time and SHA-256 of every published file."""
    return {
        str(path): (path.stat().st_ino, path.stat().st_mtime_ns, sha256(path.read_bytes()))
        for path in output.glob("*/bucket=*/*")
    }


def document_keys(output: Path) -> list[str]:
    return [
        row["doc_key"]
        for path in output.glob("documents/*/*.parquet")
        for row in read_rows(path, "documents", IDENTITY)
    ]


def no_faults(output: Path) -> None:
    assert [str(fault) for fault in verify(str(output)).faults] == []


def die_in_commit(output: Path, step: str, times: int) -> None:
    done = subprocess.run(
        [sys.executable, str(HELPER), str(output), "2", step, str(times)], capture_output=True, text=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def owned_elsewhere(staging: Path, *, beat_seconds_ago: int) -> None:
    rewrite_owner(staging, host="elsewhere")
    then = time.time() - beat_seconds_ago
    os.utime(staging / "heartbeat", (then, then))


def rewrite_owner(staging: Path, **facts: str) -> None:
    path = staging / "owner.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | facts))


def commit_arguments(attempt: Any, number: int) -> dict[str, Any]:
    document = make_document(number)
    return {"document_row": document.row, "parts": write_parts(attempt, document)}
