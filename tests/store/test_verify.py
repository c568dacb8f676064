"""verify names every fault, from the files alone, and never falls over."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from synthetic_output import (
    make_document,
    write_parts,
)
from verify_actions import KEY, faults_of, is_told, part

from longdoc.store.commit import OutputStore
from longdoc.verify import verify


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """The same file with other rows, by a writer that knows nothing of the store."""
    rows = pq.ParquetFile(path).read()
    pq.write_table(change(rows), path)


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_a_sound_output_has_no_fault_and_everything_is_counted(output: Path) -> None:
    report = verify(str(output))
    documents = [make_document(1), make_document(2)]
    assert report.faults == ()
    bytes_of_parts = sum(
        path.stat().st_size for table in ("tokens", "spans", "segments") for path in output.glob(f"{table}/*/*")
    )
    assert report.counts == {
        "documents": 2,
        "parts": 12,
        "bytes": bytes_of_parts,
        "segments": sum(len(document.tables["segments"]) for document in documents),
        "spans": sum(len(document.tables["spans"]) for document in documents),
        "tokens": sum(len(document.tables["tokens"]) for document in documents),
        "quarantine": 1,
        "runs": 1,
    }


def add_part_of_another_attempt(output: Path) -> None:
    store = OutputStore.read(str(output))
    attempt = store.begin(KEY)
    (tokens, *_) = [part for part in write_parts(attempt, make_document(1)) if part.table == "tokens"]
    shutil.copy(attempt.staging / tokens.path, (output / tokens.path).with_name(f"{KEY}-p002.parquet"))
    store.discard(attempt)


def put_part_of_another_attempt_in_place(output: Path) -> None:
    store = OutputStore.read(str(output))
    attempt = store.begin(KEY)
    for written in write_parts(attempt, make_document(1)):
        if written.table == "spans":
            shutil.copy(attempt.staging / written.path, output / written.path)
    store.discard(attempt)


def add_part_of_an_unknown_document(output: Path) -> None:
    store = OutputStore.read(str(output))
    attempt = store.begin(make_document(5).doc_key)
    for written in write_parts(attempt, make_document(5)):
        (output / written.path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(attempt.staging / written.path, output / written.path)
    store.discard(attempt)


def move_to_another_bucket(output: Path) -> None:
    path = part(output, "tokens")
    other = path.parent.with_name("bucket=00")
    other.mkdir()
    path.rename(other / path.name)


def copy_documents_row(output: Path, name: str) -> None:
    path = part(output, "documents")
    shutil.copy(path, path.with_name(name))


TAMPERED: list[tuple[str, Callable[[Path], Any], str]] = [
    ("part deleted", lambda out: part(out, "spans").unlink(), rf"spans: spans/.*{KEY}-p000\.parquet: is missing"),
    (
        "byte flipped",
        lambda out: flip(part(out, "tokens"), 100),
        r"tokens: .*-p000.*: its bytes changed since it was comm",
    ),
    (
        "token row removed",
        lambda out: rewrite(part(out, "tokens"), lambda rows: rows.slice(1)),
        r"tokens: .*-p000.*: its bytes changed since it was committed \(\d+ bytes, not \d+; 21 rows, not 22\)",
    ),
    (
        "documents row doubled in its file",
        lambda out: rewrite(part(out, "documents"), lambda rows: pa.concat_tables([rows, rows])),
        rf"documents: documents/.*: holds document {KEY} once more",
    ),
    (
        "documents row doubled in a second file",
        lambda out: copy_documents_row(out, f"{KEY}-p001.parquet"),
        rf"-p001\.parquet: holds document {KEY} once more",
    ),
    (
        "documents file under another unit",
        lambda out: copy_documents_row(out, "copy.parquet"),
        r"documents: .*/copy\.parquet: does not have a path of the form <table>/bucket=",
    ),
    (
        "part of another attempt added",
        add_part_of_another_attempt,
        r"tokens: tokens/.*-p002\.parquet: is a part of attempt [0-9a-f]{32}, not [0-9a-f]{32}, which was committed",
    ),
    ("part of another attempt in place", put_part_of_another_attempt_in_place, r"spans: spans/.*: its bytes changed"),
    (
        "part of no document",
        add_part_of_an_unknown_document,
        r"segments: segments/.*: is a part of attempt [0-9a-f]{32}, no committed document",
    ),
    (
        "part in another bucket",
        move_to_another_bucket,
        r"tokens: tokens/bucket=00/.*: does not have a path of the form",
    ),
    (
        "decision missing",
        lambda out: (out / "_longdoc" / "decisions" / KEY).unlink(),
        rf"documents: documents/.*: belongs to no decision: _longdoc/decisions/{KEY} is missing",
    ),
    (
        "decision damaged",
        lambda out: (out / "_longdoc" / "decisions" / KEY).write_bytes(b"PAR1"),
        rf"documents: _longdoc/decisions/{KEY}: cannot be read",
    ),
    (
        "documents row not published",
        lambda out: part(out, "documents").unlink(),
        rf"documents: {KEY}: was decided, but its row is not published",
    ),
    (
        "attempt mark missing",
        lambda out: [path.unlink() for path in (out / "_longdoc" / "attempts").iterdir()],
        rf"documents: {KEY}: its attempt [0-9a-f]+ is not marked as committed",
    ),
    (
        "attempt marked as abandoned",
        lambda out: [path.write_text("abandoned") for path in (out / "_longdoc" / "attempts").iterdir()],
        "is not marked as committed",
    ),
    (
        "file that is not Parquet",
        lambda out: part(out, "tokens").with_suffix(".json").touch(),
        r"tokens: tokens/.*\.json: is not a Parquet file",
    ),
    (
        "dangling link",
        lambda out: (out / "spans" / "x.parquet").symlink_to("nowhere"),
        "spans: spans/x.parquet: is no file",
    ),
    (
        "quarantine row unpublished",
        lambda out: [path.unlink() for path in out.glob("quarantine/*/*")],
        r"quarantine: _longdoc/rows/quarantine/.*: is not published",
    ),
    (
        "quarantine row that nobody kept",
        lambda out: [path.unlink() for path in out.glob("_longdoc/rows/quarantine/*")],
        r"quarantine: quarantine/.*: no run wrote it",
    ),
    (
        "quarantine row rewritten",
        lambda out: [rewrite(path, lambda rows: pa.concat_tables([rows, rows])) for path in out.glob("quarantine/*/*")],
        r"quarantine: quarantine/.*: has 2 rows, not 1",
    ),
    (
        "run row rewritten",
        lambda out: [rewrite(path, lambda rows: rows) for path in out.glob("runs/*/*")],
        r"runs: runs/.*: differs from _longdoc/rows/runs/run1-p000\.parquet",
    ),
    (
        "run row of another run",
        lambda out: [
            shutil.copy(path, path.parents[1] / "bucket=76" / "run2-p000.parquet")
            for path in list(out.glob("runs/*/*"))
            if (path.parents[1] / "bucket=76").mkdir() is None
        ],
        r"runs: runs/.*run2.*: (is run run1, its file name says run2|does not have a path)",
    ),
]


@pytest.mark.parametrize(("tamper", "fault"), [case[1:] for case in TAMPERED], ids=[case[0] for case in TAMPERED])
def test_what_was_tampered_with_is_named(output: Path, tamper: Callable[[Path], Any], fault: str) -> None:
    tamper(output)
    found = faults_of(output)
    assert is_told(fault, found), found


def test_a_flipped_byte_anywhere_in_any_file_is_found(output: Path) -> None:
    """Every kind of file, its first, last and some other bytes; never a traceback."""
    chance = random.Random(0)
    paths = sorted(output.glob("*/bucket=*/*")) + sorted(output.glob("_longdoc/rows/*/*"))
    paths += sorted((output / "_longdoc" / "decisions").iterdir())
    for path in paths:
        content = path.read_bytes()
        for place in (0, len(content) - 1, *chance.sample(range(len(content)), 3)):
            flip(path, place)
            name = path.name if "decisions" not in path.parts else f"decisions/{path.name}"
            assert any(name in fault for fault in faults_of(output)), (path, place)
            path.write_bytes(content)
    assert faults_of(output) == []


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1PAR1PAR1", bytes(300), b"text"])
def test_files_that_are_no_longer_parquet_are_faults(output: Path, content: bytes) -> None:
    for table in ("documents", "tokens", "quarantine", "runs"):
        path = sorted(output.glob(f"{table}/*/*"))[0]
        path.write_bytes(content)
        assert any(fault.startswith(f"{table}: ") and path.name in fault for fault in faults_of(output))
