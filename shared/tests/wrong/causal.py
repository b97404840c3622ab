"""Causal attention with its gradients, in many orders of sums that are right, and with faults that are not.

All of it is FlashAttention-2's arithmetic (Dao, 2023, algorithms 1 and 2) on whole matrices of scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from fluxbench.operations.protocol import Tensors

Change = Callable[[torch.Tensor], torch.Tensor]
Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
LOG2E = math.log2(math.e)
TILE = 32  # keys


def same(x: torch.Tensor) -> torch.Tensor:
    return x


def bfloat16(x: torch.Tensor) -> torch.Tensor:
    return x.bfloat16().float()


def truncated(x: torch.Tensor, *, rounds: bool = False) -> torch.Tensor:
    return ((x.contiguous().view(torch.int32) + 0x1000 * rounds) & ~0x1FFF).view(torch.float32)


def by_tf32(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return truncated(a) @ truncated(b)


def by_three(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Three products of TF32, whose sums of 8 are added up in turn, as CUTLASS has it."""
    big_a, big_b = truncated(a), truncated(b)
    small_a, small_b = truncated(a - big_a, rounds=True), truncated(b - big_b, rounds=True)
    total = torch.zeros(*a.shape[:-1], b.shape[-1])
    for at in range(0, a.shape[-1], 8):
        part = slice(at, at + 8)
        for one, other in ((small_a, big_b), (big_a, small_b), (big_a, big_b)):
            total = total + one[..., part] @ other[..., part, :]
    return total


