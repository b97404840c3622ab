"""Multi-head latent attention in its plain form: k and v are projected up from one narrow projection of x.

Without rotation, norms or a narrow projection of q (DeepSeek-AI, DeepSeek-V2, 2024, section 2.1.2).
"""

import torch
from torch import nn

from fluxbench.operations.layer_shape import LayerShape
from fluxbench.operations.protocol import Attention


class Latent(nn.Module):  # type: ignore[misc]
    """x `[batch, seq_len, width]` -> y of the same shape; `attention` gets `[batch, seq_len, heads, head_dim]`."""

    def __init__(self, layer: LayerShape, attention: Attention) -> None:
        super().__init__()
        self.attention, self.heads, inner = attention, layer.heads, layer.heads * layer.head_dim
        self.q = nn.Linear(layer.width, inner, bias=False)
        self.down = nn.Linear(layer.width, layer.latent_dim, bias=False)
        self.k = nn.Linear(layer.latent_dim, inner, bias=False)
        self.v = nn.Linear(layer.latent_dim, inner, bias=False)
        self.o = nn.Linear(inner, layer.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return y."""
        latent = self.down(x)
        q, k, v = (of.unflatten(-1, (self.heads, -1)) for of in (self.q(x), self.k(latent), self.v(latent)))
        y: torch.Tensor = self.o(self.attention(q, k, v).flatten(2))
        return y
