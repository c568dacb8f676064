"""The chain of a document's versions: what each commit stands behind, with several drivers, clocks and returns."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from store_actions import commit_arguments, no_faults
from synthetic_output import IDENTITY, commit_document, make_document
from verify_actions import faults_of, is_told

import longdoc.store.commit
from longdoc.errors import InfrastructureError
from longdoc.store.commit import OutputStore
from longdoc.store.views import current_documents

A, B, C = (make_document(1, version=version).doc_key for version in range(3))


def commit(store: OutputStore, version: int, number: int = 1) -> bool:
    return commit_document(store, make_document(number, version=version))


def chain(output: Path) -> dict[str, str | None]:
    """Each committed version and the one before it."""
    found = OutputStore.read(str(output)).committed().values()
    return {document.doc_key: document.previous_doc_key for document in found}


def current(output: Path) -> list[str]:
    return current_documents(str(output))["doc_key"].to_pylist()


@pytest.fixture
def store(tmp_path: Path) -> OutputStore:
    return OutputStore.open(str(tmp_path / "out"), IDENTITY)


@pytest.mark.parametrize("knows", [True, False])
def test_each_version_stands_behind_the_one_that_was_committed_last(tmp_path: Path, knows: bool) -> None:
    for version in range(3):
        store = OutputStore.open(str(tmp_path / "out"), IDENTITY)  # a run each night
        if knows:
            store.committed()
        assert commit(store, version)
        assert commit(store, 0, number=2 + version)  # other documents have no say
    assert {key: chain(tmp_path / "out")[key] for key in (A, B, C)} == {A: None, B: A, C: B}
    assert all(chain(tmp_path / "out")[make_document(2 + number).doc_key] is None for number in range(3))
    assert C in current(tmp_path / "out")
    no_faults(tmp_path / "out")


def test_a_return_to_an_earlier_commit_changes_no_row(store: OutputStore, tmp_path: Path) -> None:
    """The planner finds A committed and computes nothing; even an attempt at it would lose."""
    for version in (0, 1):
        commit(store, version)
    assert A in store.committed()
    assert not commit(store, 0)
    assert chain(tmp_path / "out") == {A: None, B: A}
    assert current(tmp_path / "out") == [B]
    commit(store, 2)
    assert chain(tmp_path / "out") == {A: None, B: A, C: B}


def test_what_another_driver_decided_since_is_seen(store: OutputStore, tmp_path: Path) -> None:
    assert store.committed() == {}
    commit(OutputStore.open(str(tmp_path / "out"), IDENTITY), 0)
    commit(store, 1)
    assert chain(tmp_path / "out") == {A: None, B: A}


def test_two_drivers_that_do_not_see_each_other_stand_behind_the_same_version(tmp_path: Path) -> None:
    first, second = (OutputStore.open(str(tmp_path / "out"), IDENTITY) for _ in range(2))
    commit(first, 0)

    def overtake(name: str) -> None:
        if name == "staged":
            commit(second, 2)

    first.on_step = overtake  # type: ignore[method-assign]  # another driver commits between our look and our decision
    commit(first, 1)
    assert chain(tmp_path / "out") == {A: None, B: A, C: A}
    no_faults(tmp_path / "out")


def test_a_clock_that_was_ahead_does_not_make_an_old_version_the_current_one(
    store: OutputStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ahead(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime(2100, 1, 1, tzinfo=UTC)

    with monkeypatch.context() as patch:
        patch.setattr(longdoc.store.commit, "datetime", Ahead)
        commit(store, 0)
    commit(store, 1)
    committed = OutputStore.read(str(tmp_path / "out")).committed()
    assert committed[B].committed_at == committed[A].committed_at + timedelta(microseconds=1)
    assert (chain(tmp_path / "out")[B], current(tmp_path / "out")) == (A, [B])


def test_a_version_that_was_removed_and_computed_again_does_not_close_a_circle(
    store: OutputStore, tmp_path: Path
) -> None:
    for version in range(3):
        commit(store, version)
    output = tmp_path / "out"
    for path in [*output.glob(f"*/*/{A}-p*.parquet"), output / "_longdoc" / "decisions" / A]:
        path.unlink()
    assert is_told(f"documents: {B}: its previous version {A} is not in the output", faults_of(output))
    commit(OutputStore.open(str(output), IDENTITY), 0)
    assert chain(output) == {A: None, B: A, C: B}
    no_faults(output)


def test_a_decision_that_cannot_be_read_stops_a_commit_by_name(store: OutputStore, tmp_path: Path) -> None:
    commit(store, 0)
    decision = tmp_path / "out" / "_longdoc" / "decisions" / A
    decision.write_bytes(decision.read_bytes()[:-1])
    attempt = OutputStore.open(str(tmp_path / "out"), IDENTITY).begin(make_document(2).doc_key)
    with pytest.raises(InfrastructureError, match=f"decisions/{A} is damaged"):
        OutputStore.open(str(tmp_path / "out"), IDENTITY).commit(attempt, **commit_arguments(attempt, 2))


BOOK_2 = make_document(2).doc_key
FAULTS: list[tuple[dict[int, str], str]] = [
    ({1: "f" * 64}, f"documents: {B}: its previous version f+ is not in the output"),
    ({1: B}, f"documents: {B}: its previous versions lead back to itself"),
    ({0: C, 2: B}, f"documents: {A}: its previous versions lead back to itself"),
    ({1: BOOK_2}, f"documents: {B}: its previous version {BOOK_2} is of another document file:///book-2"),
]


@pytest.mark.parametrize(("planted", "fault"), FAULTS)
def test_verify_finds_a_chain_that_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: dict[int, str], fault: str
) -> None:
    store = OutputStore.open(str(tmp_path), IDENTITY)
    commit(store, 0, number=2)
    rows_file = longdoc.store.commit.rows_file
    for version in range(3):
        change = {"previous_doc_key": planted[version]} if version in planted else {}

        def plant(table: str, identity: Any, rows: Any, *, run_id: str, change: Any = change) -> bytes:
            return rows_file(table, identity, [row | change for row in rows], run_id=run_id)

        with monkeypatch.context() as patch:
            patch.setattr(longdoc.store.commit, "rows_file", plant)
            commit(store, version)
    assert is_told(fault, faults_of(tmp_path))
