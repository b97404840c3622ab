"""Rows of unfused attention and of its gradients at a few tokens, in any precision.

For calls so long that all of it would take seconds in float64, and minutes in float32 sums that are added up in turn.
Rows of the output and of dq need the scores of their own queries alone. A row of dk or dv needs those of all queries at
one key, and of each query the maximum and the sum of its softmax and its output. These come from one pass over all
scores that rounds as the precision does but adds up in float64: sums in turn would need a kernel launch a key. Scores
of float32 that are added up in turn later differ from it by that, so errors of dk and dv are up to 1.7 times as large.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from fluxbench.operations import arithmetic, math_attention
from fluxbench.operations.arithmetic import Arithmetic
from fluxbench.operations.precision import EXACT
from fluxbench.operations.shapes import AttentionCall

if TYPE_CHECKING:
    import torch

    from fluxbench.operations.protocol import Tensors

_SCORES_BYTES = 1 << 28  # of the scores of some heads in float64


def forward(
    call: AttentionCall, inputs: Tensors, positions: torch.Tensor, dtype: torch.dtype, precision: str = EXACT
) -> torch.Tensor:
    """Return the output of some queries, `[batch, count, heads, head_dim_v]`, in a dtype; `positions`: `[count]`."""
    import torch

    rounds, wide = arithmetic.of(dtype, precision), torch.promote_types(dtype, torch.float32)
    hidden = _hidden(call, positions[:, None], torch.arange(call.seq_len_k, device=positions.device)[None, :])
    shape = (call.batch, len(positions), call.heads, call.head_dim_v)
    out = torch.empty(shape, dtype=dtype, device=positions.device)
    for batch, heads, kv_heads in _heads(call, len(positions) * call.seq_len_k):
        q, k, v = (
            _of(inputs[name], batch, which, wide)
            for name, which in zip("qkv", (heads, kv_heads, kv_heads), strict=True)
        )
        weights = math_attention.probabilities(q[:, positions], k, hidden=hidden, rounds=rounds)
        out[batch, :, heads] = rounds.product(rounds.operand(weights), rounds.operand(v)).transpose(0, 1).to(dtype)
    return out


def backward(
    call: AttentionCall, inputs: Tensors, positions: Tensors, dtype: torch.dtype, precision: str = EXACT
) -> Tensors:
    """Return rows of dq, dk and dv, `[batch, count, heads or kv_heads, head_dim]`, in a dtype.

    `positions` holds tokens by output, `[count]`, int64.
    """
    import torch

    rounds, wide = arithmetic.of(dtype, precision), torch.promote_types(dtype, torch.float32)
    of_q, of_k, of_v = (positions[name] for name in ("dq", "dk", "dv"))
    every_query = torch.arange(call.seq_len_q, device=of_q.device)[:, None]
    hidden = _hidden(call, of_q[:, None], torch.arange(call.seq_len_k, device=of_q.device)[None, :])
    shapes = {"dq": (len(of_q), call.heads, call.head_dim_qk), "dk": (len(of_k), call.kv_heads, call.head_dim_qk)}
    shapes["dv"] = (len(of_v), call.kv_heads, call.head_dim_v)
    found = {name: torch.zeros(call.batch, *shape, dtype=wide, device=of_q.device) for name, shape in shapes.items()}
    most = max(len(of_q) * call.seq_len_k, max(len(of_k), len(of_v)) * call.seq_len_q)
    for batch, heads, kv_heads in _heads(call, most):
        which = (heads, kv_heads, kv_heads, heads)
        q, k, v, dout = (
            _of(inputs[name], batch, its, wide) for name, its in zip(("q", "k", "v", "dout"), which, strict=True)
        )
        softmax = _softmax(call, q, k, v, rounds)
        _, of_queries, *_ = math_attention.gradients(q[:, of_q], k, v, dout[:, of_q], hidden=hidden, rounds=rounds)
        found["dq"][batch, :, heads] = of_queries.transpose(0, 1)
        for name, of in (("dk", of_k), ("dv", of_v)):
            unseen = _hidden(call, every_query, of[None, :])
            of_keys = _of_keys(q, k[:, of], v[:, of], dout, softmax, unseen, rounds)[name == "dv"]
            found[name][batch].index_add_(1, torch.tensor(kv_heads, device=of.device), of_keys.transpose(0, 1))
    return {name: rows.to(dtype) for name, rows in found.items()}


class _Softmax(NamedTuple):
    """What one pass says of each query: the largest power of two, the sum over it, and the output."""

    largest: torch.Tensor  # [heads, seq_len_q, 1]
    total: torch.Tensor  # [heads, seq_len_q, 1]
    out: torch.Tensor  # [heads, seq_len_q, head_dim_v]


def _softmax(call: AttentionCall, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rounds: Arithmetic) -> _Softmax:
    """Return it for all queries, some at a time, with the keys that these see; q, k, v: `[heads, tokens, head_dim]`."""
    import torch

    exact = replace(rounds, product=rounds.summed_exactly)
    step = max(1, _SCORES_BYTES // (8 * len(q) * call.seq_len_k))
    every = torch.arange(max(call.seq_len_q, call.seq_len_k), device=q.device)
    parts = []
    for start in range(0, call.seq_len_q, step):
        stop = min(start + step, call.seq_len_q)
        seen_by_all, seen = call.keys_seen(start), call.keys_seen(stop - 1)
        powers = math_attention.binary_scores(q[:, start:stop], k[:, :seen], exact)
        hidden = _hidden(call, every[start:stop, None], every[None, seen_by_all:seen])
        if hidden is not None:
            powers[..., seen_by_all:].masked_fill_(hidden, float("-inf"))
        largest = powers.amax(dim=-1, keepdim=True)
        weights = rounds.intermediate(rounds.intermediate(powers.sub_(largest)).exp2())
        total = rounds.intermediate(weights.sum(dim=-1, keepdim=True))
        weights = rounds.operand(rounds.intermediate(weights.div_(total)).to(q.dtype))
        parts.append((largest, total, exact.product(weights, rounds.operand(v[:, :seen]))))
    return _Softmax(*(torch.cat(part, dim=1).to(q.dtype) for part in zip(*parts, strict=True)))


def _of_keys(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor,
    softmax: _Softmax,
    hidden: torch.Tensor | None,
    rounds: Arithmetic,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return dk and dv of some keys, `[heads, count, head_dim]`, rounded as `math_attention.gradients` does."""
    powers = math_attention.binary_scores(q, k, rounds)
    if hidden is not None:
        powers = powers.masked_fill(hidden, float("-inf"))
    weights = rounds.intermediate(rounds.intermediate(powers - softmax.largest).exp2())
    weights = rounds.intermediate(weights / softmax.total)
    q, v, dout, operands = (rounds.operand(x) for x in (q, v, dout, weights))
    delta = (dout * rounds.operand(softmax.out)).sum(dim=-1, keepdim=True)
    of_weights = rounds.intermediate(rounds.product(dout, v.mT))
    of_scores = rounds.operand(weights * (of_weights - delta))
    return rounds.product(of_scores.mT, q) * q.shape[-1] ** -0.5, rounds.product(operands.mT, dout)


def _heads(call: AttentionCall, scores: int) -> Iterator[tuple[int, list[int], list[int]]]:
    """Yield batch entry, some query heads and the head of k and v of each; `scores` are those of one head."""
    step = max(1, _SCORES_BYTES // (8 * scores))
    for batch in range(call.batch):
        for start in range(0, call.heads, step):
            heads = list(range(start, min(start + step, call.heads)))
            yield batch, heads, [head * call.kv_heads // call.heads for head in heads]


def _of(x: torch.Tensor, batch: int, heads: list[int], dtype: torch.dtype) -> torch.Tensor:
    """Return some heads of `[batch, tokens, heads, head_dim]` as `[heads, tokens, head_dim]`."""
    return x[batch][:, heads].transpose(0, 1).to(dtype)


def _hidden(call: AttentionCall, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor | None:
    """Return which keys a query does not see, `[queries, keys]`; None where all see all."""
    return keys > queries + call.seq_len_k - call.seq_len_q if call.causal else None
