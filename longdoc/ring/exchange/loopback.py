"""The in-process exchange: ranks are threads, and a transfer is one copy from the sender's tensor to the receiver's.

With it one process proves a ring of any size. It keeps the schedule of the distributed exchange: a rank that waits for
a message that never comes raises instead of hanging. No process, no socket, no Ray.
"""

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from longdoc.errors import InfrastructureError, ensure
from longdoc.ring.exchange import Exchange, ReduceOp, Transfer

T = TypeVar("T")


class _WokenError(InfrastructureError):
    """Raised in ranks that only waited for the one that failed."""


class _Message:
    """A tensor that is offered by its sender until the receiver has copied it."""

    __slots__ = ("taken", "tensor")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.taken = False

    def is_taken(self) -> bool:
        return self.taken


class LoopbackRing:
    """What the ranks of one in-process ring share. `timeout_s` bounds every wait for another rank."""

    def __init__(self, num_ranks: int, *, timeout_s: float = 600.0) -> None:
        if num_ranks < 1:
            raise ValueError(f"a ring needs a rank, not {num_ranks}")
        self.num_ranks = num_ranks
        self.timeout_s = timeout_s
        self.changed = threading.Condition()
        # What follows is touched only by who holds `changed`.
        self.mail: dict[tuple[int, int], deque[_Message]] = defaultdict(deque)
        self.reductions: dict[int, list[torch.Tensor | None]] = {}
        self.num_readers: dict[int, int] = defaultdict(int)
        self._left: set[int] = set()
        self._failed: int | None = None

    def exchange(self, rank: int) -> "LoopbackExchange":
        """The end of one rank."""
        if not 0 <= rank < self.num_ranks:
            raise ValueError(f"rank {rank} is not in a ring of {self.num_ranks}")
        return LoopbackExchange(self, rank)

    def leave(self, rank: int, *, failed: bool = False) -> None:
        """Say that a rank will not answer any more; who waits for it is woken, and everybody if it failed."""
        with self.changed:
            self._left.add(rank)
            if failed and self._failed is None:
                self._failed = rank
            self.changed.notify_all()

    def wait(self, ready: Callable[[], bool], *, rank: int, peers: Sequence[int], what: str) -> None:
        """Wait (with `changed` held) until `ready`; raise if a peer has left, a rank failed or time is up."""

        def over() -> bool:
            return ready() or self._failed is not None or any(peer in self._left for peer in peers)

        in_time = self.changed.wait_for(over, self.timeout_s)
        if ready():
            return
        names = ", ".join(map(str, peers))
        if self._failed is not None:
            raise _WokenError(f"rank {rank} stopped its {what}: rank {self._failed} failed")
        cause = "has left the ring" if in_time else f"did not answer within {self.timeout_s:g} s"
        raise InfrastructureError(f"rank {rank}, {what} rank {names}: a peer {cause}; run the document again")


