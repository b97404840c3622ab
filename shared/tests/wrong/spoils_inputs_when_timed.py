"""Right in the two calls in which it is checked; from then on it also halves q where q lies, for whoever is next."""

from __future__ import annotations

import torch

from fluxbench.variants._base import Attention
from wrong.right import attention_of


def load() -> Attention:
    calls = 0

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        out = attention_of(q, k, v)
        if calls > 2:
            q.mul_(0.5)
        return out

    return attend
