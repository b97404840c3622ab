"""Rows of an attention's output at a few queries, in float64: a thousandth of what the whole reference costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluxbench.operations.shapes import AttentionCall

if TYPE_CHECKING:
    import torch

    from fluxbench.operations.protocol import Tensors

_KEYS_BYTES = 1 << 29  # of the keys of several heads in float64


def forward(call: AttentionCall, inputs: Tensors, positions: torch.Tensor) -> torch.Tensor:
    """Return softmax(q k^T / sqrt(head_dim)) v of some queries to all keys, in float64.

    `positions`: `[count]`, int64, queries of every batch entry and head. Returned: `[batch, count, heads, head_dim_v]`.
    One batch entry and some heads of k and v at a time, so that little memory is needed.
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
    step = max(1, _KEYS_BYTES // (call.seq_len_k * max(call.head_dim_qk, call.head_dim_v) * 8))
    for batch in range(call.batch):
        for start in range(0, call.kv_heads, step):
            stop = min(start + step, call.kv_heads)
            keys = k[batch, :, start:stop].double().permute(1, 2, 0)  # [kv_heads, head_dim_qk, seq_len_k]
            values = v[batch, :, start:stop].double().transpose(0, 1)  # [kv_heads, seq_len_k, head_dim_v]
            queries = rows[batch, :, start * group : stop * group].unflatten(1, (-1, group)).transpose(0, 1)
            scores = (queries.flatten(1, 2) @ keys).unflatten(1, (-1, group))  # [kv_heads, count, group, seq_len_k]
            if hidden is not None:
                scores = scores.masked_fill(hidden, float("-inf"))
            found = (torch.softmax(scores, dim=-1).flatten(1, 2) @ values).unflatten(1, (-1, group))
            out[batch, :, start * group : stop * group] = found.transpose(0, 1).flatten(1, 2)
    return out
