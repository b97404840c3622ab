"""Attention in training: q, k, v and the output's gradient -> out, dq, dk, dv. Both passes are one timed call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluxbench.operations import math_attention, rows
from fluxbench.operations.attention_backward import AttentionBackward, forward, gradients, leaves_of
from fluxbench.operations.precision import EXACT
from fluxbench.operations.protocol import Bound, Kernel, Tensors
from fluxbench.operations.shapes import AttentionCall
from fluxbench.operations.workload import Cost, Shape

if TYPE_CHECKING:
    import torch


class AttentionTraining(AttentionBackward):
    """Forward and backward pass, by autograd. Outputs: `out`, `[batch, seq_len_q, heads, head_dim_v]`, dq, dk and dv.

    All are contiguous; dq, dk and dv have the shapes of q, k and v.
    """

    name = "attention_training"
    part_of = None

    def cost(self, shape: Shape) -> Cost:
        """Return the cost of both passes.

        `flops` are 3.5 times those of the forward pass, `min_flops` three times (`AttentionBackward.cost`). Read are q,
        k, v and the output's gradient, written are the output, dq, dk and dv: as many bytes as in the backward pass.
        """
        one, other = self.attention(shape).forward_cost, super().cost(shape)
        return Cost(flops=one.flops + other.flops, min_flops=one.min_flops + other.min_flops, min_bytes=other.min_bytes)

    def attention(self, shape: Shape) -> AttentionCall:
        """Return the attention that a kernel is asked for."""
        return AttentionCall.of(shape, backward=True)

    def reference(self, shape: Shape, inputs: Tensors, dtype: torch.dtype, precision: str = EXACT) -> Tensors:
        """Return unfused attention and its gradients in a dtype."""
        return math_attention.training(self.attention(shape), inputs, dtype, precision)

    def tokens_of_outputs(self, shape: Shape) -> dict[str, int]:
        """Return the tokens of the output and of each gradient."""
        return {"out": self.attention(shape).seq_len_q, **super().tokens_of_outputs(shape)}

    def reference_rows(
        self, shape: Shape, inputs: Tensors, positions: Tensors, dtype: torch.dtype, precision: str = EXACT
    ) -> Tensors:
        """Return rows of unfused attention and of its gradients in a dtype."""
        out = rows.forward(self.attention(shape), inputs, positions["out"], dtype, precision)
        return {"out": out, **super().reference_rows(shape, inputs, positions, dtype, precision)}

    def bind(self, kernel: Kernel, shape: Shape) -> Bound:
        """Return both passes, from inputs that require gradients; each call has a graph of its own."""
        attend = kernel.attention(self.attention(shape))

        def call(tensors: Tensors) -> Tensors:
            leaves = leaves_of(tensors)
            out = forward(attend, leaves)
            return {"out": out.detach(), **gradients(out, leaves, tensors["dout"], retain_graph=False)}

        return Bound(call)