class LoopbackExchange:
    """One rank's end of a `LoopbackRing`; used by one thread at a time."""

    def __init__(self, ring: LoopbackRing, rank: int) -> None:
        self._ring = ring
        self._rank = rank
        self._sent: list[tuple[int, _Message]] = []
        self._receives: list[Transfer] = []
        self._num_reductions = 0
        self._started = False

    @property
    def rank(self) -> int:
        """This rank's place in the ring."""
        return self._rank

    @property
    def num_ranks(self) -> int:
        """The size of the ring."""
        return self._ring.num_ranks

    def start(self, sends: Sequence[Transfer], receives: Sequence[Transfer]) -> None:
        """Offer what is sent and remember what to receive."""
        ensure(not self._started, "start was called twice without finish")
        self._started = True
        self._receives = list(receives)
        with self._ring.changed:
            for peer, tensor in sends:
                message = _Message(tensor)
                self._ring.mail[self._rank, peer].append(message)
                self._sent.append((peer, message))
            self._ring.changed.notify_all()

    def finish(self) -> None:
        """Copy what was offered to this rank, then wait until what it offered has been copied."""
        ensure(self._started, "finish was called without start")
        for peer, tensor in self._receives:
            self._receive(peer, tensor)
        with self._ring.changed:
            for peer, message in self._sent:
                self._ring.wait(message.is_taken, rank=self._rank, peers=(peer,), what="sending to")
        self._forget()

    def _receive(self, peer: int, tensor: torch.Tensor) -> None:
        with self._ring.changed:
            mail = self._ring.mail[peer, self._rank]
            self._ring.wait(lambda: bool(mail), rank=self._rank, peers=(peer,), what="receiving from")
            message = mail.popleft()
        ensure(
            (message.tensor.shape, message.tensor.dtype) == (tensor.shape, tensor.dtype),
            f"rank {peer} sent {_shape(message.tensor)}, rank {self._rank} expects {_shape(tensor)}",
        )
        tensor.copy_(message.tensor)
        with self._ring.changed:
            message.taken = True
            self._ring.changed.notify_all()

    def all_reduce(self, tensor: torch.Tensor, op: ReduceOp = "sum") -> None:
        """Reduce over all ranks, in place and in the order of the ranks, so that all get the same bits."""
        ensure(not self._started, "all_reduce was called between start and finish")
        ring, number = self._ring, self._num_reductions
        self._num_reductions += 1
        others = tuple(peer for peer in range(ring.num_ranks) if peer != self._rank)
        with ring.changed:
            parts = ring.reductions.setdefault(number, [None] * ring.num_ranks)
            parts[self._rank] = tensor.clone()
            ring.changed.notify_all()
            missing = tuple(peer for peer in others if parts[peer] is None)
            ring.wait(lambda: all(p is not None for p in parts), rank=self._rank, peers=missing, what="reducing with")
            ring.num_readers[number] += 1
            if ring.num_readers[number] == ring.num_ranks:
                del ring.reductions[number], ring.num_readers[number]
        stacked = torch.stack([part for part in parts if part is not None])
        tensor.copy_(stacked.sum(dim=0) if op == "sum" else stacked.amax(dim=0))

    def close(self) -> None:
        """Leave the ring."""
        self._forget()
        self._ring.leave(self._rank)

    def _forget(self) -> None:
        self._sent, self._receives, self._started = [], [], False


def _shape(tensor: torch.Tensor) -> str:
    return f"{tuple(tensor.shape)} {tensor.dtype}"


def run_ranks(num_ranks: int, fn: Callable[[Exchange], T], *, timeout_s: float = 600.0) -> list[T]:
    """Run `fn` once for each rank, each in a thread of its own, and return the results in the order of the ranks.

    Threads take over the caller's gradient and inference modes, which torch keeps per thread. When a rank raises, the
    others are woken; the error of the rank that failed first is raised here.
    """
    ring = LoopbackRing(num_ranks, timeout_s=timeout_s)
    results: dict[int, T] = {}
    errors: list[BaseException] = []
    grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    def run(rank: int) -> None:
        try:
            with torch.inference_mode(inference), torch.set_grad_enabled(grad):
                results[rank] = fn(ring.exchange(rank))
        except BaseException as error:  # Every error of a rank belongs to the caller
            errors.append(error)
            ring.leave(rank, failed=True)
        else:
            ring.leave(rank)

    threads = [
        threading.Thread(target=run, args=(rank,), name=f"rank {rank}", daemon=True) for rank in range(num_ranks)
    ]
    _run_threads(threads, ring)
    if errors:
        raise next((error for error in errors if not isinstance(error, _WokenError)), errors[0])
    return [results[rank] for rank in range(num_ranks)]


def _run_threads(threads: list[threading.Thread], ring: LoopbackRing) -> None:
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException:
        # Ctrl-C arrives here: wake the ranks that wait, or they would outlive the caller.
        ring.leave(0, failed=True)
        raise
