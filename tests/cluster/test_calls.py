"""Telling the cause from its echoes, and the watch over ranks, without a cluster."""

import subprocess
import sys

import pytest

from longdoc.cluster import group
from longdoc.cluster.calls import cause_of, explained
from longdoc.errors import DocumentError, InfrastructureError, ModelError, PeerLostError, RingError, clean_up


def test_the_cause_is_what_is_no_echo():
    echo = PeerLostError("rank 0 lost rank 1")
    dead = RingError("rank 1, computing: lost")
    full = InfrastructureError("no space left")
    refused = ModelError("a window")
    assert cause_of([echo, dead]) is dead
    assert cause_of([echo, full, echo]) is full
    assert cause_of([echo, dead, refused]) is refused
    assert cause_of([echo]) is echo


def test_what_its_peers_say_of_a_lost_rank_is_told_with_it():
    dead, echo = RingError("rank 1, computing: lost"), PeerLostError("rank 0 failed receiving from rank 1 at layer 3")
    assert explained([echo, dead]) is dead
    assert dead.__notes__ == [str(echo)]
    alone = PeerLostError("rank 0 timed out")
    assert not hasattr(explained([alone]), "__notes__")
    # Where a rank refuses, the others only notice that it left.
    assert not hasattr(explained([echo, ModelError("a window")]), "__notes__")


def test_cleaning_up_never_hides_what_is_on_its_way():
    def fail():
        raise InfrastructureError("disk full")

    with pytest.raises(InfrastructureError, match="disk full"):
        clean_up(fail)

    def stop_and_fail_to_clean_up():
        try:
            raise DocumentError("bad", stage="read", reason="empty")
        finally:
            clean_up(fail)

    with pytest.raises(DocumentError) as caught:
        stop_and_fail_to_clean_up()
    assert caught.value.__notes__ == ["disk full"]


class Silent:
    """A watch whose ranks are told what to answer."""

    def __init__(self, monkeypatch, num_ranks, stall_seconds):
        self.now = 0.0
        monkeypatch.setattr(group.time, "monotonic", lambda: self.now)
        self.watch = group._Watch([None] * num_ranks, "a book", stall_seconds=stall_seconds)

    def answers(self, **statuses):
        for rank, beats in statuses.items():
            number = int(rank.removeprefix("rank"))
            self.watch._statuses[number] = {"layer": 3, "hop": number, "num_hops": 2, "beats": beats}
            self.watch._answered[number] = self.now
        self.watch._check()


PLACES = "Last known to have done: rank 0 layer 3, hop 0 of 2, rank 1 layer 3, hop 1 of 2."


def test_a_rank_is_asked_one_question_at_a_time(monkeypatch):
    """Against fakes of Ray's wait and of the actors, because no real rank can be silent on demand."""
    import ray

    class Rank:
        def __init__(self):
            self.questions = 0
            self.status = self

        def remote(self):
            self.questions += 1
            return object()

    ranks, answered = [Rank(), Rank()], []
    monkeypatch.setattr(ray, "wait", lambda references, **_: ([r for r in references if r in answered], []))
    monkeypatch.setattr(group, "result", lambda *_: {"layer": 0, "hop": 0, "num_hops": 1, "beats": 0})
    watch = group._Watch(ranks, "a book", stall_seconds=1000)
    for _ in range(5):
        watch.look(lambda status: None)
    assert [rank.questions for rank in ranks] == [1, 1]
    answered.append(watch._asked[0])
    watch.look(lambda status: None)
    watch.look(lambda status: None)
    assert [rank.questions for rank in ranks] == [2, 1]


def test_a_rank_that_does_not_answer_is_named(monkeypatch):
    ring = Silent(monkeypatch, 2, stall_seconds=1000)
    ring.answers(rank0=1, rank1=1)
    ring.now = 50
    ring.answers(rank0=2)
    ring.now = 61
    with pytest.raises(RingError, match=rf"^a book: rank 1 has not answered for 60 s\.\n{PLACES}$"), ring.watch.told():
        ring.answers(rank0=3)


def test_a_ring_that_stands_still_is_given_up_and_every_place_is_named(monkeypatch):
    ring = Silent(monkeypatch, 2, stall_seconds=100)
    ring.answers(rank0=1, rank1=1)
    ring.now = 90
    ring.answers(rank0=1, rank1=1)
    ring.now = 101
    with pytest.raises(RingError, match=rf"^a book: no rank has moved for 100 s\.\n{PLACES}$"), ring.watch.told():
        ring.answers(rank0=1, rank1=1)


def test_a_ring_that_fails_before_any_rank_was_heard_has_no_places(monkeypatch):
    with pytest.raises(RingError) as caught, Silent(monkeypatch, 2, stall_seconds=100).watch.told():
        raise RingError("rank 1, computing: lost")
    assert not hasattr(caught.value, "__notes__")


def test_one_rank_that_moves_keeps_the_ring(monkeypatch):
    ring = Silent(monkeypatch, 2, stall_seconds=100)
    for beats in range(10):
        ring.now = 50.0 * beats
        ring.answers(rank0=1, rank1=beats)


def test_reading_and_encoding_need_no_torch():
    code = (
        "import sys, longdoc.cluster.ingest, connectors.text; assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
