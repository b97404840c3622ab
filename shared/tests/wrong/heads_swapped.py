"""Two heads' outputs have changed places."""

from __future__ import annotations

import torch

from fluxbench.variants._base import Attention
from wrong.right import attention_of


def load() -> Attention:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        order = [1, 0, *range(2, q.shape[2])]
        return attention_of(q, k, v)[:, :, order].contiguous()

    return attend
