"""How large rounding errors of an attention's rows are, one relative to another: what a budget by rows is made of.

Under a causal mask the rows of a head differ. The first sees one key; its output is exact, and its gradient of q, which
is zero, is a difference of two equal numbers and so nothing but rounding. The last sees all keys, and its output is
smaller by the square root of their number. Neither a row's norm nor that of its head says what a row may err.

A row's scale is the root mean square error that it would have to first order if each term of each sum that it is made
of had a relative error of 1, independent of the others: a sum of products a b then errs as the root of the sum of
(a b)^2 (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., sections 2.8 and 3.1). With
s = q k^T / sqrt(d), P = softmax(s), dP = dout v^T, D = dout out^T and dS = P (dP - D), and variances of a query i and a
key j

    V(s) = sum of (q k)^2 / d,   V(dP) = sum of (dout v)^2,   V(D) = sum of (dout out)^2    (sums over the head's dims)
    V(P) / P^2 = 1 + V(s), in float32 + (s - max s)^2

whose last term is the rounding of the exponential's argument (16-bit kernels have that in float32, which is nothing to
their rounding of P), the squares of scales are

    out_i:  sum_j V(P) |v_j|^2 + |out_i|^2
    dv_j:   sum_i V(P) |dout_i|^2
    dq_i:   (sum_j W |k_j|^2 + V(D) |sum_j P k_j|^2) / d,   W = P^2 V(dP) + V(P) (dP - D)^2
    dk_j:   sum_i (W + P^2 V(D)) |q_i|^2 / d

An error of D is the same at all keys of a query, hence the sum within |.|; dP and D have errors of their own size
where they cancel. By what relative error a term really errs is for a yardstick to say (`correctness.allowance`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from fluxbench.operations.shapes import AttentionCall

if TYPE_CHECKING:
    import torch

    from fluxbench.operations.protocol import Tensors

_SCORES_BYTES = 1 << 26  # of the scores of some heads and queries in float32, of which several are held at once
_LEAST = 2**-24  # of a row's scale over that of its head: float32 probabilities underflow, and here their squares


def of(
    call: AttentionCall, inputs: Tensors, outputs: Collection[str], positions: Mapping[str, torch.Tensor] | None = None
) -> Tensors:
    """Return the scale of each row of the `outputs`, `[batch, tokens, heads or kv_heads]`, float32, in their units.

    `inputs` are q, k, v and for gradients `dout`, `outputs` some of out, dq, dk and dv. `positions` holds tokens by
    output, `[count]`, int64: the rows that are wanted; None: all.
    """
    import torch

    q, k, v = (inputs[name] for name in "qkv")
    of_all = positions is None or bool({"dk", "dv", "dq"} & set(outputs))
    queries = torch.arange(call.seq_len_q, device=q.device) if of_all or positions is None else positions["out"]
    of_queries, of_keys = (call.batch, len(queries), call.heads), (call.batch, call.seq_len_k, call.kv_heads)
    squares = {name: torch.zeros(of_queries if name in ("out", "dq") else of_keys, device=q.device) for name in outputs}
    keys = torch.arange(call.seq_len_k, device=q.device)
    for batch, heads, part in _blocks(call, len(queries)):
        some = queries[part]
        kv_heads = torch.tensor([head * call.kv_heads // call.heads for head in heads], device=q.device)
        ours = (x[batch, some][:, heads] for x in (q, inputs.get("dout", q)))
        theirs = (x[batch].index_select(1, kv_heads) for x in (k, v))
        hidden = keys > some[:, None] + call.seq_len_k - call.seq_len_q if call.causal else None
        rows, gradients, columns, values = (x.transpose(0, 1).float() for x in (*ours, *theirs))
        how = {"differentiates": "dout" in inputs, "wide": call.dtype == "float32"}
        block = _of_block(rows, gradients, columns, values, hidden=hidden, **how)  # [heads, tokens] by output
        for name, found in block.items():
            if name not in squares:
                continue
            if name in ("out", "dq"):
                squares[name][batch, part, heads[0] : heads[-1] + 1] = found.T
            else:
                squares[name][batch].index_add_(1, kv_heads, found.T)
    wanted = positions if positions is not None and of_all else {}
    for x in squares.values():
        x.clamp_min_(x.mean(dim=1, keepdim=True).mul_(_LEAST**2))
    return {name: (x.index_select(1, wanted[name]) if name in wanted else x).sqrt_() for name, x in squares.items()}


def _of_block(
    q: torch.Tensor,
    dout: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    hidden: torch.Tensor | None,
    differentiates: bool,
    wide: bool,
) -> Tensors:
    """Return squares of scales, `[heads, queries]` of out and dq, and what the queries add to those of dk and dv.

    q: `[heads, queries, head_dim_qk]`, dout: `[heads, queries, head_dim_v]`, k and v: `[heads, keys, head_dim]`.
    `wide`: the arguments of exponentials are rounded as coarsely as all else.
    """
    scale = q.shape[-1] ** -0.5
    scores = (q * scale) @ k.mT
    if hidden is not None:
        scores.masked_fill_(hidden, float("-inf"))
    weights = scores.softmax(dim=-1)
    of_scores = ((q * scale).square() @ k.square().mT).add_(1)  # V(P) / P^2
    if wide:
        below = scores.sub_(scores.amax(dim=-1, keepdim=True))
        of_scores += (below if hidden is None else below.masked_fill_(hidden, 0.0)).square_()
    squares = weights.square()
    own = squares * of_scores
    out = weights @ v
    found = {"out": _times(own, _norms(v)) + _norms(out)}
    if not differentiates:
        return found
    found["dv"] = _times(own.mT, _norms(dout))
    of_delta = (dout * out).square().sum(dim=-1)  # V(D)
    gradient = (dout @ v.mT).sub_((dout * out).sum(dim=-1, keepdim=True)).mul_(weights)  # dS
    terms = (dout.square() @ v.square().mT).mul_(squares).add_(gradient.square_().mul_(of_scores))  # W
    found["dq"] = (_times(terms, _norms(k)) + of_delta * _norms(weights @ k)) * scale**2
    found["dk"] = _times(terms.addcmul_(squares, of_delta.unsqueeze(-1)).mT, _norms(q)) * scale**2
    return found


def _norms(x: torch.Tensor) -> torch.Tensor:
    """Return the squares of the norms of rows, `[heads, tokens]`."""
    return x.square().sum(dim=-1)


def _times(matrix: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def _blocks(call: AttentionCall, queries: int) -> Iterator[tuple[int, list[int], slice]]:
    """Yield batch entry, some query heads and some of the queries."""
    rows = max(1, min(queries, _SCORES_BYTES // (4 * call.seq_len_k)))
    together = max(1, _SCORES_BYTES // (4 * call.seq_len_k * rows))
    for batch in range(call.batch):
        for head in range(0, call.heads, together):
            for start in range(0, queries, rows):
                heads = list(range(head, min(head + together, call.heads)))
                yield batch, heads, slice(start, min(start + rows, queries))
