"""Three repositories through some hours of a schedule, with real runs, a killed scheduler and its heir."""

import resource
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import psutil
import pytest
from serving import ShiftedClock, service_of

from longdoc.scheduling.journal import Journal

FILE = """
kind = "repository"
model = "tiny-random"
ring-size = 1
takeover-after = 5

[entries.code]
cron = "0 * * * *"
sources = "@repositories.txt"
output = "out"
"""
# Far from the next tick, whatever the time is now: what a run takes is not to make another tick due.
HALF_PAST = 1800


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    return subprocess.run(["git", "-C", folder, *who, *arguments], check=True, capture_output=True, text=True).stdout


def commit(folder: Path, name: str, content: str) -> None:
    (folder / name).write_text(content)
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", name)


def hide_contents(folder: Path) -> list[Path]:
    """Take every object but the commits away; where they are now."""
    hidden = []
    for path in folder.glob(".git/objects/??/*"):
        if git(folder, "cat-file", "-t", path.parent.name + path.name).strip() != "commit":
            hidden.append(path.rename(path.with_suffix(".hidden")))
    return hidden


class Hours:
    """A schedule that is served in this process, hour by hour."""

    def __init__(self, file: Path) -> None:
        self.journal = Journal(file.parent / "out", "code")
        now = datetime.now(UTC)
        half_past = now.replace(minute=0, second=0, microsecond=0) + timedelta(seconds=3600 + HALF_PAST)
        self.clock = ShiftedClock((half_past - now).total_seconds())
        self.said: list[str] = []
        self.service = service_of(file, self.clock, self.said.append)
        self.service.step()

    @property
    def state(self):
        return self.journal.latest().state

    def pass_by(self, hours: int) -> None:
        self.clock.shift += 3600 * hours
        self.service.step()

    def finish(self):
        """How the run that goes on ends."""
        while any(entry.is_running for entry in self.service.entries):
            self.service.step()
            time.sleep(0.05)
        return self.state.last_run


def documents(folder: Path) -> list[tuple[str, str]]:
    query = f"SELECT title, commit_id FROM read_parquet('{folder}/out/documents/*/*.parquet') ORDER BY committed_at"
    return duckdb.sql(query).fetchall()


def until(condition, seconds: float = 180.0):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.05)
    return found


@pytest.fixture
def folder(tmp_path, tiny_model):
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        git(tmp_path / name, "init", "-q", "-b", "main")
        commit(tmp_path / name, "code.py", f"{name} = 1\n")
    (tmp_path / "repositories.txt").write_text("a\nb\nc\n")
    (tmp_path / "s.toml").write_text(FILE)
    return tmp_path


def test_three_repositories_through_the_hours(folder):
    hours = Hours(folder / "s.toml")
    # The first tick indexes all of them. One that comes meanwhile is skipped.
    hours.pass_by(1)
    hours.pass_by(1)
    first = hours.finish()
    assert (first.outcome, first.num_planned, first.num_committed) == ("committed", 3, 3), hours.said
    assert hours.state.num_skipped == 1
    assert sorted(title for title, _ in documents(folder)) == ["a", "b", "c"]

    # A tick with nothing new reads nothing: there is nothing to be read but the commits. What fails costs only itself.
    (folder / "repositories.txt").write_text("gone\na\nb\nc\n")
    hidden = [path for name in ("a", "b", "c") for path in hide_contents(folder / name)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    hours.pass_by(1)
    idle = hours.finish()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (idle.outcome, idle.num_planned, idle.num_committed, idle.num_quarantined) == ("quarantined", 4, 0, 1)
    (failing,) = hours.state.failing
    assert (failing.source_uri, failing.reason) == ((folder / "gone").as_uri(), "not_opened")
    # On a machine that has nothing else to do the tick takes no longer than it computes.
    assert (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime) < 5.0
    for path in hidden:
        path.rename(path.with_suffix(""))

    # A commit to one, and five ticks that were missed: one run, which indexes one. Its scheduler is killed.
    commit(folder / "b", "more.py", "b = 2\n")
    killed_and_inherited(folder, hours)
    assert (hours.state.num_merged, hours.state.running) == (4, None)
    last = hours.state.last_run
    assert (last.attempt, last.num_planned, last.num_committed, last.num_quarantined) == (2, 4, 1, 1)
    assert hours.state.failing == (failing,)  # since when it has failed, too
    assert [title for title, _ in documents(folder)][3:] == ["b"]
    verified = subprocess.run([sys.executable, "-m", "longdoc", "verify", folder / "out"], capture_output=True)
    assert verified.returncode == 0, verified.stdout.decode()


def killed_and_inherited(folder: Path, hours: Hours) -> None:
    """Two schedulers, of which the one that runs is killed; returns when the other has finished its tick."""
    command = [
        sys.executable,
        Path(__file__).parent / "serving.py",
        folder / "s.toml",
        str(hours.clock.shift + 5 * 3600),
    ]
    schedulers = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(2)]
    try:
        pid = until(lambda: hours.state.running and hours.state.running.pid)
        (victim,) = [scheduler for scheduler in schedulers if scheduler.pid == pid]
        log = hours.journal.log(hours.state.running.record)
        until(lambda: log.exists() and b"1 document to do" in log.read_bytes())
        runs = psutil.Process(pid).children()
        victim.kill()
        victim.wait()
        assert len(psutil.wait_procs(runs, timeout=60)[0]) == len(runs) == 1
        until(lambda: hours.state.running is None)
    finally:
        for scheduler in schedulers:
            scheduler.send_signal(signal.SIGINT)
        for scheduler in schedulers:
            scheduler.wait(timeout=300)
