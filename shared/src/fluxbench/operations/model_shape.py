"""The shape of a diffusion transformer's step: its blocks, its attention, and what it costs. Without torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from fluxbench.operations.shapes import AttentionCall
from fluxbench.operations.workload import BYTES_PER_ELEMENT, Cost, Shape

FLUX1, FLUX2, QWEN_IMAGE, WAN = "flux1", "flux2", "qwen-image", "wan"
CHANNELS = {FLUX1: 64, FLUX2: 128, QWEN_IMAGE: 64, WAN: 64}  # of a token that enters and leaves: a latent's patch
_POSITIVE = ("layers", "heads", "head_dim", "frames", "height", "width", "text_tokens", "text_dim")
_WAN_FFN = 2.7  # 13,824 channels of 5,120, diffusers' `transformer_wan.py`


@dataclass(frozen=True)
class _Block:
    """Elements of a block's weights, over the square of the model's width (diffusers 0.42.1, `models/transformers`)."""

    image: float  # that multiply each token of the image
    text: float  # that multiply each token of the text
    own: float  # of both together, each counted once, and of what multiplies one vector for all tokens


# 4 for q, k, v and the output; 8 for an MLP of four times the width, 9 for a gated one of three times. Modulation: a
# double block of FLUX.1 and a block of Qwen-Image have 2 x 6, a single block 3; FLUX.2 and Wan share theirs.
_DOUBLE: Mapping[str, _Block] = {
    FLUX1: _Block(image=12, text=12, own=24 + 12),
    FLUX2: _Block(image=13, text=13, own=26),
    QWEN_IMAGE: _Block(image=12, text=12, own=24 + 12),
    WAN: _Block(image=4 + 2 + 2 * _WAN_FFN, text=2, own=8 + 2 * _WAN_FFN),
}
_SINGLE: Mapping[str, _Block] = {FLUX1: _Block(image=12, text=12, own=12 + 3), FLUX2: _Block(image=13, text=13, own=13)}


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """One forward pass of a model of so many blocks, batch 1.

    `frames`, `height` and `width` are in tokens. `layers` are double blocks, or a model's only kind; `single_layers`
    are blocks in which text and image share their weights.
    """

    model: str
    layers: int
    single_layers: int = 0
    heads: int
    head_dim: int = 128
    frames: int = 1
    height: int
    width: int
    text_tokens: int
    text_dim: int
    dtype: str = "bfloat16"

    @classmethod
    def of(cls, shape: Shape) -> ModelShape:
        """Return the shape of an operation's shape. Raises `ValueError` where a field is missing, unknown or wrong."""
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := sorted(shape.keys() - known):
            raise ValueError(f"a model has no {', '.join(unknown)}; its shape is {', '.join(sorted(known))}")
        try:
            return cls(**shape)  # type: ignore[arg-type]
        except TypeError as error:
            raise ValueError(f"the shape of a model is incomplete: {error}") from error

    def __post_init__(self) -> None:
        """Raise `ValueError` where the model is unknown, or a size is none that it has."""
        if self.model not in CHANNELS:
            raise ValueError(f"model must be one of {', '.join(CHANNELS)}, got {self.model!r}")
        for name in _POSITIVE:
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise ValueError(f"{name} of a model must be a positive integer, got {getattr(self, name)!r}")
        if type(self.single_layers) is not int or self.single_layers < 0:
            raise ValueError(f"single_layers of a model must be an integer from 0 on, got {self.single_layers!r}")
        if self.single_layers and self.model not in _SINGLE:
            raise ValueError(f"{self.model} has no single blocks, got single_layers {self.single_layers}")
        if self.frames > 1 and self.model != WAN:
            raise ValueError(f"{self.model} makes one frame, got frames {self.frames}")
        self.call()

    @property
    def image_tokens(self) -> int:
        """Tokens of the image or video."""
        return self.frames * self.height * self.width

    @property
    def inner(self) -> int:
        """Channels of a token inside the model."""
        return self.heads * self.head_dim

    @property
    def channels(self) -> int:
        """Channels of a token that enters and leaves the model."""
        return CHANNELS[self.model]

    @property
    def weights(self) -> tuple[tuple[str, object], ...]:
        """What the model's weights depend on: all but the numbers of tokens."""
        sizes = ("frames", "height", "width", "text_tokens")
        return tuple((name, value) for name, value in dataclasses.asdict(self).items() if name not in sizes)

    def call(self) -> AttentionCall:
        """Return the attention that most of the blocks' time is spent on: of all tokens, in Wan of the video's."""
        tokens = self.image_tokens + (0 if self.model == WAN else self.text_tokens)
        return self.between(tokens, tokens)

    def between(self, queries: int, keys: int) -> AttentionCall:
        """Return the attention of so many tokens to so many."""
        return AttentionCall(
            seq_len_q=queries,
            seq_len_k=keys,
            heads=self.heads,
            kv_heads=self.heads,
            head_dim_qk=self.head_dim,
            head_dim_v=self.head_dim,
            dtype=self.dtype,
        )

    def cost(self) -> Cost:
        """Return the cost of a step.

        A weight that multiplies a token is 2 operations; attention counts as `AttentionCall.forward_cost`. What
        multiplies one vector for all tokens (timestep, modulation) is left out of the operations, as are norms,
        rotations and activations. Read are the weights of the blocks and of what embeds tokens, and the tokens; written
        is the output.
        """
        blocks = [(self.layers, _DOUBLE[self.model]), (self.single_layers, _SINGLE.get(self.model, _Block(0, 0, 0)))]
        square = self.inner**2
        of_tokens = sum(
            count * (of.image * self.image_tokens + of.text * self.text_tokens) * square for count, of in blocks
        )
        embedding = self.inner * (2 * self.image_tokens * self.channels + self.text_tokens * self.text_dim)
        attention = self.call().forward_cost.flops * (self.layers + self.single_layers)
        if self.model == WAN:  # to the text, beside that of the video
            attention += 4 * self.image_tokens * self.text_tokens * self.inner * self.layers
        flops = int(2 * (of_tokens + embedding)) + attention
        weights = sum(count * of.own for count, of in blocks) * square + self.inner * (
            2 * self.channels + self.text_dim
        )
        moved = int(weights) + 2 * self.image_tokens * self.channels + self.text_tokens * self.text_dim
        return Cost(flops=flops, min_flops=flops, min_bytes=moved * BYTES_PER_ELEMENT[self.dtype])
