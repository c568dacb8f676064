"""`longdoc jobs` against a server that answers like Ray's Jobs API."""

import os
import pty
import signal
import subprocess
import time

import pytest
from command_line import command
from jobs_server import jobs_server

from longdoc.cli import jobs as jobs_module

RUN = {"metadata": {"longdoc": "0.1.0", "longdoc_output": "/shared/out", "longdoc_sources": "2"}}


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, tmp_path):
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_API_SERVER_ADDRESS", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_the_list_holds_the_runs_of_longdoc_and_with_all_the_others(here) -> None:
    started = (time.time() - 7200) * 1000
    with jobs_server() as server:
        server.add("longdoc-aa", **RUN, start_time=started)
        server.add("longdoc-probe-bb", metadata={"longdoc": "0.1.0", "longdoc_kind": "probe"})
        server.add("raysubmit_x", entrypoint="python x.py", start_time=started)
        ours = here("jobs", "list", "--address", server.url)
        both = here("jobs", "list", "--all", "--address", server.url)
        told = here("jobs", "list", "--json", "--address", server.url).json
    assert ours.out.split() == ["longdoc-aa", "PENDING", "2", "h", "2", "sources", "/shared/out"]
    assert [line.split()[0] for line in both.out.splitlines()] == ["longdoc-aa", "raysubmit_x", "longdoc-probe-bb"]
    assert [(job["job_id"], job["status"], job["exit_code"]) for job in told] == [("longdoc-aa", "PENDING", None)]


def test_an_empty_list_says_so(here) -> None:
    with jobs_server() as server:
        assert here("jobs", "list", "--address", server.url).out == "No run was submitted.\n"
        server.add("raysubmit_x")
        assert here("jobs", "list", "--address", server.url).out == ("No run was submitted; --all shows 1 other job.\n")


def test_the_status_tells_the_end_without_the_log_in_rays_message(here) -> None:
    with jobs_server() as server:
        server.add("longdoc-aa", **RUN)
        server.end(
            "longdoc-aa", 3, message="Job entrypoint command failed with exit code 3, last available logs:\nalice"
        )
        ended = here("jobs", "status", "aa", "--address", server.url)
        told = here("jobs", "status", "aa", "--json", "--address", server.url).json
    facts = dict(line.split(None, 1) for line in ended.out.splitlines()[:5])
    assert (facts["state"], facts["output"], facts["sources"]) == ("FAILED", "/shared/out", "2")
    assert (
        ended.out.splitlines()[-1].strip() == "Job longdoc-aa ended with exit code 3: some documents are quarantined."
    )
    assert "alice" not in ended.out
    assert told["exit_code"] == 3


def test_logs_cannot_drive_a_terminal(here) -> None:
    with jobs_server() as server:
        server.add("longdoc-aa", status="RUNNING")
        server.logs["longdoc-aa"] = "one\n\x1b[2Jtwo\n"
        assert here("jobs", "logs", "aa", "--address", server.url).out == "one\n\\x1b[2Jtwo\n"


def test_logs_that_are_followed_end_with_the_job(here) -> None:
    with jobs_server() as server:
        server.add("longdoc-aa", status="RUNNING")
        server.logs["longdoc-aa"] = "one\n"
        server.end("longdoc-aa", 3)
        ended = here("jobs", "logs", "aa", "--follow", "--address", server.url)
    assert (ended.code, ended.out) == (0, "one\n")


def test_stop_waits_until_the_job_has_stopped(here) -> None:
    with jobs_server() as server:
        server.add("longdoc-aa", **RUN, status="RUNNING")
        ended = here("jobs", "stop", "aa", "--address", server.url)
        again = here("jobs", "stop", "aa", "--address", server.url)
    said = "Job longdoc-aa was stopped. What it had committed stays; submitting it again takes up the rest."
    assert (ended.code, ended.out) == (0, f"{said}\n")
    assert (again.code, again.out) == (0, f"{said} There is nothing to stop.\n")
    assert [path for _, path, *_ in server.requests].count("/api/jobs/longdoc-aa/stop") == 1


def test_a_job_that_does_not_stop_is_an_error(here, monkeypatch) -> None:
    monkeypatch.setattr(jobs_module, "STOP_SECONDS", 0.0)
    with jobs_server(fails=lambda method, path: (200, "{}") if path.endswith("/stop") else None) as server:
        server.add("longdoc-aa", status="RUNNING")
        ended = here("jobs", "stop", "aa", "--address", server.url)
    assert ended.code == 4
    assert "was asked to stop and is RUNNING after 0 s" in ended.err


@pytest.mark.parametrize(
    ("status", "code", "exit_code"), [("FAILED", 3, 3), ("SUCCEEDED", 0, 0), ("STOPPED", None, 130)]
)
def test_wait_ends_with_the_code_of_the_run(here, status, code, exit_code) -> None:
    with jobs_server() as server:
        server.add("longdoc-aa")
        server.logs["longdoc-aa"] = "one\ntwo"
        server.end("longdoc-aa", code, status=status)
        ended = here("jobs", "wait", "aa", "--address", server.url)
    assert (ended.code, ended.out) == (exit_code, "one\ntwo\n")


def test_ctrl_c_leaves_the_job_running_and_says_how_to_come_back() -> None:
    with jobs_server() as server:
        server.add("longdoc-aa", status="RUNNING")
        server.logs["longdoc-aa"] = "one\n"
        process = subprocess.Popen(
            command("jobs", "wait", "aa", "--address", server.url),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "one\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        asked = [path for _, path, *_ in server.requests]
    assert process.returncode == 130
    assert said == f"Job longdoc-aa runs on. Come back with: longdoc jobs wait longdoc-aa --address {server.url}\n"
    assert not any(path.endswith("/stop") for path in asked)


def test_on_a_terminal_progress_moves_in_one_line_and_the_rest_stays() -> None:
    with jobs_server() as server:
        server.add("longdoc-aa", status="RUNNING")
        server.logs["longdoc-aa"] = (
            "alice.txt: 40 tokens, computing\nalice.txt: 50%, layer 1/2 hop 1/2\nalice.txt: committed\n"
        )
        server.end("longdoc-aa", 0)
        ours, theirs = pty.openpty()
        done = subprocess.run(
            command("jobs", "wait", "aa", "--address", server.url),
            stdout=subprocess.PIPE, stderr=theirs, text=True, check=False, timeout=60,
            env={**os.environ, "TERM": "xterm"},
        )  # fmt: skip
        os.close(theirs)
        told = os.read(ours, 1 << 16).decode()
        os.close(ours)
    assert done.stdout == "alice.txt: 40 tokens, computing\nalice.txt: committed\n"
    assert "alice.txt: 50%, layer 1/2 hop 1/2" in told
    assert told.endswith("Job longdoc-aa is done: everything is committed.\r\n")


@pytest.mark.parametrize("verb", ["status", "logs", "stop", "wait"])
def test_a_job_that_nobody_knows_is_refused(here, verb) -> None:
    with jobs_server() as server:
        ended = here("jobs", verb, "zz", "--address", server.url)
        said = f"Error: {server.url} knows no job zz. `longdoc jobs list` shows those that it knows.\n"
    assert (ended.code, ended.err) == (2, said)
