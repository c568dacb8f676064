"""What `longdoc schedule status` says of an entry, for people and for machines. Reads records, runs nothing."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from longdoc.errors import LongdocError
from longdoc.scheduling.journal import Journal
from longdoc.scheduling.schedule_file import Entry
from longdoc.scheduling.state import LastRun, Running, State, stamp, to_json
from longdoc.scheduling.tick_run import tail_of

#: Ends after which the log has nothing that is not said already.
_WELL = ("committed", "unchanged", "quarantined")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What stands in an entry's records; `problem` is why they cannot be read."""

    entry: Entry
    journal: Journal
    state: State | None
    problem: str | None


def look(entry: Entry) -> Seen:
    """Read an entry's newest record. Raises nothing: records of one entry that are damaged hide no other's."""
    journal, record, problem = Journal(entry.root, entry.name), None, None
    try:
        record = journal.latest()
    except (OSError, LongdocError) as error:
        problem = str(error)
    return Seen(entry=entry, journal=journal, state=None if record is None else record.state, problem=problem)


def status_json(seen: Seen, now: datetime) -> dict[str, Any]:
    """The facts of an entry as JSON values; `state` is null where no scheduler has seen it yet."""
    entry, state = seen.entry, seen.state
    tick = entry.cron.next_after(now)
    return {
        "entry": entry.name,
        "enabled": entry.enabled,
        "cron": entry.cron.expression,
        "timezone": entry.cron.zone.key,
        "output": str(entry.root),
        "next_tick": None if tick is None else stamp(tick),
        "records": str(seen.journal.folder),
        "problem": seen.problem,
        "state": None if state is None else to_json(state),
        "last_lines": [] if state is None else _tail(seen.journal, state),
    }


def status_lines(seen: Seen, now: datetime) -> Iterator[str]:
    """The same for people."""
    entry, state = seen.entry, seen.state
    yield f"output   {entry.root}"
    if seen.problem is not None:
        yield f"records  {seen.problem}"
    elif state is None:
        yield "never seen by a scheduler: start one with longdoc schedule run"
    else:
        yield f"last     {_ended(entry, state.last_run) if state.last_run else 'none since it was first seen'}"
        if state.running is not None:
            yield f"running  {_running(entry, seen.journal, state.running)}"
        yield from (
            f"failing  {source.source_uri} since {_local(entry, source.since)}: {source.reason}: {source.error}"
            for source in state.failing
        )
        yield from _counts(entry, state)
    tick = entry.cron.next_after(now)
    yield f"next     {'never' if tick is None or not entry.enabled else _local(entry, tick)}"
    if state is not None:
        yield from _log_lines(seen.journal, state)


def _ended(entry: Entry, last: LastRun) -> str:
    code = "" if last.exit_code is None else f" (exit code {last.exit_code})"
    counts = ""
    if last.num_planned is not None:
        counts = f"; {last.num_planned} planned, {last.num_committed} committed, {last.num_quarantined} quarantined"
    what = "by hand" if last.tick is None else f"tick {_local(entry, last.tick)}"
    attempt = f", attempt {last.attempt}" if last.attempt > 1 else ""
    ended = _local(entry, last.ended_at)
    return f"{last.outcome}{code} at {ended}, {what}{attempt}, {last.seconds:.1f} s on {last.host}{counts}"


def _running(entry: Entry, journal: Journal, running: Running) -> str:
    what = "by hand" if running.tick is None else f"tick {_local(entry, running.tick)}"
    attempt = f", attempt {running.attempt}" if running.attempt > 1 else ""
    sign = "no sign of life yet"
    with contextlib.suppress(OSError):
        # For people only: clocks of two machines differ, and no scheduler decides by this.
        sign = f"last sign of life {max(0.0, time.time() - journal.beat(running.record).stat().st_mtime):.0f} s ago"
    return f"{what}{attempt}, since {_local(entry, running.started_at)} on {running.host} (pid {running.pid}), {sign}"


def _counts(entry: Entry, state: State) -> Iterator[str]:
    if state.last_skipped is not None:
        yield f"skipped  {state.num_skipped}, the last at {_local(entry, state.last_skipped)}: a run still went on"
    if state.last_merged is not None:
        yield f"merged   {state.num_merged}, the last at {_local(entry, state.last_merged)}: missed, one run stood in"


def _log_lines(journal: Journal, state: State) -> Iterator[str]:
    last = state.last_run
    if last is None or last.log is None:
        return
    yield f"log      {journal.folder / 'logs' / last.log}"
    if last.outcome not in _WELL:
        yield from (f"  | {line}" for line in _tail(journal, state))


def _tail(journal: Journal, state: State) -> list[str]:
    log = None if state.last_run is None else state.last_run.log
    return [] if log is None else list(tail_of(journal.folder / "logs" / log))


def _local(entry: Entry, moment: datetime) -> str:
    return f"{moment.astimezone(entry.cron.zone):%Y-%m-%d %H:%M:%S %Z}"
