"""Kernels whose output is of another kind, shape, dtype or layout than it must be, or that write over their inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from wrong.right import attention_of


class LazyTensor(torch.Tensor):  # type: ignore[misc]
    """A tensor whose values are computed by whatever is first done with it."""

    work: Callable[[], torch.Tensor] | None = None

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute what is left to do, then do what is asked."""
        with torch._C.DisableTorchFunctionSubclass():
            for lazy in args:
                if isinstance(lazy, LazyTensor) and lazy.work:
                    work, lazy.work = lazy.work, None
                    lazy.copy_(work())
            return func(*args, **(kwargs or {}))


def lazy_subclass(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """It returns a subclass of torch.Tensor that computes when it is first looked at, which is after the timing."""
    out = torch.empty_like(q).as_subclass(LazyTensor)
    out.work = lambda: attention_of(q, k, v)
    return out


def changes_inputs(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """It scales q where q lies, so that its own output is right and whoever is next gets other inputs."""
    out = attention_of(q, k, v)
    q.mul_(q.shape[-1] ** -0.5)
    return out


KINDS: dict[str, Any] = {
    # The right shape, stored as [batch, heads, seq_len, head_dim]: the next layer would have to copy it.
    "heads_first_strides": lambda *qkv: attention_of(*qkv).transpose(1, 2).contiguous().transpose(1, 2),
    "heads_first_shape": lambda *qkv: attention_of(*qkv).transpose(1, 2).contiguous(),
    # One row, spread over all queries: the shape is right and the memory is not there.
    "broadcast_rows": lambda *qkv: attention_of(*qkv)[:, :1].expand(qkv[0].shape),
    # One row alone, which would broadcast against the reference.
    "one_row": lambda *qkv: attention_of(*qkv)[:, :1].contiguous(),
    # With its log-sum-exp, as many libraries return it.
    "returns_tuple": lambda *qkv: (attention_of(*qkv), None),
    # More precise than asked for, and the next layer cannot take it.
    "float32_output": lambda *qkv: attention_of(*qkv).float(),
    "lazy_subclass": lazy_subclass,
    "changes_inputs": changes_inputs,
    # The output is written over q, which saves its memory, and whoever is next gets other inputs.
    "output_in_q": lambda *qkv: qkv[0].copy_(attention_of(*qkv)),
}
