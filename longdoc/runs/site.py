"""Where a run computes: on this machine alone, or on a Ray cluster that it joins.

Owns what differs between the two: how large a ring may be, what must be checked before documents are read, whether Ray
is started or was joined, and which rates are known. The rest of a run is the same.
"""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from longdoc.cluster.local import local_ray
from longdoc.cluster.nodes import Node, alive_nodes, free_resources
from longdoc.cluster.placement import RingSpec, check_fits
from longdoc.cluster.preflight import NodeFacts, check_model, check_shared, check_software
from longdoc.cluster.remote import joined
from longdoc.cluster.rooms import ClusterRing, Room, check_room, check_size
from longdoc.config import RunConfig
from longdoc.errors import StartError
from longdoc.forecasting.calibration import known_rates
from longdoc.forecasting.costs import Rates
from longdoc.model.local import LocalModel
from longdoc.reporting import Reporter
from longdoc.runs.setup import ring_spec

#: How long cores and GPUs that another run has just let go may take to count as free, in seconds.
_SETTLE_SECONDS = 4.0


class Site(Protocol):
    """Where a run computes."""

    def settled(self, config: RunConfig) -> RunConfig:
        """The configuration with the device decided."""

    def ring(self, config: RunConfig) -> RingSpec:
        """The ring that was asked for. Raises `CapacityError` where there is no room for it."""

    def models(self, config: RunConfig, model: LocalModel) -> Mapping[str, LocalModel] | None:
        """The model as each node has it, by node id; None where there is one place. Raises `ModelError`."""

    def rates(self, config: RunConfig, model: LocalModel, ring: RingSpec) -> Rates | None:
        """What is known of the speed here."""

    def ray(self, ring: RingSpec) -> contextlib.AbstractContextManager[None]:
        """Ray, running inside the block."""


@contextlib.contextmanager
def site_of(config: RunConfig, reporter: Reporter) -> Iterator[Site]:
    """The place that the configuration names; a cluster is joined and checked, and left when the block ends.

    Raises `StartError` where the cluster cannot be joined or its nodes differ, `OutputError` where they do not share
    the output.
    """
    if config.address is None:
        yield ThisMachine()
        return
    with joined(config.address) as address:
        nodes = alive_nodes()
        facts = check_software(nodes)
        nodes = [node for node in nodes if node.node_id in facts]
        site = Cluster(address=address, nodes=tuple(nodes), facts=facts)
        check_shared(config.output, nodes)
        reporter.note(site.told())
        yield site


@dataclass(frozen=True, slots=True, kw_only=True)
class ThisMachine:
    """This machine: Ray is started for the run, when there is something to compute, and stopped with it."""

    def settled(self, config: RunConfig) -> RunConfig:
        """As it is: `auto` is what torch sees here."""
        return config

    def ring(self, config: RunConfig) -> RingSpec:
        """The ring that was asked for, on this machine's cores or GPUs. Raises `CapacityError`."""
        ring = ring_spec(config)
        check_fits(ring)
        return ring

    def models(self, config: RunConfig, model: LocalModel) -> None:
        """All ranks find the model where this process does."""

    def rates(self, config: RunConfig, model: LocalModel, ring: RingSpec) -> Rates | None:
        """What was measured here before."""
        return known_rates(model, dtype=config.resolved_dtype, kernel=config.kernel, ring=ring)

    def ray(self, ring: RingSpec) -> contextlib.AbstractContextManager[None]:
        """An embedded Ray instance of the ring's size."""
        return local_ray(num_cpus=ring.num_cores, num_gpus=ring.num_gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A running cluster that this process has joined, its nodes and what each said of itself."""

    address: str
    nodes: Sequence[Node]
    facts: Mapping[str, NodeFacts] = field(repr=False)

    def settled(self, config: RunConfig) -> RunConfig:
        """`auto` is CUDA where a node has a GPU. Raises `StartError` for CUDA where none has."""
        has_gpus = any(node.resources.get("GPU", 0) >= 1 for node in self.nodes)
        if config.device == "cuda" and not has_gpus:
            raise StartError(f"--device cuda: no node of the cluster at {self.address} has a GPU; use --device cpu.")
        if config.device != "auto":
            return config
        return replace(config, device="cuda" if has_gpus else "cpu")

    def ring(self, config: RunConfig) -> RingSpec:
        """The ring that was asked for, on what is free now. Raises `CapacityError` with the shortfall."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        while True:
            rooms = self.rooms()
            ring = ClusterRing.of(rooms, num_ranks=config.resolved_ring_size, device=config.resolved_device)
            if ring.num_ranks <= ring.most_ranks or time.monotonic() > deadline:
                check_room(ring, rooms)
                return ring
            time.sleep(0.2)

    def check_size(self, config: RunConfig) -> None:
        """Raise `CapacityError` where the ring that was asked for is larger than the cluster, whoever uses it now."""
        rooms = self.rooms()
        check_size(ClusterRing.of(rooms, num_ranks=config.resolved_ring_size, device=config.resolved_device), rooms)

    def rooms(self) -> list[Room]:
        """What is free on each node."""
        free = free_resources()
        return [room_of(node, free.get(node.node_id, {}), self.facts[node.node_id]) for node in self.nodes]

    def models(self, config: RunConfig, model: LocalModel) -> Mapping[str, LocalModel]:
        """The model as each node has it; fetched by its name where it is not there. Raises `ModelError`."""
        return check_model(config.model, model, self.nodes)

    def rates(self, config: RunConfig, model: LocalModel, ring: RingSpec) -> None:
        """None: rates are measured on one machine, for that machine."""

    def ray(self, ring: RingSpec) -> contextlib.AbstractContextManager[None]:
        """It runs already."""
        return contextlib.nullcontext()

    def told(self) -> str:
        """The cluster in a line."""
        cpus = sum(node.resources.get("CPU", 0) for node in self.nodes)
        gpus = sum(node.resources.get("GPU", 0) for node in self.nodes)
        count = len(self.nodes)
        return (
            f"Ray cluster at {self.address}: {count} node{'' if count == 1 else 's'}, {cpus:g} CPUs, {gpus:g} GPUs; "
            f"sources are read on {self.nodes[0].host}"
        )


def room_of(node: Node, free: Mapping[str, float], facts: NodeFacts) -> Room:
    """What is free on a node: what Ray counts, and no more cores than the machine has."""
    return Room(
        node_id=node.node_id,
        host=node.host,
        num_cores=min(free.get("CPU", 0.0), float(facts.num_cores)),
        num_gpus=int(free.get("GPU", 0)),
        total_cores=min(node.resources.get("CPU", 0.0), float(facts.num_cores)),
        total_gpus=int(node.resources.get("GPU", 0)),
        free_bytes=facts.free_bytes,
        gpu_bytes=facts.gpu_bytes,
    )
