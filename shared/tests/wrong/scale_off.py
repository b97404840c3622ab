"""The scores are 2% too large, as where a softmax scale is rounded or taken from another head_dim."""

from __future__ import annotations

import torch

from fluxbench.variants._base import Attention
from wrong.right import attention_of


def load() -> Attention:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attention_of(q, k, v, scale=1.02)

    return attend
