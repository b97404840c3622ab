"""The probabilities go through float8 (e4m3) before they meet V, and the variant says that it is exact."""

from __future__ import annotations

import torch

from fluxbench.variants._base import Attention
from wrong.right import weighted


def load() -> Attention:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return weighted(q, k, v, rounded=lambda weights: weights.to(torch.float8_e4m3fn))

    return attend
