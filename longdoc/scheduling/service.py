"""Serving a schedule: all entries looked at in turn, as many runs at once as the file says, until somebody stops it.

Owns the order of starts (who has waited longest), how long nothing is looked at, and an orderly end. A failure of one
entry's output or disk is told and tried again; the other entries go on.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from longdoc.errors import InfrastructureError, LongdocError
from longdoc.scheduling.schedule_file import Entry, Schedule
from longdoc.scheduling.scheduler import END_SECONDS, Clock, EntryScheduler, Owner, Start
from longdoc.scheduling.state import Ended
from longdoc.store.publish import disk_faults

#: Seconds between two looks while something runs, here or elsewhere, and while nothing does. A machine that slept
#: counts none of the seconds it slept, so that a tick is not waited for in one piece.
BUSY_SECONDS, IDLE_SECONDS = 1.0, 10.0
#: Seconds that runs are given when the service ends, their end by force included, and between two looks meanwhile.
STOP_SECONDS, STOPPING_SECONDS = END_SECONDS + 10.0, 0.2


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> datetime:
        """The wall clock."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since some moment in the past."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)


@dataclass(slots=True)
class Service:
    """Serves the entries of a schedule."""

    entries: list[EntryScheduler]
    runs_at_once: int
    clock: Clock
    say: Callable[[str], None]
    _faults: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, schedule: Schedule, *, owner: Owner, clock: Clock, start: Start, say: Callable[[str], None]
    ) -> "Service":
        """The service of a schedule's enabled entries."""
        entries = [
            EntryScheduler(entry, owner=owner, clock=clock, start=start, say=say)
            for entry in schedule.entries
            if entry.enabled
        ]
        return cls(entries=entries, runs_at_once=schedule.runs_at_once, clock=clock, say=say)

    def serve(self) -> None:
        """Serve until interrupted; runs that go on are then ended in order and their ticks handed back."""
        try:
            while True:
                self.clock.wait(self.step())
        finally:
            self.stop()

    def step(self) -> float:
        """Look at everything once; the seconds until it is worth looking again."""
        for entry in self.entries:
            self._guarded(entry, entry.look)
        for entry in self._waiting():
            if self._has_room():
                self._guarded(entry, entry.start_due)
        for entry in self.entries:
            if entry.is_watching and self._has_room():
                self._guarded(entry, entry.take_over)
        return self._seconds_to_wait()

    def stop(self) -> None:
        """End every run that goes on here, all at the same time, and record it."""
        for entry in self.entries:
            self._guarded(entry, entry.stop)
        give_up = self.clock.monotonic() + STOP_SECONDS
        while True:
            running = [entry for entry in self.entries if entry.is_running]
            for entry in running:
                self._guarded(entry, entry.look)
            if not any(entry.is_running for entry in running) or self.clock.monotonic() > give_up:
                return
            self.clock.wait(STOPPING_SECONDS)

    def _waiting(self) -> Iterable[EntryScheduler]:
        waiting = [(since, place) for place, entry in enumerate(self.entries) if (since := entry.waiting_since())]
        return [self.entries[place] for _, place in sorted(waiting)]

    def _has_room(self) -> bool:
        return sum(entry.is_running for entry in self.entries) < self.runs_at_once

    def _seconds_to_wait(self) -> float:
        if any(entry.is_running or entry.is_watching for entry in self.entries):
            return BUSY_SECONDS
        now = self.clock.now()
        ahead = [(due - now).total_seconds() for entry in self.entries if (due := entry.next_due())]
        return min([IDLE_SECONDS, *(max(BUSY_SECONDS, seconds) for seconds in ahead)])

    def _guarded(self, entry: EntryScheduler, act: Callable[[], object]) -> None:
        """A disk that fails, or a damaged record, costs a look at one entry and not the service; it is said once."""
        name = entry.entry.name
        try:
            act()
        except (OSError, LongdocError) as error:
            if self._faults.get(name) != str(error):
                self.say(f"{name}: {error}")
            self._faults[name] = str(error)


def run_once(entry: Entry, *, owner: Owner, clock: Clock, start: Start, say: Callable[[str], None]) -> Ended:
    """Run one entry now, to its end. Raises `InfrastructureError` where one goes on already, or went to another."""
    scheduler = EntryScheduler(entry, owner=owner, clock=clock, start=start, say=say)
    service = Service(entries=[scheduler], runs_at_once=1, clock=clock, say=say)
    try:
        with disk_faults(f"entry {entry.name} could not be served"):
            if not scheduler.start_once():
                raise InfrastructureError(
                    f"entry {entry.name} is running already, started by another scheduler. `longdoc schedule status` "
                    "says where; run again when it has ended."
                )
            while scheduler.is_running:
                clock.wait(BUSY_SECONDS)
                scheduler.look()
    finally:
        service.stop()
    if scheduler.last_end is None:
        raise InfrastructureError(f"entry {entry.name} was taken over by another scheduler, which runs it now.")
    return scheduler.last_end
