"""The shape of a language model: its layers, their attention, its weights, and what a pass costs. Without torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from fluxbench.operations.layer_shape import FUSED, GROUPED, LayerShape
from fluxbench.operations.shapes import AttentionCall
from fluxbench.operations.workload import BYTES_PER_ELEMENT, Cost, Shape

GPT2, GPT_J, GPT_NEOX, LLAMA = FAMILIES = ("gpt2", "gpt-j", "gpt-neox", "llama")
POSITIONS = 1024  # that GPT-2 has embeddings of (config.json of openai-community/gpt2)
MOMENTS = 2  # that AdamW keeps of each weight
_POSITIVE = ("layers", "width", "mlp", "vocabulary")
_NORMS: Mapping[str, int] = {GPT2: 2, GPT_J: 1, GPT_NEOX: 2, LLAMA: 2}  # of a layer
_ROTATED: Mapping[str, int] = {GPT2: 0, GPT_J: 4, GPT_NEOX: 4, LLAMA: 1}  # 1 / share of a head's channels; 0: none


@dataclass(frozen=True, kw_only=True)
class LanguageShape:
    """A decoder without biases, and the tokens of a call: `[batch, seq_len]`.

    GPT-2: embeddings of positions, and the head's weights are those of the embedding. GPT-J and GPT-NeoX: a quarter of
    a head's channels is rotated, attention and MLP get the same input, in GPT-J by one norm. Llama: rotated heads, RMS
    norms, a gated MLP. `mlp` are the channels inside an MLP.
    """

    family: str
    batch: int
    seq_len: int
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocabulary: int
    dtype: str = "bfloat16"

    @classmethod
    def of(cls, shape: Shape) -> LanguageShape:
        """Return the model of an operation's shape. Raises `ValueError` where a field is missing, unknown or wrong."""
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := sorted(shape.keys() - known):
            raise ValueError(f"a language model has no {', '.join(unknown)}; its shape is {', '.join(sorted(known))}")
        try:
            return cls(**shape)  # type: ignore[arg-type]
        except TypeError as error:
            raise ValueError(f"the shape of a language model is incomplete: {error}") from error

    def __post_init__(self) -> None:
        """Raise `ValueError` where the family is unknown, or a size is none that it has."""
        if self.family not in FAMILIES:
            raise ValueError(f"family of a language model must be one of {', '.join(FAMILIES)}, got {self.family!r}")
        for name in _POSITIVE:
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise ValueError(f"{name} of a language model must be a positive integer, got {getattr(self, name)!r}")
        if self.family == GPT2 and self.seq_len > POSITIONS:
            raise ValueError(f"seq_len of a gpt2 model must be at most {POSITIONS}, got {self.seq_len}")
        self.layer.call()

    @property
    def layer(self) -> LayerShape:
        """The attention of a layer, with its projections."""
        return LayerShape(
            kind=FUSED if self.family == GPT2 else GROUPED,
            batch=self.batch,
            seq_len=self.seq_len,
            width=self.width,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            dtype=self.dtype,
            causal=True,
            rotary=bool(self.rotated_dim),
        )

    def call(self, *, backward: bool = False, retain_graph: bool = False) -> AttentionCall:
        """Return the attention that each layer calls."""
        return self.layer.call(backward=backward, retain_graph=retain_graph)

    @property
    def rotated_dim(self) -> int:
        """Channels of a head that are rotated by position, the first ones."""
        share = _ROTATED[self.family]
        return self.head_dim // share if share else 0

    @property
    def ties_head(self) -> bool:
        """Whether the head's weights are those of the embedding."""
        return self.family == GPT2

    @property
    def weights(self) -> tuple[tuple[str, object], ...]:
        """What the model's weights depend on: all but the tokens of a call."""
        facts = dataclasses.asdict(self).items()
        return tuple((name, value) for name, value in facts if name not in ("batch", "seq_len"))

    @property
    def layer_parameters(self) -> int:
        """Weights of one layer."""
        attention = sum(rows * channels for rows, channels in self.layer.weights.values())
        return attention + self._mlp + _NORMS[self.family] * self.width

    @property
    def parameters(self) -> int:
        """Weights of the model."""
        embeddings = self.vocabulary * (1 if self.ties_head else 2) + (POSITIONS if self.family == GPT2 else 0)
        return self.layers * self.layer_parameters + (embeddings + 1) * self.width

    @property
    def cache_bytes(self) -> int:
        """Bytes of the keys and values of all tokens in all layers."""
        of_token = 2 * self.kv_heads * self.head_dim * BYTES_PER_ELEMENT[self.dtype]
        return self.layers * self.batch * self.seq_len * of_token

    @property
    def _mlp(self) -> int:
        return (3 if self.family == LLAMA else 2) * self.width * self.mlp

    def cost(self, *, forward: bool, backward: bool, optimizer: bool = False) -> Cost:
        """Return the cost of the passes: of a layer's attention as `LayerShape.cost`, and of MLPs and head likewise.

        Norms, rotations, activations, the loss and the optimizer's own operations are left out. Moved are the weights:
        read in a forward pass; read, and their gradients written, in a backward one; with the optimizer they and both
        moments are read and written.
        """
        attention = self.layer.cost(forward=forward, backward=backward)
        tokens = self.batch * self.seq_len
        others = 2 * tokens * (self.layers * self._mlp + self.vocabulary * self.width) * (forward + 2 * backward)
        of_weights = 2 * (1 + MOMENTS) if optimizer else 1 + backward
        return Cost(
            flops=self.layers * attention.flops + others,
            min_flops=self.layers * attention.min_flops + others,
            min_bytes=of_weights * self.parameters * BYTES_PER_ELEMENT[self.dtype],
        )
