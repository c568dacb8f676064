"""An exchange over a link that is slowed on purpose: another exchange, whose messages take latency + bytes / bandwidth.

Owns the arithmetic of the link and the waiting. Messages of one rank leave one after another over one link; they
travel while the rank computes, and a message is finished on neither side before its time. A message carries the moment
of its arrival along, as one more small message: the clock of all ranks must be the same, so a ring within one machine.
Reductions are not slowed.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from longdoc.ring.exchange import Exchange, Transfer
from longdoc.ring.exchange.wrapped import WrappedExchange


@dataclass(slots=True, kw_only=True)
class Link:
    """A link of `bytes_per_second` that carries one message at a time, each `latency_s` longer under way."""

    bytes_per_second: float
    latency_s: float = 0.0
    free_at: float = float("-inf")

    def __post_init__(self) -> None:
        if self.bytes_per_second <= 0 or self.latency_s < 0:
            raise ValueError(f"no link carries {self.bytes_per_second} bytes a second after {self.latency_s} s")

    def post(self, now: float, num_bytes: int) -> float:
        """When a message that is posted `now` has arrived, in seconds of the same clock."""
        self.free_at = max(now, self.free_at) + num_bytes / self.bytes_per_second
        return self.free_at + self.latency_s


class ShapedExchange(WrappedExchange):
    """`exchange` over a slow link. `clock` and `sleep` are those of the ranks' common time.

    With `blocking`, `start` waits for the transfers itself: the contrast, a schedule that hides nothing.
    """

    def __init__(
        self,
        exchange: Exchange,
        link: Link,
        *,
        blocking: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(exchange)
        self._link = link
        self._blocking = blocking
        self._clock, self._sleep = clock, sleep
        self._arrivals: list[torch.Tensor] = []
        self._started = False

    def start(self, sends: Sequence[Transfer], receives: Sequence[Transfer]) -> None:
        """Post all transfers, each with its moment of arrival behind it."""
        now = self._clock()
        sent = [(peer, self._stamp(now, tensor)) for peer, tensor in sends]
        received = [(peer, torch.empty(1, dtype=torch.float64)) for peer, _ in receives]
        self._arrivals = [stamp for _, stamp in (*sent, *received)]
        self._exchange.start(sends=[*sends, *sent], receives=[*receives, *received])
        self._started = True
        if self._blocking:
            self.finish()

    def _stamp(self, now: float, tensor: torch.Tensor) -> torch.Tensor:
        return torch.tensor([self._link.post(now, tensor.numel() * tensor.element_size())], dtype=torch.float64)

    def finish(self) -> None:
        """Wait for the transfers, and then until the slow link would have delivered them."""
        if self._blocking and not self._started:
            return  # `start` has waited already
        self._started = False
        self._exchange.finish()
        arrival = max((float(stamp) for stamp in self._arrivals), default=float("-inf"))
        remaining = arrival - self._clock()
        if remaining > 0:
            self._sleep(remaining)
