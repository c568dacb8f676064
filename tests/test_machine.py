"""Cores and memory as the container sees them, on cgroup folders made by the test."""

from pathlib import Path

import psutil
import pytest

from longdoc import machine


@pytest.fixture
def group(tmp_path, monkeypatch):
    """This process's own cgroup, below a root that limits nothing."""
    folder = tmp_path / "slice" / "job"
    folder.mkdir(parents=True)
    monkeypatch.setattr(machine, "_CGROUPS", tmp_path)
    real = Path.read_text

    def read_text(path, *args, **kwargs):
        return "0::/slice/job\n" if str(path) == "/proc/self/cgroup" else real(path, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", read_text)
    return folder


def test_a_quota_bounds_the_cores(group):
    unlimited = machine.num_cores()
    (group / "cpu.max").write_text("150000 100000\n")
    assert machine.num_cores() == min(unlimited, 2)
    (group.parent / "cpu.max").write_text("50000 100000\n")
    assert machine.num_cores() == 1
    (group / "cpu.max").write_text("max 100000\n")
    (group.parent / "cpu.max").write_text("max 100000\n")
    assert machine.num_cores() == unlimited


def test_a_limit_bounds_the_memory_and_cached_files_count_as_free(group):
    free = psutil.virtual_memory().available
    (group / "memory.max").write_text(f"{64 << 20}\n")
    (group / "memory.current").write_text(f"{60 << 20}\n")
    (group / "memory.stat").write_text(f"anon 1\ninactive_file {20 << 20}\n")
    assert machine.available_bytes() == 24 << 20
    (group / "memory.max").write_text("max\n")
    assert machine.available_bytes() == pytest.approx(free, rel=0.2)


def test_ranks_share_what_the_reserve_leaves(monkeypatch):
    monkeypatch.setattr(machine, "available_bytes", lambda: machine.RESERVE_BYTES + 100)
    assert machine.bytes_for_a_rank(3) == 33
    monkeypatch.setattr(machine, "available_bytes", lambda: 5)
    assert machine.bytes_for_a_rank(3) == 0
