"""Attention forward: q, k, v -> out."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from fluxbench.operations import error_scales, magnitudes, math_attention, qkv, rows, sampled_rows, symmetries
from fluxbench.operations.precision import EXACT
from fluxbench.operations.protocol import Bound, Kernel, Tensors
from fluxbench.operations.shapes import AttentionCall
from fluxbench.operations.workload import Cost, Shape

if TYPE_CHECKING:
    import torch

PARTS: Mapping[str, str] = {
    "copies": r"(?i)memcpy|copy|clone|transpose|permute|contiguous|CatArray",
    "other": r"Memset|FillFunctor",
}


class AttentionForward:
    """softmax(q k^T / sqrt(head_dim_qk)) v. Output: `out`, `[batch, seq_len_q, heads, head_dim_v]`, contiguous."""

    name = "attention"
    input_kinds: tuple[str, ...] = qkv.KINDS
    parts = PARTS
    differentiates = False

    def cost(self, shape: Shape) -> Cost:
        """Return the cost of a forward pass, see `AttentionCall.forward_cost`."""
        return self.attention(shape).forward_cost

    def attention(self, shape: Shape) -> AttentionCall:
        """Return the attention that a kernel is asked for."""
        return AttentionCall.of(shape)

    def inputs(self, shape: Shape, kind: str, seed: int, device: torch.device | str) -> Tensors:
        """Return q, k and v, see `qkv.make`."""
        return qkv.make(self.attention(shape), kind, qkv.generator(f"{sorted(shape.items())}", kind, seed, device))

    def rescale(self, shape: Shape, inputs: Tensors, rng: random.Random) -> None:
        """Rescale q, k and v."""
        magnitudes.rescale(inputs, self.attention(shape).dtype, rng)

    def reference(self, shape: Shape, inputs: Tensors, dtype: torch.dtype, precision: str = EXACT) -> Tensors:
        """Return unfused attention in a dtype."""
        return {"out": math_attention.forward(self.attention(shape), inputs, dtype, precision)}

    def reference_at(self, shape: Shape, inputs: Tensors, positions: Tensors) -> Tensors:
        """Return the rows of some queries in float64."""
        return {"out": sampled_rows.forward(self.attention(shape), inputs, positions["out"])}

    def varied(
        self, shape: Shape, inputs: Tensors, outputs: Tensors, positions: Tensors, rng: random.Random
    ) -> tuple[Tensors, Tensors]:
        """Return other q, k and v, and rows of their output, by `symmetries.varied`."""
        return symmetries.varied(self.attention(shape), inputs, outputs, positions, rng)

    def varied_scales(self, shape: Shape, scales: Tensors, positions: Tensors, rng: random.Random) -> Tensors:
        """Return the error scales of rows of what `varied` returns, by `symmetries.varied_scales`."""
        return symmetries.varied_scales(self.attention(shape), scales, positions, rng)

    def tokens_of_outputs(self, shape: Shape) -> dict[str, int]:
        """Return the tokens of the output."""
        return {"out": self.attention(shape).seq_len_q}

    def reference_rows(
        self, shape: Shape, inputs: Tensors, positions: Tensors, dtype: torch.dtype, precision: str = EXACT
    ) -> Tensors:
        """Return the rows of some queries of unfused attention in a dtype."""
        return {"out": rows.forward(self.attention(shape), inputs, positions["out"], dtype, precision)}

    def error_scales(
        self, shape: Shape, inputs: Tensors, outputs: Collection[str], positions: Tensors | None = None
    ) -> Tensors:
        """Return how large errors of rows are, one relative to another, see `error_scales.of`."""
        return error_scales.of(self.attention(shape), inputs, outputs, positions)

    def bind(self, kernel: Kernel, shape: Shape) -> Bound:
        """Return a call of the kernel's attention."""
        attend = kernel.attention(self.attention(shape))
        return Bound(lambda tensors: {"out": attend(tensors["q"], tensors["k"], tensors["v"])})
