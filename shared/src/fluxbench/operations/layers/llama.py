"""A layer of Llama: attention with rotation and a gated MLP, each on a norm of what comes in and added to it."""

import torch
from torch import nn
from torch.nn.functional import silu

from fluxbench.operations.language_shape import LanguageShape
from fluxbench.operations.layers.grouped import Grouped
from fluxbench.operations.protocol import Attention

_EPSILON = 1e-5  # of the norms of Llama-2 and Llama-3, by their config.json


class Llama(nn.Module):  # type: ignore[misc]
    """x `[batch, seq_len, width]` -> y of the same shape (transformers, `modeling_llama.py`)."""

    def __init__(self, shape: LanguageShape, attention: Attention) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = (nn.RMSNorm(shape.width, eps=_EPSILON) for _ in range(2))
        self.attention = Grouped(shape.layer, attention)
        self.gate = nn.Linear(shape.width, shape.mlp, bias=False)
        self.up = nn.Linear(shape.width, shape.mlp, bias=False)
        self.down = nn.Linear(shape.mlp, shape.width, bias=False)

    def forward(self, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        """Return y; the rotary table is `[seq_len, head_dim / 2, 2]`."""
        x = x + self.attention(self.norm_1(x), table)
        normed = self.norm_2(x)
        y: torch.Tensor = x + self.down(silu(self.gate(normed)) * self.up(normed))
        return y
