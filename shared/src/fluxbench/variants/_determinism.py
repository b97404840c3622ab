"""A deterministic backward pass where torch's own switch asks for it, `torch.use_deterministic_algorithms`."""

from __future__ import annotations

from typing import Any

from fluxbench.operations.protocol import Attention


def deterministic_backward(attend: Attention) -> Attention:
    """Return the attention with deterministic algorithms switched on during its backward pass, and no longer.

    A user switches them on once. The backward passes of torch's backends read the switch; that it then fills new memory
    (`torch.utils.deterministic.fill_uninitialized_memory`) is part of a call's time.
    """
    import torch

    class DeterministicBackward(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            leaves = tuple(x.detach().requires_grad_() for x in inputs)
            with torch.enable_grad():
                out = attend(*leaves)
            ctx.inner = out, leaves
            return out.detach()

        @staticmethod
        def backward(ctx: Any, dout: Any) -> Any:
            out, leaves = ctx.inner
            before = torch.are_deterministic_algorithms_enabled()
            torch.use_deterministic_algorithms(True)
            try:
                return torch.autograd.grad(out, leaves, dout, retain_graph=True)
            finally:
                torch.use_deterministic_algorithms(before)

    def attend_in_training(q: Any, k: Any, v: Any) -> Any:
        return DeterministicBackward.apply(q, k, v)

    return attend_in_training
