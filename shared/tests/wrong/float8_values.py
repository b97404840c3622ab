"""V goes through float8 (e4m3), and the variant says that it is exact."""

from __future__ import annotations

import torch

from fluxbench.variants._base import Attention
from wrong.right import attention_of


def load() -> Attention:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attention_of(q, k, v.to(torch.float8_e4m3fn).to(v.dtype))

    return attend
