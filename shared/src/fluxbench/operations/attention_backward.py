"""The gradient of attention: q, k, v and the output's gradient -> dq, dk, dv. The forward pass is not timed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from fluxbench.operations import magnitudes, math_attention, qkv
from fluxbench.operations.attention import PARTS
from fluxbench.operations.precision import EXACT
from fluxbench.operations.protocol import Bound, Kernel, Tensors
from fluxbench.operations.shapes import AttentionCall
from fluxbench.operations.workload import BYTES_PER_ELEMENT, Cost, Shape

if TYPE_CHECKING:
    import torch


class AttentionBackward:
    """The backward pass alone, by autograd. Outputs: `dq`, `dk` and `dv`, of the shapes of q, k and v, contiguous."""

    name = "attention_backward"
    input_kinds = qkv.KINDS_OF_GRADIENTS
    parts = PARTS
    differentiates = True

    def cost(self, shape: Shape) -> Cost:
        """Return the cost of a backward pass.

        `flops` are 2.5 times those of the forward pass: five matrix products to its two, one of them recomputed (Dao,
        FlashAttention-2, 2023, section 4.1). A kernel that keeps the probabilities needs four: `min_flops` are twice.
        Read are q, k, v, the output and its gradient, written are dq, dk and dv.
        """
        call = self.attention(shape)
        forward = call.forward_cost
        of_outputs = 2 * call.batch * call.seq_len_q * call.heads * call.head_dim_v * BYTES_PER_ELEMENT[call.dtype]
        of_one_pass = forward.min_bytes - of_outputs // 2  # q, k and v, or dq, dk and dv
        return Cost(
            flops=forward.flops * 5 // 2, min_flops=2 * forward.min_flops, min_bytes=2 * of_one_pass + of_outputs
        )

    def attention(self, shape: Shape) -> AttentionCall:
        """Return the attention that a kernel is asked for."""
        return AttentionCall.of(shape, backward=True)

    def inputs(self, shape: Shape, kind: str, seed: int, device: torch.device | str) -> Tensors:
        """Return q, k, v and `dout`, `[batch, seq_len_q, heads, head_dim_v]`, normal noise."""
        import torch

        call = self.attention(shape)
        rng = qkv.generator(f"{sorted(shape.items())}", kind, seed, device)
        tensors = qkv.make(call, kind, rng)
        of_output = (call.batch, call.seq_len_q, call.heads, call.head_dim_v)
        tensors["dout"] = torch.randn(of_output, generator=rng, device=rng.device).to(tensors["q"].dtype)
        return tensors

    def rescale(self, shape: Shape, inputs: Tensors, rng: random.Random) -> None:
        """Rescale q, k and v."""
        magnitudes.rescale(inputs, self.attention(shape).dtype, rng)

    def reference(self, shape: Shape, inputs: Tensors, dtype: torch.dtype, precision: str = EXACT) -> Tensors:
        """Return the gradients of unfused attention in a dtype."""
        return math_attention.backward(self.attention(shape), inputs, dtype, precision)

    def reference_at(self, shape: Shape, inputs: Tensors, positions: Tensors) -> None:
        """Return None: a row of dk or dv needs the softmax of every query."""
        return None

    def bind(self, kernel: Kernel, shape: Shape) -> Bound:
        """Return a backward pass, whose preparation is the forward pass."""
        import torch

        attend = kernel.attention(self.attention(shape))

        def prepare(tensors: Tensors) -> tuple[Any, ...]:
            leaves = tuple(tensors[name].detach().requires_grad_() for name in "qkv")
            with torch.enable_grad():
                out = attend(*leaves)
            if not getattr(out, "requires_grad", False):
                raise NotImplementedError("its output has no gradient with respect to q, k and v")
            return out, leaves, tensors["dout"]

        def call(prepared: tuple[Any, ...]) -> Tensors:
            out, leaves, dout = prepared
            gradients = torch.autograd.grad(out, leaves, dout, retain_graph=True)
            # As the projection before it takes them; a copy only where the kernel wrote another layout.
            return {name: gradient.contiguous() for name, gradient in zip(("dq", "dk", "dv"), gradients, strict=True)}

        return Bound(call, prepare)
