"""The schedule job: runs by the clock, from a TOML file of entries. Written to be called, or copied and changed.

    from pipelines.schedule import index_on_schedule
    index_on_schedule("schedule.toml")               # serves every entry until it is interrupted
    index_on_schedule("schedule.toml", once="code")  # one entry, now

`longdoc schedule run schedule.toml` is the same job: the same file, records and runs.
"""

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from longdoc.records import display
from longdoc.scheduling.schedule_file import read_schedule
from longdoc.scheduling.scheduler import Start, this_owner
from longdoc.scheduling.service import Service, SystemClock, run_once
from longdoc.scheduling.state import Ended
from longdoc.scheduling.tick_run import TickRun


def say(line: str) -> None:
    """A line on standard error, with the time in UTC."""
    sys.stderr.write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {display(line)}\n")


def index_on_schedule(
    file: str, *, once: str | None = None, start: Start = TickRun, say: Callable[[str], None] = say
) -> Ended | None:
    """Run the entry `once` now and tell how it ended, or serve all entries until `KeyboardInterrupt`.

    `start` is what a tick does: here the ordinary `longdoc run` in a process of its own. Any number of processes may
    serve one output, on one machine or on several that share it: each tick is run by one of them. Raises `StartError`
    with every mistake in the file, before anything runs.
    """
    schedule = read_schedule(Path(file), datetime.now(UTC))
    owner, clock = this_owner(), SystemClock()
    if once is not None:
        return run_once(schedule.entry(once), owner=owner, clock=clock, start=start, say=say)
    Service.of(schedule, owner=owner, clock=clock, start=start, say=say).serve()
    return None
