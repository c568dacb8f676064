"""A tick's process: what it is given, what is kept of what it says, and that it ends when its scheduler does."""

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from schedule_fakes import entry

from longdoc.scheduling import tick_run
from longdoc.scheduling.tick_run import TickRun, outcome_of, source_list, tail_of

# Says what it was given, as the run says its summary, and does what its output's name asks for.
STAND_IN = """
import json, os, sys, time
config = sys.argv[sys.argv.index("--config") + 1]
options = open(config, "rb").read().decode()
print("\\n".join(sys.argv), file=sys.stderr)
if "storm" in options:
    for number in range(6000):
        print(f"line {number} " + "x" * 100, file=sys.stderr)
print(json.dumps({"options": options, "list": sys.stdin.read(), "cwd": os.getcwd(), "argv": sys.argv}), flush=True)
if "sleep" in options:
    time.sleep(600)
sys.exit(3)
"""


@pytest.fixture(autouse=True)
def stand_in(tmp_path, monkeypatch):
    script = tmp_path / "stand_in.py"
    script.write_text(STAND_IN)
    monkeypatch.setattr(tick_run, "longdoc_command", lambda: [sys.executable, str(script)])
    return script


def finished(run: TickRun):
    while (code := run.poll()) is None:
        time.sleep(0.02)
    return run.ended(code, 1.0)


def ended_early(run: TickRun):
    run.terminate()
    return finished(run)


def log_of(folder: Path) -> Path:
    return folder / "logs" / "00000001.log"


def test_it_is_given_the_options_and_its_own_sources_as_a_list(tmp_path):
    served = entry(
        tmp_path,
        sources=("https://u:hunter2@h/x", "a/b", "@more.txt", "~/c", "git@h:d.git"),
        options={"model": "tiny-random", "include": ["src/**"], "text": False},
    )
    ended = finished(TickRun(served, log_of(tmp_path)))
    assert ended.summary["options"] == (
        f'sources = ["@-", "@more.txt"]\noutput = "{tmp_path}/out"\nmodel = "tiny-random"\ninclude = ["src/**"]\n'
        "text = false\n"
    )
    assert ended.summary["list"] == "https://u:hunter2@h/x\na/b\n~/c\ngit@h:d.git\n"
    assert ended.summary["cwd"] == str(tmp_path)
    assert (ended.outcome, ended.exit_code, ended.log) == ("quarantined", 3, "00000001.log")


