"""Attention in plain PyTorch, as it is written by hand: two matrix products and a softmax.

Rounded: scores and probabilities are stored in the inputs' dtype, where `torch_math` computes all in float32. Holds all
scores in memory. The scale is applied to the scores, the softmax sums in float32. With a causal mask all scores are
computed, and grouped heads of k and v are repeated. Runs everywhere.
"""

from typing import Any

from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall
from fluxbench.variants import _base


def load(call: AttentionCall) -> Attention:
    """Return attention on transposed views, contiguous in [batch, seq_len, heads, head_dim]."""
    import torch

    scale, each = call.head_dim_qk**-0.5, call.heads // call.kv_heads

    def attend(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # [batch, heads, seq_len, head_dim]
        if call.grouped:
            k, v = (x.repeat_interleave(each, dim=1) for x in (k, v))
        scores = torch.matmul(q, k.transpose(2, 3)) * scale
        if call.causal:
            after = torch.ones(scores.shape[2:], dtype=torch.bool, device=q.device)
            scores = scores.masked_fill(after.triu(1), float("-inf"))
        return torch.matmul(torch.softmax(scores, dim=-1), v).transpose(1, 2).contiguous()

    return attend


VARIANT = _base.Variant(
    name="torch_eager",
    label="Eager (by hand)",
    load=load,
    capabilities=_base.Capabilities(
        dtypes=("bfloat16", "float16"),
        minimum=(5, 0),
        cpu=True,
        causal=_base.YES,
        gqa=_base.YES,
        backward=_base.YES,
        separate_head_dims=True,
    ),
    precision_class="rounded",
    score_bytes=(6, 10),  # two or three of scores, scaled scores and probabilities; then their gradients too
)
