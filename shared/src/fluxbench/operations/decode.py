"""Decoding: one query token for each sequence against a cache of keys and values."""

from __future__ import annotations

from fluxbench.operations.attention import AttentionForward
from fluxbench.operations.shapes import AttentionCall
from fluxbench.operations.workload import Shape


class Decode(AttentionForward):
    """Attention of one query token to all `seq_len_k` cached ones; grouped heads share a head of k and v.

    The cache is contiguous, `[batch, seq_len_k, kv_heads, head_dim]`, and full. Nothing is masked: the query is the
    last token.
    """

    name = "decode"

    def attention(self, shape: Shape) -> AttentionCall:
        """Return the attention that a kernel is asked for. Raises `ValueError` where the shape has more queries."""
        call = AttentionCall.of({"seq_len_q": 1, **shape})
        if call.seq_len_q != 1 or call.causal:
            raise ValueError(
                f"decode must have one query and no mask, got seq_len_q {call.seq_len_q} and causal {call.causal}"
            )
        return call
