"""Keys are padded with zeros to whole blocks of 32, and the padding takes part in the softmax."""

from __future__ import annotations

import torch

from fluxbench.variants._base import Attention
from wrong.right import attention_of


def load() -> Attention:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        missing = -k.shape[1] % 32
        return attention_of(q, *(torch.nn.functional.pad(x, (0, 0, 0, 0, 0, missing)) for x in (k, v)))

    return attend
