"""The commit: exactly once, nothing half-seen, whoever dies or races."""

import dataclasses
import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from store_actions import (
    commit_arguments,
    die_in_commit,
    document_keys,
    fingerprints,
    no_faults,
    owned_elsewhere,
    rewrite_owner,
)
from synthetic_output import (
    IDENTITY,
    commit_document,
    make_document,
    write_parts,
)

import longdoc.files
import longdoc.store.attempts
from longdoc.errors import InfrastructureError
from longdoc.store.commit import COMMIT_STEPS, OutputStore


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
    owned_elsewhere(attempt.staging, beat_seconds_ago=3700)
    assert other.recover().removed == (attempt.attempt_id,)
    with pytest.raises(InfrastructureError, match="another run abandoned this attempt"):
        paused.commit(attempt, document_row=document.row, parts=parts)
    assert commit_document(other, document)
    no_faults(tmp_path)


def test_a_writer_abandoned_between_its_check_and_its_mark_stops(tmp_path: Path) -> None:
    class Pausing(OutputStore):
        def on_step(self, name: str) -> None:
            if name == "staged":
                owned_elsewhere(attempt.staging, beat_seconds_ago=3700)
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
                owned_elsewhere(attempt.staging, beat_seconds_ago=3700)
                report = OutputStore.open(str(tmp_path), IDENTITY).recover()
                assert report.rolled_forward == (document.doc_key,)

    store = Pausing.open(str(tmp_path), IDENTITY)
    document = make_document(1)
    attempt = store.begin(document.doc_key)
    assert store.commit(attempt, document_row=document.row, parts=write_parts(attempt, document))
    no_faults(tmp_path)


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


def test_a_full_disk_while_publishing_is_infrastructure_and_the_next_run_completes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = OutputStore.open(str(tmp_path), IDENTITY)
    document = make_document(1)
    attempt = store.begin(document.doc_key)
    arguments = commit_arguments(attempt, 1)
    real = os.link

    def full_tables(source: Any, target: Any) -> None:
        if "bucket=" in str(target):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(source, target)

    monkeypatch.setattr(longdoc.files.os, "link", full_tables)
    with pytest.raises(InfrastructureError, match=r"No space left on device\. Free some space and run again"):
        store.commit(attempt, **arguments)
    monkeypatch.undo()
    assert store.committed() == {}
    store.discard(attempt)
    rewrite_owner(attempt.staging, process_started="1")
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
    with pytest.raises(InfrastructureError, match="holds other bytes than were decided for it"):
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
    arguments = commit_arguments(attempt, 1)
    store.discard(attempt)
    with pytest.raises(InfrastructureError, match="abandoned"):
        store.commit(attempt, **arguments)


def test_half_made_files_of_dead_processes_are_swept_when_old(tmp_path: Path) -> None:
    store = OutputStore.open(str(tmp_path), IDENTITY)
    internal = tmp_path / "_longdoc"
    old, young = (internal / "scratch" / name for name in ("old", "young"))
    torn = internal / "decisions" / f".unit.{'0' * 16}"
    torn.parent.mkdir()
    for path in (old, young, torn):
        path.touch()
    for path in (old, torn):
        os.utime(path, (1.0, 1.0))
    store.recover()
    assert (old.exists(), torn.exists(), young.exists()) == (False, False, True)
