"""A step of decoding by a whole language model: one token of each sequence through all layers, to logits."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fluxbench.operations import held
from fluxbench.operations.layer import PARTS
from fluxbench.operations.precision import EXACT
from fluxbench.operations.protocol import Bound, Kernel, Tensors
from fluxbench.operations.qkv import generator
from fluxbench.operations.shapes import AttentionCall
from fluxbench.operations.workload import BYTES_PER_ELEMENT, Cost, Shape

if TYPE_CHECKING:
    import torch

WEIGHT = "w_"
_NORMS = ("norm_1", "norm_2", "norm")
_OF_WEIGHTS = 0  # the seed of the norms' weights


@dataclass(frozen=True, kw_only=True)
class DecoderShape:
    """A decoder of Llama's kind: grouped heads, rotation by position, RMS norms, a gated MLP; no biases.

    `cached` tokens of each sequence lie in its cache of each layer.
    """

    batch: int
    cached: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    layers: int
    vocabulary: int
    dtype: str = "bfloat16"

    @classmethod
    def of(cls, shape: Shape) -> DecoderShape:
        """Return the model of an operation's shape. Raises `ValueError` where a field is missing, unknown or wrong."""
        try:
            model = cls(**shape)  # type: ignore[arg-type]
        except TypeError as error:
            raise ValueError(f"the shape of a model is wrong: {error}") from error
        for name in ("width", "mlp", "layers", "vocabulary"):
            value = getattr(model, name)
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} of a model must be a positive integer, got {value!r}")
        assert model.call
        return model

    @property
    def call(self) -> AttentionCall:
        """The attention of a layer. Raises `ValueError` where there is none of such sizes."""
        return AttentionCall(
            batch=self.batch,
            seq_len_q=1,
            seq_len_k=self.cached,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim_qk=self.head_dim,
            head_dim_v=self.head_dim,
            dtype=self.dtype,
        )

    @property
    def weights(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the weights by name: `[layers, out, in]`, `[layers, width]` of norms, and those after them."""
        of_q, of_kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        of_layer = {
            "qkv": (of_q + 2 * of_kv, self.width),
            "o": (self.width, of_q),
            "gate_up": (2 * self.mlp, self.width),
            "down": (self.width, self.mlp),
            "norm_1": (self.width,),
            "norm_2": (self.width,),
        }
        stacked = {name: (self.layers, *of) for name, of in of_layer.items()}
        return {**stacked, "norm": (self.width,), "head": (self.vocabulary, self.width)}

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights that a step reads; of the embedding it reads a row a token, which is left out."""
        return sum(map(math.prod, self.weights.values())) * BYTES_PER_ELEMENT[self.dtype]

    @property
    def cache_bytes(self) -> int:
        """Bytes of the keys and values of all sequences in all layers."""
        per_token = 2 * self.kv_heads * self.head_dim * BYTES_PER_ELEMENT[self.dtype]
        return self.layers * self.batch * self.cached * per_token


class DecodeModel:
    """One step of a model. Outputs: `logits`, `[batch, 1, vocabulary]`, and `kv`, `[batch, layers, 2 * of_kv]`.

    `x`, `[batch, 1, width]`, is the embedded token. k and v of the new token are computed, k is rotated, and both are
    returned as `kv`; they are not attended to and not written to the cache, which must stay as it is. All layers are
    there: each has weights and a cache of its own. These exist once in a process (`operations.held`).
    """

    name = "decode_model"
    input_kinds: tuple[str, ...] = ("normal",)
    parts = PARTS
    differentiates = False
    is_deep = True

    def cost(self, shape: Shape) -> Cost:
        """Return the cost: two operations a weight and token, the attention, and all weights and the cache once."""
        model = DecoderShape.of(shape)
        attention = model.call.forward_cost
        products = 2 * model.batch * model.weight_bytes // BYTES_PER_ELEMENT[model.dtype]
        return Cost(
            flops=products + model.layers * attention.flops,
            min_flops=model.layers * attention.min_flops,
            min_bytes=model.weight_bytes + model.cache_bytes,
        )

    def attention(self, shape: Shape) -> AttentionCall:
        """Return the attention that a kernel is asked for, in each layer."""
        return DecoderShape.of(shape).call

    def holds(self, shape: Shape) -> bool:
        """Return True: weights and caches exist once in a process."""
        return True

    def inputs(self, shape: Shape, kind: str, seed: int, device: torch.device | str) -> Tensors:
        """Return `x`, weights as `w_<name>`, `k` and `v` `[layers, batch, cached, kv_heads, head_dim]`, and `table`.

        Weights are normal noise over the square root of their inputs, those of norms 1 plus noise of a tenth; k and v
        are normal noise. The seed changes x alone. Raises `ValueError` where the kind is unknown.
        """
        import torch

        from fluxbench.operations.layers.parts import rotary_table

        if kind not in self.input_kinds:
            raise ValueError(f"kind of inputs must be one of {', '.join(self.input_kinds)}, got {kind!r}")
        model = DecoderShape.of(shape)
        dtype, rng = getattr(torch, model.dtype), generator(f"{sorted(shape.items())}", kind, seed, device)
        x = torch.randn(model.batch, 1, model.width, generator=rng, device=device).to(dtype)
        cache = (model.layers, model.batch, model.cached, model.kv_heads, model.head_dim)
        tensors = {"x": x}
        for name, of in model.weights.items():
            if name in _NORMS:
                of_norm = generator(name, "weights", _OF_WEIGHTS, device)
                tensors[WEIGHT + name] = torch.randn(of, generator=of_norm, device=device).mul_(0.1).add_(1).to(dtype)
            else:
                [tensors[WEIGHT + name]] = held.normal(name, [of], dtype, device, of[-1] ** -0.5)
        tensors["k"], tensors["v"] = held.normal("cache", [cache, cache], dtype, device)
        return {**tensors, "table": rotary_table(model.cached + 1, model.head_dim, device)[-1:].clone()}

    def rescale(self, shape: Shape, inputs: Tensors, rng: random.Random) -> None:
        """Do nothing: no factor of x leaves the softmax as it is."""

    def reference(self, shape: Shape, inputs: Tensors, dtype: torch.dtype, precision: str = EXACT) -> Tensors:
        """Return the same step on unfused attention, in a dtype."""
        from fluxbench.operations.layers.model import step, unfused

        return step(DecoderShape.of(shape), unfused(precision), {**inputs, "x": inputs["x"].to(dtype)})

    def reference_at(self, shape: Shape, inputs: Tensors, positions: Tensors) -> None:
        """Return None: a token of the output needs all of the step."""
        return None

    def bind(self, kernel: Kernel, shape: Shape) -> Bound:
        """Return a step on the kernel's attention, compiled whole in a compiled form."""
        from functools import partial

        from fluxbench.operations.layers.model import step

        model = DecoderShape.of(shape)
        return Bound(kernel.in_form(model.call, partial(step, model, kernel.eager(model.call))))
