"""Keys are taken in pairs: where their number is odd, the last one is never looked at."""

from __future__ import annotations

import torch

from fluxbench.variants._base import Attention
from wrong.right import attention_of


def load() -> Attention:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attention_of(q, k, v, first_block=k.shape[1] // 2 * 2)

    return attend
