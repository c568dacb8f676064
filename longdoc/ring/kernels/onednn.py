"""oneDNN's matrix product on CPUs. Its operation is private to torch (checked with 2.13): this file is its only door.

Owns whether the operation is there, and the rule by which it is taken in place of torch's own product, which is MKL's.
Legend: M rows, K columns of both matrices, N rows of the second.
"""

import functools
from pathlib import Path

import torch

_CPUINFO = Path("/proc/cpuinfo")


def has_onednn() -> bool:
    """Whether this torch has the operation and oneDNN beneath it."""
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]  # torch's
    return available and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def outruns_mkl() -> bool:
    """Whether oneDNN's float32 products are to be taken wherever there is a choice: the same answer on one machine.

    True where torch multiplies with MKL and the processor has 512-bit instructions and is not Intel's: oneDNN uses them
    wherever they are, MKL on Intel's processors alone. False where the processor does not tell, as outside of Linux.
    """
    has_mkl: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]  # torch's
    return has_onednn() and has_mkl and _is_held_back(_CPUINFO)


@functools.cache
def _is_held_back(cpuinfo: Path) -> bool:
    """Whether the first processor of a /proc/cpuinfo is one on which MKL leaves the 512-bit instructions unused."""
    try:
        lines = [line.partition(":") for line in cpuinfo.read_text().splitlines()]
    except OSError:
        return False
    told = {name.strip(): value.strip() for name, _, value in reversed(lines)}
    return told.get("vendor_id", "GenuineIntel") != "GenuineIntel" and "avx512f" in told.get("flags", "").split()


def product(
    a_MK: torch.Tensor, b_NK: torch.Tensor, bias_N: torch.Tensor | None = None, *, then: str = "none"
) -> torch.Tensor:
    """a bᵀ + bias in float32, then nothing or "tanh", done while the product is in registers. Knows no gradients.

    Both in whole rows: for some that lie apart it takes 400 times as long. oneDNN compiles code for each number of rows
    (0.6 ms) and keeps up to a thousand, about 1 MB each with what lies between: ask for few.
    """
    product_MN: torch.Tensor = torch.ops.mkldnn._linear_pointwise(a_MK, b_NK, bias_N, then, [], "")
    return product_MN
