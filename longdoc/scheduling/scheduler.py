"""The scheduler of one entry's ticks: whose turn it is, what is due, and the end of every run that it starts.

Owns the decisions, each made by one record of the journal, so that any number of schedulers may serve an output: a tick
is run by whoever claims it, skipped where it comes while a run goes on, merged where it was missed. Who gives no sign
of life for the entry's `takeover-after` loses the tick to whoever claims it next; a loser that wakes ends its run.
One thread, no waiting: `longdoc.scheduling.service` looks in again and again.
"""

import os
import platform
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from longdoc.cluster.signals import signals_held
from longdoc.errors import InfrastructureError, LongdocError
from longdoc.scheduling import state as states
from longdoc.scheduling.heartbeat import Heart, Observer
from longdoc.scheduling.journal import Journal, Record
from longdoc.scheduling.schedule_file import Entry
from longdoc.scheduling.state import INTERRUPTED, NOT_STARTED, ONCE, PAST_DEADLINE, TICK, Ended, Running, State


class Clock(Protocol):
    """Time, as one scheduler sees it."""

    def now(self) -> datetime:
        """The wall clock, in UTC: for cron expressions and people."""

    def monotonic(self) -> float:
        """Seconds that pass: for deadlines and signs of life."""

    def wait(self, seconds: float) -> None:
        """Let time pass."""


class Work(Protocol):
    """A run that goes on; `longdoc.scheduling.tick_run.TickRun` is the real one."""

    def poll(self) -> int | None:
        """The exit code, or None."""

    def terminate(self) -> None:
        """Tell it to end in order; does not wait."""

    def kill(self) -> None:
        """End what is left of it by force."""

    def ended(self, exit_code: int, seconds: float, outcome: str | None = None) -> Ended:
        """What came of it."""


