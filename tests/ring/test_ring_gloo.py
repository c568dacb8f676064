"""The ring over gloo between real processes: exact, and loud when a neighbour dies or falls silent."""

import functools
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.multiprocessing as mp
from gloo_ranks import CASES, DTYPES, WIDE, WINDOWED, exact_main, late_main, lost_main, reduce_main
from ring_oracles import (
    HEAD_DIM,
    Float64s,
    attention_by_definition,
    document,
    gather,
    random_qkv,
    register_definition,
    relative_error,
    small_llama,
    whole_logprobs,
)
from tiny_random import logprob_error

from longdoc.model.local import LocalModel
from longdoc.ring.layout import Layout

ATTENTION_TOLERANCES = {torch.float64: 1e-12, torch.float32: 5e-6}
MODEL_TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-3}


def run_processes(main: Callable[..., None], num_ranks: int, folder: Path, *more: object) -> None:
    mp.spawn(main, (num_ranks, folder, *more), num_ranks)  # type: ignore[no-untyped-call]  # torch leaves it untyped


@functools.cache
def expected_attention(num_tokens: int) -> Float64s:
    return attention_by_definition(*random_qkv(num_tokens), HEAD_DIM**-0.5)


@functools.cache
def expected_logprobs(num_tokens: int, dtype: torch.dtype) -> torch.Tensor:
    register_definition()
    # Eager attention takes its softmax in float32 whatever the model's dtype: in float64 the definition stands in.
    model = small_llama("by_definition" if dtype == torch.float64 else "eager", dtype)
    return whole_logprobs(model, document(num_tokens))


@pytest.fixture(scope="module", params=[2, 3])
def exact_ring(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    """A ring of processes that has computed everything, and where each rank left its parts."""
    try:
        tiny = request.getfixturevalue("tiny_model")
    except pytest.skip.Exception:
        tiny = None  # the rest needs no model
    folder = tmp_path_factory.mktemp("exact")
    run_processes(exact_main, request.param, folder, tiny)
    return request.param, folder


def test_processes_give_the_log_probabilities_of_one_plain_pass(
    tiny_model: LocalModel, exact_ring: tuple[int, Path]
) -> None:
    num_ranks, folder = exact_ring
    parts = [torch.load(folder / f"tiny-{rank}.pt") for rank in range(num_ranks)]
    assert len(parts[0]) == len(CASES) * len(DTYPES)
    for kind, num_tokens in CASES:
        layout = Layout(kind=kind, num_tokens=num_tokens, num_ranks=num_ranks)
        for dtype in DTYPES:
            states = gather(layout, [part[kind, num_tokens, str(dtype)] for part in parts], dim=0)
            assert logprob_error(tiny_model, states) <= MODEL_TOLERANCES[dtype]


def test_processes_compute_what_one_plain_forward_does(exact_ring: tuple[int, Path]) -> None:
    num_ranks, folder = exact_ring
    parts = [torch.load(folder / f"{rank}.pt") for rank in range(num_ranks)]
    assert len(parts[0]) == len(CASES) * len(DTYPES)
    for kind, num_tokens in CASES:
        layout = Layout(kind=kind, num_tokens=num_tokens, num_ranks=num_ranks)
        for dtype in DTYPES:
            found = [part[kind, num_tokens, str(dtype)] for part in parts]
            attended = gather(layout, [attended for attended, _ in found], dim=1)
            assert relative_error(attended, expected_attention(num_tokens)) <= ATTENTION_TOLERANCES[dtype]
            logprobs = gather(layout, [logprobs for _, logprobs in found], dim=0)
            error = (logprobs - expected_logprobs(num_tokens, dtype)).abs().max()
            assert float(error) <= MODEL_TOLERANCES[dtype]


def test_windows_travel_straight_to_who_needs_them(exact_ring: tuple[int, Path]) -> None:
    num_ranks, folder = exact_ring
    parts = [torch.load(folder / f"windowed-{rank}.pt", weights_only=False) for rank in range(num_ranks)]
    for kind, num_tokens, mask in WINDOWED:
        layout = Layout(kind=kind, num_tokens=num_tokens, num_ranks=num_ranks)
        attended = gather(layout, [part[kind, num_tokens, mask] for part in parts], dim=1)
        expected = attention_by_definition(
            *random_qkv(num_tokens, value_dim=WIDE), HEAD_DIM**-0.5, mask=mask, softcap=5.0, sink_H=torch.ones(4)
        )
        assert relative_error(attended, expected) <= 1e-12


@pytest.mark.parametrize("deadly", [False, True], ids=["slow", "dead"])
def test_a_rank_that_misses_a_hop_is_told_with_layer_hop_and_the_last_that_was_done(
    tmp_path: Path, deadly: bool
) -> None:
    if deadly:
        (tmp_path / "deadly").touch()
    run_processes(late_main, 2, tmp_path)
    message = (tmp_path / "0.txt").read_text()
    assert message.startswith(("rank 0 failed receiving from rank 1: ", "rank 0 failed sending to rank 1: "))
    assert ("Timed out" in message) == (not deadly)
    place = (
        r"it was at layer 1, hop (\d) of 2 \(number (\d)\), last completed layer (\d), hop (\d) of 2 \(number (\d)\)"
    )
    found = re.search(place + r", \d+\.\d s before$", message)
    assert found is not None, message
    hop, number, last_layer, last_hop, last_number = map(int, found.groups())
    # gloo may have taken what rank 1 sent before it stopped: then only the hop after that fails.
    assert (number, last_number) == (2 + hop, 1 + hop)
    assert last_number == 2 * last_layer + last_hop


def test_a_dead_rank_is_named_by_its_neighbours_and_the_failure_spreads(tmp_path: Path) -> None:
    run_processes(lost_main, 4, tmp_path)
    messages, contexts = zip(*((tmp_path / f"{rank}.txt").read_text().splitlines() for rank in range(3)), strict=True)
    assert contexts == ("None", "None", "None")
    assert all(message.endswith("(time-out 60 s); the ring must be formed anew") for message in messages)
    assert messages[0].startswith(("rank 0 failed receiving from rank 3: ", "rank 0 failed sending to rank 1: "))
    assert messages[2].startswith(("rank 2 failed sending to rank 3: ", "rank 2 failed receiving from rank 1: "))
    # Rank 1 has no dead neighbour: it learns of the failure because the others close, not by its own time-out.
    assert not any("timed out" in message.lower() for message in messages), messages
    assert not any(".cc:" in message or "GLHF" in message for message in messages)


def test_ranks_reduce_and_a_silent_rank_times_out_and_is_named(tmp_path: Path) -> None:
    run_processes(reduce_main, 2, tmp_path)
    assert [(tmp_path / f"reduced-{rank}").read_text() for rank in range(2)] == ["[3, -1] [0.5]"] * 2
    message = (tmp_path / "message").read_text()
    assert message.startswith("rank 0 failed receiving from rank 1: Timed out")
    assert message.endswith("(time-out 1 s); the ring must be formed anew")
