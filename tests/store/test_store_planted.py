"""Files that somebody else put below `_longdoc`: named, never followed, never removed."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from store_actions import die_in_commit, rewrite_owner
from synthetic_output import IDENTITY, arrow_rows, make_document
from verify_actions import KEY, faults_of, is_told

from longdoc.errors import InfrastructureError
from longdoc.store.commit import OutputStore
from longdoc.store.rows import read_rows

UNIT = make_document(2).doc_key


def recover(output: Path) -> None:
    OutputStore.open(str(output), IDENTITY).recover()


def change_decision(output: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Rewrite the row of the one decision that is not published yet, by a writer that checks nothing."""
    path = output / "_longdoc" / "decisions" / UNIT
    (row,) = read_rows(path, "documents", IDENTITY)
    change(row)
    pq.write_table(arrow_rows("documents", [row]), path)
    return path


def name_a_file_outside(row: dict[str, Any]) -> None:
    row["parts"][0]["path"] = "../../scratch/pwn"


def name_another_attempt(row: dict[str, Any]) -> None:
    row["attempt_id"] = "../../../elsewhere"


def name_a_part_of_another_unit(row: dict[str, Any]) -> None:
    row["parts"][0]["path"] = row["parts"][0]["path"].replace(UNIT, KEY)


def name_a_documents_file(row: dict[str, Any]) -> None:
    part = row["parts"][0]
    part["path"], part["table"] = part["path"].replace(part["table"], "documents"), "documents"


def name_another_document(row: dict[str, Any]) -> None:
    row["doc_key"] = KEY


PLANTED_DECISIONS: list[tuple[Callable[[dict[str, Any]], None], str]] = [
    (name_a_file_outside, r"it names '\.\./\.\./scratch/pwn', which is no part of the unit"),
    (name_another_attempt, r"'\.\./\.\./\.\./elsewhere' is no attempt"),
    (name_a_part_of_another_unit, "which is no part of the unit"),
    (name_a_documents_file, "which is no part of the unit"),
    (name_another_document, f"it is about document {KEY}"),
]


@pytest.mark.parametrize(("change", "problem"), PLANTED_DECISIONS, ids=[case[0].__name__ for case in PLANTED_DECISIONS])
def test_a_decision_that_names_anything_but_its_own_parts_is_damaged(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], problem: str
) -> None:
    output = tmp_path / "a" / "b" / "out"
    die_in_commit(output, "decided", 1)
    # From the staging folder the path leads to a file that is there: only the check stands in the way of the link.
    (output / "_longdoc" / "scratch" / "pwn").write_bytes(b"planted")
    path = change_decision(output, change)
    with pytest.raises(InfrastructureError, match=f"{re.escape(str(path))} is damaged: .*{problem}"):
        recover(output)
    assert [path for path in tmp_path.rglob("pwn") if output not in path.parents] == []
    assert not list(output.glob("*/bucket=*"))
    fault = f"documents: _longdoc/decisions/{UNIT}: is no decision about its document: .*{problem}"
    assert is_told(fault, faults_of(output))


def test_a_staged_decision_about_another_unit_is_never_made_to_stand(tmp_path: Path) -> None:
    output = tmp_path / "out"
    die_in_commit(output, "attempt_committed", 1)
    (staging,) = (output / "_longdoc" / "staging").iterdir()
    rewrite_owner(staging, unit=KEY)
    with pytest.raises(InfrastructureError, match=rf"{staging}/decision is damaged: it is about document {UNIT}"):
        recover(output)
    assert not list((output / "_longdoc").glob("decisions/*"))


@pytest.mark.parametrize("facts", [{"unit": "../../../pwn"}, {"unit": 7}, {"pid": "x"}, {"pid": -1}, {"pid": 10**30}])
def test_an_owner_that_cannot_be_is_nobody(tmp_path: Path, facts: dict[str, Any]) -> None:
    """The attempt took its second step, so a recovery would make its decision stand under the owner's unit."""
    output = tmp_path / "out"
    die_in_commit(output, "attempt_committed", 1)
    (staging,) = (output / "_longdoc" / "staging").iterdir()
    rewrite_owner(staging, **facts)
    report = OutputStore.open(str(output), IDENTITY).recover()
    assert report.live == (staging.name,), "its heartbeat is young"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


