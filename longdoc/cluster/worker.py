"""One rank of a ring, as a Ray actor.

Owns the rank's process: its threads or its GPU, its process group, its copy of the model. Answers `status` from a
thread of its own while it computes. Repairs nothing: a ring that lost a rank is given up as a whole.
"""

import functools
import gc
import os
from datetime import timedelta
from typing import Any

from longdoc.cluster.messages import ComputeJob, Place
from longdoc.cluster.network import bind_gloo
from longdoc.errors import ensure
from longdoc.model.local import LocalModel
from longdoc.outputs.work import RankWork
from longdoc.records import Receipt
from longdoc.reporting import Fault

#: The concurrency group that answers during compute.
HEALTH = "health"
# Documents differ in length, and so do all tensors: without it memory is left over in pieces that nothing fits.
# Transfers are watched here, by their deadlines: NCCL's own watchdog would end the process without a word.
_CUDA_ENVIRONMENT = {"PYTORCH_ALLOC_CONF": "expandable_segments:True", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}


class RingWorker:
    """Methods run one at a time, except `status`."""

    def __init__(self, num_threads: int, device: str = "cpu") -> None:
        if device == "cuda":
            os.environ.update(_CUDA_ENVIRONMENT)
        import torch

        torch.set_num_threads(num_threads)
        # Ray shows an actor its own GPU alone, as the first one.
        self._device = torch.device("cuda", 0) if device == "cuda" else torch.device("cpu")
        if device == "cuda":
            torch.cuda.set_device(self._device)
        self._engine: Any = None
        self._mesh: Any = None
        self._exchange: Any = None
        self._status: dict[str, Any] = {"layer": 0, "hop": 0, "num_hops": 0, "beats": 0}

    def place(self) -> Place:
        """Where this rank runs."""
        import ray

        gpu = "".join(str(gpu_id) for gpu_id in ray.get_gpu_ids())
        return Place(
            node_id=ray.get_runtime_context().get_node_id(), gpu=(len(gpu), gpu), host=ray.util.get_node_ip_address()
        )

    def load(self, model: LocalModel, dtype: str, kernel: str, *, tile_bytes: int, check: bool) -> float | None:
        """Load the model. With `check`, prove that it can be sharded, and return the measured error."""
        import torch

        from longdoc.cluster.compute import Engine
        from longdoc.model.load import load_model
        from longdoc.model.proof import proved_error
        from longdoc.ring.kernels import choose_kernel

        kernel_name, chosen = choose_kernel(kernel, self._device, getattr(torch, dtype))
        loaded = load_model(model, dtype=getattr(torch, dtype), device=str(self._device), tile_bytes=tile_bytes)
        self._engine = Engine(model=loaded, kernel=chosen, kernel_name=kernel_name)
        return proved_error(loaded, chosen, kernel_name) if check else None

    def form(
        self,
        address: tuple[str, int],
        epoch: int,
        rank: int,
        num_ranks: int,
        timeout_seconds: float,
        *,
        is_one_node: bool = True,
    ) -> None:
        """Meet the other ranks of this epoch and exchange one number with all of them."""
        import torch
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh

        from longdoc.ring.exchange.distributed import DistributedExchange
        from longdoc.ring.exchange.streams import TransferStream

        bind_gloo(self.place().host, is_one_node=is_one_node)
        timeout = timedelta(seconds=timeout_seconds)
        store = dist.TCPStore(  # type: ignore[attr-defined]  # exported, but not by name
            *address, is_master=False, timeout=timeout
        )
        on_cuda = self._device.type == "cuda"
        dist.init_process_group(
            # What is summed over the ranks at the end (scores, pooled vectors) lies on the CPU in any case.
            "cpu:gloo,cuda:nccl" if on_cuda else "gloo",
            store=dist.PrefixStore(f"ring/{epoch}", store),  # type: ignore[attr-defined]  # as above
            rank=rank,
            world_size=num_ranks,
            timeout=timeout,
            device_id=self._device if on_cuda else None,
        )
        # The ring is the mesh's first axis; a second one may come, so nothing asks for the world size again.
        self._mesh = init_device_mesh(self._device.type, (num_ranks,), mesh_dim_names=("ring",))
        self._exchange = DistributedExchange(
            self._mesh.get_group("ring"),
            timeout_s=timeout_seconds,
            transfers=TransferStream(self._device, timeout_s=timeout_seconds) if on_cuda else None,
        )
        for device in dict.fromkeys((torch.device("cpu"), self._device)):
            # On CUDA this also connects all ranks: the first transfers between two of them must not be the first call.
            total = torch.ones(1, device=device)
            self._exchange.all_reduce(total)
            ensure(int(total) == num_ranks, f"{int(total)} of {num_ranks} ranks answered on {device.type}")

    def compute(self, job: ComputeJob, work: RankWork) -> Receipt | Fault:
        """Run one document; see `compute_document`. After an exception this rank leaves the ring."""
        from longdoc.cluster.compute import compute_document

        self._exchange.set_timeout(job.timeout_seconds)
        self._status |= {"layer": 0, "hop": 0, "num_hops": 0}

        def report(layer: int, hop: int, num_hops: int) -> None:
            beats = self._status["beats"] + 1
            self._status = {"layer": layer, "hop": hop, "num_hops": num_hops, "beats": beats}
            self._exchange.pace()

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
