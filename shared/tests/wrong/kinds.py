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


def heads_first_strides(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The right shape, stored as [batch, heads, seq_len, head_dim]: the next layer would have to copy it."""
    return attention_of(q, k, v).transpose(1, 2).contiguous().transpose(1, 2)


def heads_first_shape(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The output is [batch, heads, seq_len, head_dim]."""
    return attention_of(q, k, v).transpose(1, 2).contiguous()


def broadcast_rows(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """One row of output, spread over all queries: the shape is right and the memory is not there."""
    return attention_of(q, k, v)[:, :1].expand(q.shape)


def one_row(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """One row of output alone, which would broadcast against the reference."""
    return attention_of(q, k, v)[:, :1].contiguous()


def returns_tuple(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> object:
    """The output and its log-sum-exp, as many libraries return them."""
    return attention_of(q, k, v), None


def float32_output(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The output is float32: it is more precise than asked for, and the next layer cannot take it."""
    return attention_of(q, k, v).float()


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


def output_in_q(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The output is written over q, which saves its memory, and whoever is next gets other inputs."""
    return q.copy_(attention_of(q, k, v))
