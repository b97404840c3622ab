"""A query sees the keys up to its own position alone, as in a language model."""

from __future__ import annotations

import torch

from fluxbench.variants._base import Attention
from wrong.right import weighted


def past_alone(scores: torch.Tensor) -> torch.Tensor:
    """Return scores [batch, heads, queries, keys] with minus infinity where the key comes after the query."""
    return scores + torch.full_like(scores, float("-inf")).triu(1)


def load() -> Attention:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return weighted(q, k, v, past_alone)

    return attend