FOREIGN: list[tuple[str, str, bool]] = [
    ("decisions", "x.bak", False),
    ("decisions", "a name", False),
    ("decisions", "folder", True),
    ("attempts", "x.bak", False),
    ("attempts", "0" * 31, False),
    ("attempts", "0" * 32, True),
    ("staging", "thesis", True),
    ("staging", "0" * 32, False),
    ("rows/quarantine", "x.bak", False),
    ("rows/quarantine", "a b-p001.parquet", False),
    ("rows/quarantine", "a-p1.parquet", False),
    ("rows/quarantine", "a-p\N{SUPERSCRIPT TWO}\N{SUPERSCRIPT TWO}1.parquet", False),
    ("rows/runs", "run2-p000.parquet", True),
]


@pytest.mark.parametrize(("folder", "name", "is_folder"), FOREIGN)
def test_what_is_not_longdocs_stops_a_recovery_and_is_a_fault(
    output: Path, folder: str, name: str, is_folder: bool
) -> None:
    path = output / "_longdoc" / folder / name
    if is_folder:
        path.mkdir(parents=True)
        (path / "chapter.tex").write_text("mine")
    else:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    with pytest.raises(InfrastructureError, match=rf"{re.escape(str(path))} is not longdoc's\. Move it out"):
        recover(output)
    assert path.exists()
    assert is_told(rf": _longdoc/{folder}/{re.escape(name)}: is not longdoc's", faults_of(output))


def test_a_file_managers_own_files_are_no_fault(output: Path) -> None:
    for folder in ("decisions", "attempts", "staging", "rows/runs"):
        path = output / "_longdoc" / folder / ".DS_Store"
        path.touch()
        os.utime(path, (1.0, 1.0))
    recover(output)
    assert len(list(output.glob("_longdoc/**/.DS_Store"))) == 4
    assert faults_of(output) == []


def test_a_decision_that_is_no_parquet_file_is_named(output: Path) -> None:
    path = output / "_longdoc" / "decisions" / "notes"
    path.write_text("mine")
    with pytest.raises(InfrastructureError, match=f"{path} is damaged: "):
        recover(output)
    assert is_told("documents: _longdoc/decisions/notes: cannot be read: ", faults_of(output))


@pytest.mark.parametrize("content", [b"", b"mine"])
def test_a_kept_row_that_holds_none_is_not_published(output: Path, content: bytes) -> None:
    path = output / "_longdoc" / "rows" / "runs" / "run2-p000.parquet"
    path.write_bytes(content)
    with pytest.raises(InfrastructureError, match=rf"{path} is damaged: .*\. Move it out of the output"):
        recover(output)
    assert [path.name for path in output.glob("runs/*/*")] == ["run1-p000.parquet"]


def test_an_attempts_end_that_says_nothing_is_a_fault(output: Path) -> None:
    (output / "_longdoc" / "attempts" / ("0" * 32)).write_bytes(b"perhaps")
    assert is_told("_longdoc/attempts/0{32}: says neither that the attempt was committed nor", faults_of(output))


@pytest.mark.parametrize("name", ["decisions", "attempts", "rows", "documents", "quarantine", "tokens"])
def test_a_file_that_may_not_be_read_is_a_fault(output: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Every way to look at one kind of file is denied, as for another user's files."""
    denied = ("read_bytes", "open", "stat")
    folder = output / name if (output / name).exists() else output / "_longdoc" / name
    files = {path for path in folder.rglob("*") if path.is_file()}
    assert files

    def denying(real: Callable[..., Any]) -> Callable[..., Any]:
        def look(path: Path, *arguments: Any, **options: Any) -> Any:
            if path in files:
                raise PermissionError(13, "Permission denied", str(path))
            return real(path, *arguments, **options)

        return look

    for method in denied:
        monkeypatch.setattr(Path, method, denying(getattr(Path, method)))
    found = faults_of(output)
    assert is_told("Permission denied", found), found


def test_what_owners_wrote_is_what_they_are(tmp_path: Path) -> None:
    """The planted owners above differ from a real one in one fact each."""
    attempt = OutputStore.open(str(tmp_path), IDENTITY).begin(KEY)
    assert set(json.loads((attempt.staging / "owner.json").read_text())) == {"host", "pid", "process_started", "unit"}
