"""A layer of GPT-J or GPT-NeoX, without biases: attention and an MLP side by side, both added to what comes in."""

import torch
from torch import nn
from torch.nn.functional import gelu

from fluxbench.operations.language_shape import GPT_J, LanguageShape
from fluxbench.operations.layers.grouped import Grouped
from fluxbench.operations.protocol import Attention


class Parallel(nn.Module):  # type: ignore[misc]
    """x `[batch, seq_len, width]` -> y of the same shape (transformers, `modeling_gptj.py`, `modeling_gpt_neox.py`)."""

    def __init__(self, shape: LanguageShape, attention: Attention) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(shape.width, bias=False)
        self.norm_2 = None if shape.family == GPT_J else nn.LayerNorm(shape.width, bias=False)
        self.attention = Grouped(shape.layer, attention)
        self.up = nn.Linear(shape.width, shape.mlp, bias=False)
        self.down = nn.Linear(shape.mlp, shape.width, bias=False)

    def forward(self, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        """Return y; the rotary table is `[seq_len, head_dim / 2, 2]`, of angle 0 where a channel is not rotated."""
        normed = self.norm_1(x)
        of_mlp = normed if self.norm_2 is None else self.norm_2(x)
        y: torch.Tensor = x + self.attention(normed, table) + self.down(gelu(self.up(of_mlp), approximate="tanh"))
        return y
