"""The engines that `longdoc bench peers` compares: each as causal attention of one rank's tokens, behind one signature.

Every engine is called as its own documentation says, or the remark says what was done instead. One that is missing or
does not run here raises with its reason. Legend: H query heads, G key-value heads, T tokens of a rank, N tokens of the
document, D head dimension; 1HTD and the like carry a batch of one, 1THD the layout of flash-attn.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from longdoc.bench.facts import package_version
from longdoc.errors import StartError
from longdoc.ring.exchange import Exchange
from longdoc.ring.hook import RingContext
from longdoc.ring.kernels import choose_kernel
from longdoc.ring.layout import Layout, LayoutKind
from longdoc.ring.mask import CAUSAL

#: (q_HTD, k_GTD, v_GTD, scale) -> out_HTD
Attend = Callable[[Tensor, Tensor, Tensor, float], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One way to run causal attention. `make(exchange)` runs in each rank's process; no exchange where it is alone."""

    name: str
    package: str
    make: Callable[[Any], Attend]
    layout: LayoutKind
    remark: str = ""
    alone: bool = False


def _sdpa(_: Exchange | None) -> Attend:
    def attend(q_HTD: Tensor, k_GTD: Tensor, v_GTD: Tensor, scale: float) -> Tensor:
        out_1HTD = torch.nn.functional.scaled_dot_product_attention(
            q_HTD[None], k_GTD[None], v_GTD[None], is_causal=True, enable_gqa=True, scale=scale
        )
        return out_1HTD[0]

    return attend


def _longdoc(exchange: Exchange) -> Attend:
    kernel = choose_kernel("torch", "cpu")[1]
    contexts: dict[int, RingContext] = {}

    def attend(q_HTD: Tensor, k_GTD: Tensor, v_GTD: Tensor, scale: float) -> Tensor:
        num_tokens = q_HTD.shape[1] * exchange.num_ranks
        if num_tokens not in contexts:
            layout = Layout(kind="zigzag", num_tokens=num_tokens, num_ranks=exchange.num_ranks)
            contexts[num_tokens] = RingContext(layout=layout, exchange=exchange, kernel=kernel)
        return contexts[num_tokens].attend(q_HTD, k_GTD, v_GTD, mask=CAUSAL, scale=scale)

    return attend


def _context_parallel(exchange: Exchange) -> Attend:
    """The documented way: torch's own attention, called within the context manager on this rank's shard."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.experimental import context_parallel

    mesh, alone = init_device_mesh("cpu", (exchange.num_ranks,)), _sdpa(None)

    def attend(q_HTD: Tensor, k_GTD: Tensor, v_GTD: Tensor, scale: float) -> Tensor:
        positions_N = torch.arange(q_HTD.shape[1] * exchange.num_ranks)
        with context_parallel(mesh, buffers=[positions_N], buffer_seq_dims=[0]):
            return alone(q_HTD, k_GTD, v_GTD, scale)

    return attend


def _torch_ring(rotation: str) -> Callable[[Exchange], Attend]:
    """The ring loop inside of context_parallel, given torch's CPU kernel in the place of its CUDA ones."""

    def kernel(q: Tensor, k: Tensor, v: Tensor, is_causal: bool, scale: float) -> Any:
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, is_causal, scale=scale)

    def make(exchange: Exchange) -> Attend:
        import torch.distributed as dist
        from torch.distributed.tensor.experimental._context_parallel import _attention as ring

        ring.set_rotate_method(rotation)

        def attend(q_HTD: Tensor, k_GTD: Tensor, v_GTD: Tensor, scale: float) -> Tensor:
            whole: Any = ring._templated_ring_attention
            qkv = (q_HTD[None], k_GTD[None], v_GTD[None])
            out_1HTD: Tensor = whole(dist.group.WORLD, 2, kernel, *qkv, is_causal=True, scale=scale)[0]
            return out_1HTD[0]

        return attend

    return make


def _torch_ring_gather(exchange: Exchange) -> Attend:
    return _torch_ring("allgather")(exchange)


