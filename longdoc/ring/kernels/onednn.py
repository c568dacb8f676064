"""oneDNN's matrix product on CPUs. Its operation is private to torch (checked with 2.13): this file is its only door.

For attention's tiles, whose sums are short. Linear layers stay with torch: over their long sums oneDNN is faster and
less exact (docs/log.md).
Legend: M rows, K columns of both matrices, N rows of the second.
"""

import torch


def has_onednn() -> bool:
    """Whether this torch has the operation and oneDNN beneath it."""
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]  # torch's
    return available and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def product(a_MK: torch.Tensor, b_NK: torch.Tensor, *, then: str = "none") -> torch.Tensor:
    """a bᵀ in float32, then nothing or "tanh", done while the product is in registers. Knows no gradients.

    Both in whole rows: for some that lie apart it takes 400 times as long. oneDNN compiles code for each number of rows
    (0.6 ms) and keeps up to a thousand, about 1 MB each with what lies between: ask for few.
    """
    product_MN: torch.Tensor = torch.ops.mkldnn._linear_pointwise(a_MK, b_NK, None, then, [], "")
    return product_MN
