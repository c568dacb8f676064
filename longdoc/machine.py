"""What this machine, or the container around this process, has: cores and free memory.

Containers are limited by cgroups (v2), of which neither the affinity mask nor the free memory of the host knows.
"""

import math
import os
from collections.abc import Callable
from pathlib import Path

import psutil

#: Memory a run leaves alone: Ray's own processes, the readers beside the ring, and the documents they have ready.
RESERVE_BYTES = 1 << 30

_CGROUPS = Path("/sys/fs/cgroup")


def num_cores() -> int:
    """Cores this process may use: its affinity mask, and the quota of its container, rounded up."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *(cores for _, cores in _limits("cpu.max", _cores))]))


def available_bytes() -> int:
    """Memory that is free here. Files that the container has cached count as free: they make room when asked."""
    left = [limit - _used(folder) for folder, limit in _limits("memory.max", int)]
    return max(0, min([int(psutil.virtual_memory().available), *left]))


def bytes_for_a_rank(num_ranks: int) -> int:
    """What each of `num_ranks` ranks may use of it, less the reserve."""
    return max(0, available_bytes() - RESERVE_BYTES) // num_ranks


def _own_groups() -> list[Path]:
    """The cgroup folders of this process, from its own up to the root."""
    try:
        own = Path("/proc/self/cgroup").read_text().rpartition("::")[2].strip().lstrip("/")
    except OSError:
        return []
    folder = _CGROUPS / own
    return [folder, *(parent for parent in folder.parents if parent.is_relative_to(_CGROUPS))]


def _limits(name: str, parse: Callable[[str], int]) -> list[tuple[Path, int]]:
    """The limits of one kind that hold for this process, with the group that sets each."""
    found = []
    for folder in _own_groups():
        try:
            found.append((folder, parse((folder / name).read_text())))
        except (OSError, ValueError):
            # No such file in the root group; "max" where there is no limit.
            continue
    return found


def _cores(quota: str) -> int:
    microseconds, period = quota.split()
    return math.ceil(int(microseconds) / int(period))


def _used(folder: Path) -> int:
    try:
        used = int((folder / "memory.current").read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return used - int(stat.get("inactive_file", 0))
    except (OSError, ValueError):
        return 0
