"""Unfused attention in any precision, by heads and blocks of queries, so that 75,600 tokens fit.

Several heads that are short are computed at once: a shape of 64 batch entries and 24 heads has 1,536.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fluxbench.operations import arithmetic
from fluxbench.operations.arithmetic import Arithmetic
from fluxbench.operations.precision import EXACT
from fluxbench.operations.shapes import AttentionCall

if TYPE_CHECKING:
    import torch

    from fluxbench.operations.protocol import Tensors

_SCORES_BYTES = 1 << 28  # of one block of scores in float64
_KEYS_AT_ONCE = 4096  # of one query, in float64
_CPU_HEADS_BYTES = 1 << 24  # of the scores of several heads at once on a CPU, whose caches hold no more


def forward(call: AttentionCall, inputs: Tensors, dtype: torch.dtype, precision: str = EXACT) -> torch.Tensor:
    """Return softmax(q k^T / sqrt(head_dim)) v, `[batch, seq_len_q, heads, head_dim_v]`, in a dtype.

    In float64 nothing is rounded. In fewer bits all that the precision class may round is (`precision.CLASSES`).
    """
    import torch

    q, k, v = (inputs[name] for name in "qkv")
    wide = torch.promote_types(dtype, torch.float32)
    rounds = arithmetic.of(dtype, precision)
    out = torch.empty(*q.shape[:3], v.shape[-1], dtype=dtype, device=q.device)
    for batch, heads, kv_heads, queries in _blocks(call, q.device):
        keys_seen = _seen(call, queries)
        parts = (q[batch, queries, heads], k[batch, keys_seen, kv_heads], v[batch, keys_seen, kv_heads])
        rows, keys, values = (part.transpose(1, 2).to(wide) for part in parts)  # [batch, heads, tokens, head_dim]
        weights = probabilities(rows, keys, hidden=_hidden(call, queries, q.device), rounds=rounds)
        found = rounds.product(rounds.operand(weights), rounds.operand(values))
        out[batch, queries, heads] = found.transpose(1, 2).to(dtype)
    return out


def one_query(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dtype: torch.dtype, precision: str = EXACT
) -> torch.Tensor:
    """Return the attention of one query of each head to all keys, `[heads, head_dim_v]`, in a dtype; all heads at once.

    q: `[heads, head_dim_qk]`, k and v: `[seq_len_k, kv_heads, head_dim]`, of one sequence.
    """
    import torch

    wide = torch.promote_types(dtype, torch.float32)
    rounds = arithmetic.of(dtype, precision)
    rows = q.to(wide).unflatten(0, (k.shape[1], -1))
    keys, values = (x.transpose(0, 1).to(wide, memory_format=torch.contiguous_format) for x in (k, v))
    weights = probabilities(rows, keys, hidden=None, rounds=rounds)  # [kv_heads, heads / kv_heads, seq_len_k]
    if rounds.rounds_nothing and len(k) % _KEYS_AT_ONCE == 0:  # a product of few rows fills no GPU by itself
        parts = weights.unflatten(-1, (-1, _KEYS_AT_ONCE)).transpose(1, 2)
        out = (parts @ values.unflatten(1, (-1, _KEYS_AT_ONCE))).sum(dim=1)
    else:
        out = rounds.product(rounds.operand(weights), rounds.operand(values))
    return out.flatten(0, 1).to(dtype)


def training(call: AttentionCall, inputs: Tensors, dtype: torch.dtype, precision: str = EXACT) -> Tensors:
    """Return `out`, as `forward` has it, and dq, dk and dv, of the shapes of q, k and v: gradients of out times `dout`.

    In float64 nothing is rounded. In fewer bits all that the precision class may round is, so the probabilities and the
    scores' gradient too, which enter matrix products. On inputs whose k has a large constant part this costs far more
    than one rounding of the result, since the rows of the scores' gradient sum to zero. Gradients of query heads and
    blocks that share a key head are summed in float32 or wider.
    """
    import torch

    q, k, v, dout = (inputs[name] for name in ("q", "k", "v", "dout"))
    wide = torch.promote_types(dtype, torch.float32)
    rounds = arithmetic.of(dtype, precision)
    out = torch.empty(*q.shape[:3], v.shape[-1], dtype=dtype, device=q.device)
    dq, dk, dv = (torch.zeros(x.shape, dtype=wide, device=x.device) for x in (q, k, v))
    for batch, heads, kv_heads, queries in _blocks(call, q.device):
        keys_seen = _seen(call, queries)
        ours, theirs = (batch, queries, heads), (batch, keys_seen, kv_heads)
        parts = (part.transpose(1, 2).to(wide) for part in (q[ours], k[theirs], v[theirs], dout[ours]))
        found, of_q, of_k, of_v = gradients(*parts, hidden=_hidden(call, queries, q.device), rounds=rounds)
        out[ours] = found.transpose(1, 2).to(dtype)
        dq[ours] = of_q.transpose(1, 2)
        dk[theirs] += of_k.transpose(1, 2)
        dv[theirs] += of_v.transpose(1, 2)
    return {"out": out, "dq": dq.to(dtype), "dk": dk.to(dtype), "dv": dv.to(dtype)}


def probabilities(q: torch.Tensor, k: torch.Tensor, *, hidden: torch.Tensor | None, rounds: Arithmetic) -> torch.Tensor:
    """Return the softmax of the scores, `[..., queries, keys]`, by powers of two as fused kernels have it."""
    if rounds.rounds_nothing:  # in fewer passes over the scores
        scores = (q * q.shape[-1] ** -0.5) @ k.mT
        return (scores if hidden is None else scores.masked_fill_(hidden, float("-inf"))).softmax(dim=-1)
    scores = binary_scores(q, k, rounds)
    if hidden is not None:
        scores = scores.masked_fill(hidden, float("-inf"))
    weights = rounds.intermediate(rounds.intermediate(scores - scores.amax(dim=-1, keepdim=True)).exp2())
    return rounds.intermediate(weights / rounds.intermediate(weights.sum(dim=-1, keepdim=True)))


def binary_scores(q: torch.Tensor, k: torch.Tensor, rounds: Arithmetic) -> torch.Tensor:
    """Return the powers of two whose softmax is that of the scores, `[..., queries, keys]`.

    Kernels that round nothing between two products may round the scaled q; others round the scores, and once more when
    they scale them.
    """
    scale = q.shape[-1] ** -0.5 * math.log2(math.e)
    if rounds.scores_too:
        return rounds.intermediate(rounds.intermediate(rounds.product(q, k.mT)) * scale)
    return rounds.product(rounds.operand(q * scale), rounds.operand(k).mT)


def gradients(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor,
    *,
    hidden: torch.Tensor | None,
    rounds: Arithmetic,
) -> tuple[torch.Tensor, ...]:
    """Return the output of one block of queries, and its gradients (Dao, FlashAttention-2, 2023, algorithm 2)."""
    scale = q.shape[-1] ** -0.5
    softmax = probabilities(q, k, hidden=hidden, rounds=rounds)
    q, k, v, dout, weights = (rounds.operand(x) for x in (q, k, v, dout, softmax))
    out = rounds.product(weights, v)
    delta = (dout * rounds.operand(out)).sum(dim=-1, keepdim=True)
    of_weights = rounds.intermediate(rounds.product(dout, v.mT))
    of_scores = rounds.operand(of_weights.sub_(delta).mul_(softmax))
    return (
        out,
        rounds.product(of_scores, k) * scale,
        rounds.product(of_scores.mT, q) * scale,
        rounds.product(weights.mT, dout),
    )


def _blocks(call: AttentionCall, device: torch.device) -> Iterator[tuple[slice, slice, slice, slice]]:
    """Yield batch entries, query heads, their heads of k and v, and queries of a block.

    It is one head and some queries, or several heads where these are short and have keys of their own: of one batch
    entry, or all of several.
    """
    rows = max(1, _SCORES_BYTES // (call.seq_len_k * 8))
    together = (_CPU_HEADS_BYTES if device.type == "cpu" else _SCORES_BYTES) // (call.seq_len_q * call.seq_len_k * 8)
    together = 1 if call.grouped or rows < call.seq_len_q else max(1, together)
    entries, heads = max(1, together // call.heads), min(together, call.heads)
    for batch in range(0, call.batch, entries):
        for head in range(0, call.heads, heads):
            kv_head = head * call.kv_heads // call.heads
            for start in range(0, call.seq_len_q, rows):
                of_heads, of_kv = slice(head, head + heads), slice(kv_head, kv_head + heads)
                yield slice(batch, batch + entries), of_heads, of_kv, slice(start, min(start + rows, call.seq_len_q))


def _seen(call: AttentionCall, queries: slice) -> slice:
    """Return the keys that some query of a block sees."""
    return slice(0, call.keys_seen(queries.stop - 1))


def _hidden(call: AttentionCall, queries: slice, device: torch.device) -> torch.Tensor | None:
    """Return which `_seen` keys each query of a block does not see, `[queries, keys]`; None where it sees all."""
    import torch

    if not call.causal:
        return None
    last_key = torch.arange(queries.start, queries.stop, device=device) + call.seq_len_k - call.seq_len_q
    return torch.arange(_seen(call, queries).stop, device=device)[None, :] > last_key[:, None]
