"""Backward passes that are wrong, each beside a right output: functions that load a kernel for a call."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch

from fluxbench import variants
from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall

CHECKED = 5  # backward passes in which a kernel is checked, at most: three kinds of inputs, a ragged shape
Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Load = Callable[[AttentionCall], Attention]
Change = Callable[..., Gradients]


def gradients(
    call: AttentionCall, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dout: torch.Tensor, *, diagonal: int = 0
) -> Gradients:
    """Return dq, and dk and dv of each query head by itself: [batch, seq_len, heads, head_dim], float32.

    `diagonal`: by how many keys too many a query of a causal call sees.
    """
    group, scale = call.heads // call.kv_heads, call.head_dim_qk**-0.5
    rows, keys, values, of_rows = (x.float().transpose(1, 2) for x in (q, k, v, dout))
    keys, values = (x.repeat_interleave(group, dim=1) for x in (keys, values))
    scores = rows @ keys.mT * scale
    if call.causal:
        ahead = call.seq_len_k - call.seq_len_q + 1 + diagonal
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(ahead), -math.inf)
    weights = scores.softmax(-1)
    of_weights = of_rows @ values.mT
    of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdim=True)) * scale
    dq, dk, dv = (x.transpose(1, 2) for x in (of_scores @ keys, of_scores.mT @ rows, weights.mT @ of_rows))
    return dq, dk, dv


def loads(
    change: Callable[[], Change] = lambda: lambda call, dq, dk, dv: (dq, dk, dv),
    *,
    summed: bool = True,
    diagonal: int = 0,
    read: Callable[[torch.Tensor], torch.Tensor] = lambda dout: dout,
) -> Load:
    """Return the load of a kernel whose gradients go through `change()`, after those of a group were summed."""

    def load(call: AttentionCall) -> Attention:
        changed, attend = change(), variants.find("torch_math").variant.load(call)

        class Attend(torch.autograd.Function):  # type: ignore[misc]
            @staticmethod
            def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
                ctx.save_for_backward(q, k, v)
                return attend(q, k, v)

            @staticmethod
            def backward(ctx: Any, dout: torch.Tensor) -> Gradients:
                q, k, v = ctx.saved_tensors
                dq, *others = gradients(call, q, k, v, read(dout), diagonal=diagonal)
                of_groups = (x.unflatten(2, (call.kv_heads, -1)) for x in others)
                dk, dv = (x.sum(3) if summed else x[:, :, :, 0] for x in of_groups)
                found = changed(call, dq, dk, dv)
                return tuple(x.to(dout.dtype).contiguous() for x in found)

        return Attend.apply  # type: ignore[no-any-return]

    return load


def each_time(change: Change) -> Callable[[], Change]:
    return lambda: change


def without_last_block(call: AttentionCall, dq: torch.Tensor, dk: torch.Tensor, dv: torch.Tensor) -> Gradients:
    for x in (dk, dv):
        x[:, (call.seq_len_k - 1) // 32 * 32 :] = 0
    return dq, dk, dv


def one_nan(call: AttentionCall, dq: torch.Tensor, dk: torch.Tensor, dv: torch.Tensor) -> Gradients:
    dv[-1, -1, -1, -1] = math.nan
    return dq, dk, dv


def accumulated(honest: int = 0) -> Callable[[], Change]:
    """From a call on, gradients are added to those of the calls before."""

    def change() -> Change:
        sums: list[torch.Tensor] = []
        passes = itertools.count()

        def add(call: AttentionCall, *found: torch.Tensor) -> Gradients:
            if next(passes) < honest or not sums:
                sums[:] = found
            else:
                sums[:] = (total + x for total, x in zip(sums, found, strict=True))
            return sums[0], sums[1], sums[2]

        return add

    return change


def reused(honest: int = 0) -> Callable[[], Change]:
    """From a call on, it returns the gradients of the call before."""

    def change() -> Change:
        kept: list[Gradients] = []
        passes = itertools.count()

        def keep(call: AttentionCall, dq: torch.Tensor, dk: torch.Tensor, dv: torch.Tensor) -> Gradients:
            if next(passes) <= honest:
                kept[:] = [(dq, dk, dv)]
            return kept[0]

        return keep

    return change


def as_if_contiguous(dout: torch.Tensor) -> torch.Tensor:
    """Read an output's gradient by the strides of a contiguous one, whatever its own."""
    return dout.as_strided(dout.shape, torch.empty(dout.shape, device="meta").stride())


RIGHT = loads()
BACKWARDS: dict[str, Load] = {
    "dk_and_dv_swapped": loads(each_time(lambda call, dq, dk, dv: (dq, dv, dk))),
    "dq_without_scale": loads(each_time(lambda call, dq, dk, dv: (dq * call.head_dim_qk**0.5, dk, dv))),
    "groups_not_summed": loads(summed=False),
    "last_block_without_gradient": loads(each_time(without_last_block)),
    "mask_off_by_one": loads(diagonal=1),
    "one_nan": loads(each_time(one_nan)),
    "accumulated": loads(accumulated()),
    "reused": loads(reused()),
    "dout_as_if_contiguous": loads(read=as_if_contiguous),
    "accumulated_when_timed": loads(accumulated(CHECKED)),
    "reused_when_timed": loads(reused(CHECKED)),
}
