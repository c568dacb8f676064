"""The size of a ring on a machine, and the folders that Ray instances leave."""

import os
import subprocess
import sys

import pytest

from longdoc.cluster import local
from longdoc.cluster.placement import Capacity, RingSpec, check_fits, strategy
from longdoc.errors import CapacityError, StartError


@pytest.mark.parametrize(
    ("num_ranks", "num_cores", "cpus", "threads"),
    [(2, 2, 0.8, 1), (1, 2, 1.0, 2), (4, 2, 0.4, 1), (7, 2, 0.228, 1), (2, 16, 6.0, 8), (3, 64, 17.0, 21)],
)
def test_ranks_share_the_cores_and_leave_some_to_readers(num_ranks, num_cores, cpus, threads):
    spec = RingSpec(num_ranks=num_ranks, num_cores=num_cores)
    assert (spec.cpus_per_rank, spec.threads_per_rank) == (cpus, threads)
    assert spec.cpus_per_rank * num_ranks < num_cores
    assert spec.is_crowded == (num_ranks > num_cores)


def test_four_ranks_a_core_are_the_most():
    check_fits(RingSpec(num_ranks=8, num_cores=2))
    with pytest.raises(
        CapacityError, match=r"A ring of 13 does not fit .* 2 CPU cores, which carry at most 8 ranks"
    ) as e:
        check_fits(RingSpec(num_ranks=13, num_cores=2))
    assert "5 too many, 2 cores short. Use --ring-size 8 or less." in str(e.value)


def gpu_ring(num_ranks, num_gpus=4, num_cores=16):
    return RingSpec(num_ranks=num_ranks, num_cores=num_cores, device="cuda", num_gpus=num_gpus)


def test_a_rank_on_cuda_has_a_gpu_to_itself_and_at_most_one_core():
    assert gpu_ring(2).bundle == {"CPU": 1.0, "GPU": 1.0}
    assert gpu_ring(4, num_cores=2).bundle == {"CPU": 0.4, "GPU": 1.0}
    assert not gpu_ring(4, num_cores=2).is_crowded
    assert RingSpec(num_ranks=2, num_cores=2).bundle == {"CPU": 0.8}


def test_a_ring_of_more_ranks_than_gpus_is_refused_with_the_shortfall():
    check_fits(gpu_ring(4))
    with pytest.raises(CapacityError) as refusal:
        check_fits(gpu_ring(3, num_gpus=1))
    assert str(refusal.value) == (
        "A ring of 3 does not fit this machine: it has 1 GPU, one a rank; 2 too few. Use --ring-size 1 or less, or "
        "--device cpu."
    )


def test_ranks_stand_on_one_node_where_one_can_hold_them():
    small, large = {"CPU": 16.0, "GPU": 2.0}, {"CPU": 16.0, "GPU": 4.0}
    assert strategy(gpu_ring(4), [small, large]) == "STRICT_PACK"
    assert strategy(gpu_ring(4), [small, small]) == "PACK"
    assert strategy(gpu_ring(2), [{"CPU": 1.0, "GPU": 4.0}]) == "PACK"
    assert strategy(RingSpec(num_ranks=2, num_cores=2), [{"CPU": 2.0}]) == "STRICT_PACK"


def test_ranks_share_a_machines_memory_and_not_a_gpus():
    assert Capacity(num_bytes=90, is_shared=True)(3) == 30
    assert Capacity(num_bytes=90, is_shared=False)(3) == 90


def test_folders_of_killed_runs_are_swept_and_others_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "_temporary_folder", lambda: str(tmp_path))
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    dead = int(gone.stdout)
    kept = {f"{local._prefix()}{os.getpid()}-own", f"{local._prefix()}{dead}-kept", f"longdoc-1-{dead}-other", "other"}
    for name in {*kept, f"{local._prefix()}{dead}-left"}:
        (tmp_path / name).mkdir()
    (tmp_path / f"{local._prefix()}{dead}-kept" / "kept").touch()
    local._sweep()
    assert {path.name for path in tmp_path.iterdir()} == kept


def test_a_process_that_is_connected_to_ray_is_left_alone(monkeypatch):
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "shutdown", lambda: pytest.fail("the caller's Ray was shut down"))
    with pytest.raises(StartError, match="connected to a Ray cluster already"), local.local_ray(num_cpus=1):
        pass
