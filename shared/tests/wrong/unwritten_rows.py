"""The last eight rows of the output are never written."""

from __future__ import annotations

import torch

from fluxbench.variants._base import Attention
from wrong.right import attention_of


def load() -> Attention:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(q)
        out[:, :-8] = attention_of(q, k, v)[:, :-8]
        return out

    return attend
