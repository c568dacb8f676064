"""An exchange around another one: the base of those that change how transfers go and nothing else."""

from collections.abc import Sequence

import torch

from longdoc.ring.exchange import Exchange, ReduceOp, Transfer


class WrappedExchange:
    """Hands everything on to the exchange inside."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    @property
    def rank(self) -> int:
        """This rank's place in the ring."""
        return self._exchange.rank

    @property
    def num_ranks(self) -> int:
        """The size of the ring."""
        return self._exchange.num_ranks

    def start(self, sends: Sequence[Transfer], receives: Sequence[Transfer]) -> None:
        """Post the transfers."""
        self._exchange.start(sends, receives)

    def finish(self) -> None:
        """Wait for the transfers."""
        self._exchange.finish()

    def all_reduce(self, tensor: torch.Tensor, op: ReduceOp = "sum") -> None:
        """Reduce over all ranks, in place."""
        self._exchange.all_reduce(tensor, op)

    def close(self) -> None:
        """Close the exchange inside."""
        self._exchange.close()
