"""Kernels that are right, each in an order or an arithmetic of its own: none may be refused.

Each takes q, k, v, `[batch, seq_len, heads, head_dim]`, and whether they are causal (aligned to the end).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch

from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall

Odd = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, bool], torch.Tensor]
LOG2E = math.log2(math.e)
BLOCK = 32  # keys
LAZY = 8.0  # by which a maximum may grow, in base 2, before sums are rescaled (FlashAttention-4)
SPLITS = 3


def heads_first(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return float32 `[batch, heads, seq_len, head_dim]`, heads of k and v repeated for those of q."""
    heads = inputs[0].shape[2]
    return tuple(x.transpose(1, 2).float().repeat_interleave(heads // x.shape[2], dim=1) for x in inputs)


def back(out: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return out.to(dtype).transpose(1, 2).contiguous()


def masked(scores: torch.Tensor, causal: bool) -> torch.Tensor:
    queries, keys = scores.shape[-2:]
    hidden = torch.ones(queries, keys, dtype=torch.bool).triu(keys - queries + 1)
    return scores.masked_fill(hidden, -math.inf) if causal else scores


def cubic_exp2(x: torch.Tensor) -> torch.Tensor:
    """Return 2**x with a relative error up to 9e-5 (Zadouri et al., FlashAttention-4, 2026)."""
    x = x.clamp_min(-127)
    whole = x.floor()
    part = x - whole
    return torch.ldexp(((0.07711909 * part + 0.22756439) * part + 0.69514614) * part + 1.0, whole)


def streamed(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    *,
    block: int = BLOCK,
    lazy: float = 0.0,
    exp2: Callable[[torch.Tensor], torch.Tensor] = torch.exp2,
    low: torch.dtype | None = None,
) -> torch.Tensor:
    """Return attention by an online softmax over blocks of keys; its probabilities are rounded to `low`."""
    queries, keys, values = heads_first(q, k, v)
    out, _ = stream(queries, keys, values, causal, block=block, lazy=lazy, exp2=exp2, low=low or q.dtype)
    return back(out, q.dtype)


def stream(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    *,
    block: int,
    lazy: float,
    exp2: Callable[[torch.Tensor], torch.Tensor],
    low: torch.dtype,
    begin: int = 0,
    end: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the output over keys from `begin` to `end`, and the log2 of the sum of its weights."""
    scores = masked((q @ k.mT) * (q.shape[-1] ** -0.5 * LOG2E), causal)
    top = torch.full_like(scores[..., :1], -1e30)
    total, out = torch.zeros_like(top), torch.zeros(*q.shape[:-1], v.shape[-1])
    end = k.shape[2] if end is None else end
    for start in range(begin, end, block):
        part = slice(start, min(start + block, end))
        highest = torch.maximum(top, scores[..., part].amax(-1, keepdim=True))
        new = torch.where(highest - top > lazy, highest, top)
        weights, shrink = exp2(scores[..., part] - new), exp2(top - new)
        total = total * shrink + weights.sum(-1, keepdim=True)
        out = out * shrink + weights.to(low).float() @ v[..., part, :].to(low).float()
        top = new
    return out / total.clamp_min(1e-30), top + total.clamp_min(1e-30).log2()


def split_kv(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """Keys are cut into parts, whose outputs are put together by their sums."""
    size = -(-k.shape[1] // SPLITS)
    queries, keys, values = heads_first(q, k, v)
    parts = [
        stream(queries, keys, values, causal, block=BLOCK, lazy=0.0, exp2=torch.exp2, low=q.dtype, begin=at,
               end=min(at + size, k.shape[1]))
        for at in range(0, k.shape[1], size)
    ]  # fmt: skip
    shares = torch.stack([sums for _, sums in parts]).mul(1 / LOG2E).softmax(0)
    return back(sum(share * out for share, (out, _) in zip(shares, parts, strict=True)), q.dtype)


def prescaled(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, base: float = LOG2E) -> torch.Tensor:
    """q is scaled and rounded before it meets k."""
    low = (q.float() * (q.shape[-1] ** -0.5 * base)).to(q.dtype)
    queries, keys, values = heads_first(low, k, v)
    scores = masked(queries @ keys.mT, causal) * (LOG2E / base)
    weights = (scores - scores.amax(-1, keepdim=True)).exp2()
    return back((weights.to(q.dtype).float() @ values) / weights.sum(-1, keepdim=True), q.dtype)


def permuted(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """Keys are visited from the last to the first."""
    queries, keys, values = heads_first(q, k, v)
    scores = masked(queries @ keys.mT, causal).flip(-1) * q.shape[-1] ** -0.5
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    return back((weights.to(q.dtype).float() @ values.flip(2)) / weights.sum(-1, keepdim=True), q.dtype)


def static_output(call: AttentionCall) -> Attention:
    """Every call writes its output to the same memory, as under CUDA graphs."""
    kept: list[torch.Tensor] = []

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out = streamed(q, k, v, call.causal)
        kept.append(out) if not kept else kept[0].copy_(out)
        return kept[0]

    return attend


def unfused(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    *,
    order: str,
    low: bool = False,
    summed: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Return attention by whole matrices, scaled where `order` says; `low`: what lies between is in the inputs' dtype.

    `summed` float16: each partial sum of 16 products is rounded.
    """
    dtype = q.dtype if low else torch.float32

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if summed == torch.float32:
            return (a.float() @ b.float()).to(dtype)
        total = torch.zeros(*a.shape[:-1], b.shape[-1], dtype=summed)
        for at in range(0, a.shape[-1], 16):
            total = (total.float() + a[..., at : at + 16].float() @ b[..., at : at + 16, :].float()).to(summed)
        return total.to(dtype)

    queries, keys, values = (x.to(dtype) for x in heads_first(q, k, v))
    scale = q.shape[-1] ** -0.5
    if order == "q":
        scores = product(queries * scale, keys.mT)
    elif order == "k":
        scores = product(queries, (keys * scale).mT)
    elif order == "both":
        scores = product(queries * scale**0.5, (keys * scale**0.5).mT)
    else:
        scores = product(queries, keys.mT) * scale
    scores = masked(scores, causal)
    if order == "late":  # the sum divides the output
        weights = (scores - scores.amax(-1, keepdim=True)).exp()
        return back(product(weights, values) / weights.sum(-1, keepdim=True), q.dtype)
    return back(product(scores.softmax(-1), values), q.dtype)


def tf32(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, *, truncates: bool) -> torch.Tensor:
    """Operands of matrix products have 11 significant bits, as on tensor cores."""

    def low(x: torch.Tensor) -> torch.Tensor:
        return ((x.view(torch.int32) + (0 if truncates else 0x1000)) & ~0x1FFF).view(torch.float32)

    queries, keys, values = (x.contiguous() for x in heads_first(q, k, v))
    scores = masked(low(queries) @ low(keys).mT, causal) * q.shape[-1] ** -0.5
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    return back((low(weights) @ low(values)) / weights.sum(-1, keepdim=True), q.dtype)


def of(odd: Odd) -> Callable[[AttentionCall], Attention]:
    return lambda call: lambda q, k, v: odd(q, k, v, call.causal)


ORDERS = ("q", "k", "both", "scores", "late")
EXACT: dict[str, Callable[[AttentionCall], Attention]] = {
    "online": of(streamed),
    "one_block": of(functools.partial(streamed, block=1 << 20)),
    "lazily_rescaled": of(functools.partial(streamed, lazy=LAZY)),
    "cubic_exp2": of(functools.partial(streamed, exp2=cubic_exp2)),
    "fp16_inside": of(functools.partial(streamed, low=torch.float16)),
    "split_kv": of(split_kv),
    "prescaled": of(prescaled),
    "prescaled_base_e": of(functools.partial(prescaled, base=1.0)),
    "permuted": of(permuted),
    "static_output": static_output,
    **{f"unfused_{order}": of(functools.partial(unfused, order=order)) for order in ORDERS},
}
ROUNDED: dict[str, Callable[[AttentionCall], Attention]] = {
    f"unfused_{order}": of(functools.partial(unfused, order=order, low=True)) for order in ORDERS
}
IN_FLOAT16 = {
    f"summed_{order}": of(functools.partial(unfused, order=order, low=True, summed=torch.float16)) for order in ORDERS
}
TF32 = {f"tf32_{name}": of(functools.partial(tf32, truncates=cut)) for name, cut in (("cut", True), ("near", False))}
