"""The exchange between processes: point-to-point transfers of torch.distributed, every wait with a time-out.

Owns the process group from its construction to `close`. Sends and receives of a step are posted as one batch;
unbatched ones may wait for each other. gloo carries CPU tensors, and the host waits for it; NCCL carries CUDA tensors,
on a `TransferStream`, and only the device waits. A failed peer becomes a `PeerLostError` that names this rank and the
peer; no handle and no traceback of the failure is kept, because either one keeps the peers' connections open and lets
them hang.
"""

import gc
import re
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _abort_process_group, _set_pg_timeout

from longdoc.errors import PeerLostError, ensure
from longdoc.ring.exchange import ReduceOp, Transfer
from longdoc.ring.exchange.streams import TransferStream

# Each message between two ranks has the next tag, so that a schedule out of step times out and never delivers the
# bytes of another message. Tags return to 0 long after the messages that had them are gone.
_NUM_TAGS = 1 << 16
# NCCL's own abort may hang (nccl#863); the process is about to be killed, so nobody waits longer for it.
_ABORT_SECONDS = 5.0


class DistributedExchange:
    """One rank's end, over a process group whose ranks are the ring's, in the ring's order.

    `timeout_s` bounds each wait for a peer, compute of the peer included. `transfers` is where the transfers of CUDA
    tensors run; without it, all tensors are the CPU's.
    """

    def __init__(
        self, process_group: dist.ProcessGroup, timeout_s: float, transfers: TransferStream | None = None
    ) -> None:
        self._group: dist.ProcessGroup | None = process_group
        self._transfers = transfers
        self._rank = dist.get_rank(process_group)
        self._num_ranks = dist.get_world_size(process_group)
        self.set_timeout(timeout_s)
        self._pending: list[tuple[str, dist.Work]] = []
        self._num_messages: Counter[tuple[str, int]] = Counter()

    @property
    def rank(self) -> int:
        """This rank's place in the ring."""
        return self._rank

    @property
    def num_ranks(self) -> int:
        """The size of the ring."""
        return self._num_ranks

    def set_timeout(self, timeout_s: float) -> None:
        """Bound each further wait for a peer, in seconds. Collectives obey the group's own limit and not that of a
        single `wait` (measured with gloo), so both are set.
        """
        self._timeout_s = timeout_s
        _set_pg_timeout(timedelta(seconds=timeout_s), self._open_group())
        if self._transfers is not None:
            self._transfers.timeout_s = timeout_s

    def start(self, sends: Sequence[Transfer], receives: Sequence[Transfer]) -> None:
        """Post all sends and receives as one batch."""
        ensure(not self._pending, "start was called twice without finish")
        transfers = [("sending to", *send) for send in sends] + [("receiving from", *receive) for receive in receives]
        if not transfers:
            return
        operations = [self._operation(what, peer, tensor) for what, peer, tensor in transfers]
        names = [f"{what} rank {peer}" for what, peer, _ in transfers]
        batch = partial(dist.batch_isend_irecv, operations)
        if self._transfers is not None:
            tensors = [tensor for _, _, tensor in transfers]
            self._guarded(", ".join(names), partial(self._transfers.post, ", ".join(names), batch, tensors))
            return
        works: list[dist.Work] = []
        self._guarded(", ".join(names), lambda: works.extend(batch()))
        self._pending = list(zip(names, works, strict=True))

    def _guarded(self, what: str, action: Callable[[], object]) -> None:
        """Run `action`; a failure in it becomes a lost peer, and the failure itself is let go."""
        failure = None
        try:
            action()
        except RuntimeError as error:
            failure = _cause(error)
        if failure is not None:
            raise self._lost(what, failure)

    def _operation(self, what: str, peer: int, tensor: torch.Tensor) -> dist.P2POp:
        ensure(tensor.is_contiguous(), "only contiguous tensors can be sent or received")
        operation = dist.isend if what == "sending to" else dist.irecv
        tag = self._num_messages[what, peer] % _NUM_TAGS
        self._num_messages[what, peer] += 1
        return dist.P2POp(operation, tensor, group=self._open_group(), tag=tag, group_peer=peer)

    def finish(self) -> None:
        """Wait for each transfer, each within the time-out. On CUDA the device waits, and this returns at once."""
        if self._transfers is not None:
            self._guarded("exchanging with its neighbours", self._transfers.join)
            return
        pending, self._pending = self._pending, []
        while pending:
            name, work = pending.pop(0)
            failure = self._wait(work)
            del work
            if failure is not None:
                pending.clear()
                raise self._lost(name, failure)

    def pace(self) -> None:
        """Called after each piece of work: on CUDA it keeps the host near the device, and notices a late transfer."""
        if self._transfers is not None:
            self._guarded("exchanging with its neighbours", self._transfers.pace)

    def _wait(self, work: dist.Work) -> str | None:
        """Wait for one piece of work; what went wrong in one line, or None."""
        try:
            work.wait(timedelta(seconds=self._timeout_s))
        except RuntimeError as error:
            return _cause(error)
        return None

    def _lost(self, what: str, failure: str) -> PeerLostError:
        return PeerLostError(
            f"rank {self._rank} failed {what}: {failure} (time-out {self._timeout_s:g} s); the ring must be formed anew"
        )

    def all_reduce(self, tensor: torch.Tensor, op: ReduceOp = "sum") -> None:
        """Reduce over all ranks, in place."""
        ensure(not self._pending, "all_reduce was called between start and finish")
        reduce_op = dist.ReduceOp.SUM if op == "sum" else dist.ReduceOp.MAX
        if self._transfers is not None and tensor.device.type != "cpu":
            self._reduce_on_device(self._transfers, tensor, reduce_op)
            return
        failure = None
        try:
            work = dist.all_reduce(tensor, reduce_op, group=self._open_group(), async_op=True)
        except RuntimeError as error:
            failure = _cause(error)
        else:
            assert work is not None
            failure = self._wait(work)
            del work
        if failure is not None:
            raise self._lost(f"reducing with its {self._num_ranks - 1} peers", failure)

    def _reduce_on_device(self, transfers: TransferStream, tensor: torch.Tensor, reduce_op: Any) -> None:
        def batch() -> list[dist.Work]:
            work = dist.all_reduce(tensor, reduce_op, group=self._open_group(), async_op=True)
            assert work is not None
            return [work]

        def reduce() -> None:
            transfers.post(what, batch, [tensor])
            transfers.join()
            transfers.drain()

        what = f"reducing with its {self._num_ranks - 1} peers"
        self._guarded(what, reduce)

    def close(self) -> None:
        """Drop what is pending and destroy the process group: then the peers that wait for this rank fail at once.

        NCCL's transfers under way are aborted first, since nothing can be destroyed before they end.
        """
        self._pending.clear()
        group, self._group = self._group, None
        if group is None:
            return
        if self._transfers is not None and not self._transfers.is_idle:
            abort = threading.Thread(target=_abort_process_group, args=(group,), name="abort", daemon=True)
            abort.start()
            abort.join(_ABORT_SECONDS)
        else:
            dist.destroy_process_group(group)
        del group
        gc.collect()

    def _open_group(self) -> dist.ProcessGroup:
        if self._group is None:
            raise AssertionError("the exchange is closed")
        return self._group


def _cause(error: RuntimeError) -> str:
    """What gloo says, without the place in its source before it and the advice behind it."""
    first_line = str(error).strip().partition("\n")[0]
    return re.sub(r"^\[[^\]]*\.cc:\d+\] ", "", first_line).partition(". ")[0].rstrip(".")
