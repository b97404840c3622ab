"""A layer of GPT-2, without biases: attention and an MLP, each on a norm of what comes in and added to it."""

import torch
from torch import nn
from torch.nn.functional import gelu

from fluxbench.operations.language_shape import LanguageShape
from fluxbench.operations.layers.fused import Fused
from fluxbench.operations.protocol import Attention


class Gpt2(nn.Module):  # type: ignore[misc]
    """x `[batch, seq_len, width]` -> y of the same shape (transformers, `modeling_gpt2.py`)."""

    def __init__(self, shape: LanguageShape, attention: Attention) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = (nn.LayerNorm(shape.width, bias=False) for _ in range(2))
        self.attention = Fused(shape.layer, attention)
        self.up = nn.Linear(shape.width, shape.mlp, bias=False)
        self.down = nn.Linear(shape.mlp, shape.width, bias=False)

    def forward(self, x: torch.Tensor, table: None = None) -> torch.Tensor:
        """Return y; nothing is rotated."""
        x = x + self.attention(self.norm_1(x))
        y: torch.Tensor = x + self.down(gelu(self.up(self.norm_2(x)), approximate="tanh"))
        return y
