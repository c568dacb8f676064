"""The journal of an entry: each number is created once, records are whole, old ones go without a race."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from schedule_fakes import START

from longdoc.errors import InfrastructureError
from longdoc.scheduling import journal as journals
from longdoc.scheduling.heartbeat import Heart, Observer
from longdoc.scheduling.journal import Journal, Record
from longdoc.scheduling.state import FailingSource, LastRun, Running, first_seen, from_json, to_json


def record(number, by="one", state=None):
    return Record(number=number, event="started", at=START, by=by, state=state or first_seen(START), detail={"n": 1})


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path, "nightly")


def test_a_record_is_read_as_it_was_written(journal):
    running = Running(
        record=3, attempt=2, kind="tick", tick=START, merged=4, owner="o", host="h", pid=7, started_at=START
    )
    last = LastRun(
        kind="once", tick=None, attempt=1, host="h", started_at=START, ended_at=START, outcome="committed", exit_code=0,
        seconds=1.5,
    )  # fmt: skip
    failing = FailingSource(source_uri="git:a\udc80", stage="read", reason="gone", error="ö", since=START)
    state = replace(first_seen(START), running=running, last_run=last, failing=(failing,), handed_back=START)
    assert from_json(to_json(state)) == state
    assert journal.append(record(0, state=state))
    assert journal.latest() == record(0, state=state)


def test_of_many_writers_of_one_number_one_wins(journal):
    assert journal.append(record(0))
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda by: journal.append(record(1, by=str(by))), range(8)))
    assert sum(won) == 1
    assert journal.latest().by == str(won.index(True))


def test_an_entry_that_was_never_seen_has_no_record(journal):
    assert journal.latest() is None
    assert not journal.folder.exists()


def test_old_records_are_forgotten_and_the_newest_stand(journal, monkeypatch):
    monkeypatch.setattr(journals, "KEPT_RECORDS", 10)
    monkeypatch.setattr(journals, "_STRIDE", 5)
    for number in range(32):
        assert journal.append(record(number))
    assert journal.numbers() == list(range(21, 32))


@pytest.mark.parametrize("number", [0, 6])
def test_a_writer_that_slept_while_its_number_came_and_went_has_lost(journal, monkeypatch, number):
    for earlier in range(number):
        assert journal.append(record(earlier))
    # It means to write `number`, and sleeps. Others go on, and forget what is old.
    monkeypatch.setattr(journals, "KEPT_RECORDS", 10)
    monkeypatch.setattr(journals, "_STRIDE", 5)
    for later in range(number, 41):
        assert journal.append(record(later))
    assert number not in journal.numbers()
    assert not journal.append(record(number, by="the sleeper"))
    assert journal.latest().number == 40


def test_a_damaged_record_is_named(journal):
    assert journal.append(record(0))
    path = journal.folder / "records" / "00000000.json"
    path.write_text('{"number": 0, "event": ')
    with pytest.raises(InfrastructureError) as damaged:
        journal.latest()
    assert str(damaged.value).startswith(f"{path} is damaged: ")
    assert str(damaged.value).endswith("Remove that file; what was decided before it then holds.")


def test_files_that_are_being_made_are_no_records(journal):
    assert journal.append(record(0))
    (journal.folder / "records" / ".00000001.json.0123456789abcdef").touch()
    assert journal.latest().number == 0


def test_a_heart_beats_ten_times_in_the_time_after_which_it_counts_as_still(tmp_path):
    heart = Heart(tmp_path / "beat", takeover_after=50, now=0.0)
    seen = set()
    for second in range(50):
        heart.beat(float(second))
        seen.add((tmp_path / "beat").read_text())
    assert len(seen) == 10
    heart.stop()
    heart.stop()
    assert not (tmp_path / "beat").exists()


def test_silence_is_counted_by_the_observer_from_its_first_look(tmp_path):
    path, observer = tmp_path / "beat", Observer()
    path.write_text("5")
    assert observer.silent_for(1, path, 1000.0) == 0.0
    assert observer.silent_for(1, path, 1030.0) == 30.0
    path.write_text("6")
    assert observer.silent_for(1, path, 1040.0) == 0.0
    # A file that is gone, or another run, is a change too.
    path.unlink()
    assert observer.silent_for(1, path, 1050.0) == 0.0
    assert observer.silent_for(1, path, 1060.0) == 10.0
    assert observer.silent_for(2, path, 1070.0) == 0.0
