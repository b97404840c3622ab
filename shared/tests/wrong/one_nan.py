"""One element of the output is NaN."""

from __future__ import annotations

import torch

from fluxbench.variants._base import Attention
from wrong.right import attention_of


def load() -> Attention:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out = attention_of(q, k, v)
        out[-1, -1, -1, -1] = float("nan")
        return out

    return attend
