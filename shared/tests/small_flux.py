"""A small Flux transformer of diffusers, which a CPU runs in a few milliseconds."""

from __future__ import annotations

from typing import Any

import torch

SIZES = {
    "in_channels": 8, "num_layers": 1, "num_single_layers": 1, "attention_head_dim": 32, "num_attention_heads": 2,
    "joint_attention_dim": 32, "pooled_projection_dim": 16, "axes_dims_rope": (8, 12, 12),
}  # fmt: skip


def flux(dtype: torch.dtype = torch.float32) -> Any:
    import diffusers

    torch.manual_seed(0)
    return diffusers.FluxTransformer2DModel(**SIZES, guidance_embeds=False).eval().to(dtype)


def forward(transformer: Any) -> Any:
    torch.manual_seed(1)
    image, text, pooled = (torch.randn(size).to(transformer.dtype) for size in ((1, 16, 8), (1, 4, 32), (1, 16)))
    with torch.no_grad():
        return transformer(
            hidden_states=image, encoder_hidden_states=text, pooled_projections=pooled, timestep=torch.tensor([1.0]),
            img_ids=torch.zeros(16, 3), txt_ids=torch.zeros(4, 3),
        ).sample  # fmt: skip
