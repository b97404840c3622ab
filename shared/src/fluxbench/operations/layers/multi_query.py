"""Multi-query attention: all query heads share one head of k and v (Shazeer, Fast Transformer Decoding, 2019)."""

import torch
from torch import nn

from fluxbench.operations.layer_shape import LayerShape
from fluxbench.operations.protocol import Attention


class MultiQuery(nn.Module):  # type: ignore[misc]
    """x `[batch, seq_len, width]` -> y of the same shape.

    `attention` gets q `[batch, seq_len, heads, head_dim]`, k and v `[batch, seq_len, 1, head_dim]`.
    """

    def __init__(self, layer: LayerShape, attention: Attention) -> None:
        super().__init__()
        self.attention, self.heads = attention, layer.heads
        self.q = nn.Linear(layer.width, layer.heads * layer.head_dim, bias=False)
        self.k = nn.Linear(layer.width, layer.head_dim, bias=False)
        self.v = nn.Linear(layer.width, layer.head_dim, bias=False)
        self.o = nn.Linear(layer.heads * layer.head_dim, layer.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return y."""
        q = self.q(x).unflatten(-1, (self.heads, -1))
        k, v = self.k(x).unsqueeze(2), self.v(x).unsqueeze(2)
        y: torch.Tensor = self.o(self.attention(q, k, v).flatten(2))
        return y
