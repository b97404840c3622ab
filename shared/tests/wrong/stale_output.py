"""The output of the first call, returned by every later one: a cached graph whose inputs are not copied."""

from __future__ import annotations

import torch

from fluxbench.variants._base import Attention
from wrong.right import attention_of


def load() -> Attention:
    kept: list[torch.Tensor] = []

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if not kept:
            kept.append(attention_of(q, k, v))
        return kept[0]

    return attend
