"""A ring on the nodes of a cluster: shares, seats, memory, and what is said where there is no room."""

import pytest

from longdoc.cluster.placement import strategy
from longdoc.cluster.rooms import ClusterRing, Room, check_room
from longdoc.errors import CapacityError

GIB = 1 << 30


def room(cores, *, gpus=0, total=None, total_gpus=None, memory=8 * GIB, gpu_memory=0, host="10.0.0.1"):
    return Room(
        node_id=host,
        host=host,
        num_cores=cores,
        num_gpus=gpus,
        total_cores=cores if total is None else total,
        total_gpus=gpus if total_gpus is None else total_gpus,
        free_bytes=memory,
        gpu_bytes=gpu_memory,
    )


def ring(num_ranks, *rooms, device="cpu"):
    return ClusterRing.of(rooms, num_ranks=num_ranks, device=device)


@pytest.mark.parametrize(
    ("num_ranks", "cores", "cpus", "threads", "placed"),
    [
        # A core for each on one node: they stand together and share it.
        (2, [2, 2, 2], 1.0, 1, "STRICT_PACK"),
        (2, [16, 4], 8.0, 8, "STRICT_PACK"),
        (3, [16, 16], 5.0, 5, "STRICT_PACK"),
        (1, [1.8], 1.0, 1, "STRICT_PACK"),
        # Too few on each: on several, each with what the poorest of them can give.
        (3, [2, 2, 2], 2.0, 2, "PACK"),
        (4, [2, 2, 2], 1.0, 1, "PACK"),
        (3, [1, 1, 1], 1.0, 1, "PACK"),
        (5, [3, 2], 1.0, 1, "PACK"),
        # Fewer cores than ranks: fractions, on one node where there is but one.
        (8, [2, 2, 2], 0.666, 1, "PACK"),
        (3, [2], 0.666, 1, "STRICT_PACK"),
    ],
)
def test_ranks_stand_together_where_each_has_a_core_and_spread_where_not(num_ranks, cores, cpus, threads, placed):
    made = ring(num_ranks, *(room(count, host=f"10.0.0.{n}") for n, count in enumerate(cores)))
    assert (made.cpus_per_rank, made.threads_per_rank) == (cpus, threads)
    assert made.bundle == {"CPU": cpus}
    assert strategy(made, made.free_nodes) == placed
    assert sum(made.seats(entry) for entry in made.rooms) >= num_ranks
    assert made.is_crowded == (sum(map(int, cores)) < num_ranks)


def test_no_node_gets_more_threads_than_it_has_cores():
    for num_ranks in range(1, 30):
        for cores in ([1, 1], [2, 2, 2], [3, 2], [5, 1, 1], [16, 4], [7.5, 3.2]):
            made = ring(num_ranks, *map(room, cores))
            if not made.is_crowded:
                assert all(made.seats(entry) * made.threads_per_rank <= entry.num_cores for entry in made.rooms)


def test_nodes_without_free_cores_hold_no_rank():
    assert [entry.host for entry in ring(2, room(0, host="head"), room(4, host="worker")).rooms] == ["worker"]


def test_a_rank_may_use_what_it_has_where_ranks_are_most_crowded():
    rooms = room(2, memory=8 * GIB, host="a"), room(2, memory=6 * GIB, host="b"), room(1, memory=GIB, host="c")
    # Two stand on one of the nodes with two cores; it may be the one with less memory.
    assert ring(2, *rooms).capacity(2) == 3 * GIB
    # Three: one core each, so two on a or b, or one on c, which has least.
    assert ring(3, *rooms).capacity(3) == GIB
    assert ring(1, *rooms).capacity(1) == 6 * GIB, "alone on a node with two cores"


def test_gpus_are_whole_and_bring_memory_of_their_own():
    rooms = (
        room(16, gpus=2, gpu_memory=70 * GIB, host="a"),
        room(4, gpus=4, gpu_memory=40 * GIB, host="b"),
        room(64, host="c"),
    )
    made = ring(5, *rooms, device="cuda")
    assert made.bundle == {"CPU": 1.0, "GPU": 1.0}
    assert (made.most_ranks, made.threads_per_rank) == (6, 1)
    assert made.capacity(5) == 40 * GIB
    assert strategy(made, made.free_nodes) == "PACK"
    assert strategy(ring(4, *rooms, device="cuda"), made.free_nodes) == "STRICT_PACK"


def test_a_ring_that_the_cluster_can_never_hold_is_refused_with_the_shortfall():
    rooms = [room(2, host="a"), room(2, host="b"), room(2, host="c")]
    check_room(ring(24, *rooms), rooms)
    with pytest.raises(CapacityError) as refusal:
        check_room(ring(30, *rooms), rooms)
    assert str(refusal.value) == (
        "A ring of 30 needs 7.5 CPU (0.25 a rank), and this cluster has 6 on 3 nodes; ranks too many: 6. "
        "Use --ring-size 24 or less, or a larger cluster."
    )


def test_a_ring_that_other_jobs_leave_no_room_for_is_refused_with_what_is_free():
    rooms = [room(0.5, total=2, host="a"), room(0, total=2, host="b")]
    with pytest.raises(CapacityError) as refusal:
        check_room(ring(3, *rooms), rooms)
    assert str(refusal.value) == (
        "A ring of 3 needs 0.75 CPU (0.25 a rank), and of the cluster's 4 only 0.5 are free now: other jobs hold the "
        "rest. Run again when they are done, or use --ring-size 2 or less."
    )


def test_a_ring_on_gpus_is_refused_by_gpus():
    rooms = [room(8, gpus=1, total_gpus=2, host="a"), room(8, host="b")]
    with pytest.raises(CapacityError, match=r"needs 2 GPU \(1 a rank\), and of the cluster's 2 only 1 are free now"):
        check_room(ring(2, *rooms, device="cuda"), rooms)
    with pytest.raises(CapacityError, match=r"needs 3 GPU .* has 2 on 2 nodes; ranks too many: 1. Use --ring-size 2"):
        check_room(ring(3, *rooms, device="cuda"), rooms)
    with pytest.raises(CapacityError, match="Use --device cpu, or a cluster with GPUs"):
        check_room(ring(1, room(8), device="cuda"), [room(8)])
