"""Grouped-query attention (Ainslie et al., GQA, 2023), as in Llama-3; with a norm of q and k as in Qwen3.

Rotation turns neighbouring channels, as Meta's Llama-3 code does. Qwen3 turns channel i with i + head_dim / 2: as many
operations, other numbers.
"""

import torch
from torch import nn

from fluxbench.operations.layer_shape import LayerShape
from fluxbench.operations.layers.parts import NORM_EPSILON, rotate
from fluxbench.operations.protocol import Attention


class Grouped(nn.Module):  # type: ignore[misc]
    """x `[batch, seq_len, width]` -> y of the same shape.

    `attention` gets q `[batch, seq_len, heads, head_dim]`, k and v `[batch, seq_len, kv_heads, head_dim]`; query head i
    attends to head `i * kv_heads // heads` of k and v.
    """

    def __init__(self, layer: LayerShape, attention: Attention) -> None:
        super().__init__()
        self.attention, self.head_dim = attention, layer.head_dim
        self.q = nn.Linear(layer.width, layer.heads * layer.head_dim, bias=False)
        self.k = nn.Linear(layer.width, layer.kv_heads * layer.head_dim, bias=False)
        self.v = nn.Linear(layer.width, layer.kv_heads * layer.head_dim, bias=False)
        self.o = nn.Linear(layer.heads * layer.head_dim, layer.width, bias=False)
        self.q_norm = nn.RMSNorm(layer.head_dim, eps=NORM_EPSILON) if layer.qk_norm else nn.Identity()
        self.k_norm = nn.RMSNorm(layer.head_dim, eps=NORM_EPSILON) if layer.qk_norm else nn.Identity()

    def forward(self, x: torch.Tensor, table: torch.Tensor | None = None) -> torch.Tensor:
        """Return y; with a rotary table, `[seq_len, head_dim / 2, 2]`, q and k are rotated by it."""
        q, k, v = (project(x).unflatten(-1, (-1, self.head_dim)) for project in (self.q, self.k, self.v))
        q, k = self.q_norm(q), self.k_norm(k)
        if table is not None:
            q, k = rotate(q, table), rotate(k, table)
        y: torch.Tensor = self.o(self.attention(q, k, v).flatten(2))
        return y
