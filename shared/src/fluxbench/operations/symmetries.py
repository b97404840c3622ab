"""Other inputs of the same attention, whose outputs and gradients follow exactly from those that are known.

A float64 reference of a gradient takes as long as hundreds of timed calls, so a process computes one and derives the
others. No element is rounded: batch entries, heads and the dimensions of a head come in another order, of a call
without a mask tokens too, and every head is multiplied by a sign, all by a power of two.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from fluxbench.operations import host_numbers
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
    factors: torch.Tensor

    def of(self, x: torch.Tensor, rows: torch.Tensor | None = None) -> torch.Tensor:
        """Return a tensor in this order times its factors, or some of its new tokens."""
        tokens = self.tokens if rows is None else self.tokens[rows]
        _, count, heads, dim = x.shape
        # Where each row of a head comes from: the order of all dimensions at once would take eight bytes an element.
        places = (self.batch[:, None, None] * count + tokens[:, None]) * heads + self.heads
        found = x.reshape(-1, dim).index_select(0, places.flatten()).index_select(1, self.dims)
        return found.view(*places.shape, dim).mul_(self.factors[:, None].to(x.dtype))


class _Symmetry:
    """The orders and factors that a generator draws for a call, by the name of an input or output."""

    def __init__(self, call: AttentionCall, rng: random.Random, device: torch.device) -> None:
        import torch

        # Of the host: for an order a GPU runs many kernels.
        generator = torch.Generator().manual_seed(rng.getrandbits(63))

        def order(count: int, *, mixed: bool = True) -> torch.Tensor:
            return torch.randperm(count, generator=generator) if mixed else torch.arange(count)

        def signs() -> torch.Tensor:
            return 1.0 - 2.0 * torch.randint(2, (call.kv_heads,), generator=generator)

        group = call.heads // call.kv_heads
        kv_heads, in_group = order(call.kv_heads), torch.rand(call.kv_heads, group, generator=generator).argsort(dim=1)
        orders = {
            "batch": order(call.batch),
            "queries": order(call.seq_len_q, mixed=not call.causal),
            "keys": order(call.seq_len_k, mixed=not call.causal),
            "heads": (kv_heads[:, None] * group + in_group).flatten(),
            "kv_heads": kv_heads,
            "dims_qk": order(call.head_dim_qk),
            "dims_v": order(call.head_dim_v),
            "row": torch.zeros(1, dtype=torch.int64),  # of what a row has one of
        }
        a, c, g = signs(), signs(), signs()
        doublings = 0 if call.dtype == "float16" else rng.randint(-_MOST_DOUBLINGS, _MOST_DOUBLINGS)
        of_a, of_c = 2.0**doublings, 2.0 ** rng.randint(0, _MOST_DOUBLINGS)
        of_queries = {
            "q": ("dims_qk", a * of_a), "dout": ("dims_v", g),
            "out": ("dims_v", c * of_c), "dq": ("dims_qk", a * c * g * (of_c / of_a)),
        }  # fmt: skip
        of_keys = {
            "k": ("dims_qk", a / of_a), "v": ("dims_v", c * of_c),
            "dk": ("dims_qk", a * c * g * (of_c * of_a)), "dv": ("dims_v", g),
        }  # fmt: skip
        factors = {name: each.repeat_interleave(group) for name, (_, each) in of_queries.items()}
        factors |= {name: each for name, (_, each) in of_keys.items()}
        self._of_queries = of_queries.keys()
        self._dims = {name: dims for name, (dims, _) in (of_queries | of_keys).items()}
        self._moved, self._by = _moved(orders, device), _moved(factors, device)

    def of(self, name: str, x: torch.Tensor, rows: torch.Tensor | None = None) -> torch.Tensor:
        """Return an input or output `[batch, tokens, heads, dim]` turned, or some of its new tokens."""
        return self._order(name, self._dims[name], self._by[name]).of(x, rows)

    def of_scales(self, name: str, scales: torch.Tensor, rows: torch.Tensor | None = None) -> torch.Tensor:
        """Return the scales of an output's rows, `[batch, tokens, heads]`, turned, or those of some new tokens."""
        return self._order(name, "row", self._by[name].abs()).of(scales.unsqueeze(-1), rows).squeeze(-1)

    def _order(self, name: str, dims: str, factors: torch.Tensor) -> _Order:
        tokens, heads = ("queries", "heads") if name in self._of_queries else ("keys", "kv_heads")
        return _Order(self._moved["batch"], self._moved[tokens], self._moved[heads], self._moved[dims], factors)


def varied(
    call: AttentionCall, inputs: Tensors, outputs: Tensors, positions: Tensors, rng: random.Random
) -> tuple[Tensors, Tensors]:
    """Return other inputs, and rows of their outputs at `positions`, by output `[count]`, int64; or whole ones.

    `inputs` are some of q, k, v and `dout`, `outputs` of `out`, dq, dk and dv, whole; with an equal `rng` they are
    turned alike. With q times a, k over a, v times c and dout times g, out is multiplied by c, dq by c g / a, dk by
    c g a and dv by g. The dimensions of q, k, dq and dk come in one order, those of v, dout, out and dv in another.
    """
    turn = _Symmetry(call, rng, next(iter((inputs or outputs).values())).device)
    rows = {name: turn.of(name, x, positions.get(name)) for name, x in outputs.items()}
    return {name: turn.of(name, x) for name, x in inputs.items()}, rows


def varied_scales(call: AttentionCall, scales: Tensors, positions: Tensors, rng: random.Random) -> Tensors:
    """Return the error scales (`operations.error_scales`) of rows of what `varied` returns for an equal `rng`.

    `scales` are those of all rows of the outputs that it gets, `[batch, tokens, heads]`, by output; `positions` is as
    there.
    """
    turn = _Symmetry(call, rng, next(iter(scales.values())).device)
    return {name: turn.of_scales(name, x, positions.get(name)) for name, x in scales.items()}


def _moved(several: Mapping[str, torch.Tensor], device: torch.device) -> dict[str, torch.Tensor]:
    """Return vectors on a device, in one copy."""
    import torch

    together = host_numbers.moved(torch.cat([*several.values()]), device)
    return dict(zip(several, together.split([len(one) for one in several.values()]), strict=True))
