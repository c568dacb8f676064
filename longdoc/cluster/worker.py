"""One rank of a ring, as a Ray actor.

Owns the rank's process: its threads, its process group, its copy of the model. Answers `status` from a thread of its
own while it computes. Repairs nothing: a ring that lost a rank is given up as a whole.
"""

import functools
import gc
from datetime import timedelta
from typing import Any

from longdoc.cluster.messages import ComputeJob
from longdoc.errors import ensure
from longdoc.model.local import LocalModel
from longdoc.outputs.work import RankWork
from longdoc.records import Receipt
from longdoc.reporting import Fault

#: The concurrency group that answers during compute.
HEALTH = "health"


class RingWorker:
    """Methods run one at a time, except `status`."""

    def __init__(self, num_threads: int) -> None:
        import torch

        torch.set_num_threads(num_threads)
        self._engine: Any = None
        self._mesh: Any = None
        self._exchange: Any = None
        self._status: dict[str, Any] = {"layer": 0, "hop": 0, "num_hops": 0, "beats": 0}

    def place(self) -> str:
        """The node this rank runs on; ranks are ordered by it."""
        import ray

        return str(ray.get_runtime_context().get_node_id())

    def load(self, model: LocalModel, dtype: str, kernel: str, *, check: bool) -> float | None:
        """Load the model. With `check`, prove that it can be sharded, and return the measured error."""
        import torch

        from longdoc.cluster.compute import Engine
        from longdoc.model.gates import check_shardable
        from longdoc.model.load import load_model
        from longdoc.ring.kernels import choose_kernel

        kernel_name, chosen = choose_kernel(kernel, "cpu")
        loaded = load_model(model, dtype=getattr(torch, dtype), device="cpu")
        self._engine = Engine(model=loaded, kernel=chosen, kernel_name=kernel_name)
        return check_shardable(loaded, chosen) if check else None

    def form(self, address: tuple[str, int], epoch: int, rank: int, num_ranks: int, timeout_seconds: float) -> None:
        """Meet the other ranks of this epoch and exchange one number with all of them."""
        import torch
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh

        from longdoc.ring.exchange.distributed import DistributedExchange

        timeout = timedelta(seconds=timeout_seconds)
        store = dist.TCPStore(  # type: ignore[attr-defined]  # exported, but not by name
            *address, is_master=False, timeout=timeout
        )
        dist.init_process_group(
            "gloo",
            store=dist.PrefixStore(f"ring/{epoch}", store),  # type: ignore[attr-defined]  # as above
            rank=rank,
            world_size=num_ranks,
            timeout=timeout,
        )
        # The ring is the mesh's first axis; a second one may come, so nothing asks for the world size again.
        self._mesh = init_device_mesh("cpu", (num_ranks,), mesh_dim_names=("ring",))
        self._exchange = DistributedExchange(self._mesh.get_group("ring"), timeout_s=timeout_seconds)
        total = torch.ones(1)
        self._exchange.all_reduce(total)
        ensure(int(total) == num_ranks, f"{int(total)} of {num_ranks} ranks answered")

    def compute(self, job: ComputeJob, work: RankWork) -> Receipt | Fault:
        """Run one document; see `compute_document`. After an exception this rank leaves the ring."""
        from longdoc.cluster.compute import compute_document

        self._exchange.set_timeout(job.timeout_seconds)
        self._status |= {"layer": 0, "hop": 0, "num_hops": 0}

        def report(layer: int, hop: int, num_hops: int) -> None:
            beats = self._status["beats"] + 1
            self._status = {"layer": layer, "hop": hop, "num_hops": num_hops, "beats": beats}

        def beat() -> None:
            self._status["beats"] += 1

        try:
            return compute_document(self._engine, self._exchange, job, work, report=report, beat=beat)
        except BaseException:
            # The neighbours wait for this rank: without a group they fail at once, not at their time-out.
            self._exchange.close()
            raise
        finally:
            gc.collect()

    def status(self) -> dict[str, Any]:
        """Where this rank is: layer, hop, num_hops; `beats` grows with every piece of work."""
        return dict(self._status)


@functools.cache
def worker_class() -> Any:
    """The actor class: never restarted by Ray, because a rank is only of use in a ring that was formed with it."""
    import ray

    remote = ray.remote(max_restarts=0, max_task_retries=0, concurrency_groups={HEALTH: 1})
    status = ray.method(concurrency_group=HEALTH)(RingWorker.status)
    return remote(type("RingWorker", (RingWorker,), {"status": status}))
