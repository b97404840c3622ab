"""The shape of an attention layer: its weights, the attention that it calls, and what it costs. Without torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from fluxbench.operations.shapes import AttentionCall
from fluxbench.operations.workload import BYTES_PER_ELEMENT, Cost, Shape

FUSED, SEPARATE, GROUPED, MULTI_QUERY = "fused", "separate", "grouped", "multi_query"
LATENT, LATENT_ROTARY = "latent", "latent_rotary"
KINDS = (FUSED, SEPARATE, GROUPED, MULTI_QUERY, LATENT, LATENT_ROTARY)
_TABLE_BYTES = 4  # of an element of the rotary table, float32
# What a kind takes beyond what all have.
_OF_KIND = {
    GROUPED: ("rotary", "qk_norm"),
    LATENT: ("latent_dim",),
    LATENT_ROTARY: ("latent_dim", "q_latent_dim", "rotary_dim", "value_dim"),
}
_OPTIONAL = ("rotary", "qk_norm", "latent_dim", "q_latent_dim", "rotary_dim", "value_dim")
_MAY_BE_ABSENT = ("rotary", "qk_norm", "q_latent_dim")


@dataclass(frozen=True, kw_only=True)
class LayerShape:
    """One attention layer without biases: x `[batch, seq_len, width]` -> y of the same shape.

    `latent_dim` is the width of what k and v are projected up from, `q_latent_dim` that of q; 0: q is projected from x.
    Of `latent_rotary`, `head_dim` is the part of a head of q and k without rotation, and `rotary_dim` the rotated part.
    """

    kind: str
    batch: int
    seq_len: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    dtype: str = "bfloat16"
    causal: bool = False
    rotary: bool = False
    qk_norm: bool = False
    latent_dim: int = 0
    q_latent_dim: int = 0
    rotary_dim: int = 0
    value_dim: int = 0

    @classmethod
    def of(cls, shape: Shape) -> LayerShape:
        """Return the layer of an operation's shape. Raises `ValueError` where a field is missing, unknown or wrong."""
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := sorted(shape.keys() - known):
            raise ValueError(f"a layer has no {', '.join(unknown)}; its shape is {', '.join(sorted(known))}")
        try:
            layer = cls(**shape)  # type: ignore[arg-type]
        except TypeError as error:
            raise ValueError(f"the shape of a layer is incomplete: {error}") from error
        layer.call()
        return layer

    def __post_init__(self) -> None:
        """Raise `ValueError` where the kind is unknown, or a size does not go with it."""
        if self.kind not in KINDS:
            raise ValueError(f"kind of a layer must be one of {', '.join(KINDS)}, got {self.kind!r}")
        if type(self.width) is not int or self.width < 1:
            raise ValueError(f"width of a layer must be a positive integer, got {self.width!r}")
        for name in _OPTIONAL:
            value, takes = getattr(self, name), name in _OF_KIND.get(self.kind, ())
            flag = name in ("rotary", "qk_norm")
            if type(value) is not (bool if flag else int) or value < 0:
                raise ValueError(f"{name} of a layer must be {'true or false' if flag else 'positive'}, got {value!r}")
            if bool(value) and not takes:
                raise ValueError(f"a layer of kind {self.kind} has no {name}, got {value!r}")
            if not value and takes and name not in _MAY_BE_ABSENT:
                raise ValueError(f"a layer of kind {self.kind} must have {name}")
        if self.kind == MULTI_QUERY and self.kv_heads != 1:
            raise ValueError(f"kv_heads of a multi-query layer must be 1, got {self.kv_heads}")
        if self.kind not in (GROUPED, MULTI_QUERY) and self.kv_heads != self.heads:
            raise ValueError(f"kv_heads of a {self.kind} layer must be its heads, {self.heads}, got {self.kv_heads}")
        if self.rotated_dim % 2:
            raise ValueError(f"a rotated head must have an even size, got {self.rotated_dim}")

    def call(self, *, backward: bool = False, retain_graph: bool = False) -> AttentionCall:
        """Return the attention that the layer calls. Raises `ValueError` where there is none of such sizes.

        Where v has fewer channels than q and k, it may be padded, as the models' public code does for kernels of one
        head_dim (transformers, `modeling_deepseek_v3.py`).
        """
        return AttentionCall(
            batch=self.batch,
            seq_len_q=self.seq_len,
            seq_len_k=self.seq_len,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim_qk=self.head_dim + self.rotary_dim,
            head_dim_v=self.value_dim or self.head_dim,
            dtype=self.dtype,
            causal=self.causal,
            backward=backward,
            retain_graph=retain_graph,
            pads_values=bool(self.value_dim) and self.value_dim < self.head_dim + self.rotary_dim,
        )

    @property
    def rotated_dim(self) -> int:
        """Channels of a head of q and k that are rotated by position; 0 where none are."""
        return self.head_dim if self.rotary else self.rotary_dim

    @property
    def weights(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the weights by name, `(out, in)` of a projection, `(channels,)` of a norm."""
        width, of_q, of_kv = self.width, self.heads * self.head_dim, self.kv_heads * self.head_dim
        if self.kind == FUSED:
            return {"qkv": (3 * of_q, width), "o": (width, of_q)}
        if self.kind == LATENT:
            up = (of_q, self.latent_dim)
            return {"q": (of_q, width), "down": (self.latent_dim, width), "k": up, "v": up, "o": (width, of_q)}
        if self.kind == LATENT_ROTARY:
            return self._of_latent_rotary
        projections = {"q": (of_q, width), "k": (of_kv, width), "v": (of_kv, width), "o": (width, of_q)}
        return projections | ({"q_norm": (self.head_dim,), "k_norm": (self.head_dim,)} if self.qk_norm else {})

    @property
    def _of_latent_rotary(self) -> dict[str, tuple[int, ...]]:
        of_q = self.heads * (self.head_dim + self.rotary_dim)
        low = self.q_latent_dim
        q = {"q_down": (low, self.width), "q_norm": (low,), "q": (of_q, low)} if low else {"q": (of_q, self.width)}
        return {
            **q,
            "kv_down": (self.latent_dim + self.rotary_dim, self.width),
            "kv_norm": (self.latent_dim,),
            "kv": (self.heads * (self.head_dim + self.value_dim), self.latent_dim),
            "o": (self.width, self.heads * self.value_dim),
        }

    def cost(self, *, forward: bool, backward: bool) -> Cost:
        """Return the cost of the passes: of the projections, and of the attention as `attention` and its gradient.

        A projection of `out x in` weights is `2 * out * in` operations a token; its gradients, of weights and of input,
        are twice as many (Kaplan et al., Scaling Laws for Neural Language Models, 2020, section 2.1). Attention counts
        1, 2.5 and 3.5 times its forward pass, at least 1, 2 and 3 times (`attention_backward`). Norms and rotations are
        left out. Read are x, the weights, the rotary table and, for gradients, y's; written are y, and gradients of x
        and of all weights.
        """
        tokens = self.batch * self.seq_len
        products = 2 * tokens * sum(of[0] * of[1] for of in self.weights.values() if len(of) == 2)
        attention = self.call().forward_cost
        passes = forward + 2 * backward
        elements = tokens * self.width
        of_weights = sum(of[0] * (of[1] if len(of) == 2 else 1) for of in self.weights.values())
        moved = (elements + of_weights) * (1 + backward) + elements * (forward + backward)
        return Cost(
            flops=passes * products + attention.flops * (2 * forward + 5 * backward) // 2,
            min_flops=passes * (products + attention.min_flops),
            min_bytes=moved * BYTES_PER_ELEMENT[self.dtype] + self.seq_len * self.rotated_dim * _TABLE_BYTES,
        )
