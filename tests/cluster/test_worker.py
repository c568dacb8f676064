"""One rank's process without Ray: what it says of its progress, and what it does when it fails."""

from types import SimpleNamespace

import pytest
import torch

from longdoc.cluster import compute
from longdoc.cluster.worker import RingWorker
from longdoc.errors import PeerLostError


class Exchange:
    """Remembers what it is asked, in order."""

    def __init__(self):
        self.asked = []

    def set_timeout(self, seconds):
        self.asked.append(("set_timeout", seconds))

    def pace(self):
        self.asked.append("pace")

    def close(self):
        self.asked.append("close")


@pytest.fixture
def worker():
    num_threads = torch.get_num_threads()
    worker = RingWorker(1)
    worker._exchange = Exchange()
    yield worker
    torch.set_num_threads(num_threads)


def run(worker, monkeypatch, body):
    monkeypatch.setattr(compute, "compute_document", lambda *_, report, beat: body(report, beat))
    return worker.compute(SimpleNamespace(timeout_seconds=7.0), None)


def test_every_piece_of_attention_is_a_beat_with_its_place_and_keeps_the_host_near_the_device(worker, monkeypatch):
    def body(report, beat):
        report(3, 1, 2)
        report(3, 1, 2)
        beat()
        return "done"

    assert run(worker, monkeypatch, body) == "done"
    assert worker.status() == {"layer": 3, "hop": 1, "num_hops": 2, "beats": 3}
    # Where transfers run on a device of their own, a late one is noticed at the next piece of work.
    assert worker._exchange.asked == [("set_timeout", 7.0), "pace", "pace"]


def test_a_late_transfer_found_between_two_pieces_fails_the_rank_and_it_leaves(worker, monkeypatch):
    def late():
        raise PeerLostError("receiving from rank 1: not done in time")

    monkeypatch.setattr(worker._exchange, "pace", late)
    with pytest.raises(PeerLostError, match="not done in time"):
        run(worker, monkeypatch, lambda report, beat: report(0, 0, 1))
    assert worker._exchange.asked == [("set_timeout", 7.0), "close"]


def test_beats_go_on_from_document_to_document_and_places_begin_anew(worker, monkeypatch):
    run(worker, monkeypatch, lambda report, beat: report(5, 0, 1))
    run(worker, monkeypatch, lambda report, beat: None)
    assert worker.status() == {"layer": 0, "hop": 0, "num_hops": 0, "beats": 1}
