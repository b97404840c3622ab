"""The output is float32: it is more precise than asked for, and the next layer cannot take it."""

from __future__ import annotations

import torch

from fluxbench.variants._base import Attention
from wrong.right import attention_of


def load() -> Attention:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attention_of(q, k, v).float()

    return attend
