"""Attention forward: q, k, v -> out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from fluxbench.operations import math_attention, qkv, symmetries
from fluxbench.operations.precision import EXACT
from fluxbench.operations.protocol import Bound, Kernel, Perturbation, Tensors
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

    def reference(self, shape: Shape, inputs: Tensors, dtype: torch.dtype, precision: str = EXACT) -> Tensors:
        """Return unfused attention in a dtype."""
        return {"out": math_attention.forward(self.attention(shape), inputs, dtype, precision)}

    def bind(self, kernel: Kernel, shape: Shape) -> Bound:
        """Return a call of the kernel's attention."""
        attend = kernel.attention(self.attention(shape))
        return Bound(lambda tensors: {"out": attend(tensors["q"], tensors["k"], tensors["v"])})

    def perturbations(self, shape: Shape, inputs: Tensors, rng: torch.Generator) -> Iterator[Perturbation]:
        """Yield exact symmetries of attention."""
        for symmetry in symmetries.of(self.attention(shape), inputs, rng):
            yield Perturbation(symmetry.inputs(inputs), symmetry.outputs)
