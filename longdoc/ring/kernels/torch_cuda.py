"""torch's own attention on CUDA: flash (half precision, windows), memory-efficient (float32), else the readable kernel.

The ops are private to torch (signatures compared in torch 2.11 and 2.13): this file is their only door. `choose_op` is
the whole decision, pure. cuDNN's op is here for `longdoc bench gpu` alone, until a GPU has shown when it wins.
Natural log-sum-exp in float32 throughout. Grouped heads stay un-repeated in memory.
Legend: H query heads in G groups of R, T queries, S keys, D head dimension of queries and keys, E of values.
"""

from typing import Literal

import torch
from torch import Tensor

from longdoc.errors import ModelError
from longdoc.ring.kernels import check_block
from longdoc.ring.kernels.flash_attn import HALF, MAX_HEAD_DIM, in_parts
from longdoc.ring.kernels.reference import reference_kernel
from longdoc.ring.kernels.windows import WindowPart, window_parts
from longdoc.ring.mask import Band

Op = Literal["flash", "efficient", "reference"]

# aten's numbers for masks of the memory-efficient op (sdp::CustomMaskType).
_NO_MASK, _CAUSAL_FROM_BOTTOM_RIGHT = 0, 2


def choose_op(
    *, dtype: torch.dtype, head_dim: int, band: Band, num_queries: int, num_keys: int, softcap: float | None
) -> Op:
    """Which op serves a block; `head_dim` is the wider one of queries and values. None of torch's knows a softcap."""
    if softcap is not None or dtype == torch.float64:
        return "reference"
    if dtype in HALF and head_dim <= MAX_HEAD_DIM:
        return "flash"
    parts = window_parts(band, num_queries, num_keys)
    return "efficient" if all(part.is_full or part.is_causal for part in parts) else "reference"


def torch_cuda_kernel(
    q_HTD: Tensor, k_GSD: Tensor, v_GSE: Tensor, *, band: Band, scale: float, softcap: float | None = None
) -> tuple[Tensor, Tensor]:
    """Attention by the op that `choose_op` names; out in the dtype of q or wider."""
    check_block(q_HTD, k_GSD, v_GSE, band=band)
    op = choose_op(
        dtype=q_HTD.dtype,
        head_dim=max(q_HTD.shape[2], v_GSE.shape[2]),
        band=band,
        num_queries=q_HTD.shape[1],
        num_keys=k_GSD.shape[1],
        softcap=softcap,
    )
    if op == "flash":
        return in_parts(_flash, q_HTD, k_GSD, v_GSE, band=band, scale=scale, softcap=None)
    if op == "efficient":
        return _efficient_in_parts(q_HTD, k_GSD, v_GSE, band=band, scale=scale)
    return reference_kernel(q_HTD, k_GSD, v_GSE, band=band, scale=scale, softcap=softcap)


def _flash(
    q_1THD: Tensor, k_1SGD: Tensor, v_1SGD: Tensor, part: WindowPart, scale: float, softcap: float | None
) -> tuple[Tensor, Tensor]:
    """torch's copy of flash-attn 2, windows as there: (out_1THD, lse_1HT). No cumulative lengths: one dense batch."""
    left, right = (-1 if side is None else side for side in (part.left, part.right))
    out, lse, *_ = torch.ops.aten._flash_attention_forward(
        q_1THD,
        k_1SGD,
        v_1SGD,
        None,
        None,
        q_1THD.shape[1],
        k_1SGD.shape[1],
        0.0,
        part.is_causal,
        False,
        scale=scale,
        window_size_left=left,
        window_size_right=right,
    )
    return out, lse


def _efficient_in_parts(
    q_HTD: Tensor, k_GSD: Tensor, v_GSE: Tensor, *, band: Band, scale: float
) -> tuple[Tensor, Tensor]:
    outs, lses = [], []
    for part in window_parts(band, q_HTD.shape[1], k_GSD.shape[1]):
        out_HTE, lse_HT = _efficient(q_HTD[:, part.queries], k_GSD[:, part.keys], v_GSE[:, part.keys], part, scale)
        outs.append(out_HTE)
        lses.append(lse_HT)
    return torch.cat(outs, dim=1), torch.cat(lses, dim=1)


def _efficient(q_HTD: Tensor, k_GSD: Tensor, v_GSE: Tensor, part: WindowPart, scale: float) -> tuple[Tensor, Tensor]:
    """The op wants as many key heads as query heads: groups become its batch, and R a head that is expanded in place.

    Its log-sum-exp is padded to a multiple of 32 queries.
    """
    num_groups, num_keys, head_dim = k_GSD.shape
    num_heads, num_queries, _ = q_HTD.shape
    repeats = num_heads // num_groups
    q_GTRD = q_HTD.reshape(num_groups, repeats, num_queries, head_dim).transpose(1, 2)
    k_GSRD, v_GSRE = (
        tensor[:, :, None].expand(num_groups, num_keys, repeats, tensor.shape[2]) for tensor in (k_GSD, v_GSE)
    )
    out_GTRE, lse_GRT, *_ = torch.ops.aten._efficient_attention_forward(
        q_GTRD,
        k_GSRD,
        v_GSRE,
        None,
        None,
        None,
        None,
        None,
        0.0,
        _NO_MASK if part.is_full else _CAUSAL_FROM_BOTTOM_RIGHT,
        True,
        scale=scale,
    )
    return out_GTRE.transpose(1, 2).flatten(0, 1), lse_GRT[:, :, :num_queries].flatten(0, 1)


def cudnn_kernel(
    q_HTD: Tensor, k_GSD: Tensor, v_GSE: Tensor, *, band: Band, scale: float, softcap: float | None = None
) -> tuple[Tensor, Tensor]:
    """cuDNN's attention of full blocks and causal squares in half precision; refuses others with `ModelError`."""
    check_block(q_HTD, k_GSD, v_GSE, band=band)
    is_causal = band.is_causal_square(q_HTD.shape[1], k_GSD.shape[1])
    if softcap is not None or q_HTD.dtype not in HALF or not (band.is_full or is_causal):
        raise ModelError("kernel 'cudnn' computes full blocks and causal squares in half precision; use --kernel torch")
    out_1HTE, lse_1HT1, *_ = torch.ops.aten._scaled_dot_product_cudnn_attention(
        q_HTD[None], k_GSD[None], v_GSE[None], None, True, 0.0, is_causal, False, scale=scale
    )
    return out_1HTE[0], lse_1HT1.reshape(q_HTD.shape[:2])
