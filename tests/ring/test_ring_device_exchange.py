"""The exchange of CUDA tensors, on a stand-in for the device and a process group of one."""

import contextlib
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from fake_streams import FakeCuda, Work

from longdoc.errors import PeerLostError
from longdoc.ring.exchange import distributed
from longdoc.ring.exchange.distributed import DistributedExchange
from longdoc.ring.exchange.streams import TransferStream


@pytest.fixture
def group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    with contextlib.suppress(ValueError, AssertionError):
        dist.destroy_process_group()


class Device:
    """A fake device, its clock, and an exchange over it whose batches are kept."""

    def __init__(self, group, monkeypatch, *, ready=lambda: True):
        self.cuda, self.seconds, self.batches = FakeCuda(0), 0.0, []

        def sleep(_):
            self.cuda.run()
            self.seconds += 1.0

        def batch_isend_irecv(operations):
            self.batches.append([(operation.op.__name__, operation.tensor) for operation in operations])
            return [Work(self.cuda, lambda: None, ready)]

        monkeypatch.setattr(distributed.dist, "batch_isend_irecv", batch_isend_irecv)
        self.transfers = TransferStream(
            torch.device("cuda", 0), timeout_s=30.0, cuda=self.cuda, clock=lambda: self.seconds, sleep=sleep
        )
        self.exchange = DistributedExchange(group, 30.0, self.transfers)


def test_a_hop_is_one_batch_and_the_host_waits_for_nothing(group, monkeypatch):
    device = Device(group, monkeypatch)
    keys, room = torch.ones(3), torch.zeros(3)
    device.exchange.start([(0, keys)], [(0, room)])
    device.exchange.finish()
    assert device.batches == [[("isend", keys), ("irecv", room)]]
    assert device.seconds == 0.0
    assert not device.transfers.is_idle
    device.cuda.run()
    assert device.transfers.is_idle


def test_each_message_of_a_pair_has_the_next_tag_so_that_a_schedule_out_of_step_delivers_nothing(group, monkeypatch):
    tags = []

    def batch_isend_irecv(operations):
        tags.append([(operation.op.__name__, operation.tag) for operation in operations])
        return [SimpleNamespace(wait=lambda timeout: None) for _ in operations]

    monkeypatch.setattr(distributed.dist, "batch_isend_irecv", batch_isend_irecv)
    monkeypatch.setattr(distributed, "_NUM_TAGS", 2)
    exchange, message = DistributedExchange(group, 30.0), torch.ones(3)
    for sends, receives in [(1, 1), (0, 1), (1, 0), (1, 1)]:
        exchange.start([(0, message)] * sends, [(0, message)] * receives)
        exchange.finish()
    # Sends and receives are counted apart, and the tags begin again after the last one.
    assert tags == [[("isend", 0), ("irecv", 0)], [("irecv", 1)], [("isend", 1)], [("isend", 0), ("irecv", 0)]]


def test_a_hop_without_transfers_is_none(group, monkeypatch):
    device = Device(group, monkeypatch)
    device.exchange.start([], [])
    device.exchange.finish()
    assert device.batches == []
    assert device.transfers.is_idle


def test_a_neighbour_that_never_answers_is_a_lost_peer_with_names(group, monkeypatch):
    device = Device(group, monkeypatch, ready=lambda: False)
    device.exchange.start([(0, torch.ones(3))], [(0, torch.ones(3))])
    device.exchange.finish()
    device.exchange.pace()
    device.exchange.pace()
    with pytest.raises(PeerLostError) as lost:
        device.exchange.pace()
    assert str(lost.value) == (
        "rank 0 failed exchanging with its neighbours: sending to rank 0, receiving from rank 0: not done in time "
        "(time-out 30 s); the ring must be formed anew"
    )


def test_a_new_time_out_holds_for_transfers_too(group, monkeypatch):
    device = Device(group, monkeypatch)
    device.exchange.set_timeout(7.0)
    assert device.transfers.timeout_s == 7.0


@pytest.mark.parametrize("answers", [True, False])
def test_only_a_group_with_transfers_under_way_is_aborted(group, monkeypatch, answers):
    ended = []
    monkeypatch.setattr(distributed, "_abort_process_group", lambda group: ended.append("aborted"))
    monkeypatch.setattr(distributed.dist, "destroy_process_group", lambda group: ended.append("destroyed"))
    device = Device(group, monkeypatch, ready=lambda: answers)
    device.exchange.start([(0, torch.ones(3))], [])
    device.exchange.finish()
    device.cuda.run()
    device.exchange.close()
    device.exchange.close()
    assert ended == ["destroyed" if answers else "aborted"]


def test_what_lies_on_the_cpu_is_reduced_there(group, monkeypatch):
    device = Device(group, monkeypatch)
    total = torch.tensor([2.0, 3.0])
    device.exchange.all_reduce(total)
    assert total.tolist() == [2.0, 3.0]
    assert device.transfers.is_idle


def test_what_lies_on_the_device_is_reduced_there_and_waited_for(group, monkeypatch):
    device = Device(group, monkeypatch)
    reduced = []

    def all_reduce(tensor, op, *, group, async_op):
        assert async_op
        return Work(device.cuda, lambda: reduced.append((tensor, op)))

    monkeypatch.setattr(distributed.dist, "all_reduce", all_reduce)
    total = torch.ones(2, device="meta")
    device.exchange.all_reduce(total, "max")
    assert reduced == [(total, dist.ReduceOp.MAX)], "done when it returns"
