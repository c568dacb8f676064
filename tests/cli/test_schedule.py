"""`longdoc schedule validate|next|status`, and `run` where it ends before anything starts."""

import json
import re
import signal
import subprocess
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from command_line import command, git, longdoc

from longdoc.scheduling import state as states
from longdoc.scheduling.journal import Journal, Record
from longdoc.scheduling.state import Ended, Running, State

HEAD = 'output = "out"\nmodel = "tiny-random"\n'
NIGHTLY = '[entries.nightly]\ncron = "30 2 * * *"\ntimezone = "Europe/Berlin"\nsources = ["https://u:hunter2@h/x"]\n'
HOURLY = '[entries.hourly]\ncron = "0 * * * *"\nsources = "@list.txt"\nenabled = false\n'


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(HEAD + NIGHTLY + HOURLY)
    (tmp_path / "list.txt").write_text("a\n")
    return path


def seen(file, state: State, name: str = "nightly") -> None:
    journal = Journal(file.parent / "out", name)
    number = len(journal.numbers())
    assert journal.append(Record(number=number, event="ended", at=datetime.now(UTC), by="o", state=state))


def ran(*, start: datetime, outcome: str, code: int, summary=None, log=None) -> State:
    running = Running(
        record=1, attempt=2, kind="tick", tick=start, merged=0, owner="o", host="box", pid=7, started_at=start
    )
    state = states.started(states.first_seen(start - timedelta(days=1)), running, [start])
    state = states.skipped(state, [start + timedelta(minutes=1)])
    end = Ended(outcome=outcome, exit_code=code, seconds=12.34, summary=summary, log=log)
    return states.ended(state, end, start + timedelta(seconds=12))


def test_a_sound_file_is_said_to_be_sound(here, file):
    ended = here("schedule", "validate", file)
    assert ended.code == 0
    assert ended.out.splitlines()[:3] == [
        f"{file}: 2 entries, no mistakes.",
        "  nightly  At 02:30 every day, Europe/Berlin (30 2 * * *)",
        "  hourly  At the start of every hour, UTC (0 * * * *), switched off",
    ]
    assert "Remark: entry nightly: " in ended.out
    assert "hunter2" not in ended.out + ended.err


def test_mistakes_are_told_at_once_and_end_with_2(here, file):
    file.write_text('[entries.a]\ncron = "0 0 30 2 *"\nsources = ["x"]\n')
    for name in ("validate", "next", "status", "run"):
        ended = here("schedule", name, file)
        assert (ended.code, ended.out) == (2, "")
        assert ended.err == (
            f"Error: schedule {file}: entry a: cron '0 0 30 2 *' never fires: no such day comes within 50 years.\n"
            f"schedule {file}: entry a: it has no output; name the folder to write to.\n"
        )


def test_the_next_ticks_are_told_in_both_times(here, file):
    ended = here("schedule", "next", file, "--count", "2")
    lines = ended.out.splitlines()
    assert lines[0] == "nightly  At 02:30 every day, Europe/Berlin (30 2 * * *)"
    for line in lines[1:3]:
        local, utc = re.fullmatch(r"  \w{3} (\S+ \S+) CES?T   (\S+)Z", line).groups()
        assert local.endswith("02:30")
        assert datetime.fromisoformat(f"{local}:00") - datetime.fromisoformat(utc) in (
            timedelta(hours=1),
            timedelta(hours=2),
        )
    ticks = here("schedule", "next", file, "--json").json
    assert [len(each) for each in ticks.values()] == [3, 3]
    first = ticks["nightly"][0]
    assert datetime.fromisoformat(first["local"]) == datetime.fromisoformat(first["utc"])


def test_an_entry_that_nobody_served_is_said_to_be_unseen(here, file):
    ended = here("schedule", "status", file)
    assert "  never seen by a scheduler: start one with longdoc schedule run\n" in ended.out
    assert not (file.parent / "out").exists()
    nightly, hourly = here("schedule", "status", file, "--json").json
    assert (nightly["entry"], nightly["state"], hourly["enabled"]) == ("nightly", None, False)


def test_status_tells_the_last_run_what_fails_and_what_was_skipped(here, file):
    start = datetime(2027, 1, 10, 1, 30, tzinfo=UTC)
    fault = {"source_uri": "https://h/x", "stage": "read", "reason": "not_opened"}
    fault["error"] = "standard input, line 3: it does not let us in"
    summary = {"num_planned": 2, "num_committed": 1, "num_quarantined": 1, "quarantined": [fault]}
    seen(file, ran(start=start, outcome="quarantined", code=3, summary=summary))
    lines = here("schedule", "status", file).out.splitlines()
    assert (
        "  last     quarantined (exit code 3) at 2027-01-10 02:30:12 CET, tick 2027-01-10 02:30:00 CET, attempt 2, "
        "12.3 s on box; 2 planned, 1 committed, 1 quarantined"
    ) in lines
    assert "  failing  https://h/x since 2027-01-10 02:30:00 CET: not_opened: it does not let us in" in lines
    assert "  skipped  1, the last at 2027-01-10 02:31:00 CET: a run still went on" in lines
    state = here("schedule", "status", file, "--json").json[0]["state"]
    assert (state["last_run"]["exit_code"], state["failing"][0]["since"]) == (3, "2027-01-10T01:30:00Z")


