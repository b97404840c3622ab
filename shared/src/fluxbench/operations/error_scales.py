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

All rows take one pass over all scores, with six matrix products where there are gradients. Some rows of out and dq need
the scores of their own queries alone. Some of dk and dv need those of all queries at a few keys, and of each query its
softmax and its output: one pass with two products. A pass leaves out the keys that no query of a block sees.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fluxbench.operations.shapes import AttentionCall

if TYPE_CHECKING:
    import torch

    from fluxbench.operations.protocol import Tensors

_SCORES_BYTES = 1 << 26  # of the scores of some heads and queries in float32, of which several are held at once
_LEAST = 2**-24  # of a row's scale over those of its head: float32 probabilities underflow, and here their squares
_LOWEST = -1e3  # of a score less the largest of its query: P is 0 long before, and a hidden key's score is infinite
_OF_QUERIES = ("out", "dq")  # outputs that have a row for each query; others have one for each key


def of(
    call: AttentionCall, inputs: Tensors, outputs: Collection[str], positions: Mapping[str, torch.Tensor] | None = None
) -> Tensors:
    """Return the scale of each row of the `outputs`, `[batch, tokens, heads or kv_heads]`, float32, in their units.

    `inputs` are q, k, v and for gradients `dout`, `outputs` some of out, dq, dk and dv. `positions` holds tokens by
    output, `[count]`, int64: the rows that are wanted; None: all. No scale is below `_LEAST` of the root mean square of
    those that are returned of its head.
    """
    import torch

    squares: Tensors = {}
    for name in outputs:
        tokens, heads = (call.seq_len_q, call.heads) if name in _OF_QUERIES else (call.seq_len_k, call.kv_heads)
        count = tokens if positions is None else len(positions[name])
        squares[name] = torch.zeros(call.batch, count, heads, device=inputs["q"].device)
    if positions is None:
        _add_all(call, inputs, squares)
    else:
        for name in (name for name in outputs if name in _OF_QUERIES):
            _add_at_queries(call, inputs, name, positions[name], squares[name])
        if at_keys := {name: positions[name] for name in outputs if name not in _OF_QUERIES}:
            _add_at_keys(call, inputs, at_keys, squares)
    for x in squares.values():
        x.clamp_min_(x.mean(dim=1, keepdim=True).mul_(_LEAST**2)).sqrt_()
    return squares


def _add_all(call: AttentionCall, inputs: Tensors, squares: Tensors) -> None:
    """Add the squares of the scales of all rows, by output."""
    rows = _rows(call, call.seq_len_q)
    for heads in _heads(call, inputs, rows):
        for queries in _parts(call.seq_len_q, rows):
            for name, found in _block(call, heads, queries).squares(squares).items():
                if name in _OF_QUERIES:
                    squares[name][heads.batch, queries, heads.of_q] = found.T
                else:
                    squares[name][heads.batch, : found.shape[1]].index_add_(1, heads.of_kv, found.T)


def _add_at_queries(
    call: AttentionCall, inputs: Tensors, name: str, tokens: torch.Tensor, squares: torch.Tensor
) -> None:
    """Add the squares of the scales of an output at some queries."""
    rows = _rows(call, len(tokens))
    for heads in _heads(call, inputs, rows):
        for part in _parts(len(tokens), rows):
            squares[heads.batch, part, heads.of_q] = _block(call, heads, tokens[part]).squares((name,))[name].T


def _add_at_keys(call: AttentionCall, inputs: Tensors, tokens: Tensors, squares: Tensors) -> None:
    """Add the squares of the scales of outputs at some keys, by output; all queries add to them."""
    import torch

    keys = torch.cat([*tokens.values()])
    rows = _rows(call, call.seq_len_q)
    for heads in _heads(call, inputs, rows):
        blocks = [_block(call, heads, queries, keys) for queries in _parts(call.seq_len_q, rows)]
        whole, start = _Block.joined(blocks), 0
        for name, at in tokens.items():
            found = whole.at(slice(start, start + len(at))).squares((name,))[name]
            squares[name][heads.batch].index_add_(1, heads.of_kv, found.T)
            start += len(at)


class _Heads(NamedTuple):
    """Some query heads of a batch entry, with the inputs of each in float32, `[heads, tokens, head_dim]`."""

    batch: int
    of_q: slice
    of_kv: torch.Tensor  # the head of k and v of each
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    dout: torch.Tensor | None
    wide: bool  # the arguments of exponentials are rounded as coarsely as all else


