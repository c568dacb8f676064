"""Runs that are stopped, killed or lose a rank: nothing is left behind, and the next run finishes."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
from command_line import command, longdoc
from run_outputs import TINY, assert_all_gone, book, processes_of, rows, rows_or_none, snapshot

from longdoc.store.commit import COMMIT_STEPS


def start(marker: str, *arguments: object) -> subprocess.Popen:
    return subprocess.Popen(
        command(*arguments),
        env={**os.environ, "LONGDOC_TEST_MARK": marker},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for_line(process: subprocess.Popen, text: str) -> None:
    for line in process.stderr:
        if text in line:
            return
    raise AssertionError(f"{text!r} was never said; exit code {process.wait()}")


def name_of(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return ""


def attempts_in(output: Path) -> list[str]:
    return [path.name for path in output.glob("_longdoc/staging/*")]


@pytest.fixture
def three_books(tmp_path):
    """Three documents, of which the first takes longest: it is handed out first."""
    (tmp_path / "books").mkdir()
    for name, num_chapters in (("a.txt", 260), ("b.txt", 250), ("c.txt", 3)):
        book(tmp_path / "books" / name, num_chapters)
    return tmp_path / "books"


def wait_until(process: subprocess.Popen, ready) -> None:
    deadline = time.monotonic() + 60
    while not ready(process):
        assert process.poll() is None, f"ended with {process.returncode} before it was interrupted"
        assert time.monotonic() < deadline
        time.sleep(0.01)


def ray_is_starting(process: subprocess.Popen) -> bool:
    """Ray made its session folder, and is far from ready."""
    return bool(list(Path(tempfile.gettempdir()).glob(f"longdoc-*{process.pid}-*/session_*/logs")))


def interrupted(tmp_path: Path, arguments, *, after: str, ready, terminate: bool = False) -> None:
    """Interrupt a run once it said `after` and is `ready`, and see that it ends as designed."""
    process = start(str(tmp_path), *arguments)
    wait_for_line(process, after)
    wait_until(process, ready)
    if terminate:
        process.terminate()
    else:
        # To the whole group, as a terminal does on Ctrl-C.
        os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Interrupted." in err
    assert "Traceback" not in err
    assert_all_gone(str(tmp_path))
    assert attempts_in(tmp_path / "out") == []


def test_ctrl_c_leaves_no_process_and_the_next_run_resumes(tmp_path, tiny_model, three_books):
    arguments = ("run", three_books, "-o", tmp_path / "out", *TINY)
    interrupted(tmp_path, arguments, after="tokens, computing", ready=lambda _: attempts_in(tmp_path / "out"))
    assert longdoc(*arguments).code == 0
    assert len(rows(tmp_path / "out", "documents")) == 3
    assert longdoc("verify", tmp_path / "out").code == 0


def test_ctrl_c_while_ray_starts_leaves_no_process(tmp_path, tiny_model, three_books):
    arguments = ("run", three_books, "-o", tmp_path / "out", *TINY)
    interrupted(tmp_path, arguments, after="a ring of 2", ready=ray_is_starting)


def test_sigterm_is_like_ctrl_c(tmp_path, tiny_model, three_books):
    arguments = ("run", three_books, "-o", tmp_path / "out", *TINY)
    interrupted(
        tmp_path, arguments, after="tokens, computing", ready=lambda _: attempts_in(tmp_path / "out"), terminate=True
    )


def test_a_lost_rank_ends_the_run_with_its_name_and_the_next_run_finishes(tmp_path, tiny_model, three_books):
    arguments = ("run", three_books, "-o", tmp_path / "out", *TINY)
    process = start(str(tmp_path), *arguments)
    wait_for_line(process, "tokens, computing")
    ranks = [pid for pid in processes_of(str(tmp_path)) if "RingWorker" in name_of(pid)]
    assert len(ranks) == 2
    os.kill(ranks[1], signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 4, err
    assert "computing" in err
    assert "lost" in err
    assert "Traceback" not in err
    assert_all_gone(str(tmp_path))
    assert rows_or_none(tmp_path / "out", "quarantine") is None
    ended = longdoc(*arguments)
    assert ended.code == 0, ended.err
    assert len(rows(tmp_path / "out", "documents")) == 3


def killed(script: str, marker: Path) -> None:
    """Run a script that kills itself."""
    died = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "LONGDOC_TEST_MARK": str(marker)},
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr


DIE_IN_THE_SECOND = """
import os, signal, sys
from longdoc.cli.main import call
from longdoc.cli.progress import PlainReporter

started = set()

def note(self, ref, *, num_tokens):
    started.add(ref.source_uri)

def die(self, ref, progress):
    if len(started) == 2:
        os.kill(os.getpid(), signal.SIGKILL)

PlainReporter.started, PlainReporter.progressed = note, die
sys.exit(call({arguments!r}))
"""


def test_a_driver_killed_in_the_second_of_three_documents_is_resumed(tmp_path, tiny_model, three_books):
    arguments = ["run", str(three_books), "-o", str(tmp_path / "out"), *TINY]
    killed(DIE_IN_THE_SECOND.format(arguments=arguments), tmp_path)
    assert_all_gone(str(tmp_path))
    committed = snapshot(tmp_path / "out")
    assert any(path.startswith("documents/") for path in committed)
    ended = longdoc(*arguments)
    assert ended.code == 0, ended.err
    assert "2 documents to do, 1 already committed" in ended.err
    assert committed.items() <= snapshot(tmp_path / "out").items()
    assert len(rows(tmp_path / "out", "documents")) == 3
    assert longdoc("verify", tmp_path / "out").code == 0


DIE_AT = """
import os, signal, sys
from longdoc.store.commit import OutputStore
from longdoc.cli.main import call

def die(self, name):
    if name == {step!r}:
        os.kill(os.getpid(), signal.SIGKILL)

OutputStore.on_step = die
sys.exit(call({arguments!r}))
"""


def test_a_driver_killed_at_each_step_of_a_commit_is_resumed(tmp_path, tiny_model):
    """One life a step: each run dies in the commit of its first document, the next one picks up."""
    (tmp_path / "books").mkdir()
    for number in range(len(COMMIT_STEPS) + 1):
        book(tmp_path / "books" / f"{number}.txt", 2 + number)
    arguments = ["run", str(tmp_path / "books"), "-o", str(tmp_path / "out"), *TINY]
    published: dict[str, object] = {}
    for step in COMMIT_STEPS:
        killed(DIE_AT.format(step=step, arguments=arguments), tmp_path)
        assert_all_gone(str(tmp_path))
        now = snapshot(tmp_path / "out")
        assert published.items() <= now.items(), step
        published = now
    ended = longdoc(*arguments)
    assert ended.code == 0, ended.err
    assert published.items() <= snapshot(tmp_path / "out").items()
    assert len(rows(tmp_path / "out", "documents")) == len(COMMIT_STEPS) + 1
    checked = longdoc("verify", tmp_path / "out")
    assert checked.code == 0, checked.out
