"""The commit: exactly once, nothing half-seen, whoever dies or races."""

import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from synthetic_output import (
    IDENTITY,
    commit_document,
    make_document,
    make_output,
    sha256,
    write_parts,
)

import longdoc.files
import longdoc.store.attempts
from longdoc.errors import InfrastructureError, OutputError
from longdoc.store.commit import COMMIT_STEPS, OutputStore
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


@pytest.mark.parametrize(
    ("step", "times"), [(step, 1) for step in COMMIT_STEPS] + [("part_published", 4), ("part_published", 6)]
)
def test_a_kill_at_any_step_leaves_a_commit_that_the_next_run_completes(tmp_path: Path, step: str, times: int) -> None:
    output = tmp_path / "out"
    commit_document(OutputStore.open(str(output), IDENTITY), make_document(1))
    before = fingerprints(output)
    die_in_commit(output, step, times)

    store = OutputStore.open(str(output), IDENTITY)
    report = store.recover()
    second = make_document(2)
    if second.doc_key not in store.committed():
        assert step == "staged"
        assert commit_document(store, second)
    commit_document(store, make_document(3))

    keys = [make_document(number).doc_key for number in (1, 2, 3)]
    assert sorted(document_keys(output)) == sorted(keys)
    assert {path: print_ for path, print_ in fingerprints(output).items() if path in before} == before
    assert list((output / "_longdoc" / "staging").iterdir()) == []
    assert len(report.removed) == (0 if step == "staging_removed" else 1)
    assert report.rolled_forward == ((second.doc_key,) if step in COMMIT_STEPS[1:4] else ())
    no_faults(output)


def test_recovering_twice_changes_nothing(tmp_path: Path) -> None:
    output = tmp_path / "out"
    die_in_commit(output, "part_published", 2)
    OutputStore.open(str(output), IDENTITY).recover()
    before = fingerprints(output)
    report = OutputStore.open(str(output), IDENTITY).recover()
    assert (report.rolled_forward, report.removed, report.live) == ((), (), ())
    assert fingerprints(output) == before


