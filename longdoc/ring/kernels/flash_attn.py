"""The one door to flash-attn: version 2 (`flash-attn` 2.8) and version 4 (`flash-attn-4`), both on CUDA only.

Half precision, heads of at most 256 dimensions; windows, softcap and grouped heads are the library's own. Natural
log-sum-exp in float32, [B, H, T]. Rows without keys get +inf there: the planner makes none, and `window_parts` refuses
them. Refuses other dtypes and wider heads by name. Installs and falls back to nothing.
Legend: H query heads, G key-value heads, T queries, S keys, D head dimension of queries and keys, E of values.
Sources: flash_attn/flash_attn_interface.py at 2.8.3, flash_attn/cute/interface.py at 4.0.0 beta.
"""

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import Tensor

from longdoc.errors import ModelError, StartError
from longdoc.ring.kernels import Kernel, check_block
from longdoc.ring.kernels.windows import WindowPart, window_parts
from longdoc.ring.mask import Band

#: The dtypes that flash-attn computes in.
HALF = (torch.float16, torch.bfloat16)
MAX_HEAD_DIM = 256
#: What installs each; the kernels are called like their distributions.
_INSTALL = {"flash-attn": "pip install 'longdoc[gpu]'", "flash-attn-4": "pip install --pre flash-attn-4"}

#: One call on [1, T, H, D] tensors with heads of one size: (out_1THD, lse_1HT).
Call = Callable[[Tensor, Tensor, Tensor, WindowPart, float, float | None], tuple[Tensor, Tensor]]


def is_installed(name: str) -> bool:
    """Whether this version of flash-attn is there, found without importing it."""
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def load_flash_attn(name: str) -> Kernel:
    """The kernel of one version. Raises `StartError` saying how to install it, or why it cannot be imported."""
    if not is_installed(name):
        raise StartError(f"kernel {name!r} is not installed: {_INSTALL[name]}, or use --kernel torch")
    try:
        call = _version_2() if name == "flash-attn" else _version_4()
    except (ImportError, OSError) as error:
        # Built for another torch or another CUDA, most often.
        raise StartError(
            f"kernel {name!r} is installed but cannot be imported ({error}): install the build for torch "
            f"{torch.__version__}, or use --kernel torch"
        ) from error
    return _kernel(name, call)


def _kernel(name: str, call: Call) -> Kernel:
    def flash_attn_kernel(
        q_HTD: Tensor, k_GSD: Tensor, v_GSE: Tensor, *, band: Band, scale: float, softcap: float | None = None
    ) -> tuple[Tensor, Tensor]:
        """Attention by flash-attn; out in the dtype of q. Raises `ModelError` for what it cannot do."""
        check_block(q_HTD, k_GSD, v_GSE, band=band)
        _refuse(name, q_HTD, v_GSE)
        return in_parts(call, q_HTD, k_GSD, v_GSE, band=band, scale=scale, softcap=softcap)

    return flash_attn_kernel


def _refuse(name: str, q_HTD: Tensor, v_GSE: Tensor) -> None:
    widest = max(q_HTD.shape[2], v_GSE.shape[2])
    if q_HTD.dtype not in HALF:
        raise ModelError(f"kernel {name!r} computes in bfloat16 and float16, not in {q_HTD.dtype}; use --kernel torch")
    if widest > MAX_HEAD_DIM:
        raise ModelError(f"kernel {name!r} takes heads of {MAX_HEAD_DIM} dimensions at most, not {widest}")


def in_parts(
    call: Call, q_HTD: Tensor, k_GSD: Tensor, v_GSE: Tensor, *, band: Band, scale: float, softcap: float | None
) -> tuple[Tensor, Tensor]:
    """A block in as many calls as its band takes (one, for the blocks of full and causal layers)."""
    q_1THD, k_1SGD, v_1SGD = (tensor.transpose(0, 1)[None] for tensor in same_head_dim(q_HTD, k_GSD, v_GSE))
    outs, lses = [], []
    for part in window_parts(band, q_HTD.shape[1], k_GSD.shape[1]):
        out_1THD, lse_1HT = call(
            q_1THD[:, part.queries], k_1SGD[:, part.keys], v_1SGD[:, part.keys], part, scale, softcap
        )
        outs.append(out_1THD[0, :, :, : v_GSE.shape[2]].transpose(0, 1))
        lses.append(lse_1HT[0])
    return (outs[0], lses[0]) if len(outs) == 1 else (torch.cat(outs, dim=1), torch.cat(lses, dim=1))


# Zeros behind q and k add nothing to q·k, and zeros behind v come out as zeros, so heads may be padded.
def same_head_dim(q_HTD: Tensor, k_GSD: Tensor, v_GSE: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Heads of one size, a multiple of 8: unchanged for most models, padded for MLA (D 192, E 128) and odd sizes."""
    size = -(-max(q_HTD.shape[2], v_GSE.shape[2]) // 8) * 8
    q, k, v = (
        tensor if tensor.shape[2] == size else torch.nn.functional.pad(tensor, (0, size - tensor.shape[2]))
        for tensor in (q_HTD, k_GSD, v_GSE)
    )
    return q, k, v


def _version_2() -> Call:
    from flash_attn.flash_attn_interface import flash_attn_func

    def call(q: Tensor, k: Tensor, v: Tensor, part: WindowPart, scale: float, softcap: float | None) -> Any:
        # Infinite is -1, and "no softcap" 0. `return_attn_probs` without dropout returns the log-sum-exp and no more.
        window = tuple(-1 if side is None else side for side in (part.left, part.right))
        out, lse, _ = flash_attn_func(
            q,
            k,
            v,
            softmax_scale=scale,
            causal=part.is_causal,
            window_size=window,
            softcap=softcap or 0.0,
            return_attn_probs=True,
        )
        return out, lse

    return call


def _version_4() -> Call:
    from flash_attn.cute.interface import flash_attn_func

    def call(q: Tensor, k: Tensor, v: Tensor, part: WindowPart, scale: float, softcap: float | None) -> Any:
        out, lse = flash_attn_func(
            q,
            k,
            v,
            softmax_scale=scale,
            causal=part.is_causal,
            window_size=(part.left, part.right),
            softcap=softcap or 0.0,
            return_lse=True,
        )
        return out, lse

    return call
