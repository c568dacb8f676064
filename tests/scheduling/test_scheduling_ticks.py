"""Whose turn it is and what is due: one scheduler and several, by a clock that the test moves."""

import pytest
from schedule_fakes import START, entry, events, minute, other, state

from longdoc.scheduling.journal import Journal
from longdoc.scheduling.service import BUSY_SECONDS, IDLE_SECONDS


def test_nothing_before_an_entry_was_first_seen_is_caught_up_on(tmp_path, machine):
    served = entry(tmp_path)
    service = machine.serving(served)
    service.step()
    assert machine.works == []
    assert state(served).first_seen_at == START


def test_a_tick_starts_one_run_and_its_end_is_recorded(tmp_path, machine):
    served = entry(tmp_path)
    service = machine.serving(served)
    service.step()
    machine.clock.wait(30)
    service.step()
    service.step()
    assert len(machine.works) == 1
    assert state(served).running.tick == minute(1)
    machine.works[0].code, machine.works[0].summary = 0, {"run_id": "r", "num_planned": 3, "num_committed": 2}
    machine.clock.wait(5)
    service.step()
    last = state(served).last_run
    assert (last.outcome, last.exit_code, last.tick, last.seconds) == ("committed", 0, minute(1), 5.0)
    assert (last.num_planned, last.num_committed, last.run_id) == (3, 2, "r")
    assert state(served).running is None
    assert not list((Journal(served.root, served.name).folder / "beats").iterdir())


def test_a_tick_that_comes_while_the_last_one_runs_is_skipped_and_recorded(tmp_path, machine):
    served = entry(tmp_path)
    service = machine.serving(served)
    service.step()
    for _ in range(4):
        machine.clock.wait(30)
        service.step()
    assert len(machine.works) == 1
    assert (state(served).num_skipped, state(served).last_skipped) == (1, minute(2))
    assert events(served) == ["first seen", "started", "skipped"]
    assert "nightly: skipped tick 2027-01-10T12:02:00Z: the last run still goes on" in machine.said


def test_a_skipped_tick_is_not_run_later(tmp_path, machine):
    served = entry(tmp_path)
    service = machine.serving(served)
    service.step()
    machine.clock.wait(30)
    service.step()
    machine.clock.wait(60)
    service.step()
    machine.works[0].code = 0
    service.step()
    machine.clock.wait(59)
    service.step()
    assert len(machine.works) == 1
    machine.clock.wait(1)
    service.step()
    assert state(served).running.tick == minute(3)


def test_five_ticks_that_were_missed_give_one_run(tmp_path, machine):
    served = entry(tmp_path)
    machine.serving(served).step()
    machine.clock.wait(30 + 4 * 60)
    # The scheduler was down, and another process serves now.
    service = machine.serving(served)
    service.step()
    assert len(machine.works) == 1
    running = state(served).running
    assert (running.tick, running.merged) == (minute(5), 4)
    assert (state(served).num_merged, state(served).last_merged) == (4, minute(4))
    machine.works[0].code = 0
    service.step()
    machine.clock.wait(59)
    service.step()
    assert len(machine.works) == 1


def test_of_two_schedulers_one_runs_a_tick(tmp_path, machine):
    served, second = entry(tmp_path), other(machine)
    services = [machine.serving(served), second.serving(served)]
    for _ in range(5):
        for service in services:
            service.step()
        machine.clock.wait(30)
        for work in machine.works + second.works:
            work.code = 0
    assert len(machine.works + second.works) == 2
    assert state(served).num_skipped == 0


def test_a_race_for_one_tick_has_one_winner(tmp_path, machine):
    served, second = entry(tmp_path), other(machine)
    schedulers = [machine.scheduler(served), second.scheduler(served)]
    schedulers[0].look()
    schedulers[1].look()
    machine.clock.wait(30)
    for scheduler in schedulers:
        scheduler.look()
    # Both have seen that nothing runs and that the tick is due.
    assert [scheduler.waiting_since() for scheduler in schedulers] == [minute(1), minute(1)]
    stale = schedulers[1].journal.latest()
    assert schedulers[0].start_due()
    schedulers[1].journal.latest = lambda: stale
    assert not schedulers[1].start_due()
    # Nor does it start the next tick, which it takes for due, while the first one runs.
    del schedulers[1].journal.latest
    machine.clock.wait(60)
    assert not schedulers[1].start_due()
    assert (len(machine.works), len(second.works)) == (1, 0)


