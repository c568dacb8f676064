"""Contestants: processes that stay resident, are timed one at a time, and end with the block that started them.

Owns spawning, the rendezvous of ranks over gloo on the loopback address, and the one door through which a benchmark
talks to them. No Ray: a benchmark measures the ring, not the cluster. A contestant that fails raises here, with its
own reason, and is never waited for in vain.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from longdoc.errors import InfrastructureError, LongdocError
from longdoc.ring.exchange import Exchange

#: What a rank answers with: called with the arguments of `Contestant.call`.
Handler = Callable[..., Any]
#: Makes a rank's handler, in the rank's process; a module-level function. The exchange is None without a ring.
Build = Callable[..., Handler]
Name = TypeVar("Name")

#: No call of a benchmark takes longer; a rank that does not answer by then is stuck.
CALL_SECONDS = 1800.0

_TCP_INFO_SIZE, _BYTES_SENT = 256, 200


class Contestant:
    """`num_ranks` processes of `num_threads` threads each, that run `build(exchange, *arguments)` and then answer.

    With `ring`, they form a gloo ring and each gets its exchange. Raises `InfrastructureError` where a process ends or
    does not answer, and whatever `LongdocError` a process raises itself.
    """

    def __init__(
        self, name: str, build: Build, *arguments: object, num_ranks: int = 1, num_threads: int = 1, ring: bool = False
    ) -> None:
        self.name = name
        self._folder = tempfile.TemporaryDirectory(prefix="longdoc-bench-")
        context = multiprocessing.get_context("spawn")
        pipes = [context.Pipe() for _ in range(num_ranks)]
        self._connections = [ours for ours, _ in pipes]
        seats = [
            (rank, num_ranks, num_threads, f"{self._folder.name}/store" if ring else None) for rank in range(num_ranks)
        ]
        self._processes = [
            context.Process(target=_serve, args=(theirs, seat, build, arguments), daemon=True, name=f"{name} {seat[0]}")
            for (_, theirs), seat in zip(pipes, seats, strict=True)
        ]
        for process in self._processes:
            process.start()
        for _, theirs in pipes:
            theirs.close()
        try:
            self._answers()
        except BaseException:
            self.close()
            raise

    def call(self, *arguments: object) -> list[Any]:
        """Have every rank do one thing, and return their answers in the order of the ranks."""
        for connection in self._connections:
            connection.send(arguments)
        return self._answers()

    def seconds(self, *arguments: object) -> float:
        """Wall time of one call, until the last rank has answered."""
        started = time.perf_counter()
        self.call(*arguments)
        return time.perf_counter() - started

    def _answers(self) -> list[Any]:
        answers: dict[int, Any] = {}
        deadline = time.monotonic() + CALL_SECONDS
        while len(answers) < len(self._connections):
            pending = [c for rank, c in enumerate(self._connections) if rank not in answers]
            ready = wait(pending, timeout=deadline - time.monotonic())
            if not ready:
                raise InfrastructureError(f"{self.name} did not answer within {CALL_SECONDS:g} s; measure less")
            for connection in ready:
                rank = self._connections.index(connection)  # type: ignore[arg-type]  # only connections were waited for
                answers[rank] = self._receive(rank)
        return [answers[rank] for rank in range(len(self._connections))]

    def _receive(self, rank: int) -> Any:
        try:
            done, answer = self._connections[rank].recv()
        except EOFError:
            self._processes[rank].join(timeout=10)
            code = self._processes[rank].exitcode
            hint = " (killed, perhaps for want of memory: measure fewer tokens)" if code == -signal.SIGKILL else ""
            raise InfrastructureError(f"{self.name}: the process of rank {rank} ended with code {code}{hint}") from None
        if not done:
            raise answer
        return answer

    def close(self) -> None:
        """End the processes. Idempotent."""
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            if process.is_alive():
                process.terminate()
            process.join(timeout=10)
        self._folder.cleanup()

    def __enter__(self) -> "Contestant":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def interleaved(
    contestants: Mapping[Name, Callable[[], float]], repeats: int, report: Callable[[Name, int, float], None]
) -> dict[Name, list[float]]:
    """Time each contestant `repeats` times, in turns, so that whatever else the machine does meets all alike."""
    seconds: dict[Name, list[float]] = {name: [] for name in contestants}
    for repeat in range(repeats):
        for name, run in contestants.items():
            seconds[name].append(run())
            report(name, repeat, seconds[name][-1])
    return seconds


def ratio(seconds: Sequence[float], against: Sequence[float]) -> float:
    """The ratio of two medians."""
    return median(seconds) / median(against)


def _serve(
    connection: Connection, seat: tuple[int, int, int, str | None], build: Build, arguments: Sequence[object]
) -> None:
    """The life of a rank's process: join, build, answer until the other end is closed."""
    # Ctrl-C goes to the whole process group; the parent ends its processes itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with _joined(*seat) as exchange:
            handle = build(exchange, *arguments)
            connection.send((True, None))
            for message in _messages(connection):
                connection.send((True, handle(*message)))
    except BrokenPipeError:
        return
    except Exception as error:  # whatever a library under test raises is a result of the benchmark
        with contextlib.suppress(OSError):
            connection.send((False, _sendable(error)))


def _messages(connection: Connection) -> Iterator[Any]:
    while True:
        try:
            yield connection.recv()
        except EOFError:
            return


def _sendable(error: Exception) -> LongdocError:
    """The error as one that the parent can show: its type, and the first sentence of what a library says at length."""
    if isinstance(error, LongdocError):
        return error
    sentences = [line.strip().partition(". ")[0] for line in str(error).splitlines() if line.strip()]
    return InfrastructureError(": ".join([type(error).__name__, *sentences[:1]]))


@contextlib.contextmanager
def _joined(rank: int, num_ranks: int, num_threads: int, store: str | None) -> Iterator[Exchange | None]:
    """This process as one rank: its threads and, where there is a ring, its exchange, closed at the end."""
    import torch

    torch.set_num_threads(num_threads)
    if store is None:
        yield None
        return
    import torch.distributed as dist

    from longdoc.ring.exchange.distributed import DistributedExchange

    os.environ["GLOO_SOCKET_IFNAME"] = "lo" if sys.platform == "linux" else "lo0"
    timeout = timedelta(seconds=CALL_SECONDS)
    meeting = dist.FileStore(store, num_ranks)  # type: ignore[attr-defined]  # exported, but not by name
    dist.init_process_group("gloo", store=meeting, rank=rank, world_size=num_ranks, timeout=timeout)
    group = dist.group.WORLD
    assert isinstance(group, dist.ProcessGroup)
    exchange = DistributedExchange(group, CALL_SECONDS)
    try:
        exchange.all_reduce(torch.zeros(1))
        yield exchange
    finally:
        exchange.close()


def sent_bytes() -> int | None:
    """What this process has sent over all its TCP connections so far, as the kernel counts it; Linux only, else None.

    tcp(7), TCP_INFO: since Linux 4.19 tcpi_bytes_sent is a 64-bit number at offset 200. It counts the bytes of every
    library alike: headers and barriers too, and nothing that stays inside the process.
    """
    if sys.platform != "linux":
        return None
    import socket

    total = 0
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError, ValueError), socket.socket(fileno=os.dup(int(entry.name))) as found:
            if found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM:
                info = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_SIZE)
                if len(info) < _BYTES_SENT + 8:
                    return None
                total += int.from_bytes(info[_BYTES_SENT : _BYTES_SENT + 8], sys.byteorder)
    return total