class _Block(NamedTuple):
    """Some queries and keys of some heads, float32, `[heads, queries or keys, head_dim]` and what follows from them."""

    q: torch.Tensor
    dout: torch.Tensor | None
    k: torch.Tensor
    v: torch.Tensor
    out: torch.Tensor
    weights: torch.Tensor  # [heads, queries, keys], the softmax
    below: torch.Tensor | None  # [heads, queries, keys], scores less the largest of their query, where `wide`

    @classmethod
    def joined(cls, parts: Sequence[_Block]) -> _Block:
        """Return the block of the queries of all parts, which have the same keys."""
        import torch

        def together(*parts: torch.Tensor) -> torch.Tensor:
            return torch.cat(parts, dim=1)

        q, dout, k, v, out, weights, below = zip(*parts, strict=True)
        return cls(
            together(*q), None if dout[0] is None else together(*dout), k[0], v[0], together(*out), together(*weights),
            None if below[0] is None else together(*below),
        )  # fmt: skip

    def at(self, keys: slice) -> _Block:
        """Return the block of some of its keys."""
        below = None if self.below is None else self.below[..., keys]
        return self._replace(k=self.k[:, keys], v=self.v[:, keys], weights=self.weights[..., keys], below=below)

    def squares(self, outputs: Collection[str]) -> Tensors:
        """Return squares of scales, `[heads, queries]` of out and dq, and what queries add to those of dk and dv."""
        q, dout, k, v, out, weights, below = self
        scale = q.shape[-1] ** -0.5
        of_scores = ((q * scale).square() @ k.square().mT).add_(1)  # V(P) / P^2
        if below is not None:
            of_scores.addcmul_(below, below)
        squares = weights.square()
        found: Tensors = {}
        if {"out", "dv"} & set(outputs):
            own = squares * of_scores
            if "out" in outputs:
                found["out"] = _times(own, _norms(v)) + _norms(out)
            if "dv" in outputs and dout is not None:
                found["dv"] = _times(own.mT, _norms(dout))
            del own
        if dout is None or not {"dq", "dk"} & set(outputs):
            return found
        of_delta = (dout * out).square().sum(dim=-1)  # V(D)
        gradient = (dout @ v.mT).sub_((dout * out).sum(dim=-1, keepdim=True)).mul_(weights)  # dS
        terms = (dout.square() @ v.square().mT).mul_(squares).add_(gradient.square_().mul_(of_scores))  # W
        if "dq" in outputs:
            found["dq"] = (_times(terms, _norms(k)) + of_delta * _norms(weights @ k)) * scale**2
        if "dk" in outputs:
            found["dk"] = _times(terms.addcmul_(squares, of_delta.unsqueeze(-1)).mT, _norms(q)) * scale**2
        return found


def _block(
    call: AttentionCall, heads: _Heads, queries: slice | torch.Tensor, keys: torch.Tensor | None = None
) -> _Block:
    """Return the block of some queries and of some keys, `[count]`, int64; of all that the queries see where None."""
    import torch

    device, offset = heads.q.device, call.seq_len_k - call.seq_len_q
    if isinstance(queries, slice):
        seen_by_all, seen = call.keys_seen(queries.start), call.keys_seen(queries.stop - 1)
        tokens = torch.arange(queries.start, queries.stop, device=device)
    else:
        seen_by_all, seen, tokens = 0, call.seq_len_k, queries
    q, k, v = heads.q[:, queries], heads.k[:, :seen], heads.v[:, :seen]
    scores = (q * q.shape[-1] ** -0.5) @ k.mT
    if call.causal:
        hidden = torch.arange(seen_by_all, seen, device=device) > tokens[:, None] + offset
        scores[..., seen_by_all:].masked_fill_(hidden, float("-inf"))
    weights = scores.softmax(dim=-1)
    out = weights @ v
    largest = scores.amax(dim=-1, keepdim=True) if heads.wide else None
    if keys is not None:
        at = keys.clamp_max(seen - 1)  # of those beyond none is seen
        weights = weights.index_select(-1, at)
        scores = scores.index_select(-1, at) if heads.wide else scores
        if call.causal:
            weights.masked_fill_(keys > tokens[:, None] + offset, 0.0)
        k, v = heads.k.index_select(1, keys), heads.v.index_select(1, keys)
    below = None if largest is None else scores.sub_(largest).clamp_min_(_LOWEST)
    dout = None if heads.dout is None else heads.dout[:, queries]
    return _Block(q, dout, k, v, out, weights, below)


def _norms(x: torch.Tensor) -> torch.Tensor:
    """Return the squares of the norms of rows, `[heads, tokens]`."""
    return x.square().sum(dim=-1)


def _times(matrix: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def _rows(call: AttentionCall, queries: int) -> int:
    """Return how many of the queries a block has."""
    return max(1, min(queries, _SCORES_BYTES // (4 * call.seq_len_k)))


def _parts(count: int, rows: int) -> Iterator[slice]:
    """Yield blocks of tokens."""
    for start in range(0, count, rows):
        yield slice(start, min(start + rows, count))


def _heads(call: AttentionCall, inputs: Tensors, rows: int) -> Iterator[_Heads]:
    """Yield query heads, as many at once as blocks of so many queries allow."""
    import torch

    q, k, v = (inputs[name] for name in "qkv")
    dout = inputs.get("dout")
    together = max(1, _SCORES_BYTES // (4 * call.seq_len_k * rows))
    of_kv = torch.arange(call.heads, device=q.device) // (call.heads // call.kv_heads)
    for batch in range(call.batch):
        for of_q in _parts(call.heads, together):
            theirs = of_kv[of_q]
            queries = q[batch, :, of_q].transpose(0, 1).float()
            gradients = None if dout is None else dout[batch, :, of_q].transpose(0, 1).float()
            keys, values = (x[batch].index_select(1, theirs).transpose(0, 1).float() for x in (k, v))
            yield _Heads(batch, of_q, theirs, queries, keys, values, gradients, call.dtype == "float32")