def test_of_two_writers_at_one_document_one_wins_and_the_other_discards(tmp_path: Path) -> None:
    stores = [OutputStore.open(str(tmp_path), IDENTITY) for _ in range(2)]
    document = make_document(1)
    attempts = [store.begin(document.doc_key) for store in stores]
    parts = [write_parts(attempt, document) for attempt in attempts]
    gate, won = threading.Barrier(2), {}

    def commit(place: int) -> None:
        gate.wait()
        won[place] = stores[place].commit(attempts[place], document_row=document.row, parts=parts[place])

    threads = [threading.Thread(target=commit, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won.values()) == [False, True]
    winner = attempts[0 if won[0] else 1].attempt_id
    assert [document.attempt_id for document in stores[0].committed().values()] == [winner]
    assert not any(attempt.staging.exists() for attempt in attempts)
    no_faults(tmp_path)


def test_a_writer_that_wakes_after_it_was_abandoned_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paused, other = (OutputStore.open(str(tmp_path), IDENTITY) for _ in range(2))
    document = make_document(1)
    attempt = paused.begin(document.doc_key)
    parts = write_parts(attempt, document)
    _owned_elsewhere(attempt.staging, beat_seconds_ago=3700)
    assert other.recover().removed == (attempt.attempt_id,)
    with pytest.raises(InfrastructureError, match="another run abandoned this attempt"):
        paused.commit(attempt, document_row=document.row, parts=parts)
    assert commit_document(other, document)
    no_faults(tmp_path)


def test_a_writer_abandoned_between_its_check_and_its_mark_stops(tmp_path: Path) -> None:
    class Pausing(OutputStore):
        def on_step(self, name: str) -> None:
            if name == "staged":
                _owned_elsewhere(attempt.staging, beat_seconds_ago=3700)
                OutputStore.open(str(tmp_path), IDENTITY).recover()

    store = Pausing.open(str(tmp_path), IDENTITY)
    document = make_document(1)
    attempt = store.begin(document.doc_key)
    with pytest.raises(InfrastructureError, match="abandoned by another run while this process stood still"):
        store.commit(attempt, document_row=document.row, parts=write_parts(attempt, document))
    assert store.committed() == {}
    assert not list(tmp_path.glob("*/bucket=*"))


def test_an_attempt_that_took_the_second_step_is_never_abandoned(tmp_path: Path) -> None:
    """Its owner stands still past its heartbeat; another run completes the commit, and the owner finds it done."""

    class Pausing(OutputStore):
        def on_step(self, name: str) -> None:
            if name == "attempt_committed":
                _owned_elsewhere(attempt.staging, beat_seconds_ago=3700)
                report = OutputStore.open(str(tmp_path), IDENTITY).recover()
                assert report.rolled_forward == (document.doc_key,)

    store = Pausing.open(str(tmp_path), IDENTITY)
    document = make_document(1)
    attempt = store.begin(document.doc_key)
    assert store.commit(attempt, document_row=document.row, parts=write_parts(attempt, document))
    no_faults(tmp_path)


@pytest.mark.parametrize(("seconds", "is_removed"), [(3500, False), (3700, True)])
def test_an_attempt_on_another_host_lives_as_long_as_its_heartbeat(
    tmp_path: Path, seconds: int, is_removed: bool
) -> None:
    store = OutputStore.open(str(tmp_path), IDENTITY)
    attempt = store.begin("ab" * 32)
    _owned_elsewhere(attempt.staging, beat_seconds_ago=seconds)
    report = store.recover()
    assert (report.removed, report.live) == (((attempt.attempt_id,), ()) if is_removed else ((), (attempt.attempt_id,)))
    assert attempt.staging.exists() is not is_removed


def test_an_attempt_of_a_living_process_is_left_alone_however_old(tmp_path: Path) -> None:
    store = OutputStore.open(str(tmp_path), IDENTITY)
    attempt = store.begin("ab" * 32)
    os.utime(attempt.staging / "heartbeat", (1.0, 1.0))
    assert store.recover().live == (attempt.attempt_id,)


def test_an_attempt_whose_process_number_was_given_to_another_is_gone(tmp_path: Path) -> None:
    store = OutputStore.open(str(tmp_path), IDENTITY)
    attempt = store.begin("ab" * 32)
    _rewrite_owner(attempt.staging, process_started="1")
    assert store.recover().removed == (attempt.attempt_id,)


def test_the_heartbeat_beats_until_the_attempt_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(longdoc.store.attempts, "HEARTBEAT_SECONDS", 0.02)
    store = OutputStore.open(str(tmp_path), IDENTITY)
    attempt = store.begin("ab" * 32)
    beat = attempt.staging / "heartbeat"
    os.utime(beat, (1.0, 1.0))
    deadline = time.monotonic() + 20
    while beat.stat().st_mtime == 1.0:
        assert time.monotonic() < deadline, "the heart does not beat"
        time.sleep(0.02)
    store.discard(attempt)
    assert not attempt.staging.exists()


def _owned_elsewhere(staging: Path, *, beat_seconds_ago: int) -> None:
    _rewrite_owner(staging, host="elsewhere")
    then = time.time() - beat_seconds_ago
    os.utime(staging / "heartbeat", (then, then))


def _rewrite_owner(staging: Path, **facts: str) -> None:
    path = staging / "owner.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | facts))


def test_a_write_that_landed_although_it_failed_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every link lands and then reports a timeout, as over a network file system."""
    store = OutputStore.open(str(tmp_path), IDENTITY)
    real = os.link

    def landed_and_failed(source: Any, target: Any) -> None:
        real(source, target)
        raise OSError(errno.ETIMEDOUT, "Connection timed out")

    monkeypatch.setattr(longdoc.files.os, "link", landed_and_failed)
    assert commit_document(store, make_document(1))
    monkeypatch.undo()
    no_faults(tmp_path)


def test_without_hard_links_files_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(source: Any, target: Any) -> None:
        if Path(target).exists():
            raise FileExistsError(errno.EEXIST, "File exists")
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(longdoc.files.os, "link", unsupported)
    store = make_output(tmp_path)
    second = store.begin(make_document(1).doc_key)
    assert not store.commit(second, **_commit_arguments(second, 1))
    no_faults(tmp_path)
    assert list((tmp_path / "_longdoc" / "scratch").iterdir()) == []


def _commit_arguments(attempt: Any, number: int) -> dict[str, Any]:
    document = make_document(number)
    return {"document_row": document.row, "parts": write_parts(attempt, document)}


def test_a_full_disk_while_publishing_is_infrastructure_and_the_next_run_completes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = OutputStore.open(str(tmp_path), IDENTITY)
    document = make_document(1)
    attempt = store.begin(document.doc_key)
    arguments = _commit_arguments(attempt, 1)
    real = os.link

    def full(source: Any, target: Any) -> bool:
        raise OSError(errno.ENOSPC, "No space left on device")

    def link_outside_tables(source: Any, target: Any) -> None:
        if "bucket=" in str(target):
            raise OSError(errno.ENOTSUP, "Operation not supported")
        real(source, target)

    monkeypatch.setattr(longdoc.files.os, "link", link_outside_tables)
    monkeypatch.setattr(longdoc.files, "_copy_exclusive", full)
    with pytest.raises(InfrastructureError, match=r"No space left on device\. Free some space and run again"):
        store.commit(attempt, **arguments)
    monkeypatch.undo()
    assert store.committed() == {}
    store.discard(attempt)
    _rewrite_owner(attempt.staging, process_started="1")
    assert store.recover().rolled_forward == (document.doc_key,)
    no_faults(tmp_path)


def test_a_part_that_was_decided_and_removed_from_outside_is_named(tmp_path: Path) -> None:
    die_in_commit(tmp_path / "out", "decided", 1)
    for path in (tmp_path / "out" / "_longdoc" / "staging").glob("*/tokens/*/*-p001.parquet"):
        path.unlink()
    with pytest.raises(InfrastructureError, match=r"tokens/.*-p001\.parquet was decided, but is neither staged nor"):
        OutputStore.open(str(tmp_path / "out"), IDENTITY).recover()


def test_a_file_that_is_not_ours_where_a_part_belongs_is_never_replaced(tmp_path: Path) -> None:
    store = OutputStore.open(str(tmp_path), IDENTITY)
    document = make_document(1)
    attempt = store.begin(document.doc_key)
    parts = write_parts(attempt, document)
    foreign = tmp_path / parts[0].path
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(b"mine")
    with pytest.raises(InfrastructureError, match="holds other bytes than the commit"):
        store.commit(attempt, document_row=document.row, parts=parts)
    assert foreign.read_bytes() == b"mine"


def test_rows_and_parts_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    store = OutputStore.open(str(tmp_path), IDENTITY)
    document = make_document(1)
    attempt = store.begin(document.doc_key)
    parts = write_parts(attempt, document)
    tokens = [part for part in parts if part.table == "tokens"]
    cases: list[tuple[dict[str, Any], str]] = [
        ({"parts": [part for part in parts if part != tokens[0]]}, "hold 24 tokens, the document has 46"),
        ({"parts": []}, "has no parts"),
        ({"parts": [*parts, parts[0]]}, "two parts of"),
        ({"parts": [dataclasses.replace(parts[0], path="segments/x.parquet"), *parts[1:]]}, "is no part of"),
        ({"document_row": document.row | {"doc_key": "0" * 64}}, "cannot commit document"),
        ({"document_row": document.row | {"colour": 1}}, "a documents row has no column colour"),
        ({"document_row": document.row | {"dtype": None}}, "a documents row lacks dtype"),
        ({"document_row": document.row | {"seconds": "long"}}, "a value of another type"),
    ]
    for change, message in cases:
        with pytest.raises(ValueError, match=message):
            store.commit(attempt, **({"document_row": document.row, "parts": parts} | change))
    assert store.commit(attempt, document_row=document.row, parts=parts)


def test_a_discarded_attempt_cannot_be_committed(tmp_path: Path) -> None:
    store = OutputStore.open(str(tmp_path), IDENTITY)
    attempt = store.begin(make_document(1).doc_key)
    arguments = _commit_arguments(attempt, 1)
    store.discard(attempt)
    with pytest.raises(InfrastructureError, match="abandoned"):
        store.commit(attempt, **arguments)


def test_half_made_files_of_dead_processes_are_swept_when_old(tmp_path: Path) -> None:
    store = OutputStore.open(str(tmp_path), IDENTITY)
    old, young = tmp_path / "_longdoc" / "scratch" / "old", tmp_path / "_longdoc" / "scratch" / "young"
    for path in (old, young):
        path.touch()
    os.utime(old, (1.0, 1.0))
    store.recover()
    assert (old.exists(), young.exists()) == (False, True)


def test_committed_documents_are_known_by_their_rows(tmp_path: Path) -> None:
    store = make_output(tmp_path)
    documents = store.committed()
    assert {key: (found.doc_id, found.num_tokens) for key, found in documents.items()} == {
        document.doc_key: (document.doc_id, len(document.tables["tokens"]))
        for document in (make_document(1), make_document(2))
    }
    (path,) = tmp_path.glob(f"documents/*/{make_document(1).doc_key}-p000.parquet")
    path.write_bytes(b"PAR1 nonsense")
    with pytest.raises(OutputError, match="cannot be read"):
        store.committed()


FAILURE: dict[str, Any] = {"source_uri": "file:///x", "stage": "plan", "reason": "over_capacity", "error": "too long"}


def test_quarantine_counts_failures_and_keeps_the_first_time(tmp_path: Path) -> None:
    store = OutputStore.open(str(tmp_path), IDENTITY)
    key = make_document(1).doc_key
    for needs in ("2 GiB a rank", "3 GiB a rank"):
        store.quarantine(doc_id="file:///x", doc_key=key, needs=needs, **FAILURE)
    row = OutputStore.read(str(tmp_path)).quarantined()[key]
    assert (row["attempts"], row["needs"], row["reason"]) == (2, "3 GiB a rank", "over_capacity")
    rows = [row for path in sorted(tmp_path.glob("quarantine/*/*")) for row in read_rows(path, "quarantine", IDENTITY)]
    assert [row["attempts"] for row in rows] == [1, 2]
    assert rows[1]["first_at"] == rows[0]["first_at"] == rows[0]["last_at"] < rows[1]["last_at"]
    assert commit_document(store, make_document(1))
    assert store.quarantined() == {}


def test_a_document_without_a_key_is_quarantined_by_its_name_until_it_is_committed(tmp_path: Path) -> None:
    store = OutputStore.open(str(tmp_path), IDENTITY)
    document = make_document(1)
    store.quarantine(doc_id=document.doc_id, doc_key=None, **FAILURE)
    assert set(store.quarantined()) == {document.doc_id}
    commit_document(store, document)
    assert store.quarantined() == {}
    store.quarantine(doc_id=document.doc_id, doc_key=None, **FAILURE)
    assert store.quarantined()[document.doc_id]["attempts"] == 2
    with pytest.raises(ValueError, match="needs a doc_key or a doc_id"):
        store.quarantine(doc_id=None, doc_key=None, **FAILURE)


def test_two_drivers_that_record_failures_never_take_one_number(tmp_path: Path) -> None:
    stores = [OutputStore.open(str(tmp_path), IDENTITY) for _ in range(4)]
    threads = [
        threading.Thread(target=lambda store=store: store.quarantine(doc_id="x", doc_key=None, **FAILURE))
        for store in stores
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = [row for path in tmp_path.glob("quarantine/*/*") for row in read_rows(path, "quarantine", IDENTITY)]
    assert sorted(row["attempts"] for row in rows) == [1, 2, 3, 4]
    no_faults(tmp_path)


def test_a_row_that_was_kept_and_not_published_is_published_by_recovery(tmp_path: Path) -> None:
    store = make_output(tmp_path)
    published = sorted(path for table in ("quarantine", "runs") for path in tmp_path.glob(f"{table}/*/*"))
    contents = [path.read_bytes() for path in published]
    for path in published:
        path.unlink()
    store.recover()
    assert [path.read_bytes() for path in published] == contents
    no_faults(tmp_path)


def test_a_run_is_recorded_once(tmp_path: Path) -> None:
    store = make_output(tmp_path)
    (path,) = tmp_path.glob("runs/*/*")
    (row,) = read_rows(path, "runs", IDENTITY)
    assert (row["run_id"], json.loads(row["configuration"])) == ("run1", {"a": 1})
    with pytest.raises(ValueError, match="run run1 was recorded before"):
        store.record_run(row | {"exit_code": 4})
    with pytest.raises(ValueError, match="a runs row lacks run_id"):
        store.record_run({})
