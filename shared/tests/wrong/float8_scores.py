"""The scores go through float8 (e4m3) before the softmax, and the variant says that it is exact."""

from __future__ import annotations

import torch

from fluxbench.variants._base import Attention
from wrong.right import weighted


def load() -> Attention:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return weighted(q, k, v, lambda scores: scores.to(torch.float8_e4m3fn).float())

    return attend
