"""Right, as a fused kernel is: sums in float32, probabilities rounded to the inputs' dtype before they meet V."""

from __future__ import annotations

import torch

from fluxbench.variants._base import Attention


def attention_of(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, scale: float = 1.0, first_block: int | None = None
) -> torch.Tensor:
    """Return attention over the first `first_block` keys (all of them where None), its scores times `scale`.

    q, k, v and what is returned: [batch, seq_len, heads, head_dim], contiguous, of one dtype.
    """
    queries, keys, values = (x.transpose(1, 2) for x in (q, k[:, :first_block], v[:, :first_block]))
    scores = (queries.float() @ keys.float().transpose(-1, -2)) * (scale * q.shape[-1] ** -0.5)
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    sums = weights.sum(-1, keepdim=True)
    out = (weights.to(q.dtype).float() @ values.float()) / sums
    return out.to(q.dtype).transpose(1, 2).contiguous()


def load() -> Attention:
    return attention_of