def test_a_scheduler_that_is_gone_is_replaced_after_the_deadline_and_not_before(tmp_path, machine):
    served, second = entry(tmp_path, takeover_after=60), other(machine)
    service = machine.serving(served)
    service.step()
    machine.clock.wait(30)
    service.step()  # and is never heard of again
    heir = second.serving(served)
    for _ in range(60):
        heir.step()
        machine.clock.wait(1)
    assert second.works == []
    heir.step()
    assert len(second.works) == 1
    running = state(served).running
    assert (running.host, running.attempt, running.tick) == ("two", 2, minute(1))
    assert "nightly: one gave no sign of life for 60 s; taking over its run" in second.said


def test_signs_of_life_keep_a_run_however_long_it_takes(tmp_path, machine):
    served, second = entry(tmp_path, takeover_after=60), other(machine)
    service, heir = machine.serving(served), second.serving(served)
    service.step()
    machine.clock.wait(30)
    for _ in range(400):
        service.step()
        heir.step()
        machine.clock.wait(1)
    assert second.works == []


@pytest.mark.parametrize("skew", [-7200.0, -90.0, 90.0, 7200.0])
def test_clocks_that_differ_take_nobody_for_dead_and_run_no_tick_twice(tmp_path, machine, skew):
    served, second = entry(tmp_path, cron="0 * * * *", takeover_after=60), other(machine, skew=skew)
    services = [machine.serving(served), second.serving(served)]
    ticks = []
    for _ in range(4 * 360):
        for service in services:
            service.step()
        if (running := state(served).running) is not None and running.tick not in ticks:
            ticks.append(running.tick)
        for work in machine.works + second.works:
            work.code = 0
        machine.clock.wait(10)
    assert len(machine.works + second.works) == len(ticks) == len(set(ticks))
    assert sorted(ticks) == ticks
    assert "taken over" not in events(served)


def test_an_owner_that_wakes_after_it_was_replaced_ends_its_run_and_records_nothing(tmp_path, machine):
    served, second = entry(tmp_path, takeover_after=60), other(machine)
    service, heir = machine.serving(served), second.serving(served)
    service.step()
    machine.clock.wait(30)
    service.step()
    for _ in range(62):
        heir.step()
        machine.clock.wait(1)
    assert len(second.works) == 1
    service.step()
    assert machine.works[0].told_to_end
    service.step()
    assert not service.entries[0].is_running
    assert state(served).running.host == "two"
    second.works[0].code = 0
    heir.step()
    assert state(served).last_run.host == "two"
    assert events(served).count("ended") == 1


def test_an_owner_whose_run_ended_while_it_was_replaced_records_nothing(tmp_path, machine):
    served, second = entry(tmp_path, takeover_after=60), other(machine)
    service, heir = machine.serving(served), second.serving(served)
    service.step()
    machine.clock.wait(30)
    service.step()
    machine.works[0].code = 0
    for _ in range(62):
        heir.step()
        machine.clock.wait(1)
    service.step()
    assert state(served).last_run is None
    assert state(served).running.host == "two"


def test_runs_wait_for_each_other_and_who_waits_longest_is_first(tmp_path, machine):
    busy, early, late = (entry(tmp_path, name, cron) for name, cron in (
        ("busy", "1 * * * *"), ("late", "3 * * * *"), ("early", "2 * * * *")))  # fmt: skip
    service = machine.serving(busy, early, late)
    service.step()
    for _ in range(20):
        machine.clock.wait(30)
        service.step()
    assert len(machine.works) == 1
    order = []
    for _ in range(2):
        machine.works[-1].code = 0
        service.step()
        order.append(machine.works[-1].log.parent.parent.name)
    assert order == ["early", "late"]


def test_more_runs_at_once_where_the_file_says_so(tmp_path, machine):
    entries = [entry(tmp_path, name) for name in ("a", "b", "c")]
    service = machine.serving(*entries, runs_at_once=2)
    service.step()
    machine.clock.wait(30)
    service.step()
    assert len(machine.works) == 2


def test_looks_are_frequent_while_something_runs_and_rare_otherwise(tmp_path, machine):
    service = machine.serving(entry(tmp_path, cron="0 * * * *"))
    assert service.step() == IDLE_SECONDS
    machine.clock.passed[0] = 59 * 60 + 25.0
    assert service.step() == 5.0
    machine.clock.wait(5)
    assert service.step() == BUSY_SECONDS


def test_an_entry_that_is_switched_off_is_not_served(tmp_path, machine):
    service = machine.serving(entry(tmp_path, enabled=False))
    assert service.step() == IDLE_SECONDS
    assert not (tmp_path / "out").exists()
