"""How far rows may err that differ in what they are made of: those of a call with a causal mask.

Rows of such a call have error scales (`operations.error_scales`). The yardstick's errors over these are alike, but for
the number of terms that are added up: so they are taken together by the octave of the token. By itself the error of one
row is a random draw, and the first few rows hold most of an output's norm and of its error. The quotient of two right
kernels' errors of one such row has a Cauchy distribution: one in eight is over 2 sqrt(6).

- **A row** may have, as a root mean square, its scale times what the yardstick's rows have on average (twice where the
  class may), and one rounding of its own norm. At most it may have sqrt(6) times what follows so from the yardstick's
  worst row of its octave.
- **Rows together** (a head, a whole output, the sampled rows of calls) may have the sum of these squares r, times
  `1 + 5 * sum(r^2) / sum(r)^2`: one of them may have its largest error, with six times the usual square. Of n equal
  rows that is `1 + 5 / n`. What comes again, as the error of one content in several calls does, counts as one row.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import NamedTuple

import torch

from fluxbench.correctness.deviation import Deviation, Limits
from fluxbench.operations import host_numbers
from fluxbench.operations.protocol import KnowsErrorScales, Operation, Tensors
from fluxbench.operations.workload import Shape

LARGEST_OVER_RMS = math.sqrt(6)  # of the errors of one rounding
FIRST = 16  # tokens of a causal call that are always among those that are judged
_FIRST_OCTAVE = 64  # tokens of the first bin
_LEAST_ROWS = 16  # of a bin


class Bin(NamedTuple):
    """The yardstick's errors of rows over their scales, of tokens from `start` on."""

    start: int
    rms: float
    largest: float


class Allowed(NamedTuple):
    """Errors that rows may have, in the output's units: by root mean square, and at most."""

    rms: torch.Tensor
    most: torch.Tensor


def error_scales(
    operation: Operation,
    shape: Shape,
    inputs: Tensors,
    outputs: Collection[str],
    positions: Tensors | None,
    known: Tensors,
) -> Tensors | None:
    """Return scales of rows by output, `[batch, tokens, heads]`; None where the rows of a head are alike.

    `known` are those of some outputs, by output; those of others are computed and added to it.
    """
    if not shape.get("causal") or not isinstance(operation, KnowsErrorScales):
        return None
    if missing := [name for name in outputs if name not in known]:
        known.update(operation.error_scales(shape, inputs, missing, positions))
    return {name: known[name] for name in outputs}


def bins_of(errors: torch.Tensor, scales: torch.Tensor, tokens: torch.Tensor, least: float = 0.0) -> tuple[Bin, ...]:
    """Return what a yardstick's rows err over their scales, by octaves of tokens that hold enough rows.

    Where they cancel a right kernel's need not: they are taken to be `least` or more.
    `errors` and `scales`: `[batch, count, heads]`, of the output's units; `tokens`: `[count]`, int64, ascending.
    """
    shares = (errors / scales).nan_to_num(nan=0.0, posinf=0.0).transpose(0, 1).flatten(1).double()  # [count, rows]
    octaves = (tokens // _FIRST_OCTAVE).double().add(1).log2().floor().long().tolist()
    found: list[Bin] = []
    begin = 0
    while begin < len(octaves):
        end = begin
        while end < len(octaves) and (octaves[end] == octaves[begin] or (end - begin) * shares.shape[1] < _LEAST_ROWS):
            end += 1
        if (len(octaves) - end) * shares.shape[1] < _LEAST_ROWS:
            end = len(octaves)  # too few are left for a bin of their own
        part = shares[begin:end]
        start = int(tokens[begin]) if found else 0
        rms, largest = float(part.square().mean().sqrt()), float(part.max())
        found.append(Bin(start, max(least, rms), max(least, largest)))
        begin = end
    return tuple(found)


def allowed(
    bins: tuple[Bin, ...],
    scales: torch.Tensor,
    norms: torch.Tensor,
    tokens: torch.Tensor,
    *,
    times: float,
    rounding: float,
) -> Allowed:
    """Return what rows may err. `scales`, `norms`: `[..., batch, count, heads]`; `tokens`: `[..., count]`.

    `times` the yardstick's errors are allowed, and one `rounding`, relative to a row's norm.
    """
    of_bins = host_numbers.moved(torch.tensor(bins, dtype=torch.float64), tokens.device)  # [bins, 3]
    place = torch.bucketize(tokens, of_bins[1:, 0].to(tokens.dtype), right=True)
    rms, largest = of_bins[:, 1:].to(norms.dtype)[place][..., None, :, None, :].unbind(-1)  # [..., 1, count, 1]
    scales, own = times * scales.to(norms.dtype), rounding * norms
    return Allowed(scales * rms + own, LARGEST_OVER_RMS * (scales * largest + own))


def together(squares: torch.Tensor, dim: int | tuple[int, ...], repeats: torch.Tensor | None = None) -> torch.Tensor:
    """Return the square that rows may have together, from the mean `squares` of each, summed over dimensions.

    `repeats`: of each row, how often it is there, each time with the same error.
    """
    total = squares.sum(dim)
    alike = (squares.square() if repeats is None else squares.square() * repeats).sum(dim)
    most_of_one = torch.where(total > 0, alike / total.square(), 0.0)
    return total * (1 + (LARGEST_OVER_RMS**2 - 1) * most_of_one)


def limits(of: Allowed, deviation: Deviation) -> Limits:
    """Return the relative L2 errors that an output, its heads and its rows may have, as `Deviation` measures them."""
    squares, norms = of.rms.square(), deviation.norms.square()
    everything = tuple(range(squares.ndim))
    return Limits(
        rel_l2=float((together(squares, everything) / norms.sum()).sqrt()),
        head=(together(squares, 1) / norms.sum(1)).sqrt(),
        row=of.most / deviation.units,
    )
