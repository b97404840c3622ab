"""float32 matrix products in TF32 where torch's own switch asks for it, `torch.backends.cuda.matmul.allow_tf32`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from fluxbench.operations.protocol import Attention


@contextlib.contextmanager
def tf32() -> Iterator[None]:
    """Let torch's float32 matrix products on a GPU round their operands to TF32 in this context."""
    import torch

    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def in_tf32(attend: Attention, *, backward: bool) -> Attention:
    """Return the attention with its matrix products in TF32, those of its backward pass too where that is asked for.

    A user switches TF32 on once. Here it is on during a call alone, so that other variants keep float32.
    """
    import torch

    class InTf32(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            leaves = tuple(x.detach().requires_grad_() for x in inputs)
            with tf32(), torch.enable_grad():
                out = attend(*leaves)
            ctx.inner = out, leaves
            return out.detach()

        @staticmethod
        def backward(ctx: Any, dout: Any) -> Any:
            out, leaves = ctx.inner
            with tf32():
                return torch.autograd.grad(out, leaves, dout, retain_graph=True)

    def attend_in_tf32(q: Any, k: Any, v: Any) -> Any:
        if backward:
            return InTf32.apply(q, k, v)
        with tf32():
            return attend(q, k, v)

    return attend_in_tf32
