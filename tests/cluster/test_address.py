"""Addresses that lead to no cluster this process can join: each refused in seconds, with what to do."""

import contextlib
import http.server
import platform
import socket
import sys
import threading
import time

import pytest
import ray

from longdoc.cluster import address
from longdoc.cluster.address import check_told, find_cluster, resolved
from longdoc.cluster.gcs_probe import describe
from longdoc.cluster.nodes import free_resources
from longdoc.errors import StartError

TAKES = "--address takes HOST:PORT of a cluster's GCS (the port of `ray start --head --port`, 6379 by default)"


@pytest.fixture(autouse=True)
def no_cluster_on_record(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(address, "_last_started", lambda: None)


def refusal(call, *arguments):
    started = time.monotonic()
    with pytest.raises(StartError) as refused:
        call(*arguments)
    # Ten seconds are promised; a busy machine gets more.
    assert time.monotonic() - started < 30
    return str(refused.value)


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def answer_with(server, content):
    def serve():
        with contextlib.suppress(OSError), server.accept()[0] as connection:
            connection.recv(100)
            connection.sendall(content)
            connection.recv(100)

    threading.Thread(target=serve, daemon=True).start()
    return f"127.0.0.1:{server.getsockname()[1]}"


def test_auto_takes_ray_address_then_the_last_ray_start(monkeypatch):
    monkeypatch.setattr(address, "_last_started", lambda: "10.0.0.9:6379")
    assert resolved("auto") == "10.0.0.9:6379"
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert resolved("auto") == "10.0.0.1:6379"


def test_ray_address_counts_for_auto_alone(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert resolved("10.0.0.2:6379") == "10.0.0.2:6379"


def test_auto_without_a_cluster_says_how_to_get_one():
    assert refusal(find_cluster, "auto") == (
        "--address auto: RAY_ADDRESS names no Ray cluster, and no `ray start` of this machine is on record. Start one "
        "(`ray start --head`), name one (--address HOST:PORT), or leave --address out."
    )


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ("ray://10.0.0.1:10001", "Ray Client (ray://) cannot drive a run"),
        ("http://10.0.0.1:8265", "http is the Jobs API's, which `longdoc submit` takes"),
        ("10.0.0.1", "this is neither HOST:PORT nor auto"),
        ("10.0.0.1:0", "this is neither HOST:PORT nor auto"),
        ("10.0.0.1:65536", "this is neither HOST:PORT nor auto"),
        ("local", "this is neither HOST:PORT nor auto"),
        ("", "this is neither HOST:PORT nor auto"),
    ],
)
def test_what_is_no_address_of_a_gcs_is_refused_by_what_it_is(asked, why):
    shown = asked or "''"
    assert refusal(resolved, asked) == (
        f"--address {shown}: {why}. {TAKES}; run on one of its nodes, or use `longdoc submit`."
    )


@pytest.mark.parametrize("asked", ["http://user:hush@10.0.0.1:8265", "user:hush@10.0.0.1:6379"])
def test_a_password_in_an_address_is_not_repeated(asked):
    assert "hush" not in refusal(resolved, asked)


def test_an_ipv6_address_is_one():
    assert resolved("[fd00::2]:6379") == "[fd00::2]:6379"


def test_a_port_where_nothing_listens_is_refused_at_once():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert refusal(find_cluster, f"127.0.0.1:{port}") == (
        f"--address 127.0.0.1:{port}: nothing answers (Connection refused). {TAKES}; is it running?"
    )


def test_a_host_that_does_not_exist_is_refused_by_its_name():
    message = refusal(find_cluster, "no-such-host.invalid:6379")
    assert message.startswith("--address no-such-host.invalid:6379: no host of this name (")


def test_a_server_that_says_nothing_is_waited_for_a_few_seconds(listener, monkeypatch):
    monkeypatch.setattr(address, "CONNECT_SECONDS", 0.5)
    port = listener.getsockname()[1]
    assert refusal(find_cluster, f"127.0.0.1:{port}").startswith(f"--address 127.0.0.1:{port}: no answer within 0 s.")


def test_an_http_server_is_told_from_a_gcs():
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        asked = f"127.0.0.1:{server.server_port}"
        message = refusal(find_cluster, asked)
        server.shutdown()
    assert message == f"--address {asked}: an HTTP server, perhaps Ray's dashboard, answers there. {TAKES}."


def test_something_else_is_told_from_a_gcs(listener):
    asked = answer_with(listener, b"220 mail.example.org ESMTP\r\n")
    assert refusal(find_cluster, asked) == f"--address {asked}: something else than Ray answers there. {TAKES}."


def test_a_grpc_server_that_is_no_gcs_is_given_up_in_time(listener, monkeypatch):
    monkeypatch.setattr(address, "use_own_token", lambda: None)
    monkeypatch.setattr(address, "_LOAD_SECONDS", 0.1)
    monkeypatch.setattr(address, "ANSWER_SECONDS", 0.1)
    asked = answer_with(listener, bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
    assert refusal(find_cluster, asked) == (
        f"--address {asked}: no Ray cluster answers there (no answer within 0 s). {TAKES}."
    )


TOLD = {"ray": ray.__version__, "python": platform.python_version(), "is_here": True}


def test_a_cluster_of_equal_versions_with_a_node_here_is_joined():
    check_told(TOLD, "10.0.0.1:6379")


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (
            {"ray": "2.1.0"},
            f"the cluster runs Ray 2.1.0, this process {ray.__version__}. Ray joins equal versions only",
        ),
        ({"python": "3.9.1"}, f"the cluster runs Python 3.9.1, this process {platform.python_version()}."),
        ({"is_here": False}, "none of the cluster's nodes runs on this machine"),
        ({"refused": "Unauthenticated"}, "the cluster wants another token than this process has. Set RAY_AUTH_MODE"),
        ({"problem": "RpcError"}, "no Ray cluster answers there (RpcError)"),
    ],
)
def test_a_cluster_that_cannot_be_joined_is_refused_with_the_reason(told, said):
    assert said in refusal(check_told, TOLD | told, "10.0.0.1:6379")


def test_a_token_is_shown_to_this_machine_alone(monkeypatch):
    shown = []
    monkeypatch.setattr(address, "_check_answers", lambda *_: None)
    monkeypatch.setattr(address, "ask_gcs", lambda _: TOLD)
    monkeypatch.setattr(address, "use_own_token", lambda: shown.append(True))
    find_cluster("203.0.113.7:6379")
    assert shown == []
    find_cluster("127.0.0.2:6379")
    find_cluster("localhost:6379")
    assert len(shown) == 2


def test_a_ray_that_finds_no_token_by_itself_is_left_to_its_variable(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ray._private.authentication.authentication_token_setup", None)
    address.use_own_token()


def test_a_ray_without_what_the_probe_asks_for_is_a_problem_and_no_crash(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ray._common.usage.usage_lib", None)
    told = describe("127.0.0.1:1")
    assert told["problem"].startswith("ModuleNotFoundError: import of ray._common.usage.usage_lib")


def test_a_ray_that_does_not_tell_what_is_free_is_refused(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ray._private.state", None)
    with pytest.raises(StartError, match=rf"Ray {ray.__version__} does not tell what is free on each node"):
        free_resources()
