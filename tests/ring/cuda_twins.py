"""CUDA's attention ops by their definitions, on CPUs: signatures, layouts, conventions and clamps are the real ones."""

import numpy as np
import torch


def seen_by_flash_attn(num_queries, num_keys, left, right, causal=False):
    """flash-attn 2.8.3: `mha_fwd` and `set_params_fprop` in flash_api.cpp, then `apply_mask_local` in mask.h."""
    left, right = -1 if left is None else left, -1 if right is None else right
    if left >= num_keys:
        left = -1
    if right >= num_keys:
        right = -1
    if causal and num_queries > 1:
        right = 0
    is_causal = left < 0 and right == 0
    if left < 0 and right >= 0:
        left = num_keys
    if left >= 0 and right < 0:
        right = num_keys
    t, s = np.arange(num_queries)[:, None], np.arange(num_keys)[None]
    offset = num_keys - num_queries
    if is_causal:
        return s < np.minimum(num_keys, t + 1 + offset)
    if left < 0 and right < 0:
        return np.ones((num_queries, num_keys), dtype=bool)
    return (s < np.minimum(num_keys, t + 1 + offset + right)) & (s >= np.maximum(0, t + offset - left))


def seen_by_flash_attn_4(num_queries, num_keys, left, right, causal=False):
    """flash-attn 4: `_resolve_causal_local_window` in cute/interface.py, then `AttentionMask` in cute/mask.py."""
    if causal:
        right = 0
    if left is not None and right is not None and left + right < 0:
        left = right = None
    t, s = np.arange(num_queries)[:, None], np.arange(num_keys)[None]
    corner = t + num_keys - num_queries
    seen = np.ones((num_queries, num_keys), dtype=bool)
    if right is not None:
        seen &= s <= corner + right
    if left is not None:
        seen &= s >= corner - left
    return seen


def attend(q_BTHD, k_BSGD, v_BSGE, seen_TS, scale, softcap=0.0):
    """The definition, in float64, results in the dtype of q and float32: (out_BTHE, lse_BHT)."""
    repeats = q_BTHD.shape[2] // k_BSGD.shape[2]
    q, k, v = (tensor.double() for tensor in (q_BTHD, k_BSGD, v_BSGE))
    k, v = k.repeat_interleave(repeats, dim=2), v.repeat_interleave(repeats, dim=2)
    scores = torch.einsum("bthd,bshd->bhts", q, k) * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.masked_fill(~torch.from_numpy(seen_TS), -torch.inf)
    out = torch.einsum("bhts,bshe->bthe", scores.softmax(dim=-1), v)
    lse = scores.logsumexp(dim=-1)
    # A row without keys has +inf in flash-attn.
    return out.to(q_BTHD.dtype), torch.where(lse == -torch.inf, torch.inf, lse).float()


def _check_flash(q, k, v):
    if q.dtype not in (torch.float16, torch.bfloat16):
        raise RuntimeError("FlashAttention only support fp16 and bf16 data type")
    if not q.shape[-1] == k.shape[-1] == v.shape[-1] or q.shape[-1] > 256:
        raise RuntimeError("CHECK_SHAPE")


def aten_flash(
    q, k, v, cum_q, cum_k, max_q, max_k, dropout, causal, debug, *, scale, window_size_left, window_size_right
):
    assert cum_q is cum_k is None
    assert (max_q, max_k, dropout, debug) == (q.shape[1], k.shape[1], 0.0, False)
    _check_flash(q, k, v)
    if q.shape[-1] % 8:
        raise RuntimeError("head_size must be a multiple of 8")
    seen = seen_by_flash_attn(q.shape[1], k.shape[1], window_size_left, window_size_right, causal)
    return (*attend(q, k, v, seen, scale), None, None, None)


def aten_efficient(q, k, v, bias, cu_q, cu_k, max_q, max_k, dropout, mask_type, with_lse, *, scale):
    assert bias is cu_q is cu_k is max_q is max_k is None
    assert dropout == 0.0
    assert with_lse
    assert q.shape[2] == k.shape[2] == v.shape[2], "the op repeats no heads"
    assert q.dtype != torch.float64
    num_queries, num_keys = q.shape[1], k.shape[1]
    offset = {0: num_keys + num_queries, 1: 0, 2: num_keys - num_queries}[mask_type]
    seen = np.arange(num_keys)[None] <= np.arange(num_queries)[:, None] + offset
    out, lse = attend(q, k, v, seen, scale)
    padded = torch.full((*lse.shape[:2], -(-num_queries // 32) * 32), torch.inf)
    padded[:, :, :num_queries] = lse
    return out, padded, None, None, None, None


def aten_cudnn(q_BHTD, k_BGSD, v_BGSE, bias, with_lse, dropout, causal, debug, *, scale):
    assert bias is None
    assert (with_lse, dropout, debug) == (True, 0.0, False)
    num_queries, num_keys = q_BHTD.shape[2], k_BGSD.shape[2]
    seen = np.arange(num_keys)[None] <= np.arange(num_queries)[:, None] + (0 if causal else num_keys)
    out, lse = attend(*(tensor.transpose(1, 2) for tensor in (q_BHTD, k_BGSD, v_BGSE)), seen, scale)
    return (out.transpose(1, 2), lse[..., None], *[None] * 7)


def flash_attn_func(
    q,
    k,
    v,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
):
    """flash_attn.flash_attn_interface, 2.8.3: three results with `return_attn_probs`, one without."""
    _check_flash(q, k, v)
    out, lse = attend(q, k, v, seen_by_flash_attn(q.shape[1], k.shape[1], *window_size, causal), softmax_scale, softcap)
    return (out, lse, None) if return_attn_probs else out


def flash_attn_4_func(
    q, k, v, *, softmax_scale=None, causal=False, window_size=(None, None), softcap=0.0, return_lse=False
):
    """flash_attn.cute.interface, 4.0.0 beta: two results either way, no log-sum-exp unless it is asked for."""
    _check_flash(q, k, v)
    out, lse = attend(
        q, k, v, seen_by_flash_attn_4(q.shape[1], k.shape[1], *window_size, causal), softmax_scale, softcap
    )
    return out, lse if return_lse else None
