"""A ring on the nodes of a cluster: what each rank gets, how many a node can hold, whether the cluster has the room.

Owns that arithmetic, over what is free on each node now; nothing here asks Ray. Ranks of one ring are equal, so all
reserve what the node with the least room can give. Ranks stand together where a node has a core, or a GPU, for each;
otherwise on as few nodes as Ray finds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from longdoc.cluster.placement import MAX_RANKS_PER_CORE, RingSpec
from longdoc.errors import CapacityError

#: What a sum of fractions of a core may be off by.
_TINY = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What is free on one node. `free_bytes` is memory for ranks, `gpu_bytes` that of its fullest GPU, less reserves.

    `total_cores` and `total_gpus` are what the node has when nobody else uses it.
    """

    node_id: str
    host: str
    num_cores: float
    num_gpus: int = 0
    total_cores: float = 0.0
    total_gpus: int = 0
    free_bytes: int = 0
    gpu_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRing(RingSpec):
    """A ring whose ranks may stand on any of these nodes. `num_cores` and `num_gpus` are the sums of what is free."""

    rooms: tuple[Room, ...]

    @classmethod
    def of(cls, rooms: Sequence[Room], *, num_ranks: int, device: str) -> "ClusterRing":
        """A ring of so many ranks on nodes that have a GPU, or any core at all."""
        usable = tuple(room for room in rooms if (room.num_gpus if device == "cuda" else room.num_cores) > 0)
        return cls(
            num_ranks=num_ranks,
            num_cores=int(sum(room.num_cores for room in usable)),
            device=device,
            num_gpus=sum(room.num_gpus for room in usable),
            rooms=usable,
        )

    @property
    def share(self) -> float:
        """Cores for each rank, 0 where there is no room for all.

        Without a core for each on one node: the largest share that, over all nodes, gives every rank a place.
        """
        if self.device == "cuda":
            return min((room.num_cores / room.num_gpus for room in self.rooms), default=0.0)
        together = max((room.num_cores for room in self.rooms), default=0.0) / self.num_ranks
        if together >= 1:
            return together
        shares = {room.num_cores / seats for room in self.rooms for seats in range(1, self.num_ranks + 1)}
        fitting = (share for share in shares if sum(_seats(room, share) for room in self.rooms) >= self.num_ranks)
        return max(fitting, default=0.0)

    @property
    def cpus_per_rank(self) -> float:
        """Cores that one rank reserves: whole ones, or a fraction of one; at most one to feed a GPU."""
        share = min(1.0, self.share) if self.device == "cuda" else self.share
        return float(int(share + _TINY)) if share >= 1 else int(share * 1000) / 1000

    @property
    def threads_per_rank(self) -> int:
        """Compute threads of one rank: as many as it has cores, also on the fullest node."""
        return max(1, int(self.share + _TINY))

    @property
    def ingest_cpus(self) -> float:
        """No core: reading must go on where other jobs hold all of them."""
        return 0.0

    @property
    def most_ranks(self) -> int:
        """The largest ring that the nodes carry now."""
        if self.device == "cuda":
            return self.num_gpus
        return sum(_seats(room, 1 / MAX_RANKS_PER_CORE) for room in self.rooms)

    @property
    def free_nodes(self) -> tuple[dict[str, float], ...]:
        """What is free on each node that may hold ranks."""
        return tuple({"CPU": room.num_cores, "GPU": float(room.num_gpus)} for room in self.rooms)

    @property
    def is_crowded(self) -> bool:
        """Whether ranks share cores to compute on."""
        return self.device == "cpu" and self.share < 1 - _TINY

    def seats(self, room: Room) -> int:
        """The most ranks of this ring that Ray may put on a node."""
        if self.device == "cuda":
            return min(self.num_ranks, room.num_gpus)
        return min(self.num_ranks, _seats(room, self.cpus_per_rank)) if self.cpus_per_rank else 0

    def capacity(self, num_ranks: int) -> int:
        """Bytes that each of `num_ranks` ranks may use, on the node where they are most crowded."""
        if self.device == "cuda":
            return min((room.gpu_bytes for room in self.rooms), default=0)
        ring = ClusterRing.of(self.rooms, num_ranks=num_ranks, device=self.device)
        seated = [(room, seats) for room in self.rooms if (seats := ring.seats(room))]
        if any(seats == num_ranks for _, seats in seated):
            # They stand on one node then, whichever can hold them all.
            seated = [(room, seats) for room, seats in seated if seats == num_ranks]
        return min((room.free_bytes // seats for room, seats in seated), default=0)


def _seats(room: Room, share: float) -> int:
    return math.floor(room.num_cores / share + _TINY)


def check_size(ring: ClusterRing, nodes: Sequence[Room]) -> None:
    """Raise `CapacityError` naming the shortfall where the whole cluster, used by nobody else, is too small."""
    whole = [_emptied(room) for room in nodes]
    most = ClusterRing.of(whole, num_ranks=ring.num_ranks, device=ring.device).most_ranks
    if ring.num_ranks > most:
        raise CapacityError(
            f"{_demand(ring)}, and this cluster has {_amount(ring, whole)} on {_nodes(len(nodes))}; "
            f"ranks too many: {ring.num_ranks - most}. "
            + (f"Use --ring-size {most} or less, or a larger cluster." if most else _none(ring.device))
        )


def check_room(ring: ClusterRing, nodes: Sequence[Room]) -> None:
    """Raise `CapacityError` naming the shortfall by resource: of what the cluster has in all, else of what is free."""
    if ring.num_ranks <= ring.most_ranks:
        return
    check_size(ring, nodes)
    has, free = _amount(ring, [_emptied(room) for room in nodes]), _amount(ring, nodes)
    raise CapacityError(
        f"{_demand(ring)}, and of the cluster's {has} only {free} are free now: other jobs hold the rest. Run again "
        f"when they are done{f', or use --ring-size {ring.most_ranks} or less' if ring.most_ranks else ''}."
    )


def _demand(ring: ClusterRing) -> str:
    resource, needs = ("GPU", 1.0) if ring.device == "cuda" else ("CPU", 1 / MAX_RANKS_PER_CORE)
    return f"A ring of {ring.num_ranks} needs {ring.num_ranks * needs:g} {resource} ({needs:g} a rank)"


def _amount(ring: ClusterRing, rooms: Sequence[Room]) -> str:
    """The GPUs or cores of these, in a number."""
    return f"{sum(room.num_gpus if ring.device == 'cuda' else room.num_cores for room in rooms):g}"


def _emptied(room: Room) -> Room:
    return Room(node_id=room.node_id, host=room.host, num_cores=room.total_cores, num_gpus=room.total_gpus)


def _none(device: str) -> str:
    return (
        "Use --device cpu, or a cluster with GPUs." if device == "cuda" else "Start nodes with --num-cpus of 1 or more."
    )


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"
