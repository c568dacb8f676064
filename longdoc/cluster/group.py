"""A formed ring: N actors that met, hold the model, and compute one document at a time.

Owns their lives: started together, killed together. A rank that dies, or a document whose ranks disagree, ends the
ring; whoever asked learns which rank and why.
"""

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

from longdoc.cluster.coordinator import start_coordinator
from longdoc.cluster.messages import ComputeJob
from longdoc.cluster.placement import RingSpec
from longdoc.cluster.worker import worker_class
from longdoc.errors import InfrastructureError, LongdocError
from longdoc.model.sources import LocalModel
from longdoc.records import Receipt
from longdoc.reporting import Fault

#: How long the ranks may take to start, load and meet.
FORM_SECONDS = 300.0
_POLL_SECONDS = 0.5
_STATUS_SECONDS = 2.0

Status = dict[str, Any]


class RingGroup:
    """A ring of Ray actors. Made by `formed_ring`."""

    def __init__(self, workers: list[Any], *, model_check_error: float | None) -> None:
        self._workers = workers
        self.model_check_error = model_check_error

    @property
    def num_ranks(self) -> int:
        """Ranks of the ring."""
        return len(self._workers)

    def compute(self, job: ComputeJob, works: list[Any], on_status: Callable[[Status], None]) -> list[Receipt] | Fault:
        """Run one document. `works` are references to each rank's work; `on_status` is called about twice a second.

        Raises `InfrastructureError` naming the rank where one fails.
        """
        pending = {
            worker.compute.remote(job, work): rank for rank, (worker, work) in enumerate(zip(self._workers, works))
        }
        results = _gather(pending, f"computing {job.display_name}", tick=lambda: self._poll(on_status))
        faults = [result for result in results if isinstance(result, Fault)]
        if faults:
            if len(faults) != len(results):
                raise InfrastructureError(f"{job.display_name}: {len(faults)} of {len(results)} ranks report a fault.")
            return faults[0]
        return results

    def _poll(self, on_status: Callable[[Status], None]) -> None:
        import ray

        references = [worker.status.remote() for worker in self._workers]
        ready, _ = ray.wait(references, num_returns=len(references), timeout=_STATUS_SECONDS)
        with contextlib.suppress(ray.exceptions.RayError):
            statuses = [ray.get(reference) for reference in ready]
            if statuses:
                on_status(min(statuses, key=lambda status: (status["layer"], status["hop"])))


@contextlib.contextmanager
def formed_ring(placement: Any, spec: RingSpec, model: LocalModel, *, dtype: str, kernel: str) -> Iterator[RingGroup]:
    """Start the ranks in a placement group, load the model, let them meet; kill them when the block ends."""
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    coordinator = start_coordinator("127.0.0.1", FORM_SECONDS)
    workers: list[Any] = []
    try:
        for bundle in range(spec.num_ranks):
            strategy = PlacementGroupSchedulingStrategy(placement, placement_group_bundle_index=bundle)
            options = worker_class().options(num_cpus=spec.cpus_per_rank, scheduling_strategy=strategy)
            workers.append(options.remote(spec.threads_per_rank))
        # Bundles come in no particular order of machines: neighbours on the ring should share one.
        places = _gather({w.place.remote(): rank for rank, w in enumerate(workers)}, "starting")
        workers = [worker for _, _, worker in sorted(zip(places, range(len(workers)), workers))]
        errors = _gather(
            {w.load.remote(model, dtype, kernel, check=rank == 0): rank for rank, w in enumerate(workers)},
            "loading the model",
        )
        address, epoch = ray.get(coordinator.address.remote(), timeout=FORM_SECONDS), secrets.randbelow(1 << 31)
        _gather(
            {w.form.remote(address, epoch, rank, spec.num_ranks, FORM_SECONDS): rank for rank, w in enumerate(workers)},
            "forming the ring",
        )
        yield RingGroup(workers, model_check_error=errors[0])
    finally:
        for actor in (*workers, coordinator):
            ray.kill(actor, no_restart=True)


def _gather(pending: dict[Any, int], doing: str, tick: Callable[[], None] | None = None) -> list[Any]:
    """The results in rank order. The first failure ends the wait; without a `tick` there is a deadline."""
    import ray

    results: dict[int, Any] = {}
    waiting, deadline = dict(pending), time.monotonic() + FORM_SECONDS
    while waiting:
        ready, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=_POLL_SECONDS)
        for reference in ready:
            rank = waiting.pop(reference)
            results[rank] = _result(reference, rank, doing)
        if waiting and tick is not None:
            tick()
        elif waiting and time.monotonic() > deadline:
            late = ", ".join(map(str, sorted(waiting.values())))
            raise InfrastructureError(f"rank {late} did not finish {doing} within {FORM_SECONDS:.0f} s.")
    return [results[rank] for rank in range(len(pending))]


def _result(reference: Any, rank: int, doing: str) -> Any:
    import ray

    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, LongdocError):
            raise error.cause from None
        raise InfrastructureError(f"rank {rank} failed while {doing}: {error.cause!r}.") from error
    except ray.exceptions.RayError as error:
        first = str(error).strip().splitlines()[0]
        raise InfrastructureError(f"rank {rank} was lost while {doing}: {first}") from None
