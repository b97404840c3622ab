"""Attentions whose output is right, and whose gradient is not."""

from __future__ import annotations

import torch

from wrong.right import attention_of


def half_of_v(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The gradient of v is half of what it must be."""
    return attention_of(q, k, 0.5 * v + 0.5 * v.detach())


def none_of_the_scores(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The softmax is taken for a constant: the gradients of q and k are zero."""
    return attention_of(q.detach(), k.detach(), v) + 0 * (q + k)


def of_bare_probabilities(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The rows of the scores' gradient do not sum to zero: the sum under the softmax is taken for a constant."""
    queries, keys, values = (x.transpose(1, 2).float() for x in (q, k, v))
    scores = (queries @ keys.transpose(-1, -2)) * q.shape[-1] ** -0.5
    weights = (scores - torch.logsumexp(scores, -1, keepdim=True).detach()).exp()
    return (weights.to(q.dtype).float() @ values).to(q.dtype).transpose(1, 2).contiguous()


def in_float8(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Gradients go through float8 (e4m3), and the variant says that it is exact."""
    for x in (q, k, v):
        if x.requires_grad:
            x.register_hook(lambda gradient: (448 * gradient).to(torch.float8_e4m3fn).to(gradient.dtype) / 448)
    return attention_of(q, k, v)


def heads_swapped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The gradients of two heads of k have changed places."""
    if k.requires_grad:
        k.register_hook(lambda gradient: gradient.flip(2))
    return attention_of(q, k, v)
