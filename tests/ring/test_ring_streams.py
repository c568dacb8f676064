"""The order of transfers and compute on a device, shown on a stand-in that runs streams in random order."""

import gc
import weakref

import pytest
from fake_streams import FakeCuda, Work

from longdoc.ring.exchange.streams import OverdueError, TransferStream


def ring_of_one_device(seed, num_steps, *, order=lambda transfers: transfers):
    """One rank's loop with two buffers: at step t slot t % 2 is computed with and sent, and the other one receives."""
    cuda = FakeCuda(seed)
    transfers = order(
        TransferStream("cuda", timeout_s=1e9, cuda=cuda, sleep=lambda _: cuda.run(cuda.random.randrange(1, 4)))
    )
    slots, computed, sent = [0, None], [], []
    for step in range(num_steps):
        held, other = step % 2, (step + 1) % 2
        is_last = step == num_steps - 1

        def transfer(step=step, held=held, other=other):
            sent.append(slots[held])
            slots[other] = step + 1

        def compute(held=held):
            computed.append(slots[held])

        if not is_last:
            transfers.post(f"step {step}", lambda: [Work(cuda, transfer)], [])
        # Two pieces of compute a step: both must see the same keys.
        cuda.compute.enqueue(compute)
        transfers.pace()
        cuda.compute.enqueue(compute)
        transfers.join()
        cuda.run(cuda.random.randrange(3))
    transfers.drain()
    return computed, sent, transfers


@pytest.mark.parametrize("seed", range(40))
def test_compute_sees_the_keys_of_its_own_step_and_what_is_sent_is_what_was_received(seed):
    computed, sent, transfers = ring_of_one_device(seed, 7)
    assert computed == [step for step in range(7) for _ in range(2)]
    assert sent == list(range(6))
    assert transfers.is_idle


class Kept:
    """Stands for a tensor."""


class NoOrder(TransferStream):
    """A planted fault: transfers that wait for nothing, or compute that does not wait for them."""

    def __init__(self, fault, whole):
        vars(self).update(vars(whole))
        real = self._stream
        if fault == "send before compute":
            real.wait_stream = lambda other: None
        else:
            self._cuda.compute.wait_event = lambda event: None


@pytest.mark.parametrize("fault", ["send before compute", "compute before receive"])
def test_the_stand_in_tells_when_an_event_is_missing(fault):
    wrong = 0
    for seed in range(40):
        computed, sent, _ = ring_of_one_device(seed, 7, order=lambda whole: NoOrder(fault, whole))
        wrong += (computed, sent) != ([step for step in range(7) for _ in range(2)], list(range(6)))
    assert wrong > 10


def test_transfers_overlap_the_compute_of_their_step():
    cuda = FakeCuda(0)
    transfers = TransferStream("cuda", timeout_s=1e9, cuda=cuda)
    ran = []
    blocked = [True]
    cuda.compute.enqueue(lambda: ran.append("earlier compute"))
    transfers.post("step", lambda: [Work(cuda, lambda: ran.append("transfer"))], [])
    cuda.compute.enqueue(lambda: ran.append("compute"), ready=lambda: not blocked[0])
    transfers.join()
    cuda.compute.enqueue(lambda: ran.append("later compute"))
    cuda.run()
    assert ran == ["earlier compute", "transfer"], "the transfer does not wait for the compute of its own step"
    blocked[0] = False
    cuda.run()
    assert ran == ["earlier compute", "transfer", "compute", "later compute"]


def test_the_host_stays_a_few_pieces_ahead_and_no_more():
    cuda = FakeCuda(0)
    done, ahead = [], []
    transfers = TransferStream("cuda", timeout_s=1e9, cuda=cuda, sleep=lambda _: cuda.run(1))
    for piece in range(20):
        cuda.compute.enqueue(lambda piece=piece: done.append(piece))
        transfers.pace()
        ahead.append(piece + 1 - len(done))
    assert max(ahead) == 3


def test_tensors_are_kept_until_what_could_take_their_memory_waits_for_them():
    cuda = FakeCuda(0)
    transfers = TransferStream("cuda", timeout_s=1e9, cuda=cuda, sleep=lambda _: cuda.run(1))
    tensor = Kept()
    seen = weakref.ref(tensor)
    transfers.post("step", lambda: [Work(cuda, lambda: None)], [tensor])
    del tensor
    gc.collect()
    assert seen() is not None
    transfers.join()
    gc.collect()
    assert seen() is None
    assert not transfers.is_idle
    transfers.drain()
    assert transfers.is_idle


def test_a_device_that_failed_is_not_idle():
    cuda = FakeCuda(0)
    transfers = TransferStream("cuda", timeout_s=1e9, cuda=cuda)
    transfers.post("step", lambda: [Work(cuda, lambda: None)], [])
    transfers.join()

    def fail():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    transfers._in_flight[0].done.query = fail
    assert not transfers.is_idle


def test_a_transfer_that_never_ends_is_named_after_its_time_out():
    cuda, clock = FakeCuda(0), [0.0]

    def sleep(seconds):
        cuda.run()
        clock[0] += 1.0

    transfers = TransferStream("cuda", timeout_s=30.0, cuda=cuda, clock=lambda: clock[0], sleep=sleep)
    never = Work
    transfers.post("receiving from rank 3", lambda: [never(cuda, lambda: None, ready=lambda: False)], [])
    transfers.join()
    with pytest.raises(OverdueError, match="receiving from rank 3: not done in time"):
        transfers.drain()
    assert 30.0 < clock[0] < 33.0


def test_transfers_are_joined_before_the_next_are_posted():
    transfers = TransferStream("cuda", timeout_s=1.0, cuda=FakeCuda(0))
    transfers.post("step", list, [])
    with pytest.raises(AssertionError, match="posted twice without a join"):
        transfers.post("step", list, [])
