"""The journal of an entry: what was decided about its ticks, one small file a decision, below the entry's output.

    OUT/_longdoc/schedule/<entry>/records/00000012.json   a decision and the state after it, created only if absent
    OUT/_longdoc/schedule/<entry>/beats/00000012          the sign of life of the run that record 12 claimed
    OUT/_longdoc/schedule/<entry>/logs/00000012.log       what that run printed

Whoever wants to decide something reads the newest record and creates the next number only if absent; who loses reads
again. So every decision is made in knowledge of all before it: no tick is run twice, and no two ticks at once. The
newest 1,000 records stand; older ones are removed in order, and a record counts only where the one before it still
stands, so a writer that slept while its number came and went notices. Refuses damaged records.
"""

import contextlib
import json
import os
import re
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from longdoc.errors import InfrastructureError
from longdoc.files import create_exclusive
from longdoc.records import display
from longdoc.scheduling.state import State, from_json, stamp, to_json

KEPT_RECORDS = 1000
#: Removing is done in strides: listing a folder on a network each time is dear.
_STRIDE = 50
_NAME = re.compile(r"(?P<number>[0-9]{8,})\.json")
# What `longdoc.files` calls a record that it is making; one that is this old was left by a process that died.
_UNFINISHED = re.compile(r"\.[0-9]{8,}\.json\.[0-9a-f]{16}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One decision. `by` is the scheduler that made it, `detail` what it was about."""

    number: int
    event: str
    at: datetime
    by: str
    state: State
    detail: dict[str, Any] = field(default_factory=dict)


class Journal:
    """The journal of one entry, below an output's root."""

    def __init__(self, root: Path, name: str) -> None:
        self.folder = root / "_longdoc" / "schedule" / name
        self._records = self.folder / "records"

    def latest(self) -> Record | None:
        """The newest record; None where the entry was never seen. Raises `InfrastructureError`, `OSError`."""
        while numbers := self.numbers():
            with contextlib.suppress(FileNotFoundError):  # removed since it was listed: many newer ones stand
                return self.read(numbers[-1])
        return None

    def append(self, record: Record) -> bool:
        """Create a record only if absent. False where somebody else decided first: read again."""
        fields = {
            "number": record.number,
            "event": record.event,
            "at": stamp(record.at),
            "by": record.by,
            "detail": record.detail,
            "state": to_json(record.state),
        }
        content = json.dumps(fields, indent=1, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        if not create_exclusive(self._path(record.number), content) or not self._follows(record.number):
            return False
        if record.number % _STRIDE == 0:
            self._forget(record.number - KEPT_RECORDS)
        return True

    def read(self, number: int) -> Record:
        """A record. Raises `FileNotFoundError`, or `InfrastructureError` for one that is damaged."""
        path = self._path(number)
        content = path.read_bytes()
        try:
            fields = json.loads(content)
            return Record(
                number=int(fields["number"]),
                event=str(fields["event"]),
                at=datetime.fromisoformat(fields["at"]),
                by=str(fields["by"]),
                detail=dict(fields["detail"]),
                state=from_json(fields["state"]),
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InfrastructureError(
                f"{display(str(path))} is damaged: {error}. Remove that file; what was decided before it then holds."
            ) from error

    def numbers(self) -> list[int]:
        """The numbers of the records that stand, in order."""
        try:
            names = os.listdir(self._records)  # noqa: PTH208, a list of names is all that is wanted
        except FileNotFoundError:
            return []
        return sorted(int(found["number"]) for found in map(_NAME.fullmatch, names) if found)

    def log(self, number: int) -> Path:
        """Where the run that a record claimed writes what it prints."""
        return self.folder / "logs" / f"{number:08d}.log"

    def beat(self, number: int) -> Path:
        """The sign of life of that run."""
        return self.folder / "beats" / f"{number:08d}"

    def forget_beats(self, before: int) -> None:
        """Remove signs of life of runs that ended without removing theirs; one that stays harms nobody."""
        for path in self.beat(0).parent.glob("*"):
            if path.name.isdecimal() and int(path.name) < before:
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self._records / f"{number:08d}.json"

    def _follows(self, number: int) -> bool:
        """Whether a record that was just created is the newest: the one before it stands, or it is the first."""
        if number == 0:
            return self.numbers() == [0]
        return self._path(number - 1).exists()

    def _forget(self, through: int) -> None:
        """Remove old records in order, and what was left unfinished by processes that died."""
        for number in self.numbers():
            if number > through:
                break
            self._path(number).unlink(missing_ok=True)
        for path in self._records.glob(".*"):
            found = _UNFINISHED.fullmatch(path.name)
            if found and int(path.name.split(".")[1]) <= through:
                path.unlink(missing_ok=True)
