"""What is known of an entry: which tick was decided last, what runs, how the last run ended, which sources fail.

Owns the steps from one state to the next as pure functions; each record of the journal holds the state after it, so
the newest record says everything. Times are wall clock times in UTC of whoever wrote them, for people and for cron
expressions; whether somebody is still alive is never read from them (see `longdoc.scheduling.heartbeat`).
"""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from longdoc.errors import InfrastructureError

# How a run calls a line of the list that `longdoc.scheduling.tick_run` gives it.
_GIVEN = re.compile(r"^standard input, line \d+: ")
#: A run that was started by hand and belongs to no tick.
ONCE, TICK = "once", "tick"
#: How a run ended that was stopped with its scheduler, took longer than its entry allows, or could not be started.
INTERRUPTED, PAST_DEADLINE, NOT_STARTED = "interrupted", "past its deadline", "not started"


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A tick that somebody runs. `attempt` counts from 1; `record` is the number of the record that claimed it.

    `tick` is None for a run by hand. `merged` is how many earlier ticks this run stands for.
    """

    record: int
    attempt: int
    kind: str
    tick: datetime | None
    merged: int
    owner: str
    host: str
    pid: int
    started_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingSource:
    """A source that the last finished run set aside, and since when that has been so."""

    source_uri: str
    stage: str
    reason: str
    error: str
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    """How a run ended. Counts are of documents and None where the run did not come to count them."""

    kind: str
    tick: datetime | None
    attempt: int
    host: str
    started_at: datetime
    ended_at: datetime
    outcome: str
    exit_code: int | None
    seconds: float
    run_id: str | None = None
    num_planned: int | None = None
    num_committed: int | None = None
    num_quarantined: int | None = None
    log: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Everything that is known of an entry.

    `decided_through`: every tick up to then was run, skipped or merged, but for `handed_back`, the tick of a run that
    was interrupted with its scheduler. Totals count from when the entry was first seen.
    """

    first_seen_at: datetime
    decided_through: datetime
    handed_back: datetime | None = None
    running: Running | None = None
    last_run: LastRun | None = None
    failing: tuple[FailingSource, ...] = ()
    num_runs: int = 0
    num_skipped: int = 0
    num_merged: int = 0
    last_skipped: datetime | None = None
    last_merged: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a run's process ended, as its owner saw it. `summary` is None where the run did not come to print one."""

    outcome: str
    exit_code: int | None
    seconds: float
    summary: dict[str, Any] | None = field(default=None, repr=False)
    log: str | None = None
    tail: tuple[str, ...] = ()

    @property
    def run_exit_code(self) -> int:
        """What a command that stands for this run exits with; 4 where the run was killed, late or never started."""
        if self.exit_code is None or self.exit_code < 0 or self.outcome in (PAST_DEADLINE, NOT_STARTED):
            return InfrastructureError.exit_code
        return self.exit_code


def first_seen(now: datetime) -> State:
    """An entry that nobody has seen before; nothing before now is caught up on."""
    return State(first_seen_at=now, decided_through=now)


def started(state: State, running: Running, ticks: Sequence[datetime]) -> State:
    """Somebody runs the last of these ticks; the earlier ones became this one run."""
    earlier = ticks[:-1] if running.kind == TICK else ticks
    return replace(
        state,
        decided_through=max([state.decided_through, *ticks]),
        handed_back=None,
        running=running,
        num_merged=state.num_merged + running.merged,
        last_merged=earlier[-1] if earlier else state.last_merged,
    )


def skipped(state: State, ticks: Sequence[datetime]) -> State:
    """These ticks came while a run went on."""
    return replace(
        state,
        decided_through=max([state.decided_through, *ticks]),
        num_skipped=state.num_skipped + len(ticks),
        last_skipped=ticks[-1],
    )


def taken_over(state: State, running: Running) -> State:
    """The one who ran the tick gave no sign of life; `running` is whoever runs it from now on."""
    return replace(state, running=running)


def ended(state: State, end: Ended, now: datetime, *, hand_back: bool = False) -> State:
    """The run ended. `hand_back` makes its tick due again, or the last of those that a run by hand stood for."""
    running = state.running
    assert running is not None, "only a run that goes on can end"
    stood_for = state.last_merged if running.tick is None and running.merged else running.tick
    summary = end.summary or {}
    last = LastRun(
        kind=running.kind,
        tick=running.tick,
        attempt=running.attempt,
        host=running.host,
        started_at=running.started_at,
        ended_at=now,
        outcome=end.outcome,
        exit_code=end.exit_code,
        seconds=round(end.seconds, 3),
        run_id=summary.get("run_id"),
        num_planned=summary.get("num_planned"),
        num_committed=summary.get("num_committed"),
        num_quarantined=summary.get("num_quarantined"),
        log=end.log,
    )
    return replace(
        state,
        running=None,
        last_run=last,
        handed_back=stood_for if hand_back else None,
        failing=state.failing if end.summary is None else _failing(state, end.summary, running.started_at),
        num_runs=state.num_runs + 1,
    )


def _failing(state: State, summary: dict[str, Any], now: datetime) -> tuple[FailingSource, ...]:
    since = {source.source_uri: source.since for source in state.failing}
    return tuple(
        FailingSource(
            source_uri=fault["source_uri"],
            stage=fault["stage"],
            reason=fault["reason"],
            # By which way its address reached the run is the scheduler's own matter.
            error=_GIVEN.sub("", fault["error"]),
            since=since.get(fault["source_uri"], now),
        )
        for fault in summary.get("quarantined", ())
    )


def to_json(state: State) -> dict[str, Any]:
    """The state as JSON values."""
    found: dict[str, Any] = _plain(asdict(state))
    return found


def from_json(fields: dict[str, Any]) -> State:
    """The state from `to_json`. Raises `KeyError`, `TypeError` or `ValueError` where the fields are none."""
    values = dict(fields)
    running, last = values.pop("running"), values.pop("last_run")
    failing = tuple(FailingSource(**_timed(source, "since")) for source in values.pop("failing"))
    times = ("first_seen_at", "decided_through", "handed_back", "last_skipped", "last_merged")
    return State(
        **_timed(values, *times),
        failing=failing,
        running=None if running is None else Running(**_timed(running, "tick", "started_at")),
        last_run=None if last is None else LastRun(**_timed(last, "tick", "started_at", "ended_at")),
    )


def stamp(moment: datetime) -> str:
    """An instant as text, in UTC."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return stamp(value)
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _timed(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    times = {name: None if fields[name] is None else datetime.fromisoformat(fields[name]) for name in names}
    return {**fields, **times}
