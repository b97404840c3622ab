"""Attention in plain torch, under the names and arguments of the hub's attention kernels."""

import torch
import torch.nn.functional as F


def flash_attn_func(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float | None = None, causal: bool = False
) -> torch.Tensor:
    """Return attention; q, k, v and the result are `[batch, seq_len, heads, head_dim]`."""
    heads_first = (x.transpose(1, 2) for x in (q, k, v))
    out = F.scaled_dot_product_attention(*heads_first, is_causal=causal, scale=softmax_scale)
    return out.transpose(1, 2).contiguous()


def sageattn(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    tensor_layout: str = "HND",
    is_causal: bool = False,
    sm_scale: float | None = None,
) -> torch.Tensor:
    """Return attention; of layout NHD, q, k, v and the result are `[batch, seq_len, heads, head_dim]`."""
    if tensor_layout != "NHD":
        raise ValueError(f"tensor_layout must be NHD, got {tensor_layout!r}")
    return flash_attn_func(q, k, v, sm_scale, is_causal)
