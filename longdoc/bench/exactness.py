"""How exact the ring is by its size: attention alone against float64, ranks as threads of this process.

Legend: N tokens, H query heads, G key-value heads, D head dimension, M rows of a tile. An error is max|Δ| /
max|expected|. Expected is the definition of attention in float64, of the same inputs.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from longdoc.bench.report import Cell, Column, Table, Target
from longdoc.ring.exchange import Exchange
from longdoc.ring.exchange.loopback import run_ranks
from longdoc.ring.hook import RingContext
from longdoc.ring.kernels import choose_kernel
from longdoc.ring.layout import Layout
from longdoc.ring.mask import CAUSAL

RING_SIZES = (1, 2, 3, 4, 8, 16)
_HEADS, _KV_HEADS, HEAD_DIM = 4, 2, 64
_ROWS = 1024
#: Design: bounds of attention alone. bfloat16 has none: one unit in the last place of its results is 4e-3 to 8e-3.
BOUNDS = {"float64": 1e-12, "float32": 5e-6}


def draw(
    num_tokens: int, dtype: torch.dtype, *, num_heads: int = _HEADS, num_kv_heads: int = _KV_HEADS
) -> tuple[Tensor, Tensor, Tensor]:
    """q_HND, k_GND, v_GND, wide enough that the softmax is far from flat; the same values rounded to each dtype."""
    generator = torch.Generator().manual_seed(num_tokens)
    q, k, v = (
        (1.5 * torch.randn((heads, num_tokens, HEAD_DIM), generator=generator, dtype=torch.float64)).to(dtype)
        for heads in (num_heads, num_kv_heads, num_kv_heads)
    )
    return q, k, v


def whole_attention(q_HND: Tensor, k_GND: Tensor, v_GND: Tensor) -> Tensor:
    """torch's causal attention over the whole sequence: out_HND."""
    out_1HND = torch.nn.functional.scaled_dot_product_attention(
        q_HND[None], k_GND[None], v_GND[None], is_causal=True, enable_gqa=True
    )
    return out_1HND[0]


# out_i = Σ_{j <= i} softmax_j(q_i·k_j / √D) v_j.   Source: Vaswani et al., arXiv:1706.03762, equation 1.
def defined_attention(q_HND: Tensor, k_GND: Tensor, v_GND: Tensor) -> Tensor:
    """Causal attention by its definition in float64, a head and some rows at a time: out_HND."""
    q_HND, k_GND, v_GND = (tensor.double() for tensor in (q_HND, k_GND, v_GND))
    out_HND = torch.empty_like(q_HND)
    heads_in_group = len(q_HND) // len(k_GND)
    for head in range(len(q_HND)):
        k_ND, v_ND = k_GND[head // heads_in_group], v_GND[head // heads_in_group]
        for start in range(0, q_HND.shape[1], _ROWS):
            scores_MN = q_HND[head, start : start + _ROWS] @ k_ND.T * q_HND.shape[2] ** -0.5
            hidden_MN = torch.ones_like(scores_MN, dtype=torch.bool).triu(1 + start)
            weights_MN = scores_MN.masked_fill_(hidden_MN, -torch.inf).softmax(dim=1)
            out_HND[head, start : start + _ROWS] = weights_MN @ v_ND
    return out_HND


def ring_attention_whole(num_ranks: int, q_HND: Tensor, k_GND: Tensor, v_GND: Tensor) -> Tensor:
    """The same by a zigzag ring of `num_ranks` threads: out_HND in the dtype of q."""
    layout = Layout(kind="zigzag", num_tokens=q_HND.shape[1], num_ranks=num_ranks)
    kernel = choose_kernel("torch", "cpu")[1]
    out_HND = torch.empty_like(q_HND)

    def attend(exchange: Exchange) -> None:
        places_T = torch.from_numpy(layout.positions(exchange.rank))
        context = RingContext(layout=layout, exchange=exchange, kernel=kernel)
        q_HTD, k_GTD, v_GTD = (tensor[:, places_T] for tensor in (q_HND, k_GND, v_GND))
        out_HND[:, places_T] = context.attend(q_HTD, k_GTD, v_GTD, mask=CAUSAL, scale=HEAD_DIM**-0.5)

    run_ranks(num_ranks, attend)
    return out_HND


def relative_error(result: Tensor, expected: Tensor) -> float:
    """max|Δ| / max|expected|."""
    return float((result.double() - expected).abs().max() / expected.abs().max())


def exactness_table(num_tokens: int, *, report: Callable[[str], None]) -> tuple[Table, tuple[Target, ...]]:
    """Errors by dtype and ring size beside those of one call of torch's attention, and their targets."""
    rows: list[tuple[Cell, ...]] = []
    targets = []
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        report(f"error of rings, {name}")
        q, k, v = draw(num_tokens, dtype)
        expected = defined_attention(q, k, v)
        one_call = relative_error(whole_attention(q, k, v), expected)
        errors = [relative_error(ring_attention_whole(ranks, q, k, v), expected) for ranks in RING_SIZES]
        rows.append((name, one_call, *errors))
        if name in BOUNDS:
            targets.append(_target(name, max(errors)))
    sizes = [Column(name=f"P={ranks}", spec="{:.1e}") for ranks in RING_SIZES]
    columns = (Column(name="dtype"), Column(name="one call", spec="{:.1e}"), *sizes)
    title = f"Error of attention over {num_tokens:,} tokens against float64, zigzag ring of P"
    return Table(title=title, columns=columns, rows=tuple(rows)), tuple(targets)


def _target(dtype: str, error: float) -> Target:
    name = f"error of the worst ring, {dtype}"
    return Target(name=name, value=error, relation="at most", bound=BOUNDS[dtype], spec="{:.1e}")
