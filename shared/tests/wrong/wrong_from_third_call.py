"""Right in the first two calls, in which it is checked; from then on one head is zero."""

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
            out[:, :, -1] = 0
        return out

    return attend
