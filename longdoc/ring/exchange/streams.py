"""Where the transfers of one CUDA device run: on a stream of their own, ordered against compute by events alone.

A step's transfers wait for all compute enqueued before them (its buffer is filled, the other one is read), run beside
the compute enqueued after them, and the compute after `join` waits for them. The host waits for nothing in between,
but it is never more than a few pieces of work ahead of the device (`pace`): so progress is real, and a transfer that
does not end in time is noticed and named. Owns stream, events and the deadline; knows no rank and no process group.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from longdoc.errors import ensure

# Pieces of work that may be enqueued and not done. Two keep the device busy while the host plans the next.
_MAX_AHEAD = 3
_POLL_SECONDS = 50e-6


class OverdueError(RuntimeError):
    """A transfer did not end within the time-out. The message names it."""


class Waitable(Protocol):
    """Work of torch.distributed: without a time-out, NCCL's `wait` orders the current stream and returns at once."""

    def wait(self) -> Any:
        """Let the current stream wait."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Posted:
    """One step's transfers. The tensors are kept until the join: what could take their memory later comes after it."""

    name: str
    works: Sequence[Waitable]
    tensors: Sequence[torch.Tensor]
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _InFlight:
    """Transfers that were joined: the device has done them when `done` has happened."""

    name: str
    since: float
    done: Any


class TransferStream:
    """Posts the transfers of one device. `cuda` is torch.cuda, or a stand-in that keeps its order without a GPU."""

    def __init__(
        self,
        device: torch.device,
        *,
        timeout_s: float,
        cuda: Any = torch.cuda,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.timeout_s = timeout_s
        self._device, self._cuda, self._clock, self._sleep = device, cuda, clock, sleep
        self._stream = cuda.Stream(device=device)
        self._posted: _Posted | None = None
        self._in_flight: deque[_InFlight] = deque()
        self._marks: deque[Any] = deque()

    def post(self, name: str, batch: Callable[[], Sequence[Waitable]], tensors: Sequence[torch.Tensor]) -> None:
        """Start transfers once all compute enqueued so far is done. `batch` posts them and returns their work."""
        ensure(self._posted is None, "transfers were posted twice without a join")
        self._stream.wait_stream(self._cuda.current_stream(self._device))
        with self._cuda.stream(self._stream):
            works = batch()
        self._posted = _Posted(name=name, works=works, tensors=tensors, since=self._clock())

    def join(self) -> None:
        """Let compute enqueued from now on wait for the transfers posted last. Returns before they are done."""
        posted, self._posted = self._posted, None
        if posted is None:
            return
        with self._cuda.stream(self._stream):
            for work in posted.works:
                work.wait()
            done = self._stream.record_event()
        self._cuda.current_stream(self._device).wait_event(done)
        self._in_flight.append(_InFlight(name=posted.name, since=posted.since, done=done))
        self.pace()

    def pace(self) -> None:
        """Wait while the device is more than a few pieces behind. Raises `OverdueError` where a transfer is late."""
        self._marks.append(self._cuda.current_stream(self._device).record_event())
        while len(self._marks) > _MAX_AHEAD:
            self._await(self._marks[0])
            self._marks.popleft()

    def drain(self) -> None:
        """Wait until the device has done everything enqueued so far. Raises `OverdueError` where a transfer is late."""
        self._marks.append(self._cuda.current_stream(self._device).record_event())
        while self._marks:
            self._await(self._marks[0])
            self._marks.popleft()
        self._forget_done()

    @property
    def is_idle(self) -> bool:
        """Whether no transfer is under way, as far as the device can tell: one that failed answers nothing."""
        try:
            self._forget_done()
        except RuntimeError:
            return False
        return self._posted is None and not self._in_flight

    def _await(self, event: Any) -> None:
        while not event.query():
            self._forget_done()
            late = self._in_flight[0] if self._in_flight else self._posted
            if late is not None and self._clock() - late.since > self.timeout_s:
                raise OverdueError(f"{late.name}: not done in time")
            self._sleep(_POLL_SECONDS)

    def _forget_done(self) -> None:
        # Transfers of one stream end in the order in which they were posted.
        while self._in_flight and self._in_flight[0].done.query():
            self._in_flight.popleft()
