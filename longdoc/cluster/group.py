"""A formed ring: N actors that met, hold the model, and compute one document at a time.

Owns their lives: started together, watched together, killed together. A rank that dies or stands still ends the ring;
whoever asked learns which rank and why. Nothing is repaired here.
"""

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from longdoc.cluster.calls import gather, result
from longdoc.cluster.coordinator import start_coordinator
from longdoc.cluster.messages import ComputeJob, Place
from longdoc.cluster.network import meeting_host
from longdoc.cluster.placement import RingSpec
from longdoc.cluster.worker import worker_class
from longdoc.errors import RingError
from longdoc.estimate import ModelShape
from longdoc.model.local import LocalModel
from longdoc.records import Receipt
from longdoc.reporting import Fault

#: How long the ranks may take to start, and to meet; loading gets more by the size of the weights.
FORM_SECONDS = 300.0
#: Weights are read at least this fast, in bytes a second, by all ranks together.
_SLOW_DISK = 50e6
#: A rank that computes answers from another thread; one that does not for this long is stopped or swapped out.
_SILENT_SECONDS = 60.0
#: After a failure, how long the ranks have to say that they are there.
_LAST_CHANCE_SECONDS = 3.0

Status = dict[str, Any]


class RingGroup:
    """A ring of Ray actors. Made by `formed_ring`."""

    def __init__(self, workers: list[Any], places: Sequence[Place], *, model_check_error: float | None) -> None:
        self._workers = workers
        self.places = tuple(places)
        self.model_check_error = model_check_error

    @property
    def num_ranks(self) -> int:
        """Ranks of the ring."""
        return len(self._workers)

    @property
    def is_on_one_node(self) -> bool:
        """Whether all ranks stand on the same node."""
        return len({place.node_id for place in self.places}) <= 1

    def compute(self, job: ComputeJob, works: list[Any], on_status: Callable[[Status], None]) -> list[Receipt] | Fault:
        """Run one document. `works` are references to each rank's work; `on_status` is called about twice a second.

        Raises `RingError` naming the rank where one fails or stands still.
        """
        watch = _Watch(self._workers, job.display_name, stall_seconds=job.stall_seconds)
        pending = {
            worker.compute.remote(job, work): rank for rank, (worker, work) in enumerate(zip(self._workers, works))
        }
        with watch.told(), self._lost_nodes_told():
            results = gather(pending, f"computing {job.display_name}", seconds=None, tick=lambda: watch.look(on_status))
        faults = [outcome for outcome in results if isinstance(outcome, Fault)]
        if faults and len(faults) != len(results):
            raise RingError(f"{job.display_name}: only {len(faults)} of {len(results)} ranks report a fault.")
        return faults[0] if faults else results

    @contextlib.contextmanager
    def _lost_nodes_told(self) -> Iterator[None]:
        """A failure of a ring on several nodes is told with the nodes whose ranks no longer answer."""
        try:
            yield
        except RingError as error:
            if not self.is_on_one_node and (lost := self._silent()):
                ranks = ", ".join(f"rank {rank} on node {self.places[rank].host}" for rank in lost)
                error.add_note(f"No longer answering: {ranks}.")
            raise

    def _silent(self) -> list[int]:
        import ray

        asked = {worker.status.remote(): rank for rank, worker in enumerate(self._workers)}
        ready, _ = ray.wait(list(asked), num_returns=len(asked), timeout=_LAST_CHANCE_SECONDS)
        heard = set()
        for reference in ready:
            with contextlib.suppress(RingError):
                result(reference, "answering")
                heard.add(asked[reference])
        return [rank for rank in range(self.num_ranks) if rank not in heard]


