"""Blocks of attention by their definition, in float64 with numpy: nothing online, nothing in tiles.

Legend: H query heads, G key-value heads, T queries, S keys, D head dimension of queries and keys, E of values.
"""

import numpy as np
import numpy.typing as npt
import torch

from longdoc.ring.mask import Band

Float64s = npt.NDArray[np.float64]


def random_block(
    num_queries: int,
    num_keys: int,
    dtype: torch.dtype,
    heads: tuple[int, int] = (4, 2),
    head_dims: tuple[int, int] = (16, 16),
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q_HTD, k_GSD and v_GSE, wide enough that the softmax is far from flat."""
    generator = torch.Generator().manual_seed(1000 * num_queries + num_keys)
    shapes = (
        (heads[0], num_queries, head_dims[0]),
        (heads[1], num_keys, head_dims[0]),
        (heads[1], num_keys, head_dims[1]),
    )
    q, k, v = (1.5 * torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return q.to(dtype), k.to(dtype), v.to(dtype)


def visible(band: Band, num_queries: int, num_keys: int) -> npt.NDArray[np.bool_]:
    """What a band shows: bool [T, S]."""
    ahead_TS = np.arange(num_keys)[None, :] - np.arange(num_queries)[:, None]
    shown_TS = np.ones(ahead_TS.shape, dtype=np.bool_)
    if band.lower is not None:
        shown_TS &= ahead_TS >= band.lower
    if band.upper is not None:
        shown_TS &= ahead_TS <= band.upper
    return shown_TS


def block_by_definition(
    q_HTD: torch.Tensor,
    k_GSD: torch.Tensor,
    v_GSE: torch.Tensor,
    band: Band,
    scale: float,
    softcap: float | None = None,
) -> tuple[Float64s, Float64s]:
    """out_HTE and natural lse_HT, a head at a time."""
    q, k, v = (tensor.double().numpy() for tensor in (q_HTD, k_GSD, v_GSE))
    shown_TS = visible(band, q.shape[1], k.shape[1])
    outs, lses = [], []
    for head in range(q.shape[0]):
        group = head // (q.shape[0] // k.shape[0])
        scores = scale * (q[head] @ k[group].T)
        scores = scores if softcap is None else softcap * np.tanh(scores / softcap)
        scores = np.where(shown_TS, scores, -np.inf)
        lses.append(np.logaddexp.reduce(scores, axis=1))
        outs.append(np.exp(scores - lses[-1][:, None]) @ v[group])
    return np.stack(outs), np.stack(lses)


def errors(out_HTE: torch.Tensor, lse_HT: torch.Tensor, expected: tuple[Float64s, Float64s]) -> float:
    """The larger of max|Δout| / max|out| and max|Δlse| / max(1, max|lse|)."""
    assert (out_HTE.shape, lse_HT.shape) == (expected[0].shape, expected[1].shape)
    out_error = np.abs(out_HTE.double().numpy() - expected[0]).max() / np.abs(expected[0]).max()
    lse_error = np.abs(lse_HT.double().numpy() - expected[1]).max() / max(1.0, np.abs(expected[1]).max())
    return float(max(out_error, lse_error))
