"""Following a job: every line once, patience with an end, and the exit code of the run."""

import pytest
from jobs_server import JobsServer, jobs_server

from longdoc.cluster.jobs import JobsClient
from longdoc.errors import InfrastructureError, StartError
from longdoc.submission.follow import Follower, exit_code_of, find_job, how_it_ended


class Watch:
    """A follower whose sleeping moves a clock and a script of what the cluster does meanwhile."""

    def __init__(self, server: JobsServer, steps) -> None:
        self.lines: list[str] = []
        self.notes: list[str] = []
        self.slept: list[float] = []
        self._steps = list(steps)
        self.follower = Follower(
            client=JobsClient(server.url), job_id="a", line=self.lines.append, note=self.notes.append,
            sleep=self._sleep, clock=lambda: sum(self.slept), patience=5.0,
        )  # fmt: skip

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if self._steps:
            self._steps.pop(0)()


def test_each_line_is_told_once_and_whole() -> None:
    with jobs_server() as server:
        server.add("a")

        def runs() -> None:
            server.jobs["a"]["status"] = "RUNNING"
            server.logs["a"] = "one\ntw"

        def ends() -> None:
            server.logs["a"] = "one\ntwo\nthree"
            server.end("a", 0)

        watch = Watch(server, [runs, ends])
        job = watch.follower.follow()
    assert watch.lines == ["one", "two", "three"]
    assert watch.notes == ["Job a has not started yet: Ray does not say why"]
    assert exit_code_of(job) == 0


def test_a_cluster_that_is_away_for_a_while_is_waited_for() -> None:
    away = [True]
    with jobs_server(fails=lambda method, path: (0, "") if away else None) as server:
        server.add("a", status="RUNNING")
        server.logs["a"] = "one\n"
        watch = Watch(server, [lambda: None, away.clear, lambda: server.end("a", 3)])
        job = watch.follower.follow()
    assert watch.lines == ["one"]
    assert len(watch.notes) == 1
    assert watch.notes[0].endswith("Asking again for 5 s.")
    assert exit_code_of(job) == 3


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_dashboard_that_fails_for_a_while_is_asked_again(status) -> None:
    failing = [True]
    with jobs_server(fails=lambda method, path: (status, "gcs is away") if failing else None) as server:
        server.add("a", status="RUNNING")
        watch = Watch(server, [lambda: None, failing.clear, lambda: server.end("a", 3)])
        job = watch.follower.follow()
    assert exit_code_of(job) == 3
    assert len(watch.notes) == 1


def test_a_dashboard_that_goes_on_failing_says_how_to_come_back() -> None:
    with jobs_server(fails=lambda method, path: (500, "gcs is away")) as server:
        watch = Watch(server, [])
        with pytest.raises(InfrastructureError, match=r"gcs is away.*come back with: longdoc jobs wait a"):
            watch.follower.follow()


def test_a_cluster_that_stays_away_ends_the_following_and_says_how_to_come_back() -> None:
    with jobs_server(fails=lambda method, path: (0, "")) as server:
        watch = Watch(server, [])
        with pytest.raises(InfrastructureError) as gone:
            watch.follower.follow()
        assert str(gone.value).endswith(
            f"It was asked for 5 s. The job may still run; come back with: longdoc jobs wait a --address {server.url}"
        )
    assert sum(watch.slept) == 5.0


def test_a_job_that_is_deleted_meanwhile_is_said_so() -> None:
    with jobs_server() as server:
        server.add("a", status="RUNNING")
        watch = Watch(server, [server.jobs.clear])
        with pytest.raises(
            InfrastructureError, match=r"does not know job a any more. It was deleted, or the cluster was"
        ):
            watch.follower.follow()


def test_a_log_that_cannot_be_read_does_not_hide_the_end() -> None:
    with jobs_server(fails=lambda method, path: (500, "node lost") if path.endswith("/logs") else None) as server:
        server.add("a", status="RUNNING")
        watch = Watch(server, [lambda: server.end("a", 4)])
        job = watch.follower.follow()
    assert exit_code_of(job) == 4
    assert len(watch.notes) == 1
    assert watch.notes[0].startswith("the log cannot be read: ")


def test_a_long_log_is_asked_for_less_often() -> None:
    with jobs_server() as server:
        server.add("a", status="RUNNING")
        server.logs["a"] = "x" * 999_999 + "\n"
        watch = Watch(server, [lambda: server.end("a", 0)])
        watch.follower.follow()
    assert watch.slept == [5.0]


@pytest.mark.parametrize(
    ("status", "code", "exit_code", "said"),
    [
        ("SUCCEEDED", 0, 0, "Job a is done: everything is committed."),
        ("FAILED", 3, 3, "Job a ended with exit code 3: some documents are quarantined."),
        ("FAILED", 2, 2, "Job a ended with exit code 2: it could not start, see its log."),
        (
            "STOPPED",
            None,
            130,
            "Job a was stopped. What it had committed stays; submitting it again takes up the rest.",
        ),
        ("FAILED", None, 4, "Job a was lost: node died. What it had committed stays; submit it again."),
        ("FAILED", 137, 4, "Job a was lost: node died. What it had committed stays; submit it again."),
    ],
)
def test_an_end_is_the_code_of_the_run(status, code, exit_code, said) -> None:
    message = "node died, last available logs (truncated to 20,000 chars):\nsecrets of others"
    with jobs_server() as server:
        server.add("a")
        server.end("a", code, status=status, message=message)
        job = JobsClient(server.url).job("a")
    assert (exit_code_of(job), how_it_ended(job)) == (exit_code, said)


def test_an_id_may_be_shortened_while_it_is_the_only_one() -> None:
    with jobs_server() as server:
        for job_id in ("longdoc-ab12", "longdoc-ab34", "longdoc-cd56", "raysubmit_x"):
            server.add(job_id)
        client = JobsClient(server.url)
        for asked in ("cd", "longdoc-cd", "longdoc-cd56"):
            assert find_job(client, asked).job_id == "longdoc-cd56"
        with pytest.raises(StartError, match=r"ab begins 2 jobs: longdoc-ab12, longdoc-ab34. Write more of it."):
            find_job(client, "ab")
        for asked in ("ef", "ngdoc"):
            with pytest.raises(StartError, match=f"knows no job {asked}."):
                find_job(client, asked)
