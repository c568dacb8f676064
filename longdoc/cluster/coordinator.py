"""The meeting point of a ring: an actor that holds a TCPStore on a port the system chose.

A port is never probed and bound later, and every epoch of a ring meets under its own prefix, so that what a dead
epoch left in the store is never read.
"""

from datetime import timedelta
from typing import Any

from longdoc.cluster.nodes import pinned


class Coordinator:
    """Holds the store for as long as the ring lives. Runs as a Ray actor that reserves no CPU."""

    def __init__(self, host: str, timeout_seconds: float) -> None:
        from torch.distributed import TCPStore  # type: ignore[attr-defined]  # exported, but not by name

        self._host = host
        self._store = TCPStore(
            host, 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=timeout_seconds)
        )

    def address(self) -> tuple[str, int]:
        """Host and port of the store."""
        return self._host, int(self._store.port)


def start_coordinator(host: str, timeout_seconds: float, *, node_id: str) -> Any:
    """Start the actor on the node whose address `host` is; returns its handle."""
    import ray

    actor = ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0)(Coordinator)
    return actor.options(scheduling_strategy=pinned(node_id)).remote(host, timeout_seconds)
