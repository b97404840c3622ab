"""Multi-head attention whose q, k and v come from one projection, as in GPT-2 and most vision transformers."""

import torch
from torch import nn

from fluxbench.operations.layer_shape import LayerShape
from fluxbench.operations.protocol import Attention


class Fused(nn.Module):  # type: ignore[misc]
    """x `[batch, seq_len, width]` -> y of the same shape; `attention` gets `[batch, seq_len, heads, head_dim]`."""

    def __init__(self, layer: LayerShape, attention: Attention) -> None:
        super().__init__()
        self.attention, self.heads, inner = attention, layer.heads, layer.heads * layer.head_dim
        self.qkv = nn.Linear(layer.width, 3 * inner, bias=False)
        self.o = nn.Linear(inner, layer.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return y. q, k and v are views of one tensor, as they come from the projection."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        y: torch.Tensor = self.o(self.attention(q, k, v).flatten(2))
        return y
