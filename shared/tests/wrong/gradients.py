"""Attentions whose output is right, and whose gradient is not."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fluxbench.operations.protocol import Attention
from wrong.right import attention_of


def of_bare_probabilities(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The rows of the scores' gradient do not sum to zero: the sum under the softmax is taken for a constant."""
    queries, keys, values = (x.transpose(1, 2).float() for x in (q, k, v))
    scores = (queries @ keys.transpose(-1, -2)) * q.shape[-1] ** -0.5
    weights = (scores - torch.logsumexp(scores, -1, keepdim=True).detach()).exp()
    return (weights.to(q.dtype).float() @ values).to(q.dtype).transpose(1, 2).contiguous()


def hooked(x: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    if x.requires_grad:
        x.register_hook(change)
    return x


def float8(gradient: torch.Tensor) -> torch.Tensor:
    return (448 * gradient).to(torch.float8_e4m3fn).to(gradient.dtype) / 448


GRADIENTS: dict[str, Attention] = {
    "half_of_v": lambda q, k, v: attention_of(q, k, 0.5 * v + 0.5 * v.detach()),
    # The softmax is taken for a constant: the gradients of q and k are zero.
    "none_of_the_scores": lambda q, k, v: attention_of(q.detach(), k.detach(), v) + 0 * (q + k),
    "of_bare_probabilities": of_bare_probabilities,
    # Of a variant that says that it is exact.
    "in_float8": lambda q, k, v: attention_of(hooked(q, float8), hooked(k, float8), hooked(v, float8)),
    # The gradients of two heads of k have changed places.
    "heads_swapped": lambda q, k, v: attention_of(q, hooked(k, lambda gradient: gradient.flip(2)), v),
}
