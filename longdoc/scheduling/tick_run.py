"""A tick's work: the ordinary `longdoc run` in a process of its own, which ends when its scheduler does.

Owns what the process is given and what is kept of what it says. Options and sources travel in files that have no name,
so that no password is on a command line or left on a disk; sources go as a list on standard input, where one that
cannot be opened costs only itself. What the run prints goes to a log, of which a long one loses its middle. Crashes and
memory stay in that process, and whatever it does commits exactly once.
"""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from longdoc.files import make_folder
from longdoc.scheduling.schedule_file import Entry
from longdoc.scheduling.state import INTERRUPTED, Ended
from longdoc.submission.job_file import job_file

#: Bytes that a log may reach; the newest quarter of them is then kept.
LARGEST_LOG = 4 << 20
#: Logs kept of each entry.
KEPT_LOGS = 30
#: Lines of a log that a person is shown.
TAIL_LINES = 10
_CUT = b"[what was here is cut: a log keeps its end]\n"
_PR_SET_PDEATHSIG = 1
_OUTCOMES = {2: "refused", 3: "quarantined", 4: "incomplete", 130: INTERRUPTED}


class TickRun:
    """A run that goes on, for one entry."""

    def __init__(self, entry: Entry, log: Path) -> None:
        """Start it. Raises `OSError` where no process can be started or the log cannot be written."""
        self._log = log
        make_folder(log.parent)
        _forget_logs(log.parent)
        self._told = tempfile.TemporaryFile()  # noqa: SIM115, closed when the run has ended
        try:
            self._process = self._started(entry, log)
        except BaseException:
            self._told.close()
            raise

    def _started(self, entry: Entry, log: Path) -> subprocess.Popen[bytes]:
        with (
            _unnamed(job_file(_options(entry))) as job,
            _unnamed(source_list(entry)) as sources,
            log.open("ab") as said,
        ):
            return subprocess.Popen(
                [*longdoc_command(), "run", "--config", f"/dev/fd/{job.fileno()}", "--json"],
                cwd=entry.folder,
                stdin=sources,
                stdout=self._told,
                stderr=said,
                pass_fds=(job.fileno(),),
                # A group of its own: Ctrl-C reaches the scheduler alone, which ends the run in order.
                start_new_session=True,
                # Safe, because a scheduler has one thread.
                preexec_fn=_follow_into_death(),
            )

    def poll(self) -> int | None:
        """The exit code (negative: the signal that ended it), or None while it goes on."""
        code = self._process.poll()
        if code is None:
            # A run is not given up for the sake of its log.
            with contextlib.suppress(OSError):
                self._trim()
        return code

    def terminate(self) -> None:
        """Tell it to end."""
        self._process.terminate()

    def kill(self) -> None:
        """End it by force, and its group: git and the like would outlive it."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)

    def ended(self, exit_code: int, seconds: float, outcome: str | None = None) -> Ended:
        """What came of it; call it once, after the end."""
        summary = _summary(self._told)
        self._told.close()
        return Ended(
            outcome=outcome or outcome_of(exit_code, summary),
            exit_code=exit_code,
            seconds=seconds,
            summary=summary,
            log=self._log.name,
            tail=tail_of(self._log),
        )

    def _trim(self) -> None:
        """Cut a log that is too long. Raises `OSError` where somebody removed it, or the disk fails."""
        if self._log.stat().st_size <= LARGEST_LOG:
            return
        with self._log.open("r+b") as file:
            file.seek(-LARGEST_LOG // 4, os.SEEK_END)
            end = file.read()
            # The run appends, so its next line follows whatever stands here.
            file.seek(0)
            file.write(_CUT + end.partition(b"\n")[2])
            file.truncate()


def longdoc_command() -> list[str]:
    """The command line of this very installation; -P, because the current folder holds a user's files, not modules."""
    return [sys.executable, "-P", "-m", "longdoc"]


def source_list(entry: Entry) -> bytes:
    """The entry's own sources, one a line, as `pipelines.lists` reads them: paths start at the run's folder."""
    own = [source for source in entry.sources if not source.startswith("@")]
    lines = [f"./{source}" if source.startswith("#") else source for source in own]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")


def outcome_of(exit_code: int, summary: dict[str, Any] | None) -> str:
    """What an exit code means, in a word: `committed`, `unchanged`, `quarantined`, `refused`, `incomplete` ..."""
    if exit_code == 0:
        return "committed" if summary and summary.get("num_committed") else "unchanged"
    if exit_code < 0:
        return f"killed by {signal.Signals(-exit_code).name}"
    return _OUTCOMES.get(exit_code, f"failed with exit code {exit_code}")


def tail_of(log: Path) -> tuple[str, ...]:
    """The last lines of a log; none where it is gone."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - (1 << 14)))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ()
    return tuple(line for line in lines if line.strip())[-TAIL_LINES:]


def _options(entry: Entry) -> dict[str, Any]:
    lists = [source for source in entry.sources if source.startswith("@")]
    own = ["@-"] if len(lists) < len(entry.sources) else []
    return {"sources": [*own, *lists], "output": str(entry.root), **entry.options}


def _unnamed(content: bytes) -> IO[bytes]:
    file = tempfile.TemporaryFile()  # noqa: SIM115, the caller closes it
    file.write(content)
    file.flush()
    file.seek(0)
    return file


def _follow_into_death() -> Any:
    """What a new process does before it becomes the run: ask Linux to end it, in order, when its scheduler dies.

    See prctl(2), PR_SET_PDEATHSIG. Elsewhere there is no such thing, and a run outlives a scheduler that was killed.
    """
    if sys.platform != "linux":
        return None
    parent, prctl = os.getpid(), ctypes.CDLL(None, use_errno=True).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(130)  # it died in between

    return ask


def _summary(told: IO[bytes]) -> dict[str, Any] | None:
    told.seek(0)
    try:
        summary = json.loads(told.read())
    except ValueError:
        return None
    return summary if isinstance(summary, dict) else None


def _forget_logs(folder: Path) -> None:
    logs: Sequence[Path] = sorted(folder.glob("*.log"))
    for log in logs[: max(0, len(logs) - KEPT_LOGS + 1)]:
        log.unlink(missing_ok=True)
