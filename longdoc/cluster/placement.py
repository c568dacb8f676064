"""Where a ring stands: one placement group of whole bundles, checked against the machine before anything waits.

Ray lets a group that can never fit wait for ever, so the totals are compared first and the wait has a deadline.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from longdoc.errors import CapacityError, RingError

#: More ranks than this on one core only wait for each other.
MAX_RANKS_PER_CORE = 4
#: The share of the cores that rings reserve; reading and encoding run beside them on the rest.
RING_SHARE = 0.8
#: Cores that one reading or encoding task reserves.
INGEST_CPUS = 0.2

_READY_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RingSpec:
    """The size of a ring and what each rank gets: a share of the cores, and threads to compute with."""

    num_ranks: int
    num_cores: int

    @property
    def cpus_per_rank(self) -> float:
        """Cores that one rank reserves: a fraction to Ray's resolution, or, above one, a whole number as Ray wants."""
        share = RING_SHARE * self.num_cores / self.num_ranks
        return float(int(share)) if share > 1 else int(share * 1000) / 1000

    @property
    def threads_per_rank(self) -> int:
        """Compute threads of one rank; all ranks together use every core once."""
        return max(1, self.num_cores // self.num_ranks)

    @property
    def most_ranks(self) -> int:
        """The largest ring that the cores carry."""
        return self.num_cores * MAX_RANKS_PER_CORE

    @property
    def is_crowded(self) -> bool:
        """Whether ranks share cores."""
        return self.num_ranks > self.num_cores


def check_fits(spec: RingSpec) -> None:
    """Raise `CapacityError` naming the shortfall when the machine is too small for the ring."""
    most = spec.most_ranks
    if spec.num_ranks > most:
        cores = -(-spec.num_ranks // MAX_RANKS_PER_CORE)
        raise CapacityError(
            f"A ring of {spec.num_ranks} does not fit this machine: it has {spec.num_cores} CPU cores, which carry at "
            f"most {most} ranks ({MAX_RANKS_PER_CORE} a core); {spec.num_ranks - most} too many, "
            f"{cores - spec.num_cores} cores short. Use --ring-size {most} or less."
        )


@contextlib.contextmanager
def reserved(spec: RingSpec) -> Iterator[Any]:
    """A placement group for one ring, removed when the block ends."""
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group

    group = placement_group([{"CPU": spec.cpus_per_rank}] * spec.num_ranks, strategy="STRICT_PACK")
    try:
        ready, _ = ray.wait([group.ready()], timeout=_READY_SECONDS)
        if not ready:
            raise RingError(
                f"No room for a ring of {spec.num_ranks} within {_READY_SECONDS:.0f} s: it needs {spec.num_ranks} × "
                f"{spec.cpus_per_rank} CPU on one node, Ray has {ray.available_resources().get('CPU', 0.0):.1f} free."
            )
        yield group
    finally:
        # Where Ray itself is gone, so is the group.
        with contextlib.suppress(ray.exceptions.RayError):
            remove_placement_group(group)
