"""Attempts: who is making one, and whether that somebody is still there.

An attempt's owner is a process. On the owner's own host the process is asked for; from elsewhere, and where the system
hides it, only the age of its heartbeat counts, measured on the file system's clock, because clocks of two hosts differ.
In doubt it is alive.
"""

import contextlib
import json
import os
import platform
import threading
import uuid
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

import psutil

from longdoc.files import make_folder, write_new
from longdoc.store.parts import is_unit

HEARTBEAT_SECONDS = 60.0
STALE_SECONDS = 3600.0
_LARGEST_PID = 2**31 - 1
_OWNER = "owner.json"
_HEARTBEAT = "heartbeat"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try at computing a unit. Ranks write below the folder `staging`; nothing there is visible to readers."""

    attempt_id: str
    unit: str
    staging: Path


def new_attempt(staging_root: Path, unit: str) -> Attempt:
    """A new attempt's name and place; nothing is made yet."""
    attempt_id = uuid.uuid4().hex
    return Attempt(attempt_id=attempt_id, unit=unit, staging=staging_root / attempt_id)


def make_staging(attempt: Attempt) -> None:
    """Make the staging folder of an attempt, owned by this process."""
    make_folder(attempt.staging)
    owner = {
        "host": _host(),
        "pid": os.getpid(),
        "process_started": _start_of(os.getpid()),
        "unit": attempt.unit,
    }
    write_new(attempt.staging / _OWNER, json.dumps(owner).encode())
    (attempt.staging / _HEARTBEAT).touch()


def unit_of(folder: Path) -> str | None:
    """The unit of an attempt by its staging folder, or None where it died before it said so."""
    owner = _owner(folder)
    return None if owner is None else owner.unit


def is_gone(folder: Path, now: float) -> bool:
    """Whether the owner of a staging folder is gone. `now` comes from `file_system_time`."""
    owner = _owner(folder)
    if owner is not None and owner.host == _host():
        with contextlib.suppress(PermissionError):
            return _start_of(owner.pid) != owner.process_started
    for beat in (folder / _HEARTBEAT, folder):
        with contextlib.suppress(OSError):
            return now - beat.stat().st_mtime > STALE_SECONDS
    return True


def file_system_time(scratch: Path) -> float:
    """Seconds since the epoch by the clock that stamps files below `scratch`."""
    probe = scratch / f"clock.{token_hex(8)}"
    probe.touch()
    try:
        return probe.stat().st_mtime
    finally:
        probe.unlink()


class Heartbeat:
    """A daemon thread that touches the heartbeats of this process's attempts; it lives only while there are some."""

    def __init__(self) -> None:
        self._folders: set[Path] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()

    def add(self, folder: Path) -> None:
        """Keep an attempt alive."""
        with self._lock:
            self._folders.add(folder)
            if self._thread is None:
                self._wake = threading.Event()
                self._thread = threading.Thread(target=self._beat, args=(self._wake,), daemon=True)
                self._thread.start()

    def remove(self, folder: Path) -> None:
        """Let an attempt go."""
        with self._lock:
            self._folders.discard(folder)
            if not self._folders and self._thread is not None:
                self._wake.set()
                self._thread = None

    def _beat(self, wake: threading.Event) -> None:
        while not wake.wait(HEARTBEAT_SECONDS):
            with self._lock:
                folders = tuple(self._folders)
            for folder in folders:
                # An attempt abandoned by another run has no folder any more; its commit will say so.
                with contextlib.suppress(OSError):
                    os.utime(folder / _HEARTBEAT)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Owner:
    """The process that made an attempt, as it wrote itself down."""

    host: str
    pid: int
    process_started: str | None
    unit: str


def _owner(folder: Path) -> _Owner | None:
    """The owner of a staging folder, or None where it died before it wrote itself down or the file is damaged."""
    try:
        owner = _Owner(**json.loads((folder / _OWNER).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
    is_sound = isinstance(owner.pid, int) and 0 < owner.pid <= _LARGEST_PID and is_unit(owner.unit)
    return owner if is_sound else None


def _host() -> str:
    """This machine, this boot, this process namespace: where a process number means something."""
    facts = [platform.node()]
    with contextlib.suppress(OSError):
        facts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with contextlib.suppress(OSError):
        facts.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(facts)


def _start_of(pid: int) -> str | None:
    """When a process began, as a text to compare, or None where there is none (a zombie counts as none).

    Raises `PermissionError` where there is one that the system does not let us look at (/proc with hidepid, proc(5)).
    Linux counts clock ticks since boot, field 22 of /proc/<pid>/stat: exact, where wall time is adjusted.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]
    except OSError:
        return _start_by_asking(pid)


def _start_by_asking(pid: int) -> str | None:
    """The same where /proc does not show the process."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else str(process.create_time())
    except psutil.ZombieProcess:
        return None
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 0)  # sends nothing; raises PermissionError for a process of somebody else
            raise PermissionError(f"process {pid} is there and cannot be looked at") from None
        return None
