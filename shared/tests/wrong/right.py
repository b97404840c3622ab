"""Right, as a fused kernel is: sums in float32, probabilities rounded to the inputs' dtype before they meet V."""

from __future__ import annotations

from collections.abc import Callable

import torch

HONEST = 5  # calls of a kernel before its first timed one: on four kinds of inputs, and to warm up; it cheats after
Change = Callable[[torch.Tensor], torch.Tensor]


def attention_of(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, scale: float = 1.0, first_block: int | None = None
) -> torch.Tensor:
    """Return attention over the first `first_block` keys (all of them where None), its scores times `scale`.

    q, k, v and what is returned: [batch, seq_len, heads, head_dim], contiguous, of one dtype.
    """
    return weighted(q, k[:, :first_block], v[:, :first_block], lambda scores: scores * scale)


def weighted(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    changed: Change | None = None,
    rounded: Change | None = None,
    weigh: Change = lambda scores: (scores - scores.amax(-1, keepdim=True)).exp(),
) -> torch.Tensor:
    """Return attention whose scores go through `changed` and `weigh`, and whose probabilities through `rounded`.

    Scores and probabilities are [batch, heads, queries, keys], float32; the latter are not yet over their sum.
    """
    queries, keys, values = (x.transpose(1, 2).float() for x in (q, k, v))
    scores = (queries @ keys.transpose(-1, -2)) * q.shape[-1] ** -0.5
    if changed:
        scores = changed(scores)
    weights = weigh(scores)
    sums = weights.sum(-1, keepdim=True)
    low = rounded(weights) if rounded else weights.to(q.dtype)
    return ((low.float() @ values) / sums).to(q.dtype).transpose(1, 2).contiguous()