class _Watch:
    """Asks every rank how far it is, one question at a time, and raises when one is silent or all stand still."""

    def __init__(self, workers: list[Any], document: str, *, stall_seconds: float) -> None:
        self._workers, self._document, self._stall_seconds = workers, document, stall_seconds
        now = time.monotonic()
        self._asked: dict[int, Any] = {}
        self._answered = dict.fromkeys(range(len(workers)), now)
        self._statuses: dict[int, Status] = {}
        self._beats: tuple[int, ...] = ()
        self._moved = now

    def look(self, on_status: Callable[[Status], None]) -> None:
        """Take the answers that came, ask again, report the rank that is least far."""
        import ray

        for rank, worker in enumerate(self._workers):
            if rank not in self._asked:
                self._asked[rank] = worker.status.remote()
        ready, _ = ray.wait(list(self._asked.values()), num_returns=len(self._asked), timeout=0)
        for rank in [rank for rank, reference in self._asked.items() if reference in ready]:
            # A rank that died fails its compute call too, and that is where it is told.
            with contextlib.suppress(RingError):
                self._statuses[rank] = result(self._asked.pop(rank), f"rank {rank}, answering")
                self._answered[rank] = time.monotonic()
        if self._statuses:
            on_status(min(self._statuses.values(), key=lambda status: (status["layer"], status["hop"])))
        self._check()

    def _check(self) -> None:
        now = time.monotonic()
        beats = tuple(status["beats"] for status in self._statuses.values())
        if beats != self._beats:
            self._beats, self._moved = beats, now
        for rank, answered in self._answered.items():
            if now - answered > _SILENT_SECONDS:
                raise RingError(f"{self._document}: rank {rank} has not answered for {_SILENT_SECONDS:.0f} s.")
        if now - self._moved > self._stall_seconds:
            raise RingError(f"{self._document}: no rank has moved for {self._stall_seconds:.0f} s.")

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """A failure of the ring in this block is told with the last piece of work that each rank is known to have done.

        A rank that is killed or stopped cannot say it, and those that wait for it are stopped before their time-out.
        """
        try:
            yield
        except RingError as error:
            if self._statuses:
                error.add_note(f"Last known to have done: {', '.join(map(self._place, sorted(self._statuses)))}.")
            raise

    def _place(self, rank: int) -> str:
        return "rank {} layer {layer}, hop {hop} of {num_hops}".format(rank, **self._statuses[rank])


@contextlib.contextmanager
def formed_ring(
    placement: Any,
    spec: RingSpec,
    model: LocalModel,
    *,
    dtype: str,
    kernel: str,
    tile_bytes: int,
    models: Mapping[str, LocalModel] | None = None,
) -> Iterator[RingGroup]:
    """Start the ranks in a placement group, load the model, let them meet; kill them when the block ends.

    `models` is the model as each node of a cluster has it, by node id; without, all ranks find it where this process
    does.
    """
    actors: list[Any] = []
    try:
        workers, places = _started(placement, spec, actors)
        node_ids = [place.node_id for place in places]
        host = meeting_host([place.host for place in places], node_ids)
        actors.append(coordinator := start_coordinator(host, FORM_SECONDS, node_id=node_ids[0]))
        errors = gather(
            {
                worker.load.remote(
                    _model_on(place, model, models), dtype, kernel, tile_bytes=tile_bytes, check=rank == 0
                ): rank
                for rank, (worker, place) in enumerate(zip(workers, places))
            },
            f"loading {model.name}",
            seconds=FORM_SECONDS + spec.num_ranks * _weight_bytes(model, dtype) / _SLOW_DISK,
        )
        address = result(coordinator.address.remote(), "the ring's meeting point", timeout=FORM_SECONDS)
        epoch = secrets.randbelow(1 << 31)
        gather(
            {
                worker.form.remote(
                    address, epoch, rank, spec.num_ranks, FORM_SECONDS, is_one_node=len(set(node_ids)) == 1
                ): rank
                for rank, worker in enumerate(workers)
            },
            "forming the ring",
            seconds=FORM_SECONDS,
        )
        yield RingGroup(workers, places, model_check_error=errors[0])
    finally:
        _kill(actors)


def _started(placement: Any, spec: RingSpec, actors: list[Any]) -> tuple[list[Any], list[Place]]:
    """The ranks' actors in ring order, by machine, then by GPU, with their places. Bundles come in no order.

    Actors are added to `actors` as they are made, for whoever ends them.
    """
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    for bundle in range(spec.num_ranks):
        strategy = PlacementGroupSchedulingStrategy(placement, placement_group_bundle_index=bundle)
        options = worker_class().options(
            num_cpus=spec.bundle["CPU"], num_gpus=spec.bundle.get("GPU", 0), scheduling_strategy=strategy
        )
        actors.append(options.remote(spec.threads_per_rank, spec.device))
    places = gather({a.place.remote(): rank for rank, a in enumerate(actors)}, "starting", seconds=FORM_SECONDS)
    order = sorted(range(len(places)), key=places.__getitem__)
    return [actors[bundle] for bundle in order], [places[bundle] for bundle in order]


def _model_on(place: Place, model: LocalModel, models: Mapping[str, LocalModel] | None) -> LocalModel:
    if models is None:
        return model
    if place.node_id not in models:
        raise RingError(f"node {place.host} joined the cluster after its nodes were checked; run again.")
    return models[place.node_id]


def _kill(actors: list[Any]) -> None:
    import ray

    for actor in actors:
        with contextlib.suppress(ray.exceptions.RayError):
            ray.kill(actor, no_restart=True)


def _weight_bytes(model: LocalModel, dtype: str) -> int:
    return model.num_parameters * ModelShape.of(model, dtype).value_bytes
