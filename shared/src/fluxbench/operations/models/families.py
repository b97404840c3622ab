"""The models by family: how diffusers 0.42.1 makes one, and what a step of it gets.

A model multiplies timestep and guidance by 1,000 in its dtype. Here both are values that bfloat16 holds exactly after
that, so that a step in float32 has the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fluxbench.operations.model_shape import FLUX1, FLUX2, QWEN_IMAGE, WAN, ModelShape
from fluxbench.operations.protocol import Tensors

_TIME, _GUIDANCE = 0.5, 4.0
_POOLED_DIM = 768  # of FLUX.1's second text encoder
_PATCH = 2  # of Wan's latent, in both directions; 16 channels of which 2 x 2 are a token


@dataclass(frozen=True)
class Family:
    """`make` builds the model, `noise` are the shapes of its random inputs, `others` its other tensors by argument.

    `settings` are arguments that are no tensors, `rotary` makes what it cannot make on the meta device.
    """

    make: Callable[[ModelShape], nn.Module]
    noise: Callable[[ModelShape], Mapping[str, tuple[int, ...]]]
    others: Callable[[ModelShape], Tensors]
    settings: Callable[[ModelShape], Mapping[str, Any]] = lambda shape: {}
    rotary: Callable[[ModelShape], tuple[str, nn.Module]] | None = None


def _axes(shape: ModelShape, *of_128: int) -> tuple[int, ...]:
    """Return the channels that each axis rotates, in the proportions of a head_dim of 128, all even."""
    later = [axis * shape.head_dim // 256 * 2 for axis in of_128[1:]]
    return (shape.head_dim - sum(later), *later)


def _tokens(shape: ModelShape) -> dict[str, tuple[int, ...]]:
    return {
        "hidden_states": (1, shape.image_tokens, shape.channels),
        "encoder_hidden_states": (1, shape.text_tokens, shape.text_dim),
    }


def _places(shape: ModelShape, axes: int) -> Tensors:
    """Return the positions of tokens, `[tokens, axes]`, float32: of an image by row and column, of text all 0."""
    image = torch.zeros(shape.height, shape.width, axes)
    image[..., 1] = torch.arange(shape.height)[:, None]
    image[..., 2] = torch.arange(shape.width)
    return {"img_ids": image.flatten(0, 1), "txt_ids": torch.zeros(shape.text_tokens, axes)}


def _flux1(shape: ModelShape) -> nn.Module:
    from diffusers.models.transformers.transformer_flux import FluxTransformer2DModel

    return FluxTransformer2DModel(
        num_layers=shape.layers, num_single_layers=shape.single_layers, num_attention_heads=shape.heads,
        attention_head_dim=shape.head_dim, joint_attention_dim=shape.text_dim, guidance_embeds=True,
        pooled_projection_dim=_POOLED_DIM, axes_dims_rope=_axes(shape, 16, 56, 56),
    )  # fmt: skip


def _flux2(shape: ModelShape) -> nn.Module:
    from diffusers.models.transformers.transformer_flux2 import Flux2Transformer2DModel

    return Flux2Transformer2DModel(
        num_layers=shape.layers, num_single_layers=shape.single_layers, num_attention_heads=shape.heads,
        attention_head_dim=shape.head_dim, joint_attention_dim=shape.text_dim,
        axes_dims_rope=_axes(shape, 32, 32, 32, 32),
    )  # fmt: skip


def _qwen_image(shape: ModelShape) -> nn.Module:
    from diffusers.models.transformers.transformer_qwenimage import QwenImageTransformer2DModel

    return QwenImageTransformer2DModel(
        num_layers=shape.layers, num_attention_heads=shape.heads, attention_head_dim=shape.head_dim,
        joint_attention_dim=shape.text_dim, axes_dims_rope=_axes(shape, 16, 56, 56),
    )  # fmt: skip


def _qwen_image_rotary(shape: ModelShape) -> tuple[str, nn.Module]:
    from diffusers.models.transformers.transformer_qwenimage import QwenEmbedRope

    return "pos_embed", QwenEmbedRope(theta=10000, axes_dim=list(_axes(shape, 16, 56, 56)), scale_rope=True)


def _wan(shape: ModelShape) -> nn.Module:
    from diffusers.models.transformers.transformer_wan import WanTransformer3DModel

    return WanTransformer3DModel(
        num_layers=shape.layers, num_attention_heads=shape.heads, attention_head_dim=shape.head_dim,
        text_dim=shape.text_dim, ffn_dim=shape.inner * 27 // 10,
    )  # fmt: skip


def _wan_rotary(shape: ModelShape) -> tuple[str, nn.Module]:
    from diffusers.models.transformers.transformer_wan import WanRotaryPosEmbed

    return "rope", WanRotaryPosEmbed(shape.head_dim, (1, _PATCH, _PATCH), 1024)


def _wan_noise(shape: ModelShape) -> dict[str, tuple[int, ...]]:
    latent = (1, shape.channels // _PATCH**2, shape.frames, _PATCH * shape.height, _PATCH * shape.width)
    return {**_tokens(shape), "hidden_states": latent}


FAMILIES: Mapping[str, Family] = {
    FLUX1: Family(
        _flux1,
        lambda shape: {**_tokens(shape), "pooled_projections": (1, _POOLED_DIM)},
        lambda shape: {
            "timestep": torch.tensor([_TIME]), "guidance": torch.tensor([_GUIDANCE]), **_places(shape, 3),
        },
    ),
    FLUX2: Family(
        _flux2, _tokens,
        lambda shape: {
            "timestep": torch.tensor([_TIME]), "guidance": torch.tensor([_GUIDANCE]), **_places(shape, 4),
        },
    ),
    QWEN_IMAGE: Family(
        _qwen_image, _tokens, lambda shape: {"timestep": torch.tensor([_TIME])},
        lambda shape: {"img_shapes": [(1, shape.height, shape.width)]}, _qwen_image_rotary,
    ),
    WAN: Family(_wan, _wan_noise, lambda shape: {"timestep": torch.tensor([1000 * _TIME])}, rotary=_wan_rotary),
}  # fmt: skip