def _torch_ring_rotate(exchange: Exchange) -> Attend:
    return _torch_ring("alltoall")(exchange)


def _ring_flash_attn(exchange: Exchange) -> Attend:
    return _of_the_world("ring_flash_attn", "zigzag_ring_flash_attn_func", "ring-flash-attn")


def _yunchang(exchange: Exchange) -> Attend:
    return _of_the_world("yunchang.ring", "ring_pytorch_attn_func", "yunchang")


def _of_the_world(module: str, name: str, distribution: str) -> Attend:
    """A function with the arguments of flash-attn, over the whole process group."""
    import torch.distributed as dist

    function = _function(module, name, distribution)

    def attend(q_HTD: Tensor, k_GTD: Tensor, v_GTD: Tensor, scale: float) -> Tensor:
        qkv = map(_as_1thd, (q_HTD, k_GTD, v_GTD))
        return _as_htd(function(*qkv, softmax_scale=scale, causal=True, group=dist.group.WORLD))

    return attend


def _ring_attention_pytorch(exchange: Exchange) -> Attend:
    function = _function("ring_attention_pytorch", "ring_flash_attn", "ring-attention-pytorch")

    def attend(q_HTD: Tensor, k_GTD: Tensor, v_GTD: Tensor, scale: float) -> Tensor:
        # It scales by D^-0.5 itself, and numbers grouped heads the other way: query head r·G + g reads key head g.
        q_HTD = _swap_heads(q_HTD * (scale * q_HTD.shape[2] ** 0.5), outer=k_GTD.shape[0])
        qkv = map(_as_1thd, (q_HTD, k_GTD, v_GTD))
        out_HTD = _as_htd(function(*qkv, causal=True, ring_reduce_col=True, ring_size=exchange.num_ranks))
        return _swap_heads(out_HTD, outer=q_HTD.shape[0] // k_GTD.shape[0])

    return attend


def _swap_heads(tensor_HTD: Tensor, *, outer: int) -> Tensor:
    """Heads that are numbered outer by inner, numbered inner by outer."""
    swapped = tensor_HTD.reshape(outer, -1, *tensor_HTD.shape[1:]).transpose(0, 1)
    return swapped.reshape(tensor_HTD.shape)


def _function(module: str, name: str, distribution: str) -> Any:
    """A function of a package that may not be here. Raises `StartError` where it is not installed."""
    if package_version(distribution) is None:
        raise StartError(f"not installed: pip install {distribution}")
    return getattr(importlib.import_module(module), name)


def _as_1thd(tensor_HTD: Tensor) -> Tensor:
    return tensor_HTD.transpose(0, 1)[None].contiguous()


def _as_htd(out_1THD: Tensor) -> Tensor:
    return out_1THD[0].transpose(0, 1)


_ENGINES = (
    Engine(name="transformers sdpa", package="transformers", make=_sdpa, layout="contiguous", alone=True),
    Engine(name="longdoc", package="longdoc", make=_longdoc, layout="zigzag"),
    Engine(name="context_parallel", package="torch", make=_context_parallel, layout="zigzag"),
    Engine(
        name="context_parallel, its ring",
        package="torch",
        make=_torch_ring_gather,
        layout="zigzag",
        remark="its inner ring loop with torch's CPU kernel, all-gather (its default)",
    ),
    Engine(
        name="context_parallel, its ring, rotating",
        package="torch",
        make=_torch_ring_rotate,
        layout="zigzag",
        remark="the same with all-to-all",
    ),
    Engine(name="ring-flash-attn", package="ring-flash-attn", make=_ring_flash_attn, layout="zigzag"),
    Engine(name="yunchang", package="yunchang", make=_yunchang, layout="contiguous"),
    Engine(
        name="ring-attention-pytorch",
        package="ring-attention-pytorch",
        make=_ring_attention_pytorch,
        layout="contiguous",
        remark="its torch path; query heads reordered to its numbering",
    ),
)
ENGINES = {engine.name: engine for engine in _ENGINES}
