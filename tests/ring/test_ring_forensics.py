"""What is told when a hop fails, and where numbers stopped being finite."""

import re
import threading

import pytest
import torch
from ring_oracles import random_qkv

from longdoc.errors import InfrastructureError, PeerLostError
from longdoc.ring import forensics
from longdoc.ring.exchange import Exchange
from longdoc.ring.exchange.loopback import run_ranks
from longdoc.ring.forensics import HopLog, first_nonfinite
from longdoc.ring.hook import RingContext
from longdoc.ring.kernels import Kernel, choose_kernel
from longdoc.ring.layout import Layout
from longdoc.ring.mask import CAUSAL, Mask

RIGHT = choose_kernel("torch", "cpu")[1]


def two_layers(exchange: Exchange, kernel: Kernel, mask: Mask = CAUSAL) -> RingContext:
    layout = Layout(kind="zigzag", num_tokens=50, num_ranks=exchange.num_ranks)
    context = RingContext(layout=layout, exchange=exchange, kernel=kernel)
    positions = torch.from_numpy(layout.positions(exchange.rank))
    for _ in range(2):
        q, k, v = (tensor[:, positions] for tensor in random_qkv(50))
        context.attend(q, k, v, mask=mask, scale=0.25)
    return context


def test_a_rank_past_the_deadline_is_told_with_neighbour_layer_hop_and_the_last_that_was_done() -> None:
    over = threading.Event()

    def rank_main(exchange: Exchange) -> None:
        num_calls = 0

        def late(*block: torch.Tensor, **options: object) -> tuple[torch.Tensor, torch.Tensor]:
            nonlocal num_calls
            num_calls += 1
            if num_calls == 4:  # The first piece of layer 1: three hops make a layer.
                over.wait(10)
            return RIGHT(*block, **options)  # type: ignore[arg-type]  # handed on as they come

        try:
            two_layers(exchange, late if exchange.rank == 2 else RIGHT)
        finally:
            over.set()

    with pytest.raises(InfrastructureError) as loss:
        run_ranks(3, rank_main, timeout_s=1.5)
    found = re.fullmatch(
        r"rank (\d), (sending to|receiving from) rank (\d): a peer did not answer within 1\.5 s; run the document"
        r" again; it was at layer 1, hop (\d) of 3 \(number (\d)\), last completed layer (\d), hop (\d) of 3"
        r" \(number (\d)\), \d+\.\d s before",
        str(loss.value),
    )
    assert found is not None, str(loss.value)
    rank, what, peer = int(found[1]), found[2], int(found[3])
    assert peer == (rank + 1 if what == "sending to" else rank - 1) % 3
    hop, number, last_layer, last_hop, last_number = (int(found[group]) for group in (4, 5, 6, 7, 8))
    assert (number, last_number) == (3 + hop, 2 + hop)
    assert last_number == 3 * last_layer + last_hop


def test_a_failure_in_the_first_hop_says_that_none_was_done() -> None:
    log = HopLog()
    with pytest.raises(PeerLostError) as loss, log.hop(0, 4):
        raise PeerLostError("rank 0 failed sending to rank 1: gone")
    assert str(loss.value) == (
        "rank 0 failed sending to rank 1: gone; it was at layer 0, hop 0 of 4 (number 0), none completed before"
    )


def test_other_errors_are_left_as_they_are() -> None:
    with pytest.raises(FloatingPointError, match=r"^planted$"), HopLog().hop(0, 1):
        raise FloatingPointError("planted")


def test_hops_are_numbered_through_all_layers_and_beats_say_where_they_are() -> None:
    beats: list[tuple[int, int, int]] = []
    log = HopLog(lambda *place: beats.append(place))
    for layer in range(2):
        log.layer = layer
        for hop in range(3):
            with log.hop(hop, 3):
                log.beat()
    assert beats == [(layer, hop, 3) for layer in range(2) for hop in range(3)]
    assert str(log).startswith("layer 1, hop 2 of 3 (number 5), last completed layer 1, hop 2 of 3 (number 5), 0.0 s")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("place", [0, 17, 99])
def test_the_first_token_that_is_not_finite_is_found_in_any_tile(
    monkeypatch: pytest.MonkeyPatch, place: int, value: float, dtype: torch.dtype
) -> None:
    monkeypatch.setattr(forensics, "_TILE_VALUES", {"cpu": 7 * 2 * 4})
    sound, broken = torch.randn(2, 100, 4).to(dtype), torch.randn(2, 100, 4).to(dtype)
    broken[1, place, 3] = broken[0, 99, 0] = value
    assert first_nonfinite([sound]) is None
    assert first_nonfinite([sound, broken.transpose(0, 1).contiguous().transpose(0, 1)]) == place


def test_of_several_tensors_the_earliest_token_counts() -> None:
    later, earlier = torch.zeros(2, 9, 4), torch.zeros(1, 9, 3)
    later[0, 7, 0], earlier[0, 2, 1] = torch.nan, torch.inf
    assert first_nonfinite([later, earlier]) == 2


def test_the_largest_numbers_of_a_dtype_are_finite_and_nothing_has_no_place() -> None:
    extreme = torch.tensor([[[torch.finfo(torch.float16).max], [torch.finfo(torch.float16).min]]], dtype=torch.float16)
    assert first_nonfinite([extreme]) is None
    assert first_nonfinite([torch.empty(2, 0, 4)]) is None


def test_a_context_keeps_the_first_layer_and_position_that_were_not_finite() -> None:
    layout = Layout(kind="zigzag", num_tokens=40, num_ranks=2)

    def rank_main(exchange: Exchange) -> tuple[int, int] | None:
        context = RingContext(layout=layout, exchange=exchange, kernel=RIGHT)
        positions = layout.positions(exchange.rank).tolist()
        for layer in range(3):
            q, k, v = (tensor[:, positions].clone() for tensor in random_qkv(40))
            if layer == 1 and 33 in positions:
                k[0, positions.index(33), 0] = torch.nan
            if layer == 2 and exchange.rank == 0:
                v[:, 0] = torch.inf
            context.attend(q, k, v, mask=CAUSAL, scale=0.25)
        return context.nonfinite

    # Rank 0 owns 0 to 9 and 30 to 39; rank 1 the tokens between, and is sound.
    assert run_ranks(2, rank_main) == [(1, 33), None]


def test_a_rank_without_tokens_attends_with_one_placeholder_that_nobody_sees() -> None:
    layout = Layout(kind="zigzag", num_tokens=2, num_ranks=3)
    whole = random_qkv(2)

    def rank_main(exchange: Exchange) -> torch.Tensor:
        context = RingContext(layout=layout, exchange=exchange, kernel=RIGHT)
        if exchange.rank < 2:
            q, k, v = (tensor[:, exchange.rank, None] for tensor in whole)
        else:
            q, k, v = (torch.full((heads, 1, 16), torch.nan, dtype=torch.float64) for heads in (4, 2, 2))
        out: torch.Tensor = context.attend(q, k, v, mask=CAUSAL, scale=0.25)
        assert context.nonfinite is None
        return out

    first, second, placeholder = run_ranks(3, rank_main)
    assert torch.equal(placeholder, torch.zeros(4, 1, 16, dtype=torch.float64))
    assert bool(torch.isfinite(torch.cat([first, second])).all())
