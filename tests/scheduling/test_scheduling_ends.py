"""How runs end: by themselves, with their scheduler, by hand, late, or never started; and faults on the way."""

import os
import signal
from datetime import timedelta

import pytest
from schedule_fakes import by_hand, entry, minute, other, state

from longdoc.errors import InfrastructureError
from longdoc.scheduling.journal import Journal


def test_an_interrupted_run_is_due_again(tmp_path, machine):
    served = entry(tmp_path)
    service = machine.serving(served)
    service.step()
    machine.clock.wait(30)
    service.step()
    service.stop()
    assert machine.works[0].told_to_end
    assert (state(served).last_run.outcome, state(served).handed_back) == ("interrupted", minute(1))
    machine.serving(served).step()
    assert len(machine.works) == 2
    assert state(served).running.tick == minute(1)
    assert state(served).num_merged == 0


def test_ctrl_c_while_a_run_starts_leaves_no_claim_without_a_run(tmp_path, machine, monkeypatch):
    served = entry(tmp_path)
    start = machine.start

    def interrupted(entry, log):
        os.kill(os.getpid(), signal.SIGINT)
        return start(entry, log)

    monkeypatch.setattr(machine, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        machine.serving(served).serve()
    assert machine.works[0].told_to_end
    assert (state(served).running, state(served).handed_back) == (None, minute(1))
    with pytest.raises(KeyboardInterrupt):
        by_hand(served, machine)
    assert machine.works[1].told_to_end
    # It stood for the tick that was handed back before.
    assert (state(served).running, state(served).handed_back) == (None, minute(1))


def test_a_run_past_its_deadline_is_ended(tmp_path, machine):
    served = entry(tmp_path, deadline=100, cron="0 * * * *")
    service = machine.serving(served)
    service.step()
    machine.clock.wait(3600)
    service.step()
    machine.clock.wait(100)
    service.step()
    assert not machine.works[0].told_to_end
    machine.clock.wait(1)
    service.step()
    assert machine.works[0].told_to_end
    service.step()
    assert state(served).last_run.outcome == "past its deadline"


def test_a_run_that_takes_long_to_end_costs_no_other_run_its_sign_of_life(tmp_path, machine):
    late, sound = entry(tmp_path, "late", deadline=10, takeover_after=5), entry(tmp_path, "sound", takeover_after=5)
    second = other(machine)
    service, heir = machine.serving(late, sound, runs_at_once=2), second.serving(late, sound, runs_at_once=2)
    machine.lingers = 40.0
    service.step()
    machine.clock.wait(30)
    for _ in range(55):
        service.step()
        heir.step()
        machine.clock.wait(1)
    assert second.works == []
    assert [work.told_to_end for work in machine.works] == [True, False]
    assert state(late).last_run.outcome == "past its deadline"
    assert state(sound).running.attempt == 1


def test_a_run_that_does_not_end_is_ended_by_force(tmp_path, machine):
    served = entry(tmp_path, deadline=10, cron="0 * * * *")
    machine.lingers = 1e9
    service = machine.serving(served)
    service.step()
    machine.clock.wait(3600)
    for _ in range(74):
        service.step()
        machine.clock.wait(1)
    last = state(served).last_run
    assert (last.outcome, last.exit_code, last.seconds) == ("past its deadline", -9, 73.0)


def test_all_runs_are_told_to_end_before_any_is_waited_for(tmp_path, machine):
    entries = [entry(tmp_path, name) for name in ("a", "b")]
    machine.lingers = 20.0
    service = machine.serving(*entries, runs_at_once=2)
    service.step()
    machine.clock.wait(30)
    service.step()
    service.stop()
    assert machine.clock.passed[0] < 30 + 21
    assert [state(served).last_run.outcome for served in entries] == ["interrupted", "interrupted"]


def test_a_sign_of_life_that_cannot_be_removed_stops_no_run(tmp_path, machine):
    served = entry(tmp_path)
    left = Journal(served.root, served.name).beat(0)
    left.mkdir(parents=True)  # nobody may unlink a folder
    service = machine.serving(served)
    service.step()
    machine.clock.wait(30)
    service.step()
    assert len(machine.works) == 1


def test_a_fault_that_lasts_is_said_once(tmp_path, machine):
    (tmp_path / "out").write_text("a file where a folder should be")
    service = machine.serving(entry(tmp_path))
    for _ in range(5):
        service.step()
    assert len(machine.said) == 1


def test_a_run_that_cannot_be_started_is_recorded_with_the_reason(tmp_path, machine):
    served = entry(tmp_path)
    machine.cannot_start = True
    service = machine.serving(served)
    service.step()
    machine.clock.wait(30)
    service.step()
    service.step()
    assert state(served).last_run.outcome == "not started"
    journal = Journal(served.root, served.name)
    assert journal.latest().detail["last_lines"] == ["no more processes"]


def test_an_output_that_fails_costs_only_its_own_entry(tmp_path, machine):
    (tmp_path / "out").write_text("a file where a folder should be")
    broken, sound = entry(tmp_path, "broken"), entry(tmp_path, "sound", output="out2")
    service = machine.serving(broken, sound, runs_at_once=2)
    service.step()
    machine.clock.wait(30)
    service.step()
    assert len(machine.works) == 1
    assert any(line.startswith("broken: ") for line in machine.said)


def test_failing_sources_are_known_since_they_began_to_fail(tmp_path, machine):
    served = entry(tmp_path)
    service = machine.serving(served)
    service.step()
    fault = {"source_uri": "git:a", "stage": "read", "reason": "not_opened", "error": "gone"}
    for faults in ([fault], None, [fault], [], [fault]):
        machine.clock.wait(60)
        service.step()
        work = machine.works[-1]
        work.code, work.summary = (4, None) if faults is None else (3, {"quarantined": faults})
        service.step()
        since = [source.since for source in state(served).failing]
        # A run that did not come to its end says nothing about sources.
        assert since == ([] if faults == [] else [minute(1 if len(machine.works) <= 3 else 5) + timedelta(seconds=30)])


def test_one_run_by_hand_stands_for_what_was_missed_and_leaves_the_next_tick(tmp_path, machine):
    served = entry(tmp_path)
    machine.serving(served).step()
    machine.clock.wait(30 + 60)
    scheduler = machine.scheduler(served)
    assert scheduler.start_once()
    running = state(served).running
    assert (running.kind, running.tick, running.merged) == ("once", None, 2)
    machine.works[0].code = 0
    scheduler.look()
    machine.clock.wait(59)
    service = machine.serving(served)
    service.step()
    assert len(machine.works) == 1
    machine.clock.wait(1)
    service.step()
    assert state(served).running.tick == minute(3)


def test_a_run_by_hand_beside_a_live_one_is_refused(tmp_path, machine):
    served, second = entry(tmp_path), other(machine)
    service = machine.serving(served)
    service.step()
    machine.clock.wait(30)
    service.step()
    # While the second machine waits for a sign of life, the first one goes on.
    wait = second.clock.wait
    second.clock.wait = lambda seconds: (wait(seconds), service.step())
    with pytest.raises(InfrastructureError) as refused:
        by_hand(served, second)
    assert str(refused.value) == (
        "entry nightly is running already, started by another scheduler. `longdoc schedule status` says where; run "
        "again when it has ended."
    )
    assert second.works == []


def test_a_disk_that_fails_under_a_run_by_hand_is_told(tmp_path, machine):
    (tmp_path / "out").write_text("a file where a folder should be")
    with pytest.raises(InfrastructureError, match=r"entry nightly could not be served: .*Check the disk and run again"):
        by_hand(entry(tmp_path), machine)


def test_a_run_by_hand_takes_over_from_one_that_is_gone(tmp_path, machine):
    served, second = entry(tmp_path), other(machine)
    service = machine.serving(served)
    service.step()
    machine.clock.wait(30)
    service.step()
    scheduler = second.scheduler(served)
    assert scheduler.start_once()
    assert second.clock.passed[0] >= 30 + 60
    assert state(served).running.host == "two"
