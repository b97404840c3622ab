"""The gradient of attention: q, k, v and the output's gradient -> dq, dk, dv. The forward pass is not timed."""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from fluxbench.operations import error_scales, magnitudes, math_attention, qkv, rows, symmetries
from fluxbench.operations.attention import PARTS
from fluxbench.operations.precision import EXACT
from fluxbench.operations.protocol import Attention, Bound, Kernel, Tensors
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
    part_of: str | None = "attention_training"
    lacks = ("out",)

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
        return AttentionCall.of(shape, backward=True, retain_graph=True)

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
        found = math_attention.training(self.attention(shape), inputs, dtype, precision)
        return {name: found[name] for name in ("dq", "dk", "dv")}

    def reference_at(self, shape: Shape, inputs: Tensors, positions: Tensors) -> None:
        """Return None: a row of dk or dv needs the softmax of every query."""
        return None

    def varied(
        self, shape: Shape, inputs: Tensors, outputs: Tensors, positions: Tensors, rng: random.Random
    ) -> tuple[Tensors, Tensors]:
        """Return other inputs, and rows of their gradients, by `symmetries.varied`."""
        return symmetries.varied(self.attention(shape), inputs, outputs, positions, rng)

    def varied_scales(self, shape: Shape, scales: Tensors, positions: Tensors, rng: random.Random) -> Tensors:
        """Return the error scales of rows of what `varied` returns, by `symmetries.varied_scales`."""
        return symmetries.varied_scales(self.attention(shape), scales, positions, rng)

    def tokens_of_outputs(self, shape: Shape) -> dict[str, int]:
        """Return the tokens of each gradient."""
        call = self.attention(shape)
        return {"dq": call.seq_len_q, "dk": call.seq_len_k, "dv": call.seq_len_k}

    def reference_rows(
        self, shape: Shape, inputs: Tensors, positions: Tensors, dtype: torch.dtype, precision: str = EXACT
    ) -> Tensors:
        """Return rows of the gradients of unfused attention in a dtype."""
        return rows.backward(self.attention(shape), inputs, positions, dtype, precision)

    def error_scales(
        self, shape: Shape, inputs: Tensors, outputs: Collection[str], positions: Tensors | None = None
    ) -> Tensors:
        """Return how large errors of rows are, one relative to another, see `error_scales.of`."""
        return error_scales.of(self.attention(shape), inputs, outputs, positions)

    def bind(self, kernel: Kernel, shape: Shape) -> Bound:
        """Return a backward pass, whose preparation is the forward pass."""
        attend = kernel.attention(self.attention(shape))

        def prepare(tensors: Tensors) -> tuple[Any, ...]:
            leaves = leaves_of(tensors)
            return forward(attend, leaves), leaves, tensors["dout"]

        def call(prepared: tuple[Any, ...]) -> Tensors:
            return gradients(*prepared, retain_graph=True)

        return Bound(call, prepare)


def leaves_of(tensors: Tensors) -> tuple[torch.Tensor, ...]:
    """Return q, k and v as leaves of a new graph, in the memory of the inputs."""
    return tuple(tensors[name].detach().requires_grad_() for name in "qkv")


def forward(attend: Attention, leaves: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Return the output with its graph. Raises `NotImplementedError` if the output has no gradient."""
    import torch

    with torch.enable_grad():
        out = attend(*leaves)
    if not getattr(out, "requires_grad", False):
        raise NotImplementedError("its output has no gradient with respect to q, k and v")
    return out


def gradients(
    out: torch.Tensor, leaves: tuple[torch.Tensor, ...], dout: torch.Tensor, *, retain_graph: bool
) -> Tensors:
    """Return dq, dk and dv; nothing accumulates over calls.

    Each is contiguous, as the projection before attention takes it: a copy only if the kernel wrote another layout.
    Raises `NotImplementedError` if the output does not depend on one of q, k and v.
    """
    import torch

    found = torch.autograd.grad(out, leaves, dout, retain_graph=retain_graph, allow_unused=True)
    if missing := [name for name, gradient in zip("qkv", found, strict=True) if gradient is None]:
        raise NotImplementedError(f"its output has no gradient with respect to {' and '.join(missing)}")
    return {name: gradient.contiguous() for name, gradient in zip(("dq", "dk", "dv"), found, strict=True)}
