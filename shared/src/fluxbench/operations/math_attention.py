"""Unfused attention in any precision, one head and one block of queries at a time, so that 75,600 tokens fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fluxbench.operations.shapes import AttentionCall

if TYPE_CHECKING:
    import torch

    from fluxbench.operations.protocol import Tensors

_SCORES_BYTES = 1 << 28  # of one block of scores in float64


def forward(call: AttentionCall, inputs: Tensors, dtype: torch.dtype) -> torch.Tensor:
    """Return softmax(q k^T / sqrt(head_dim)) v, `[batch, seq_len_q, heads, head_dim_v]`, computed in a dtype.

    In float64 by matrix products and a softmax; in fewer bits by torch's math backend of scaled_dot_product_attention.
    """
    import torch

    q, k, v = (inputs[name] for name in "qkv")
    out = torch.empty(*q.shape[:3], v.shape[-1], dtype=dtype, device=q.device)
    for batch, head, kv_head, start, stop in _blocks(call):
        rows, keys, values = q[batch, start:stop, head], k[batch, :, kv_head], v[batch, :, kv_head]
        hidden = _hidden(call, q, start, stop)
        out[batch, start:stop, head] = _attend(rows.to(dtype), keys.to(dtype), values.to(dtype), hidden=hidden)
    return out


def backward(call: AttentionCall, inputs: Tensors, dtype: torch.dtype) -> Tensors:
    """Return dq, dk and dv, of the shapes of q, k and v: the gradients of the output times `dout`.

    In float64 by autograd. In fewer bits the products are summed in float32, and what enters them is rounded to the
    dtype first, the probabilities and the scores' gradient included: no kernel of that precision can do without. On
    inputs whose k has a large constant part this costs far more than one rounding of the result, since the rows of the
    scores' gradient sum to zero. Gradients of query heads and blocks that share a key head are summed in float32 or
    wider.
    """
    import torch

    q, k, v, dout = (inputs[name] for name in ("q", "k", "v", "dout"))
    wide = torch.promote_types(dtype, torch.float32)
    dq, dk, dv = (torch.zeros(x.shape, dtype=wide, device=x.device) for x in (q, k, v))
    gradients = _by_autograd if dtype == torch.float64 else _by_hand
    for batch, head, kv_head, start, stop in _blocks(call):
        parts = (q[batch, start:stop, head], k[batch, :, kv_head], v[batch, :, kv_head], dout[batch, start:stop, head])
        hidden = _hidden(call, q, start, stop)
        of_q, of_k, of_v = gradients(*(part.to(wide) for part in parts), hidden=hidden, dtype=dtype)
        dq[batch, start:stop, head] = of_q
        dk[batch, :, kv_head] += of_k
        dv[batch, :, kv_head] += of_v
    return {"dq": dq.to(dtype), "dk": dk.to(dtype), "dv": dv.to(dtype)}


def _by_autograd(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor,
    *,
    hidden: torch.Tensor | None,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, ...]:
    import torch

    with torch.inference_mode(False), torch.enable_grad():
        q, k, v = (x.clone().requires_grad_() for x in (q, k, v))
        out = _attend(q, k, v, hidden=hidden)
        gradients: tuple[torch.Tensor, ...] = torch.autograd.grad(out, (q, k, v), dout.clone())
        return gradients


def _by_hand(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor,
    *,
    hidden: torch.Tensor | None,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, ...]:
    """Return the gradients in float32, with operands rounded to a dtype (Dao, FlashAttention-2, 2023, algorithm 2)."""
    import torch

    scale = q.shape[-1] ** -0.5
    scores = (q @ k.T) * scale
    if hidden is not None:
        scores = scores.masked_fill(hidden, float("-inf"))
    probabilities = torch.softmax(scores, dim=-1)
    out = (probabilities.to(dtype).to(q.dtype) @ v).to(dtype).to(q.dtype)
    delta = (dout * out).sum(dim=-1, keepdim=True)
    of_scores = (probabilities * (dout @ v.T - delta)).to(dtype).to(q.dtype)
    return of_scores @ k * scale, of_scores.T @ q * scale, probabilities.to(dtype).to(q.dtype).T @ dout


def _blocks(call: AttentionCall) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield batch entry, query head, its head of k and v, and the bounds of a block of queries."""
    rows = max(1, _SCORES_BYTES // (call.seq_len_k * 8))
    for batch in range(call.batch):
        for head in range(call.heads):
            for start in range(0, call.seq_len_q, rows):
                yield batch, head, head * call.kv_heads // call.heads, start, min(start + rows, call.seq_len_q)


def _hidden(call: AttentionCall, q: torch.Tensor, start: int, stop: int) -> torch.Tensor | None:
    """Return which keys a block of queries does not see, `[queries, seq_len_k]`; None where it sees all."""
    import torch

    if not call.causal:
        return None
    last_key = torch.arange(start, stop, device=q.device) + call.seq_len_k - call.seq_len_q
    return torch.arange(call.seq_len_k, device=q.device)[None, :] > last_key[:, None]


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, hidden: torch.Tensor | None) -> torch.Tensor:
    """Return the attention of queries `[queries, head_dim_qk]` of one head, `[queries, head_dim_v]`, in their dtype."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    if q.dtype == torch.float64:
        scores = (q @ k.T) * q.shape[-1] ** -0.5
        if hidden is not None:
            scores = scores.masked_fill(hidden, float("-inf"))
        return torch.softmax(scores, dim=-1) @ v
    with sdpa_kernel(SDPBackend.MATH):
        mask = None if hidden is None else ~hidden
        return scaled_dot_product_attention(q[None, None], k[None, None], v[None, None], attn_mask=mask)[0, 0]
