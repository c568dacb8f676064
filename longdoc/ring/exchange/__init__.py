"""How the ranks of a ring reach each other: one interface, two exchanges (torch.distributed, in-process loopback).

Ranks are places in the ring, 0 to num_ranks - 1, whatever they are called elsewhere. Each send at a step has its
receive at the same step of the peer, of the same shape and dtype.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

import torch

Transfer = tuple[int, torch.Tensor]
ReduceOp = Literal["sum", "max"]


class Exchange(Protocol):
    """One rank's end. All methods raise `InfrastructureError` where a peer is lost or does not answer in time."""

    @property
    def rank(self) -> int:
        """This rank's place in the ring."""
        ...

    @property
    def num_ranks(self) -> int:
        """The size of the ring."""
        ...

    def start(self, sends: Sequence[Transfer], receives: Sequence[Transfer]) -> None:
        """Post sends and receives, as (peer, contiguous tensor), and return at once.

        `finish` must follow before the next `start`. In between, what is sent may be read but not written, and what is
        received may not be touched.
        """
        ...

    def finish(self) -> None:
        """Wait until everything that was started is done: receives are filled, sent tensors may be reused."""
        ...

    def all_reduce(self, tensor: torch.Tensor, op: ReduceOp = "sum") -> None:
        """Reduce over all ranks, in place; every rank calls it with the same shape and dtype, nothing pending."""
        ...

    def close(self) -> None:
        """Let go of everything pending, so that peers that wait for this rank fail instead of waiting. Idempotent."""
        ...
