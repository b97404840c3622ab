"""Multi-head latent attention as DeepSeek-V2 and -V3 train it (DeepSeek-AI, DeepSeek-V2, 2024, section 2.1).

Each head of q and k has channels without rotation, from latents, and `rotary_dim` rotated ones; the rotated part of k
is one for all heads, projected from x. The latents are normalized.
"""

import torch
from torch import nn

from fluxbench.operations.layer_shape import LayerShape
from fluxbench.operations.layers.parts import NORM_EPSILON, rotate
from fluxbench.operations.protocol import Attention


class LatentRotary(nn.Module):  # type: ignore[misc]
    """x `[batch, seq_len, width]` -> y of the same shape.

    `attention` gets q and k `[batch, seq_len, heads, head_dim + rotary_dim]`, v `[batch, seq_len, heads, value_dim]`.
    """

    def __init__(self, layer: LayerShape, attention: Attention) -> None:
        super().__init__()
        self.attention, self.layer = attention, layer
        of_q = layer.heads * (layer.head_dim + layer.rotary_dim)
        if layer.q_latent_dim:
            self.q_down = nn.Linear(layer.width, layer.q_latent_dim, bias=False)
            self.q_norm = nn.RMSNorm(layer.q_latent_dim, eps=NORM_EPSILON)
        self.q = nn.Linear(layer.q_latent_dim or layer.width, of_q, bias=False)
        self.kv_down = nn.Linear(layer.width, layer.latent_dim + layer.rotary_dim, bias=False)
        self.kv_norm = nn.RMSNorm(layer.latent_dim, eps=NORM_EPSILON)
        self.kv = nn.Linear(layer.latent_dim, layer.heads * (layer.head_dim + layer.value_dim), bias=False)
        self.o = nn.Linear(layer.heads * layer.value_dim, layer.width, bias=False)

    def forward(self, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        """Return y; the rotary table is `[seq_len, rotary_dim / 2, 2]`."""
        layer = self.layer
        of_q = self.q_norm(self.q_down(x)) if layer.q_latent_dim else x
        q, q_rotated = self.q(of_q).unflatten(-1, (layer.heads, -1)).split([layer.head_dim, layer.rotary_dim], dim=-1)
        latent, k_rotated = self.kv_down(x).split([layer.latent_dim, layer.rotary_dim], dim=-1)
        kv = self.kv(self.kv_norm(latent)).unflatten(-1, (layer.heads, -1))
        k, v = kv.split([layer.head_dim, layer.value_dim], dim=-1)
        q = torch.cat((q, rotate(q_rotated, table)), dim=-1)
        of_all_heads = rotate(k_rotated.unsqueeze(2), table).expand(-1, -1, layer.heads, -1)
        k = torch.cat((k, of_all_heads), dim=-1)
        y: torch.Tensor = self.o(self.attention(q, k, v).flatten(2))
        return y
