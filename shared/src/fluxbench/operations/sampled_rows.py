"""Rows of an attention's output at a few queries, in float64: a thousandth of what the whole reference costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluxbench.operations.shapes import AttentionCall

if TYPE_CHECKING:
    import torch

    from fluxbench.operations.protocol import Tensors


def forward(call: AttentionCall, inputs: Tensors, positions: torch.Tensor) -> torch.Tensor:
    """Return softmax(q k^T / sqrt(head_dim)) v of some queries to all keys, in float64.

    `positions`: `[count]`, int64, queries of every batch entry and head. Returned: `[batch, count, heads, head_dim_v]`.
    One batch entry and head of k and v at a time, whose query heads go together.
    """
    import torch

    q, k, v = (inputs[name] for name in "qkv")
    rows = q.index_select(1, positions).double() * q.shape[-1] ** -0.5
    out = torch.empty(*rows.shape[:3], v.shape[-1], dtype=torch.float64, device=q.device)
    hidden = None
    if call.causal:  # aligned to the end: the last query sees all keys
        last_key = positions + call.seq_len_k - call.seq_len_q
        hidden = torch.arange(call.seq_len_k, device=q.device) > last_key[:, None, None]  # [count, 1, seq_len_k]
    group = call.heads // call.kv_heads
    for batch in range(call.batch):
        for kv_head in range(call.kv_heads):
            heads = slice(kv_head * group, (kv_head + 1) * group)
            scores = rows[batch, :, heads] @ k[batch, :, kv_head].double().T  # [count, group, seq_len_k]
            if hidden is not None:
                scores = scores.masked_fill(hidden, float("-inf"))
            out[batch, :, heads] = torch.softmax(scores, dim=-1) @ v[batch, :, kv_head].double()
    return out
