"""The door to Ray's Jobs API: every answer that is none, in words, within its time."""

import json
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest
from jobs_server import jobs_server

from longdoc.cluster import jobs
from longdoc.cluster.jobs import JobsClient, NoSuchJobError, UnreachableError, entrypoint_of, parse_address
from longdoc.errors import InfrastructureError, StartError

SECRET = "s3cr3t-token"


@pytest.fixture(autouse=True)
def no_token(monkeypatch, tmp_path):
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@contextmanager
def listening(talk):
    """A port at which `talk` has the connection; for what speaks no HTTP."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            talk(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}"
    finally:
        thread.join()
        server.close()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("ray://head:10001", "is the address of Ray Client"),
        ("head:8265", "is not the address of a Jobs API"),
        ("auto", "is not the address of a Jobs API"),
        ("ftp://head", "is not the address of a Jobs API"),
        ("http://head:99999", "is not the address of a Jobs API"),
        ("http://head:8265/?token=x", "is not the address of a Jobs API"),
        (f"http://me:{SECRET}@head:8265", "carries a name or a password"),
    ],
)
def test_an_address_that_is_none_is_refused_with_the_reason(address, said) -> None:
    with pytest.raises(StartError, match=said) as refused:
        parse_address(address)
    assert SECRET not in str(refused.value)


def test_addresses_of_proxies_and_ipv6_are_taken() -> None:
    assert parse_address("https://gateway/ray/one/") == "https://gateway/ray/one"
    assert parse_address("http://[::1]:8265") == "http://[::1]:8265"


def test_a_path_before_the_api_is_kept() -> None:
    with jobs_server() as server:
        with pytest.raises(StartError, match=r"it answers 404"):
            JobsClient(f"{server.url}/ray").ray_version()
        assert server.requests[0][1] == "/ray/api/version"


def test_nothing_that_answers_is_said_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(UnreachableError, match=r"does not answer: Connection refused. Check the address"):
        JobsClient(f"http://127.0.0.1:{port}").ray_version()


def test_a_host_that_nobody_knows_is_said_so() -> None:
    with pytest.raises(UnreachableError, match=r"no such host is known here"):
        JobsClient("http://no-such-host.invalid:8265").ray_version()


def test_a_server_that_never_answers_costs_its_time_and_no_more() -> None:
    with (
        listening(lambda connection: connection.recv(1 << 16) and connection.recv(1)) as place,
        pytest.raises(UnreachableError, match=r"no answer in time"),
    ):
        JobsClient(f"http://{place}", seconds=0.2).ray_version()


def test_a_server_that_speaks_something_else_is_no_ray() -> None:
    with (
        listening(lambda connection: connection.sendall(b"220 mail ready\r\n") or connection.recv(1 << 16)) as place,
        pytest.raises(StartError, match=r"answers, but not with HTTP"),
    ):
        JobsClient(f"http://{place}").ray_version()


def test_https_at_a_plain_port_names_the_way_out() -> None:
    with (
        listening(
            lambda connection: connection.recv(1 << 16) and connection.sendall(b"HTTP/1.1 400 Bad\r\n\r\n")
        ) as place,
        pytest.raises(StartError, match=r"does not speak TLS as https:// asks .* Try http://"),
    ):
        JobsClient(f"https://{place}").ray_version()


def test_a_certificate_that_is_not_trusted_is_named() -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "self-signed certificate"
    said = str(JobsClient("https://head")._unreachable(error))
    assert said == (
        "https://head: its certificate is not trusted here (self-signed certificate). "
        "Name its authority's file in SSL_CERT_FILE."
    )


@pytest.mark.parametrize(
    ("status", "text", "said"),
    [
        (200, "<html>", "is no Jobs API of Ray: its answer to /api/version is no JSON"),
        (200, "[]", "names no version of Ray"),
        (200, '{"version": "1"}', "names no version of Ray"),
        (302, "", "is no Jobs API of Ray: it answers 302"),
        (404, "not here", "is no Jobs API of Ray: it answers 404"),
        (401, "Unauthorized", r"asks for a token, and none was sent \(401\)"),
        (403, "Forbidden", r"asks for a token, and none was sent \(403\)"),
    ],
)
def test_what_is_no_jobs_api_is_told_apart(status, text, said) -> None:
    with jobs_server(fails=lambda method, path: (status, text)) as server, pytest.raises(StartError, match=said):
        JobsClient(server.url).ray_version()


def test_a_fault_inside_the_cluster_is_its_last_line() -> None:
    trace = "Traceback\n  File x\nRuntimeError: the agent is gone\n"
    with (
        jobs_server(fails=lambda method, path: (500, trace)) as server,
        pytest.raises(InfrastructureError, match=r"cannot do it \(500\): RuntimeError: the agent is gone. Look at"),
    ):
        JobsClient(server.url).jobs()


@pytest.mark.parametrize("where", ["variable", "named file", "home"])
def test_the_token_is_found_where_ray_finds_it_and_sent_in_a_header_only(where, monkeypatch, tmp_path) -> None:
    if where == "variable":
        monkeypatch.setenv("RAY_AUTH_TOKEN", SECRET)
    elif where == "named file":
        (tmp_path / "token").write_text(f"{SECRET}\n")
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    else:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text(SECRET)
    with jobs_server() as server:
        assert JobsClient(server.url).ray_version() == "2.60.0"
        ((_, path, body, headers),) = server.requests
    assert headers["Authorization"] == f"Bearer {SECRET}"
    assert SECRET not in path
    assert SECRET.encode() not in body


def test_a_wrong_token_is_not_shown(monkeypatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", SECRET)
    with (
        jobs_server(fails=lambda method, path: (403, "Forbidden")) as server,
        pytest.raises(StartError, match=r"does not take the token \(403\)") as refused,
    ):
        JobsClient(server.url).ray_version()
    assert SECRET not in str(refused.value)


def test_a_token_file_that_cannot_be_read_is_named(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "none"))
    with pytest.raises(StartError, match=r"RAY_AUTH_TOKEN_PATH: .*none cannot be read"):
        JobsClient("http://127.0.0.1:8265")


@pytest.mark.parametrize(("mode", "is_sent"), [(None, False), ("token", True)])
def test_another_machine_gets_the_token_where_that_is_asked_for(monkeypatch, mode, is_sent) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", SECRET)
    monkeypatch.setattr(jobs, "is_of_this_machine", lambda host: False)
    if mode:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    with jobs_server() as server:
        JobsClient(server.url).ray_version()
        assert ("Authorization" in server.requests[0][3]) == is_sent


def test_no_token_is_sent_where_authentication_is_off(monkeypatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", SECRET)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with jobs_server() as server:
        JobsClient(server.url).ray_version()
        assert "Authorization" not in server.requests[0][3]


def test_a_submission_whose_answer_is_lost_is_looked_for_and_not_made_twice() -> None:
    lost: list[str] = []

    def fails(method, path):
        if method == "POST" and not lost:
            lost.append(path)
            server._submitted({"submission_id": "a", "entrypoint": "x", "metadata": {}, "runtime_env": {}})
            return (0, "")
        return None

    with jobs_server(fails=fails) as server:
        JobsClient(server.url).submit("a", entrypoint="x", runtime_env={}, metadata={})
        assert [method for method, *_ in server.requests] == ["POST", "GET"]


def test_a_submission_that_did_not_arrive_is_an_error() -> None:
    with (
        jobs_server(fails=lambda method, path: (500, "no agent") if method == "POST" else None) as server,
        pytest.raises(InfrastructureError, match=r"no agent"),
    ):
        JobsClient(server.url).submit("a", entrypoint="x", runtime_env={}, metadata={})


def test_a_submission_of_which_nothing_is_known_names_the_job() -> None:
    with (
        jobs_server(fails=lambda method, path: (0, "")) as server,
        pytest.raises(InfrastructureError, match=r"does not answer: .* Job a may have been started all the same"),
    ):
        JobsClient(server.url).submit("a", entrypoint="x", runtime_env={}, metadata={})


def test_a_package_that_a_proxy_finds_too_large_is_said_so() -> None:
    with (
        jobs_server(fails=lambda method, path: (413, "") if method == "PUT" else None) as server,
        pytest.raises(StartError, match=r"takes no package of 3 bytes \(413\)"),
    ):
        JobsClient(server.url).upload("p.zip", b"abc")


def test_a_job_of_another_shape_is_no_job() -> None:
    with (
        jobs_server(fails=lambda method, path: (200, json.dumps({"status": 1}))) as server,
        pytest.raises(StartError, match=r"what it says of a job is not what Ray says"),
    ):
        JobsClient(server.url).job("a")


def test_jobs_are_the_newest_first_and_without_drivers_that_were_not_submitted() -> None:
    with jobs_server() as server:
        server.add("old", start_time=1_000)
        server.add("new", start_time=2_000)
        server.jobs["driver"] = {"type": "DRIVER", "submission_id": None, "status": "RUNNING"}
        client = JobsClient(server.url)
        assert [job.job_id for job in client.jobs()] == ["new", "old"]
        assert client.job("new").started_at == 2.0
        with pytest.raises(NoSuchJobError, match=r"knows no job other. `longdoc jobs list`"):
            client.job("other")


def test_an_answer_without_end_is_not_kept(monkeypatch) -> None:
    monkeypatch.setattr(jobs, "_LARGEST_ANSWER", 10)
    with jobs_server() as server, pytest.raises(StartError, match=r"answers with more than 10 bytes"):
        JobsClient(server.url).ray_version()


def test_the_shell_that_ray_starts_becomes_the_command() -> None:
    """A stop that comes while a shell forks ends the shell alone, and the run goes on in a job that has stopped."""
    command = entrypoint_of([sys.executable, "-c", "import os; print(os.getpid())"])
    with subprocess.Popen(command, shell=True, stdout=subprocess.PIPE, text=True) as process:
        assert int(process.communicate()[0]) == process.pid
