"""Where a ring stands: one placement group of whole bundles, checked against the machine before anything waits.

On CUDA a rank has a GPU to itself; on CPUs ranks share the cores and the memory of the machine. Ray lets a group that
can never fit wait for ever, so the totals are compared first and the wait has a deadline.
"""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from longdoc.errors import CapacityError, RingError

#: More ranks than this on one core only wait for each other.
MAX_RANKS_PER_CORE = 4
#: The share of the cores that rings reserve; reading and encoding run beside them on the rest.
RING_SHARE = 0.8
#: Cores that one reading or encoding task reserves.
INGEST_CPUS = 0.2
#: Free memory of a GPU that a rank leaves alone: the CUDA context, NCCL's buffers, workspaces of matrix products, and
#: what the allocator cannot use because it is in pieces.
GPU_RESERVE_BYTES = 3 << 30

_READY_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What each rank of a ring may use, in bytes: its share of one machine's memory, or all of a GPU's."""

    num_bytes: int
    is_shared: bool

    def __call__(self, num_ranks: int) -> int:
        """Bytes for each of `num_ranks` ranks."""
        return self.num_bytes // num_ranks if self.is_shared else self.num_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RingSpec:
    """The size of a ring and what each rank gets: a share of the cores and threads to compute with, on CUDA a GPU."""

    num_ranks: int
    num_cores: int
    device: str = "cpu"
    num_gpus: int = 0

    @property
    def bundle(self) -> dict[str, float]:
        """What Ray reserves for one rank. A GPU is whole: two ranks on one would wait for each other."""
        return {"CPU": self.cpus_per_rank} | ({"GPU": 1.0} if self.device == "cuda" else {})

    @property
    def cpus_per_rank(self) -> float:
        """Cores that one rank reserves: a fraction to Ray's resolution, or, above one, a whole number as Ray wants."""
        share = RING_SHARE * self.num_cores / self.num_ranks
        if self.device == "cuda":
            # One core feeds a GPU.
            share = min(1.0, share)
        return float(int(share)) if share > 1 else int(share * 1000) / 1000

    @property
    def threads_per_rank(self) -> int:
        """Compute threads of one rank; all ranks together use every core once."""
        return max(1, self.num_cores // self.num_ranks)

    @property
    def ingest_cpus(self) -> float:
        """Cores that one reading or encoding task reserves beside the ring."""
        return INGEST_CPUS

    @property
    def most_ranks(self) -> int:
        """The largest ring that the cores, or the GPUs, carry."""
        return self.num_gpus if self.device == "cuda" else self.num_cores * MAX_RANKS_PER_CORE

    @property
    def free_nodes(self) -> tuple[dict[str, float], ...] | None:
        """What is free on each node that may hold ranks; None where that is all that Ray has."""
        return None

    @property
    def is_crowded(self) -> bool:
        """Whether ranks share cores to compute on."""
        return self.device == "cpu" and self.num_ranks > self.num_cores


def check_fits(spec: RingSpec) -> None:
    """Raise `CapacityError` naming the shortfall when the machine is too small for the ring."""
    most = spec.most_ranks
    if spec.device == "cuda" and spec.num_ranks > most:
        raise CapacityError(
            f"A ring of {spec.num_ranks} does not fit this machine: it has {_gpus(most)}, one a rank; "
            f"{spec.num_ranks - most} too few. Use --ring-size {most} or less, or --device cpu."
        )
    if spec.num_ranks > most:
        cores = -(-spec.num_ranks // MAX_RANKS_PER_CORE)
        raise CapacityError(
            f"A ring of {spec.num_ranks} does not fit this machine: it has {spec.num_cores} CPU cores, which carry at "
            f"most {most} ranks ({MAX_RANKS_PER_CORE} a core); {spec.num_ranks - most} too many, "
            f"{cores - spec.num_cores} cores short. Use --ring-size {most} or less."
        )


def _gpus(count: int) -> str:
    return f"{count} GPU{'' if count == 1 else 's'}"


def strategy(spec: RingSpec, nodes: Iterable[dict[str, float]]) -> str:
    """How Ray places the ranks, by what each node has: together on one where one can hold them, else close by."""
    needed = {resource: amount * spec.num_ranks for resource, amount in spec.bundle.items()}
    fits = any(all(node.get(resource, 0.0) >= amount for resource, amount in needed.items()) for node in nodes)
    return "STRICT_PACK" if fits else "PACK"


@contextlib.contextmanager
def reserved(spec: RingSpec) -> Iterator[Any]:
    """A placement group for one ring, removed when the block ends."""
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group

    nodes = spec.free_nodes or [node["Resources"] for node in ray.nodes() if node["Alive"]]
    group = placement_group([spec.bundle] * spec.num_ranks, strategy=strategy(spec, nodes))
    try:
        ready, _ = ray.wait([group.ready()], timeout=_READY_SECONDS)
        if not ready:
            raise RingError(
                f"No room for a ring of {spec.num_ranks} within {_READY_SECONDS:.0f} s: it needs {spec.num_ranks} × "
                f"{_amounts(spec.bundle)}, Ray has {_amounts(ray.available_resources(), only=spec.bundle)} free."
            )
        yield group
    finally:
        # Where Ray itself is gone, so is the group.
        with contextlib.suppress(ray.exceptions.RayError):
            remove_placement_group(group)


def _amounts(resources: dict[str, float], only: Iterable[str] | None = None) -> str:
    names = resources if only is None else only
    return " and ".join(f"{resources.get(name, 0.0):g} {name}" for name in names)
