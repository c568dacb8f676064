"""The loopback exchange: transfers, reductions, and what a rank is told when another one fails or disagrees."""

import threading
from collections import defaultdict

import pytest
import torch

from longdoc.errors import InfrastructureError
from longdoc.ring.exchange import Exchange
from longdoc.ring.exchange.loopback import LoopbackRing, run_ranks


def pass_on(exchange: Exchange, tensor: torch.Tensor) -> torch.Tensor:
    """Hand a tensor to the next rank and return what came from the one before."""
    received = torch.empty_like(tensor)
    after, before = (exchange.rank + 1) % exchange.num_ranks, (exchange.rank - 1) % exchange.num_ranks
    exchange.start(sends=[(after, tensor)], receives=[(before, received)])
    exchange.finish()
    return received


@pytest.mark.parametrize("num_ranks", [2, 3, 7])
def test_what_is_sent_goes_round_the_ring(num_ranks: int) -> None:
    def rank_main(exchange: Exchange) -> list[int]:
        held = torch.tensor([exchange.rank])
        seen = [int(held)]
        for _ in range(num_ranks - 1):
            held = pass_on(exchange, held)
            seen.append(int(held))
        return seen

    expected = [[(rank - step) % num_ranks for step in range(num_ranks)] for rank in range(num_ranks)]
    assert run_ranks(num_ranks, rank_main) == expected


def test_messages_between_two_ranks_keep_their_order() -> None:
    def rank_main(exchange: Exchange) -> list[float]:
        received = [torch.empty(1), torch.empty(1)]
        if exchange.rank == 0:
            exchange.start(sends=[(1, torch.tensor([1.0])), (1, torch.tensor([2.0]))], receives=[])
        else:
            exchange.start(sends=[], receives=[(0, received[0]), (0, received[1])])
        exchange.finish()
        return [float(tensor) for tensor in received]

    assert run_ranks(2, rank_main)[1] == [1.0, 2.0]


def test_a_sent_tensor_may_be_reused_after_finish() -> None:
    def rank_main(exchange: Exchange) -> float:
        tensor = torch.tensor([float(exchange.rank)])
        received = pass_on(exchange, tensor)
        tensor.fill_(-1)
        exchange.all_reduce(tensor)
        return float(received)

    assert run_ranks(3, rank_main) == [2.0, 0.0, 1.0]


def test_reductions_give_every_rank_the_same_bits() -> None:
    def rank_main(exchange: Exchange) -> tuple[torch.Tensor, torch.Tensor]:
        summed = torch.tensor([0.1, 1e-9, 1e9][exchange.rank :] + [float(exchange.rank)] * exchange.rank)
        largest = torch.tensor([exchange.rank, -exchange.rank])
        exchange.all_reduce(summed)
        exchange.all_reduce(largest, "max")
        return summed, largest

    results = run_ranks(3, rank_main)
    assert torch.equal(results[0][1], torch.tensor([2, 0]))
    assert float(results[0][0][2]) == pytest.approx(1e9 + 1 + 2)
    assert all(torch.equal(summed, results[0][0]) for summed, _ in results)


def test_the_first_real_error_is_raised_and_the_others_are_woken() -> None:
    woken = []

    def rank_main(exchange: Exchange) -> None:
        if exchange.rank == 1:
            raise ZeroDivisionError("planted")
        try:
            pass_on(exchange, torch.zeros(1))
        except InfrastructureError as error:
            woken.append(str(error))
            raise

    with pytest.raises(ZeroDivisionError, match="planted"):
        run_ranks(4, rank_main)
    assert len(woken) == 3
    assert all("rank 1 failed" in message for message in woken)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rank ")]


def test_a_rank_that_waits_in_a_reduction_is_woken_too() -> None:
    def rank_main(exchange: Exchange) -> None:
        if exchange.rank == 2:
            raise KeyError("planted")
        exchange.all_reduce(torch.zeros(1))

    with pytest.raises(KeyError, match="planted"):
        run_ranks(3, rank_main)


def test_waiting_for_a_rank_that_has_left_raises_and_names_both() -> None:
    def rank_main(exchange: Exchange) -> None:
        if exchange.rank == 0:
            exchange.start(sends=[], receives=[(1, torch.empty(1))])
            exchange.finish()

    with pytest.raises(InfrastructureError) as failure:
        run_ranks(2, rank_main)
    assert str(failure.value) == "rank 0, receiving from rank 1: a peer has left the ring; run the document again"


def test_a_silent_peer_times_out() -> None:
    exchange = LoopbackRing(2, timeout_s=0.05).exchange(0)
    exchange.start(sends=[(1, torch.zeros(1))], receives=[])
    with pytest.raises(InfrastructureError) as failure:
        exchange.finish()
    assert str(failure.value) == (
        "rank 0, sending to rank 1: a peer did not answer within 0.05 s; run the document again"
    )


def test_a_closed_end_wakes_its_peers() -> None:
    ring = LoopbackRing(2)
    ring.exchange(1).close()
    exchange = ring.exchange(0)
    with pytest.raises(InfrastructureError, match="a peer has left the ring"):
        exchange.all_reduce(torch.zeros(1))


@pytest.mark.parametrize("received", [torch.empty(3), torch.empty(2, dtype=torch.float64)])
def test_a_message_of_another_shape_or_dtype_is_never_taken(received: torch.Tensor) -> None:
    def rank_main(exchange: Exchange) -> None:
        if exchange.rank == 0:
            exchange.start(sends=[(1, torch.zeros(2))], receives=[])
        else:
            exchange.start(sends=[], receives=[(0, received)])
        exchange.finish()

    with pytest.raises(AssertionError, match=r"rank 0 sent \(2,\) torch.float32, rank 1 expects"):
        run_ranks(2, rank_main)


def test_what_ranks_share_is_touched_only_under_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    touched = []

    class Watched(defaultdict[object, object]):
        def __getitem__(self, key: object) -> object:
            touched.append(ring.changed._is_owned())  # type: ignore[attr-defined]  # what a condition itself asks
            return super().__getitem__(key)

    ring = LoopbackRing(1)
    monkeypatch.setattr(ring, "mail", Watched(ring.mail.default_factory))
    received = torch.empty(1)
    exchange = ring.exchange(0)
    exchange.start(sends=[(0, torch.ones(1))], receives=[(0, received)])
    exchange.finish()
    assert float(received) == 1.0
    assert touched == [True, True]


def test_start_twice_and_finish_without_start_are_refused() -> None:
    exchange = LoopbackRing(1).exchange(0)
    with pytest.raises(AssertionError, match="finish was called without start"):
        exchange.finish()
    exchange.start(sends=[], receives=[])
    with pytest.raises(AssertionError, match="start was called twice"):
        exchange.start(sends=[], receives=[])
    with pytest.raises(AssertionError, match="between start and finish"):
        exchange.all_reduce(torch.zeros(1))


def test_threads_take_over_the_callers_gradient_and_inference_modes() -> None:
    def modes(exchange: Exchange) -> tuple[bool, bool]:
        return torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    assert run_ranks(2, modes) == [(True, False)] * 2
    with torch.no_grad():
        assert run_ranks(2, modes) == [(False, False)] * 2
    with torch.inference_mode():
        assert run_ranks(2, modes) == [(False, True)] * 2
