"""Signs of life of whoever runs a tick, and how others tell that they have stopped.

The owner raises a counter in a file; an observer looks at the counter and at its own monotonic clock, never at times
that another machine wrote: clocks of two machines differ, and a machine that slept wakes with its clock set forward.
"""

import contextlib
from dataclasses import dataclass
from pathlib import Path

from longdoc.files import replace_file

#: Signs of life in the time after which somebody takes over: a few may come late.
BEATS_A_DEADLINE = 10


class Heart:
    """The sign of life of one run."""

    def __init__(self, path: Path, takeover_after: float, now: float) -> None:
        self._path = path
        self._every = takeover_after / BEATS_A_DEADLINE
        self._count = 0
        self._next = now

    def beat(self, now: float) -> None:
        """Raise the counter where it is time. `now` is monotonic. Raises `OSError`."""
        if now >= self._next:
            self._count += 1
            replace_file(self._path, f"{self._count}\n".encode())
            self._next = now + self._every

    def stop(self) -> None:
        """Remove the sign of life."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


@dataclass(slots=True)
class Observer:
    """What one scheduler saw of another's run, by its own clock."""

    record: int = -1
    content: bytes | None = None
    since: float = 0.0

    def silent_for(self, record: int, path: Path, now: float) -> float:
        """Seconds in which the counter of the run that a record claimed has not changed, as far as was looked."""
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            content = None
        if (record, content) != (self.record, self.content):
            self.record, self.content, self.since = record, content, now
        return now - self.since
