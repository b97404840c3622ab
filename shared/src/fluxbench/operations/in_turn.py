"""Matrix products whose sums are added up in turn, on a GPU by one kernel: see `arithmetic`, which says what for.

By torch alone a product of 65,536 columns takes as many launches, half a second of a host; this takes milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

if TYPE_CHECKING:
    import torch

_TILE = 32  # rows and columns of a program
_STEPS = 16  # products that are read ahead; a multiple of those that are summed at once


@triton.jit(do_not_specialize=["rows", "columns", "count"])  # type: ignore[untyped-decorator]
def in_turn_kernel(
    a_pointer: tl.tensor,  # [matrices, count, rows], float32, contiguous
    b_pointer: tl.tensor,  # [matrices, count, columns], likewise
    out_pointer: tl.tensor,  # [matrices, rows, columns], likewise
    rows: tl.tensor,
    columns: tl.tensor,
    count: tl.tensor,
    AT_ONCE: tl.constexpr,  # products that are added up before their sum is added to the total
    HALF: tl.constexpr,  # the total is rounded to float16 each time
    STEPS: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """Write TILE x TILE elements of one product a.T @ b."""
    across = tl.cdiv(columns, TILE)
    tiles = tl.cdiv(rows, TILE) * across
    which = (tl.program_id(0) // tiles).to(tl.int64)
    tile = tl.program_id(0) % tiles
    row, column = tile // across * TILE + tl.arange(0, TILE), tile % across * TILE + tl.arange(0, TILE)
    in_rows, in_columns = row < rows, column < columns
    a_pointer += which * count * rows
    b_pointer += which * count * columns
    total = tl.zeros((TILE, TILE), tl.float32)
    for start in range(0, count, STEPS):
        for first in tl.static_range(0, STEPS, AT_ONCE):
            part = total
            if HALF:
                part = tl.zeros((TILE, TILE), tl.float32)
            for step in tl.static_range(AT_ONCE):
                index = start + first + step
                is_one = index < count
                a = tl.load(a_pointer + index * rows + row, in_rows & is_one, 0.0)
                b = tl.load(b_pointer + index * columns + column, in_columns & is_one, 0.0)
                part += a[:, None] * b[None, :]
            total = (total + part).to(tl.float16).to(tl.float32) if HALF else part
    places = which * rows * columns + row[:, None] * columns + column[None, :]
    tl.store(out_pointer + places, total, in_rows[:, None] & in_columns[None, :])


def product(a: torch.Tensor, b: torch.Tensor, *, at_once: int = 1, half: bool = False) -> torch.Tensor:
    """Return a @ b, `[..., rows, columns]`, of float32 matrices on a GPU: products are added to the total in turn.

    `half`: products are added up `at_once`, and the total is rounded to float16 whenever such a sum is added to it.
    """
    (*matrices, rows, count), columns = a.shape, b.shape[-1]
    out = a.new_empty(*matrices, rows, columns)
    programs = out.numel() // max(1, rows * columns) * triton.cdiv(rows, _TILE) * triton.cdiv(columns, _TILE)
    if programs:
        sizes, given = (rows, columns, count), (a.mT.contiguous(), b.contiguous(), out)
        options = {"AT_ONCE": at_once, "HALF": half, "STEPS": _STEPS, "TILE": _TILE}
        in_turn_kernel[(programs,)](*given, *sizes, **options)
    return out
