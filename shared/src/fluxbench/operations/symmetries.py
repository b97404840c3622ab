"""Other inputs of the same attention, whose outputs and gradients follow exactly from those that are known.

A float64 reference of a gradient takes as long as hundreds of timed calls, so a process computes one and derives the
others. No element is rounded: batch entries, heads and the dimensions of a head come in another order, of a call
without a mask tokens too, and every head is multiplied by a sign, all by a power of two.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from fluxbench.operations.shapes import AttentionCall

if TYPE_CHECKING:
    import torch

    from fluxbench.operations.protocol import Tensors

_MOST_DOUBLINGS = 2


class _Order(NamedTuple):
    """Where each entry of a tensor `[batch, tokens, heads, dim]` comes from, and by what a head is multiplied."""

    batch: torch.Tensor
    tokens: torch.Tensor
    heads: torch.Tensor
    dims: torch.Tensor
    sign: torch.Tensor

    def of(self, x: torch.Tensor, factor: float = 1.0, rows: torch.Tensor | None = None) -> torch.Tensor:
        """Return a tensor in this order times a factor, or some of its new tokens."""
        tokens = self.tokens if rows is None else self.tokens[rows]
        # One dimension after the other: indexed together, each becomes an int64 tensor of the whole shape on a GPU.
        for dim, order in ((1, tokens), (0, self.batch), (2, self.heads), (3, self.dims)):
            x = x.index_select(dim, order)
        return x.mul_((factor * self.sign)[:, None].to(x.dtype))


def varied(
    call: AttentionCall, inputs: Tensors, outputs: Tensors, positions: Tensors, rng: random.Random
) -> tuple[Tensors, Tensors]:
    """Return other inputs, and rows of their outputs at `positions`, by output `[count]`, int64.

    `inputs` are some of q, k, v and `dout`, `outputs` of `out`, dq, dk and dv, whole; with an equal `rng` they are
    turned alike. With q times a, k over a, v times c and dout times g, out is multiplied by c, dq by c g / a, dk by
    c g a and dv by g. The dimensions of q, k, dq and dk come in one order, those of v, dout, out and dv in another.
    """
    import torch

    device = next(iter((inputs or outputs).values())).device
    generator = torch.Generator(device).manual_seed(rng.getrandbits(63))

    def order(count: int, *, mixed: bool = True) -> torch.Tensor:
        if not mixed:
            return torch.arange(count, device=device)
        return torch.randperm(count, generator=generator, device=device)

    def signs() -> torch.Tensor:
        return 1.0 - 2.0 * torch.randint(2, (call.kv_heads,), generator=generator, device=device)

    group = call.heads // call.kv_heads
    batch, kv_heads = order(call.batch), order(call.kv_heads)
    heads = torch.stack([head * group + order(group) for head in kv_heads]).flatten()
    queries, keys = (order(count, mixed=not call.causal) for count in (call.seq_len_q, call.seq_len_k))
    dims_qk, dims_v = order(call.head_dim_qk), order(call.head_dim_v)
    a, c, g = signs(), signs(), signs()
    doublings = 0 if call.dtype == "float16" else rng.randint(-_MOST_DOUBLINGS, _MOST_DOUBLINGS)
    of_a, of_c = 2.0**doublings, 2.0 ** rng.randint(0, _MOST_DOUBLINGS)

    def of_queries(dims: torch.Tensor, sign: torch.Tensor) -> _Order:
        return _Order(batch, queries, heads, dims, sign.repeat_interleave(group))

    def of_keys(dims: torch.Tensor, sign: torch.Tensor) -> _Order:
        return _Order(batch, keys, kv_heads, dims, sign)

    new = {
        "q": (of_queries(dims_qk, a), of_a),
        "k": (of_keys(dims_qk, a), 1 / of_a),
        "v": (of_keys(dims_v, c), of_c),
        "dout": (of_queries(dims_v, g), 1.0),
    }
    turned = {
        "out": (of_queries(dims_v, c), of_c),
        "dq": (of_queries(dims_qk, a * c * g), of_c / of_a),
        "dk": (of_keys(dims_qk, a * c * g), of_c * of_a),
        "dv": (of_keys(dims_v, g), 1.0),
    }
    rows = {name: turned[name][0].of(x, turned[name][1], positions[name]) for name, x in outputs.items()}
    return {name: new[name][0].of(x, new[name][1]) for name, x in inputs.items()}, rows
