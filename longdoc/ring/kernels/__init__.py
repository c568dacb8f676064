"""The one door to attention kernels: a protocol, and the choice of a backend by name.

Legend: H query heads, G key-value heads (H is a multiple of G; heads are never repeated), T queries, S keys, D head
dimension of queries and keys, E of values (with MLA E is not D). A kernel returns the natural log-sum-exp; a backend
with another base or another convention for empty rows converts before it returns. A backend that is missing is
refused, never replaced. The names are known without torch.
"""

from typing import TYPE_CHECKING, Protocol

from longdoc.errors import StartError, ensure
from longdoc.ring.mask import Band

if TYPE_CHECKING:
    import torch

#: The names of `--kernel`, here and nowhere else.
KERNELS = ("auto", "torch", "flash-attn", "flash-attn-4", "reference")
#: Those that run on CUDA and nowhere else.
CUDA_KERNELS = ("flash-attn", "flash-attn-4")


class Kernel(Protocol):
    """Attention of a block of queries over a block of keys.

    q_HTD, k_GSD, v_GSE of one float dtype, none of them empty; every query sees a key and every key is seen. A score is
    scale · q·k, or softcap · tanh(scale · q·k / softcap) with a softcap. Returns out_HTE in the dtype of q or wider,
    and lse_HT = log Σ_s exp(score) over the visible keys in float32, or in float64 for float64.
    Raises `ModelError` by name for a feature that the kernel lacks.
    """

    def __call__(
        self,
        q_HTD: "torch.Tensor",
        k_GSD: "torch.Tensor",
        v_GSE: "torch.Tensor",
        *,
        band: Band,
        scale: float,
        softcap: float | None = None,
    ) -> "tuple[torch.Tensor, torch.Tensor]":
        """Attend."""
        ...


def choose_kernel(name: str, device: "torch.device | str", dtype: "torch.dtype | None" = None) -> tuple[str, Kernel]:
    """The kernel and the name to print for it. Raises `StartError` where it is not available.

    `auto` is torch's own; on CUDA it is flash-attn where that is installed and computes in `dtype` (None: it does).
    """
    import torch

    device_type = torch.device(device).type
    if name not in KERNELS:
        raise StartError(f"unknown kernel {name!r}: choose --kernel {', '.join(KERNELS)}")
    if name == "reference":
        from longdoc.ring.kernels.reference import reference_kernel

        return "reference", reference_kernel
    if device_type == "cuda":
        return _choose_cuda_kernel(name, dtype)
    if name in CUDA_KERNELS:
        raise StartError(f"kernel {name!r} runs on CUDA only, and the device is {device_type}; use --kernel torch")
    if device_type != "cpu":
        raise StartError(f"kernel {name!r} does not run on device {device_type!r}; use --device cpu or --device cuda")
    from longdoc.ring.kernels.torch_cpu import torch_cpu_kernel

    return "torch", torch_cpu_kernel


def _choose_cuda_kernel(name: str, dtype: "torch.dtype | None") -> tuple[str, Kernel]:
    from longdoc.ring.kernels.flash_attn import HALF, is_installed, load_flash_attn
    from longdoc.ring.kernels.torch_cuda import torch_cuda_kernel

    if name == "auto":
        name = "flash-attn" if is_installed("flash-attn") and (dtype is None or dtype in HALF) else "torch"
    return (name, torch_cuda_kernel) if name == "torch" else (name, load_flash_attn(name))


def check_block(q_HTD: "torch.Tensor", k_GSD: "torch.Tensor", v_GSE: "torch.Tensor", *, band: Band) -> None:
    """What every kernel checks first, in production too: torch's own kills the process on empty blocks."""
    num_heads, num_queries, head_dim = q_HTD.shape
    num_kv_heads, num_keys, _ = k_GSD.shape
    ensure(num_queries > 0, "a kernel was called without queries")
    ensure(num_keys > 0, "a kernel was called without keys")
    ensure(num_heads % num_kv_heads == 0, f"{num_heads} query heads are no multiple of {num_kv_heads} key-value heads")
    ensure(
        k_GSD.shape[:2] == v_GSE.shape[:2],
        f"keys {tuple(k_GSD.shape)} and values {tuple(v_GSE.shape)} differ in heads or number",
    )
    ensure(k_GSD.shape[2] == head_dim, f"queries have {head_dim} dimensions a head, keys {k_GSD.shape[2]}")
    ensure(q_HTD.dtype == k_GSD.dtype == v_GSE.dtype, "queries, keys and values differ in dtype")
    _check_band(band, num_queries, num_keys)


def _check_band(band: Band, num_queries: int, num_keys: int) -> None:
    """A row without a key has no softmax: torch's own answers 0 with a log-sum-exp of 0, which poisons a merge."""
    lower = 1 - num_queries if band.lower is None else band.lower
    upper = num_keys - 1 if band.upper is None else band.upper
    block = f"{band} of {num_queries} queries × {num_keys} keys"
    # The first and the last query are the first that find no key, and the first and the last key to be seen by none.
    ensure(upper >= 0 and lower <= num_keys - num_queries, f"a query sees no key: {block}")
    ensure(lower <= 0 and upper >= num_keys - num_queries, f"a key is seen by no query: {block}")