def test_no_password_is_in_its_arguments_its_log_or_any_file(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    run = TickRun(entry(tmp_path, sources=("https://u:hunter2@h/x",), output="sleep"), log_of(tmp_path))
    assert list((tmp_path / "temporary").iterdir()) == []
    ended = ended_early(run)
    assert "hunter2" not in str(ended.summary["argv"]) if ended.summary else True
    assert [path for path in tmp_path.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()] == []


def test_lists_alone_need_no_list_on_standard_input(tmp_path):
    ended = finished(TickRun(entry(tmp_path, sources=("@more.txt",)), log_of(tmp_path)))
    assert ended.summary["options"].startswith('sources = ["@more.txt"]\n')
    assert ended.summary["list"] == ""


def test_paths_that_begin_like_a_mark_are_paths(tmp_path):
    assert source_list(entry(tmp_path, sources=("#a", "-b"))) == b"./#a\n-b\n"


def test_an_address_without_its_scheme_is_told_without_its_password(tmp_path, monkeypatch):
    monkeypatch.undo()
    served = entry(tmp_path, sources=("u:hunter2@h.example/x.git",), options={"model": "tiny-random"})
    ended = finished(TickRun(served, log_of(tmp_path)))
    assert "h.example/x.git" in str(ended.summary["quarantined"])
    assert "hunter2" not in str(ended.summary) + log_of(tmp_path).read_text()


def test_a_log_that_somebody_removes_costs_the_run_nothing(tmp_path):
    run = TickRun(entry(tmp_path, output="sleep"), log_of(tmp_path))
    log_of(tmp_path).unlink()
    assert run.poll() is None
    ended_early(run)


def test_a_long_log_is_cut_while_the_run_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(tick_run, "LARGEST_LOG", 1 << 16)
    log = log_of(tmp_path)
    run = TickRun(entry(tmp_path, output="storm-sleep"), log)
    deadline = time.monotonic() + 60
    while "line 5999" not in str(tail_of(log)[-1:]) and time.monotonic() < deadline:
        time.sleep(0.02)
    run.poll()
    assert log.stat().st_size <= 1 << 16
    assert log.read_bytes().startswith(tick_run._CUT + b"line ")
    assert tail_of(log)[-1].startswith("line 5999 ")
    ended_early(run)


def test_old_logs_are_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr(tick_run, "KEPT_LOGS", 3)
    for number in range(5):
        finished(TickRun(entry(tmp_path), tmp_path / "logs" / f"{number:08d}.log"))
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == [f"{number:08d}.log" for number in (2, 3, 4)]


def test_it_is_ended_in_order_and_by_force_where_that_does_not_help(tmp_path, stand_in):
    run = TickRun(entry(tmp_path, output="sleep"), log_of(tmp_path))
    assert ended_early(run).exit_code == -15
    stand_in.write_text(
        "import signal, subprocess, sys, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print(subprocess.Popen(['sleep', '600']).pid, file=sys.stderr, flush=True)\ntime.sleep(600)\n"
    )
    run = TickRun(entry(tmp_path), log_of(tmp_path))
    while not (tail := tail_of(log_of(tmp_path))) or not tail[-1].isdecimal():
        time.sleep(0.02)
    run.terminate()
    time.sleep(0.3)
    assert run.poll() is None
    run.kill()
    assert finished(run).exit_code == -9
    run.kill()
    gone(int(tail[-1]))


def gone(pid: int) -> None:
    """Wait until a process is gone; one that nobody waited for counts as gone."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return
        except psutil.NoSuchProcess:
            return
        time.sleep(0.05)
    raise AssertionError(f"process {pid} goes on")


@pytest.mark.skipif(sys.platform != "linux", reason="prctl(2) is Linux's")
def test_it_ends_when_its_scheduler_is_killed(tmp_path, stand_in):
    here = Path(__file__).parent
    scheduler = subprocess.Popen(
        [sys.executable, "-c", _SCHEDULER.format(here=here, folder=tmp_path, script=stand_in)], stdout=subprocess.PIPE
    )
    run = int(scheduler.stdout.readline())
    scheduler.stdout.close()
    assert psutil.pid_exists(run)
    scheduler.kill()
    scheduler.wait()
    gone(run)


_SCHEDULER = """
import sys, time
sys.path.insert(0, "{here}")
from pathlib import Path
from schedule_fakes import entry
from longdoc.scheduling import tick_run
tick_run.longdoc_command = lambda: [sys.executable, "{script}"]
folder = Path("{folder}")
run = tick_run.TickRun(entry(folder, output="sleep"), folder / "logs" / "00000001.log")
print(run._process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("code", "summary", "outcome"),
    [
        (0, {"num_committed": 2}, "committed"),
        (0, {"num_committed": 0}, "unchanged"),
        (3, {}, "quarantined"),
        (2, None, "refused"),
        (4, None, "incomplete"),
        (130, None, "interrupted"),
        (-9, None, "killed by SIGKILL"),
        (1, None, "failed with exit code 1"),
    ],
)
def test_an_exit_code_has_a_word(code, summary, outcome):
    assert outcome_of(code, summary) == outcome


def test_the_real_command_is_this_installation(monkeypatch):
    monkeypatch.undo()
    done = subprocess.run([*tick_run.longdoc_command(), "--version"], capture_output=True, text=True, cwd="/")
    assert done.stdout.startswith("longdoc, version ")
