"""A world in which the clock is moved by hand, and runs end when the test says so."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from longdoc.scheduling.cron import parse_cron, parse_zone
from longdoc.scheduling.journal import Journal
from longdoc.scheduling.schedule_file import Entry, Schedule
from longdoc.scheduling.scheduler import EntryScheduler, Owner
from longdoc.scheduling.service import Service, run_once
from longdoc.scheduling.state import Ended
from longdoc.scheduling.tick_run import outcome_of

START = datetime(2027, 1, 10, 12, 0, 30, tzinfo=UTC)


@dataclass
class FakeClock:
    """`skew` is how far the wall clock of a machine is ahead; time passes alike for all that share `passed`."""

    passed: list[float] = field(default_factory=lambda: [0.0])
    skew: float = 0.0
    waited: list[float] = field(default_factory=list)

    def now(self) -> datetime:
        return START + timedelta(seconds=self.passed[0] + self.skew)

    def monotonic(self) -> float:
        return self.passed[0]

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.passed[0] += seconds


@dataclass
class FakeWork:
    """A run that goes on until `code` is set, and, once it was told to end, for as long as it `lingers`."""

    log: Path
    clock: FakeClock
    code: int | None = None
    summary: dict | None = None
    lingers: float = 0.0
    told_at: float | None = None

    @property
    def told_to_end(self) -> bool:
        return self.told_at is not None

    def poll(self) -> int | None:
        if self.code is None and self.told_at is not None and self.clock.passed[0] - self.told_at >= self.lingers:
            self.code = 130
        return self.code

    def terminate(self) -> None:
        self.told_at = self.clock.passed[0]

    def kill(self) -> None:
        self.code = -9

    def ended(self, exit_code: int, seconds: float, outcome: str | None = None) -> Ended:
        return Ended(
            outcome=outcome or outcome_of(exit_code, self.summary),
            exit_code=exit_code,
            seconds=seconds,
            summary=self.summary,
            log=self.log.name,
            tail=("the last line",),
        )


@dataclass
class Machine:
    """One machine with a scheduler on it, and the runs that it started."""

    name: str
    clock: FakeClock
    works: list[FakeWork] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    cannot_start: bool = False
    lingers: float = 0.0

    def start(self, entry: Entry, log: Path) -> FakeWork:
        if self.cannot_start:
            raise OSError("no more processes")
        self.works.append(FakeWork(log=log, clock=self.clock, lingers=self.lingers))
        return self.works[-1]

    @property
    def owner(self) -> Owner:
        return Owner(name=f"{self.name} 1 x", host=self.name, pid=1)

    def serving(self, *entries: Entry, runs_at_once: int = 1) -> Service:
        schedule = Schedule(path=Path("s.toml"), entries=entries, runs_at_once=runs_at_once, remarks=())
        return Service.of(schedule, owner=self.owner, clock=self.clock, start=self.start, say=self.said.append)

    def scheduler(self, entry: Entry) -> EntryScheduler:
        return EntryScheduler(entry, owner=self.owner, clock=self.clock, start=self.start, say=self.said.append)


def entry(folder: Path, name: str = "nightly", cron: str = "* * * * *", **changes) -> Entry:
    fields = {
        "name": name,
        "cron": parse_cron(cron, parse_zone(changes.pop("timezone", "UTC")), START),
        "sources": ("a",),
        "output": "out",
        "folder": folder,
        "options": {},
        "deadline": None,
        "takeover_after": 60,
        "enabled": True,
    }
    return Entry(**(fields | changes))


def other(machine, *, skew=0.0):
    """A second machine in the same world, whose wall clock is ahead by `skew` seconds."""
    return Machine("two", FakeClock(passed=machine.clock.passed, skew=skew))


def minute(number):
    """The tick of a minute, counted from the first one after the start."""
    return START.replace(second=0) + timedelta(minutes=number)


def state(served):
    return Journal(served.root, served.name).latest().state


def events(served):
    journal = Journal(served.root, served.name)
    return [journal.read(number).event for number in journal.numbers()]


def by_hand(served, machine):
    """What `longdoc schedule run --once` does."""
    return run_once(served, owner=machine.owner, clock=machine.clock, start=machine.start, say=machine.said.append)
