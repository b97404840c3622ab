"""It takes the memory for [batch, heads, seq_len, head_dim], and its output has the right shape and layout again."""

from __future__ import annotations

import torch

from fluxbench.variants._base import Attention
from wrong.right import attention_of


def load() -> Attention:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        batch, seq_len, heads, head_dim = q.shape
        misread = (x.view(batch, heads, seq_len, head_dim).transpose(1, 2) for x in (q, k, v))
        return attention_of(*misread).transpose(1, 2).contiguous().view(q.shape)

    return attend
