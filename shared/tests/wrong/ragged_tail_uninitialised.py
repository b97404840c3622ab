"""It writes whole blocks of 64 queries alone: where the length is no multiple, the last rows are what lay in memory."""

from __future__ import annotations

import torch

from fluxbench.variants._base import Attention
from wrong.right import attention_of


def load() -> Attention:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(q)
        whole = q.shape[1] // 64 * 64
        out[:, :whole] = attention_of(q, k, v)[:, :whole]
        return out

    return attend