def test_status_shows_the_end_of_the_log_of_a_run_that_failed(here, file):
    log = Journal(file.parent / "out", "nightly").log(1)
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"line {number}\n" for number in range(20)))
    start = datetime(2027, 1, 10, 1, 30, tzinfo=UTC)
    seen(file, ran(start=start, outcome="refused", code=2, log=log.name))
    ended = here("schedule", "status", file)
    assert f"  log      {log}\n    | line 10\n" in ended.out
    assert "    | line 19\n" in ended.out
    assert here("schedule", "status", file, "--json").json[0]["last_lines"][-1] == "line 19"
    seen(file, ran(start=start, outcome="unchanged", code=0, log=log.name))
    assert "line 19" not in here("schedule", "status", file).out


def test_records_that_cannot_be_read_hide_no_other_entry(here, file):
    now = datetime.now(UTC)
    seen(file, ran(start=now, outcome="committed", code=0), "hourly")
    seen(file, states.first_seen(now))
    damaged = Journal(file.parent / "out", "nightly").folder / "records" / "00000000.json"
    damaged.write_text("{")
    ended = here("schedule", "status", file)
    assert ended.code == 4
    assert f"  records  {damaged} is damaged: " in ended.out
    assert "last     committed (exit code 0)" in ended.out
    ended = here("schedule", "status", file, "--json")
    nightly, hourly = json.loads(ended.out)
    assert (ended.code, nightly["state"], hourly["problem"]) == (4, None, None)
    assert nightly["problem"].startswith(f"{damaged} is damaged: ")
    assert hourly["state"]["last_run"]["outcome"] == "committed"


def test_status_tells_what_runs_where_and_since_when(here, file):
    start = datetime(2027, 1, 10, 1, 30, tzinfo=UTC)
    running = Running(
        record=0, attempt=1, kind="tick", tick=start, merged=0, owner="o", host="box", pid=7, started_at=start
    )
    seen(file, states.started(states.first_seen(start), running, [start]))
    ended = here("schedule", "status", file)
    where = "tick 2027-01-10 02:30:00 CET, since 2027-01-10 02:30:00 CET on box (pid 7)"
    assert f"  running  {where}, no sign of life yet\n" in ended.out
    beat = Journal(file.parent / "out", "nightly").beat(0)
    beat.parent.mkdir()
    beat.touch()
    assert re.search(r"\(pid 7\), last sign of life \d s ago", here("schedule", "status", file).out)


def test_an_unknown_entry_cannot_be_run(here, file):
    ended = here("schedule", "run", file, "--once", "weekly")
    assert ended.code == 2
    assert ended.err == f"Error: {file} has no entry 'weekly'; it has nightly, hourly.\n"


def test_a_schedule_with_nothing_switched_on_is_refused(here, file):
    file.write_text(HEAD + HOURLY)
    ended = here("schedule", "run", file)
    assert ended.code == 2
    assert ended.err == f"Error: {file}: every entry is switched off, so there is nothing to serve.\n"


def test_the_help_says_what_a_file_looks_like(here):
    ended = here("schedule", "--help")
    assert '    cron = "30 2 * * *"\n' in ended.out
    assert ended.code == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serving_ends_in_order_when_told_to(file, number):
    process = subprocess.Popen(command("schedule", "run", file), stderr=subprocess.PIPE, text=True)
    lines = [process.stderr.readline()]
    while "serving 1 entry" not in lines[-1]:
        lines.append(process.stderr.readline())
    assert re.search(r" nightly: next tick \d{4}-\d\d-\d\dT0[01]:30:00Z$", process.stderr.readline().strip())
    process.send_signal(number)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 130, rest
    assert "Traceback" not in rest


class Closed(BaseHTTPRequestHandler):
    """A server that lets nobody in."""

    def do_GET(self):
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="x"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def test_sources_that_fail_are_reported_since_they_began_to_and_no_password_is_told(here, tmp_path, tiny_model):
    with ThreadingHTTPServer(("127.0.0.1", 0), Closed) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}).start()
        (tmp_path / "empty").mkdir()
        git(tmp_path / "empty", "init", "-q", "-b", "main")
        (tmp_path / "s.toml").write_text(
            f'{HEAD}[entries.broken]\ncron = "0 0 1 1 *"\ninclude = ["src/**"]\n'
            f'sources = ["gone", "empty", "{url.replace("//", "//user:hunter2@")}/private.git"]\n'
        )
        first, second = [
            longdoc("schedule", "run", tmp_path / "s.toml", "--once", "broken", no_proxy="*") for _ in range(2)
        ]
        server.shutdown()
    assert (first.code, second.code) == (3, 3), first.err
    (status,) = here("schedule", "status", tmp_path / "s.toml", "--json").json
    reasons = {source["source_uri"]: source["error"] for source in status["state"]["failing"]}
    assert len(reasons) == 3
    assert "No such file or folder" in reasons[(tmp_path / "gone").as_uri()]
    assert "has no commits yet" in reasons[(tmp_path / "empty").as_uri()]
    assert "does not let this user in" in reasons[f"{url}/private.git"]
    # The second run found them failing as the first had.
    since = {source["since"] for source in status["state"]["failing"]}
    assert len(since) == 1
    assert since.pop() < status["state"]["last_run"]["started_at"]
    assert status["state"]["num_runs"] == 2
    told = first.err + second.err + json.dumps(status)
    assert "hunter2" not in told
    left = [path for path in (tmp_path / "out").rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]
    assert left == []
