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
    Some heads of k and v of a batch entry at a time, so that little memory is needed; all of several that are short.
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
    together = max(1, _KEYS_BYTES // (call.seq_len_k * max(call.head_dim_qk, call.head_dim_v) * 8))  # heads of k and v
    entries, heads = max(1, together // call.kv_heads), min(together, call.kv_heads)
    for batch in range(0, call.batch, entries):
        some = slice(batch, batch + entries)
        for start in range(0, call.kv_heads, heads):
            of_kv, of_q = slice(start, start + heads), slice(start * group, (start + heads) * group)
            keys = k[some, :, of_kv].double().permute(0, 2, 3, 1)  # [batch, kv_heads, head_dim_qk, seq_len_k]
            values = v[some, :, of_kv].double().transpose(1, 2)  # [batch, kv_heads, seq_len_k, head_dim_v]
            queries = rows[some, :, of_q].unflatten(2, (-1, group)).transpose(1, 2)
            scores = (queries.flatten(2, 3) @ keys).unflatten(2, (-1, group))  # [..., count, group, seq_len_k]
            if hidden is not None:
                scores = scores.masked_fill(hidden, float("-inf"))
            found = (torch.softmax(scores, dim=-1).flatten(2, 3) @ values).unflatten(2, (-1, group))
            out[some, :, of_q] = found.transpose(1, 2).flatten(2, 3)
    return out
