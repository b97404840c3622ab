"""The softmax takes exp of the scores as they are, in float16: right on normal inputs, too large for it on outliers."""

from __future__ import annotations

import torch

from fluxbench.variants._base import Attention


def load() -> Attention:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        queries, keys, values = (x.transpose(1, 2).float() for x in (q, k, v))
        weights = ((queries @ keys.transpose(-1, -2)) * q.shape[-1] ** -0.5).to(torch.float16).exp()
        out = (weights.float() @ values) / weights.sum(-1, keepdim=True)
        return out.to(q.dtype).transpose(1, 2).contiguous()

    return attend
