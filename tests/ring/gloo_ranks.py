"""What the processes of the gloo tests run. Kept apart so that a spawned process imports no more than it needs."""

import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from longdoc.errors import InfrastructureError
from longdoc.model.local import LocalModel
from longdoc.ring.exchange.distributed import DistributedExchange
from longdoc.ring.hook import RingContext
from longdoc.ring.kernels import choose_kernel
from longdoc.ring.layout import LAYOUTS, Layout, LayoutKind
from longdoc.ring.mask import CAUSAL, Mask

CASES: list[tuple[LayoutKind, int]] = [
    *((kind, num_tokens) for kind in LAYOUTS for num_tokens in (1, 2, 5, 97, 1000)),
    ("zigzag", 4096),
]
DTYPES = [torch.float64, torch.float32]
WIDE = 24
WINDOWED: list[tuple[LayoutKind, int, Mask]] = [
    (kind, num_tokens, mask)
    for kind in ("zigzag", "contiguous")
    for num_tokens in (1, 5, 97, 1000)
    for mask in (Mask.sliding(1), Mask.sliding(30), Mask.sliding(30, causal=False), Mask.sliding(400))
]


def open_exchange(rank: int, num_ranks: int, folder: Path, timeout_s: float) -> DistributedExchange:
    """Join the ring of this test, over the loopback address, and meet the others once."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo" if sys.platform == "linux" else "lo0"
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), num_ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=num_ranks, timeout=timedelta(seconds=120))
    group = dist.group.WORLD
    assert group is not None
    exchange = DistributedExchange(group, 120.0)
    exchange.all_reduce(torch.zeros(1))
    exchange.set_timeout(timeout_s)
    return exchange


def exact_main(rank: int, num_ranks: int, folder: Path, tiny: LocalModel | None) -> None:
    """Run every attention and every model forward on the ring and leave this rank's parts in files."""
    from ring_oracles import document, random_qkv, shard_attention, shard_logprobs, small_llama

    exchange = open_exchange(rank, num_ranks, folder, 120.0)
    kernel = choose_kernel("torch", "cpu")[1]
    models = {dtype: small_llama("longdoc_ring", dtype) for dtype in DTYPES}
    parts = {}
    for kind, num_tokens in CASES:
        layout = Layout(kind=kind, num_tokens=num_tokens, num_ranks=num_ranks)
        for dtype in DTYPES:
            q, k, v = (tensor.to(dtype) for tensor in random_qkv(num_tokens))
            attended = shard_attention(exchange, layout, kernel, (q, k, v))
            logprobs = shard_logprobs(exchange, layout, models[dtype], document(num_tokens))
            parts[kind, num_tokens, str(dtype)] = attended, logprobs
    torch.save(parts, folder / f"{rank}.pt")
    torch.save({key: _windowed_part(exchange, *key) for key in WINDOWED}, folder / f"windowed-{rank}.pt")
    if tiny is not None:
        torch.save(_tiny_parts(exchange, tiny), folder / f"tiny-{rank}.pt")
    exchange.close()
    exchange.close()
    assert not dist.is_initialized()


def _windowed_part(exchange: DistributedExchange, kind: LayoutKind, num_tokens: int, mask: Mask) -> torch.Tensor:
    """Attention with a window, whose keys travel straight to the ranks that need them, with sinks and wider values."""
    from ring_oracles import random_qkv, shard_attention

    layout = Layout(kind=kind, num_tokens=num_tokens, num_ranks=exchange.num_ranks)
    kernel = choose_kernel("torch", "cpu")[1]
    qkv = random_qkv(num_tokens, value_dim=WIDE)
    return shard_attention(exchange, layout, kernel, qkv, mask=mask, softcap=5.0, sink_H=torch.ones(4))


def _tiny_parts(exchange: DistributedExchange, tiny: LocalModel) -> dict[tuple[str, int, str], torch.Tensor]:
    from tiny_random import ring_model, shard_states

    return {
        (kind, num_tokens, str(dtype)): shard_states(
            exchange,
            Layout(kind=kind, num_tokens=num_tokens, num_ranks=exchange.num_ranks),
            ring_model(tiny, dtype),
        )
        for kind, num_tokens in CASES
        for dtype in DTYPES
    }


def reduce_main(rank: int, num_ranks: int, folder: Path) -> None:
    """Reduce, then tell a silent last rank from a slow one: it never sends, until everybody else has given up."""
    exchange = open_exchange(rank, num_ranks, folder, 1.0)
    summed, largest = torch.tensor([rank + 1, -rank]), torch.tensor([0.5 * rank])
    exchange.all_reduce(summed)
    exchange.all_reduce(largest, "max")
    (folder / f"reduced-{rank}").write_text(f"{summed.tolist()} {largest.tolist()}")
    done = folder / "done"
    if rank == num_ranks - 1:
        while not done.exists():
            time.sleep(0.05)
        return
    try:
        exchange.start(sends=[], receives=[(num_ranks - 1, torch.empty(10))])
        exchange.finish()
    except InfrastructureError as error:
        (folder / "message").write_text(str(error))
    done.touch()


def late_main(rank: int, num_ranks: int, folder: Path) -> None:
    """In the last hop of a layer the last rank takes longer than the deadline, or dies; the next layer waits for it.

    Rank 0 writes down what it is told.
    """
    from ring_oracles import random_qkv

    exchange = open_exchange(rank, num_ranks, folder, 1.0)
    layout = Layout(kind="zigzag", num_tokens=50, num_ranks=num_ranks)
    right = choose_kernel("torch", "cpu")[1]
    done, deadly = folder / "done", (folder / "deadly").exists()

    num_calls = 0

    def late_kernel(*block: torch.Tensor, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
        nonlocal num_calls
        num_calls += 1
        if num_calls == num_ranks:
            while not (deadly or done.exists()):
                time.sleep(0.05)
            os._exit(0)
        return right(*block, **options)

    last = rank == num_ranks - 1
    context = RingContext(layout=layout, exchange=exchange, kernel=late_kernel if last else right)
    positions = torch.from_numpy(layout.positions(rank))
    try:
        for _ in range(2):
            q, k, v = (tensor[:, positions] for tensor in random_qkv(50))
            context.attend(q, k, v, mask=CAUSAL, scale=0.25)
    except InfrastructureError as error:
        (folder / f"{rank}.txt").write_text(str(error))
    done.touch()
    exchange.close()


def lost_main(rank: int, num_ranks: int, folder: Path) -> None:
    """The last rank dies; the others go on until they are told, and write down what they are told."""
    exchange = open_exchange(rank, num_ranks, folder, 60.0)
    if rank == num_ranks - 1:
        os._exit(0)
    after, before = (rank + 1) % num_ranks, (rank - 1) % num_ranks
    message = None
    while message is None:
        try:
            exchange.start(sends=[(after, torch.ones(1000))], receives=[(before, torch.empty(1000))])
            exchange.finish()
        except InfrastructureError as error:
            # A traceback that is kept would keep the connection, and the next rank would wait for its time-out.
            message = f"{error}\n{error.__context__}"
    exchange.close()
    (folder / f"{rank}.txt").write_text(message)
