"""Linear layers through oneDNN's float32 product, on processors on which torch's own is slow.

Owns which layers: plain `nn.Linear` in float32 on a CPU, among them the output head; where `outruns_mkl` says so.
Weights stay as and where they are, so names, ties and memory do not change. The check of `longdoc.model.gates`
compares with passes and logits in which no layer goes through here.
Legend: M rows, K inputs and N outputs of a layer.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from longdoc.ring.kernels.onednn import outruns_mkl, product

# More rows at once are no faster, and fewer than these are left to torch.
_BLOCKS = (1024, 512, 256, 128, 64, 32, 16)


def use_onednn(module: nn.Module) -> int:
    """Let every linear layer that can go through oneDNN do so from now on, in place, if the rule says so; how many."""
    linears = [part for part in module.modules() if _can_go(part)] if outruns_mkl() else []
    for linear in linears:
        linear.forward = partial(through_onednn, linear.forward)
    return len(linears)


def _can_go(part: nn.Module) -> bool:
    """Only what nobody changed: subclasses, wrapped layers and layers with hooks may mean something else."""
    return (
        type(part) is nn.Linear
        and "forward" not in vars(part)
        and not part._forward_hooks
        and not part._forward_pre_hooks
        and _is_ours(part.weight)
        and part.weight.is_contiguous()
    )


def through_onednn(forward: Callable[[Tensor], Tensor], input: Tensor) -> Tensor:  # noqa: A002  # as nn.Linear's
    """What the layer whose own `forward` is given makes of [..., K]: [..., N].

    It serves itself what oneDNN cannot (other dtypes, gradients), what does not fit, and the last few rows.
    """
    linear: nn.Linear = forward.__self__  # type: ignore[attr-defined]  # a bound method
    fits = _is_ours(input) and input.shape[-1] == linear.in_features
    if not fits or (torch.is_grad_enabled() and input.requires_grad):
        return forward(input)
    rows_MK = input.reshape(-1, linear.in_features).contiguous()
    out_MN = _in_blocks(forward, linear, rows_MK)
    return out_MN.view(*input.shape[:-1], linear.out_features)


def _in_blocks(forward: Callable[[Tensor], Tensor], linear: nn.Linear, rows_MK: Tensor) -> Tensor:
    """The product in blocks of rows whose numbers are powers of two.

    oneDNN compiles code for every number of rows and keeps it, up to a thousand of them: after 240 documents of
    different lengths a process would hold a gigabyte more.
    """
    num_rows, start = len(rows_MK), 0
    if num_rows in _BLOCKS:
        return product(rows_MK, linear.weight, linear.bias)
    out_MN = rows_MK.new_empty((num_rows, linear.out_features))
    for block in _BLOCKS:
        while start + block <= num_rows:
            out_MN[start : start + block] = product(rows_MK[start : start + block], linear.weight, linear.bias)
            start += block
    if start < num_rows:
        out_MN[start:] = forward(rows_MK[start:])
    return out_MN


def _is_ours(tensor: Tensor) -> bool:
    return tensor.dtype == torch.float32 and tensor.device.type == "cpu"