def in_parts(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Four parts of the sum are added up at the end."""
    size = -(-a.shape[-1] // 4)
    parts = [a[..., at : at + size] @ b[..., at : at + size, :] for at in range(0, a.shape[-1], size)]
    return torch.stack(parts).sum(0)


def in_float16(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(*a.shape[:-1], b.shape[-1])
    for at in range(0, a.shape[-1], 16):
        total = (total + a[..., at : at + 16] @ b[..., at : at + 16, :]).half().float()
    return total


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """How a kernel adds up and rounds, and what is wrong with it."""

    product: Product = torch.matmul
    block: int = 0  # keys of an online softmax; 0: all at once
    scales_q: bool = False  # before the product, else the scores
    natural: bool = False  # exp, else exp2
    unfused: bool = False  # probabilities are divided by their sum before they meet v
    scores: Change = same  # [heads, queries, keys]
    probabilities: Change = same  # before they meet v and dout
    hidden: int = 1  # diagonals above the main one from which on keys are hidden
    delta: Change = same  # [heads, queries, 1]
    gradient: Change = same  # of the scores

    def __call__(self, inputs: Tensors) -> Tensors:
        """Return out, dq, dk and dv, `[1, tokens, heads, head_dim]`; out alone where there is no `dout`."""
        dtype = inputs["q"].dtype
        low = same if dtype == torch.float32 else bfloat16
        q, k, v = (inputs[name][0].transpose(0, 1).float() for name in "qkv")
        base = 1.0 if self.natural else LOG2E
        power = torch.exp if self.natural else torch.exp2
        scale = q.shape[-1] ** -0.5
        before, after = (scale * base, 1.0) if self.scales_q else (1.0, scale * base)
        scores = self.product(q * before, k.mT) * after
        unseen = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(self.hidden)
        scores = self.scores(scores).masked_fill(unseen, -math.inf)
        out, sums = self._forward(scores, v, power, low)
        given = {"out": low(out)}
        if "dout" in inputs:
            dout = inputs["dout"][0].transpose(0, 1).float()
            weights = power(scores - sums)
            delta = self.delta((dout * given["out"]).sum(-1, keepdim=True))
            of_scores = low(self.gradient(weights * (self.product(dout, v.mT) - delta)))
            given["dq"] = self.product(of_scores, k) * scale
            given["dk"] = self.product(of_scores.mT, q) * scale
            given["dv"] = self.product(self.probabilities(low(weights)).mT, dout)
        return {name: x.transpose(0, 1).unsqueeze(0).to(dtype).contiguous() for name, x in given.items()}

    def _forward(
        self, scores: torch.Tensor, v: torch.Tensor, power: Change, low: Change
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the output, and what the scores' exponential is divided by as a score."""
        logarithm = torch.log if self.natural else torch.log2
        top = torch.full_like(scores[..., :1], -1e30)
        total, out = torch.zeros_like(top), torch.zeros_like(v)
        for at in range(0, scores.shape[-1], self.block or scores.shape[-1]):
            part = slice(at, at + (self.block or scores.shape[-1]))
            highest = torch.maximum(top, scores[..., part].amax(-1, keepdim=True))
            weights, shrink = power(scores[..., part] - highest), power(top - highest)
            total = total * shrink + weights.sum(-1, keepdim=True)
            if self.unfused:
                weights, shrink = weights / total, torch.ones_like(shrink)
            out = out * shrink + self.product(self.probabilities(low(weights)), v[..., part, :])
            top = highest
        return out if self.unfused else out / total, top + logarithm(total)


def _without_tile(scores: torch.Tensor) -> torch.Tensor:
    """The second half of the queries does not see one tile of keys."""
    scores = scores.clone()
    scores[:, scores.shape[1] // 2 :, TILE : 2 * TILE] = -math.inf
    return scores


def _without_last_tile(scores: torch.Tensor) -> torch.Tensor:
    """The last queries see none of the last keys but their own."""
    last = slice(scores.shape[-1] - TILE, None)
    below = torch.ones(TILE, TILE, dtype=torch.bool).tril(-1)
    scores = scores.clone()
    scores[:, last, last] = scores[:, last, last].masked_fill(below, -math.inf)
    return scores


def _one_head(change: Change) -> Change:
    return lambda x: torch.cat((change(x[:1]), x[1:]))


def _first_row(change: Change) -> Change:
    return lambda x: torch.cat((change(x[:, :1]), x[:, 1:]), dim=1)


RIGHT: Mapping[str, Kernel] = {
    "at once": Kernel(),
    "blocks of 64": Kernel(block=64),
    "blocks of 128, q scaled": Kernel(block=128, scales_q=True),
    "base e": Kernel(block=64, natural=True),
    "unfused": Kernel(unfused=True),
    "sums in parts": Kernel(product=in_parts),
}
IN_FLOAT32 = {"three products of TF32": Kernel(product=by_three, block=64)}
TF32 = {"tf32": Kernel(product=by_tf32, block=64), "tf32 unfused": Kernel(product=by_tf32, unfused=True)}
WRONG: Mapping[str, Kernel] = {
    "a tile of keys is left out": Kernel(block=64, scores=_without_tile),
    "the last tile is left out": Kernel(block=64, scores=_without_last_tile),
    "one head is not scaled": Kernel(block=64, scores=_one_head(lambda x: x * 8)),
    "the mask is off by one": Kernel(block=64, hidden=2),
    "the mask hides the diagonal": Kernel(block=64, scores=lambda x: x - 30 * torch.eye(x.shape[-1])),
}
WRONG_GRADIENT: Mapping[str, Kernel] = {
    "no D": Kernel(block=64, delta=torch.zeros_like),
    "no D in the first row": Kernel(block=64, delta=_first_row(torch.zeros_like)),
    "the last row's gradient is zero": Kernel(block=64, gradient=lambda x: torch.cat((x[:, :-1], 0 * x[:, -1:]), 1)),
}
WRONG_IN_FLOAT32: Mapping[str, Kernel] = {
    "TF32": Kernel(product=by_tf32, block=64),
    "probabilities in bfloat16": Kernel(block=64, probabilities=bfloat16),
    "sums in float16": Kernel(product=in_float16, unfused=True),
}
