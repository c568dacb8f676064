"""Contestants are timed in turns, answer rank by rank, and say why they end."""

import socket

import pytest
from bench_ranks import build_adder, build_nothing

from longdoc.bench.processes import Contestant, interleaved, ratio, sent_bytes
from longdoc.errors import InfrastructureError, StartError


def test_contestants_take_turns() -> None:
    order: list[str] = []

    def run(name: str) -> float:
        order.append(name)
        return len(order)

    seconds = interleaved({name: lambda name=name: run(name) for name in "ab"}, 3, lambda *_: None)
    assert order == ["a", "b"] * 3
    assert seconds == {"a": [1, 3, 5], "b": [2, 4, 6]}


def test_a_ratio_is_one_of_medians() -> None:
    assert ratio([1, 2, 90], [4, 4, 1]) == 0.5


def test_ranks_answer_in_their_order_and_what_one_raises_arrives_as_it_is() -> None:
    with Contestant("adders", build_adder, 40, num_ranks=2, ring=True) as adders:
        assert adders.call("add", 2) == [(0, 42), (1, 42)]
        assert adders.seconds("add", 1) > 0
        with pytest.raises(StartError, match=r"^40 is refused$"):
            adders.call("refuse")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("stumble", r"^ValueError: no such number$"),
        ("die", r"^lone: the process of rank 0 ended with code 7$"),
    ],
)
def test_a_process_that_fails_is_named_with_its_reason(command: str, message: str) -> None:
    with Contestant("lone", build_adder, 0) as lone, pytest.raises(InfrastructureError, match=message):
        lone.call(command)


def test_what_cannot_be_built_is_told_at_the_start() -> None:
    with pytest.raises(StartError, match=r"^not installed: pip install nothing$"):
        Contestant("none", build_nothing)


@pytest.mark.skipif(sent_bytes() is None, reason="only Linux counts the bytes of a connection")
def test_bytes_are_those_of_every_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        peer, _ = server.accept()
        with peer:
            before = sent_bytes()
            client.sendall(bytes(50_000))
            received = 0
            while received < 50_000:
                received += len(peer.recv(65_536))
            assert sent_bytes() == before + 50_000
