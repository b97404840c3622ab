"""Multi-head attention with a projection for each of q, k and v (Vaswani et al., Attention Is All You Need, 2017)."""

import torch
from torch import nn

from fluxbench.operations.layer_shape import LayerShape
from fluxbench.operations.protocol import Attention


class Separate(nn.Module):  # type: ignore[misc]
    """x `[batch, seq_len, width]` -> y of the same shape; `attention` gets `[batch, seq_len, heads, head_dim]`."""

    def __init__(self, layer: LayerShape, attention: Attention) -> None:
        super().__init__()
        self.attention, self.heads, inner = attention, layer.heads, layer.heads * layer.head_dim
        self.q = nn.Linear(layer.width, inner, bias=False)
        self.k = nn.Linear(layer.width, inner, bias=False)
        self.v = nn.Linear(layer.width, inner, bias=False)
        self.o = nn.Linear(inner, layer.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return y."""
        q, k, v = (project(x).unflatten(-1, (self.heads, -1)) for project in (self.q, self.k, self.v))
        y: torch.Tensor = self.o(self.attention(q, k, v).flatten(2))
        return y
