"""Tiles on threads: side by side, with one thread for each, and nothing else in the process notices."""

import threading
from collections.abc import Callable

import pytest
import torch

from longdoc.ring.kernels import tile_threads
from longdoc.ring.kernels.tile_threads import for_each, tiles_at_once


@pytest.mark.parametrize(
    ("num_threads", "expected"), [(1, (1, 1)), (2, (2, 1)), (16, (16, 1)), (17, (16, 1)), (32, (16, 2)), (64, (16, 4))]
)
def test_threads_beyond_16_go_into_the_tiles(
    monkeypatch: pytest.MonkeyPatch, num_threads: int, expected: tuple[int, int]
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: num_threads)
    assert tiles_at_once() == expected


def test_tiles_are_computed_side_by_side_with_one_thread_each(set_threads: Callable[[int], None]) -> None:
    set_threads(3)
    together = threading.Barrier(3)
    seen: list[tuple[int, str, int]] = []

    def compute(tile: int) -> None:
        together.wait(timeout=30)
        seen.append((tile, threading.current_thread().name, torch.get_num_threads()))

    for_each(compute, [5, 6, 7])
    assert sorted(tile for tile, _, _ in seen) == [5, 6, 7]
    assert len({name for _, name, _ in seen}) == 3
    assert [num_threads for _, _, num_threads in seen] == [1, 1, 1]


def test_the_rest_of_the_process_keeps_its_threads(set_threads: Callable[[int], None]) -> None:
    tile_threads._pool.cache_clear()
    set_threads(3)
    for_each(lambda tile: None, [1, 2])
    assert torch.get_num_threads() == 3
    later: list[int] = []
    thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert later == [3]


@pytest.mark.parametrize(("num_threads", "tiles"), [(1, [1, 2, 3]), (3, [1])])
def test_one_thread_and_one_tile_need_no_other_thread(
    set_threads: Callable[[int], None], num_threads: int, tiles: list[int]
) -> None:
    set_threads(num_threads)
    seen: list[tuple[int, threading.Thread]] = []
    for_each(lambda tile: seen.append((tile, threading.current_thread())), tiles)
    assert seen == [(tile, threading.current_thread()) for tile in tiles]


def test_what_a_tile_raises_is_raised_and_the_rest_is_left_out(set_threads: Callable[[int], None]) -> None:
    set_threads(2)
    begun: list[int] = []

    def compute(tile: int) -> None:
        begun.append(tile)
        if tile == 0:
            raise FloatingPointError("planted")
        threading.Event().wait(0.01)

    with pytest.raises(FloatingPointError, match="planted"):
        for_each(compute, range(1000))
    num_begun = len(begun)
    threading.Event().wait(0.2)
    # One that each thread had taken, and no more.
    assert len(begun) <= num_begun + 2


def test_tiles_write_into_tensors_of_inference_mode(set_threads: Callable[[int], None]) -> None:
    set_threads(2)
    with torch.inference_mode():
        result = torch.zeros(4)

        def compute(tile: int) -> None:
            result[tile] = tile

        for_each(compute, range(4))
    assert result.tolist() == [0, 1, 2, 3]