Start = Callable[[Entry, Path], Work]
#: Seconds that a run is given to end by itself once it was told to.
END_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Unstarted:
    """A run that could not be started at all: over at once, with the reason as its only line."""

    reason: str

    def poll(self) -> int:
        """Over."""
        return InfrastructureError.exit_code

    def terminate(self) -> None:
        """Over."""

    def kill(self) -> None:
        """Over."""

    def ended(self, exit_code: int, seconds: float, outcome: str | None = None) -> Ended:
        """What came of it: nothing."""
        return Ended(outcome=NOT_STARTED, exit_code=exit_code, seconds=seconds, tail=(self.reason,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """One scheduler, wherever it runs."""

    name: str
    host: str
    pid: int


def this_owner() -> Owner:
    """This process."""
    host, pid = platform.node(), os.getpid()
    return Owner(name=f"{host} {pid} {secrets.token_hex(4)}", host=host, pid=pid)


@dataclass(slots=True, kw_only=True)
class _Own:
    """A run of this scheduler. `told_at` is when it was told to end (monotonic), `outcome` what that is recorded as."""

    record: int
    work: Work
    heart: Heart
    started: float
    told_at: float | None = None
    outcome: str | None = None
    end: Ended | None = None
    is_lost: bool = False
    hand_back: bool = False


class EntryScheduler:
    """Serves one entry. `say` is told what people should know."""

    def __init__(self, entry: Entry, *, owner: Owner, clock: Clock, start: Start, say: Callable[[str], None]) -> None:
        self.entry = entry
        self.journal = Journal(entry.root, entry.name)
        self._owner, self._clock, self._start = owner, clock, start
        self._tell = say
        self._own: _Own | None = None
        self._observer = Observer()
        self._silent = 0.0
        self._state: State | None = None
        #: How the last run of this very scheduler ended.
        self.last_end: Ended | None = None

    @property
    def is_running(self) -> bool:
        """Whether this scheduler runs a tick of the entry now."""
        return self._own is not None

    @property
    def is_watching(self) -> bool:
        """Whether somebody else runs one."""
        return self._own is None and self._state is not None and self._state.running is not None

    def next_due(self) -> datetime | None:
        """When the entry is due next, by what was known at the last look."""
        if self._state is None:
            return self._clock.now()
        if self._state.handed_back is not None:
            return self._state.handed_back
        return self.entry.cron.next_after(self._state.decided_through)

    def look(self) -> None:
        """Tend the run that goes on, here or elsewhere; record what was skipped. Starts nothing that is due."""
        due = self.next_due()
        if not (self.is_running or self.is_watching) and (due is None or due > self._clock.now()):
            return
        record = self.journal.latest() or self._first_seen()
        if record is None:
            return
        self._state = record.state
        if self._own is not None:
            self._tend(self._own, record)
        elif record.state.running is not None:
            self._watch(record.state.running)
            self._record_skipped(record)

    def waiting_since(self) -> datetime | None:
        """The earliest tick that is due and that nobody runs; None where there is none."""
        due = self.next_due()
        is_free = self._state is not None and self._state.running is None
        return due if is_free and due is not None and due <= self._clock.now() else None

    def start_due(self) -> bool:
        """Claim and start what is due. False where somebody else was first, or nothing is due."""
        record = self.journal.latest()
        if record is None or record.state.running is not None:
            return False
        ticks = self._due(record.state)
        return bool(ticks) and self._claim(record, TICK, ticks)

    def start_once(self) -> bool:
        """Claim and start a run now, whatever the time; ticks that were missed become this run.

        False where one goes on, whose owner gives a sign of life; one whose owner gives none is taken over.
        """
        while True:
            record = self.journal.latest() or self._first_seen()
            if record is None:
                continue
            self._state = record.state
            if record.state.running is None:
                if self._claim(record, ONCE, self._due(record.state)):
                    return True
            elif self._watch(record.state.running):
                return False
            elif self.take_over():
                return True
            else:
                self._clock.wait(1.0)

    def take_over(self) -> bool:
        """Claim the tick of somebody who, as far as `look` saw, gave no sign of life for as long as the entry says."""
        record = self.journal.latest()
        running = None if record is None else record.state.running
        if record is None or running is None or self._own is not None:
            return False
        if running.record != self._observer.record or self._silent < self.entry.takeover_after:
            return False
        self._say(f"{running.host} gave no sign of life for {self._silent:.0f} s; taking over its run")
        return self._claim(record, running.kind, [] if running.tick is None else [running.tick], lost=running)

    def stop(self) -> None:
        """Tell the run that goes on here to end; `look` sees its end, records it and hands its tick back."""
        if (own := self._own) is not None and own.end is None and own.work.poll() is None:
            own.hand_back = True
            self._tell_to_end(own, INTERRUPTED)

    def _say(self, line: str) -> None:
        self._tell(f"{self.entry.name}: {line}")

    def _first_seen(self) -> Record | None:
        record = self._record(0, "first seen", states.first_seen(self._clock.now()))
        return record if self.journal.append(record) else None

    def _due(self, state: State) -> list[datetime]:
        handed_back = [] if state.handed_back is None else [state.handed_back]
        return [*handed_back, *self.entry.cron.due(state.decided_through, self._clock.now())]

    def _claim(self, record: Record, kind: str, ticks: list[datetime], *, lost: Running | None = None) -> bool:
        number = record.number + 1
        tick = ticks[-1] if kind == TICK else None
        running = Running(
            record=number,
            attempt=1 if lost is None else lost.attempt + 1,
            kind=kind,
            tick=tick,
            merged=lost.merged if lost else len(ticks) - (1 if kind == TICK else 0),
            owner=self._owner.name,
            host=self._owner.host,
            pid=self._owner.pid,
            started_at=self._clock.now(),
        )
        if lost is None:
            after = states.started(record.state, running, ticks)
            claim = self._record(number, "started", after, **_stretch(ticks))
        else:
            after = states.taken_over(record.state, running)
            claim = self._record(number, "taken over", after, lost_record=lost.record, lost_owner=lost.owner)
        # Ctrl-C in between would leave a claim that nobody works on.
        with signals_held():
            if not self.journal.append(claim):
                return False
            self._state = after
            self._begin(running)
        return True

    def _begin(self, running: Running) -> None:
        now = self._clock.monotonic()
        heart = Heart(self.journal.beat(running.record), self.entry.takeover_after, now)
        heart.beat(now)
        self.journal.forget_beats(before=running.record)
        merged = f", which stands for {running.merged} earlier" if running.merged else ""
        what = "by hand" if running.tick is None else f"tick {states.stamp(running.tick)}"
        self._say(f"started, {what}{merged}")
        try:
            work = self._start(self.entry, self.journal.log(running.record))
        except (OSError, LongdocError) as error:
            work = Unstarted(str(error))
        self._own = _Own(record=running.record, work=work, heart=heart, started=now)

    def _watch(self, running: Running) -> bool:
        """Look for a sign of life of somebody else's run; whether there is a new one since the last look."""
        before = (self._observer.record, self._observer.content)
        beat = self.journal.beat(running.record)
        self._silent = self._observer.silent_for(running.record, beat, self._clock.monotonic())
        return before[0] == running.record and self._observer.content not in (before[1], None)

    def _tend(self, own: _Own, record: Record | None) -> None:
        """Look after the run that goes on here: its end, its deadline, its sign of life, and whether it is lost."""
        running = None if record is None else record.state.running
        if running is None or running.record != own.record:
            self._lose(own)
        self._advance(own)
        if record is None or own.is_lost:
            if own.end is not None:
                own.heart.stop()
                self._own = None
        elif own.end is None:
            own.heart.beat(self._clock.monotonic())
            self._record_skipped(record)
        else:
            self._record_end(own, own.end, record)

    def _advance(self, own: _Own) -> None:
        """Take the end of the run where it has come; one that is late is told to end, and ended by force if it stays.

        Waits for nothing: this scheduler's other runs need their signs of life meanwhile.
        """
        now = self._clock.monotonic()
        if own.end is not None:
            return
        if (code := own.work.poll()) is not None:
            own.end = own.work.ended(code, now - own.started, own.outcome)
        elif own.told_at is not None:
            if now - own.told_at > END_SECONDS:
                own.work.kill()
        elif self.entry.deadline is not None and now - own.started > self.entry.deadline:
            self._tell_to_end(own, PAST_DEADLINE)

    def _tell_to_end(self, own: _Own, outcome: str | None) -> None:
        own.told_at, own.outcome = self._clock.monotonic(), outcome
        own.work.terminate()

    def _lose(self, own: _Own) -> None:
        """Another scheduler took the run over while this one gave no sign of life: it must not go on here."""
        if not own.is_lost:
            own.is_lost = True
            self._say("another scheduler has taken the run over; it is ended here")
            if own.end is None and own.told_at is None:
                self._tell_to_end(own, None)

    def _record_end(self, own: _Own, end: Ended, record: Record) -> None:
        """Record the end of a run; tried again at the next look where somebody else recorded something first."""
        after = states.ended(record.state, end, self._clock.now(), hand_back=own.hand_back)
        detail = {"outcome": end.outcome, "exit_code": end.exit_code, "last_lines": list(end.tail)}
        if self.journal.append(self._record(record.number + 1, "ended", after, **detail)):
            self._state, self._own, self.last_end = after, None, end
            self._say(f"ended: {end.outcome}, {end.seconds:.1f} s")
            own.heart.stop()

    def _record_skipped(self, record: Record) -> None:
        ticks = list(self.entry.cron.due(record.state.decided_through, self._clock.now()))
        if not ticks:
            return
        running, after = record.state.running, states.skipped(record.state, ticks)
        detail = _stretch(ticks) | {"running_record": running and running.record}
        if self.journal.append(self._record(record.number + 1, "skipped", after, **detail)):
            self._state = after
            what = f"tick {states.stamp(ticks[-1])}" if len(ticks) == 1 else f"{len(ticks)} ticks"
            self._say(f"skipped {what}: the last run still goes on")

    def _record(self, number: int, event: str, state: State, **detail: Any) -> Record:
        return Record(number=number, event=event, at=self._clock.now(), by=self._owner.name, state=state, detail=detail)


def _stretch(ticks: list[datetime]) -> dict[str, Any]:
    """The ticks that a record is about: how many, the first and the last."""
    if not ticks:
        return {"num_ticks": 0}
    return {"num_ticks": len(ticks), "first_tick": states.stamp(ticks[0]), "last_tick": states.stamp(ticks[-1])}
