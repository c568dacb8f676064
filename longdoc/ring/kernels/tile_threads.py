"""The threads of this process on which tiles are computed: whole tiles side by side, one thread to each.

Owns the pools. torch would split each operation of a tile among its threads and wait for all of them a dozen times a
tile; next to one other busy process that takes four times as long. Python's threads compute side by side, because
torch's operations let go of the interpreter's lock.
"""

import functools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")

# More than these would wait for the interpreter's lock, which a tile holds for about a twentieth of its time; further
# threads go to torch's operations inside of each tile (not measured: no such machine was at hand).
_MAX_TILES_AT_ONCE = 16
_creating = threading.Lock()


def tiles_at_once() -> tuple[int, int]:
    """How many tiles are computed side by side, and by how many threads each, on the threads that torch may use."""
    num_threads = torch.get_num_threads()
    num_tiles = min(num_threads, _MAX_TILES_AT_ONCE)
    return num_tiles, num_threads // num_tiles


def for_each(compute: Callable[[T], None], tiles: Sequence[T]) -> None:
    """Compute all tiles, the first ones first. What one of them raises is raised, and those not begun are left out."""
    num_tiles, threads_of_each = tiles_at_once()
    if num_tiles == 1 or len(tiles) == 1:
        for tile in tiles:
            compute(tile)
        return
    with _creating:
        pool = _pool(num_tiles, threads_of_each, os.getpid())
    # A thread has its own mode, and results that the caller made in inference mode are written in that mode alone.
    compute = torch.inference_mode()(compute)
    futures = [pool.submit(compute, tile) for tile in tiles]
    try:
        for future in futures:
            future.result()
    finally:
        for future in futures:
            future.cancel()


@functools.lru_cache(maxsize=4)
def _pool(num_workers: int, threads_of_each: int, process: int) -> ThreadPoolExecutor:
    """Threads whose operations run on `threads_of_each`; of this process, for threads do not survive a fork."""
    num_threads = torch.get_num_threads()
    started = threading.Barrier(num_workers + 1)

    def initialise() -> None:
        torch.set_num_threads(threads_of_each)
        torch.get_num_threads()  # torch reads the number once a thread, here, and only then keeps it.
        started.wait()

    pool = ThreadPoolExecutor(num_workers, "longdoc-tiles", initializer=initialise)
    for _ in range(num_workers):
        pool.submit(int)
    started.wait()
    torch.set_num_threads(num_threads)  # What the workers set was also the default of threads to come.
    return pool
