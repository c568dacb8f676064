"""A scheduler in a process of its own, whose wall clock is set forward: `serving.py FILE SECONDS`."""

import sys
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from longdoc.scheduling.schedule_file import read_schedule
from longdoc.scheduling.scheduler import this_owner
from longdoc.scheduling.service import Service, SystemClock
from longdoc.scheduling.tick_run import TickRun


@dataclass
class ShiftedClock(SystemClock):
    """The clocks of this machine, the wall clock ahead by `shift` seconds."""

    shift: float

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.shift)


def service_of(file: Path, clock: ShiftedClock, say) -> Service:
    schedule = read_schedule(file, clock.now())
    return Service.of(schedule, owner=this_owner(), clock=clock, start=TickRun, say=say)


if __name__ == "__main__":
    service_of(Path(sys.argv[1]), ShiftedClock(float(sys.argv[2])), print).serve()
