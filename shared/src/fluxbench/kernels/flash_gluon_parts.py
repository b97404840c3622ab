"""Parts of tiles that several programs of the Gluon kernel share: how they are kept and merged."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from fluxbench.kernels.flash_gluon_tiles import ROWS, slot


@gluon.jit  # type: ignore[untyped-decorator]
def _addresses(
    parts_pointer: gl.tensor, index: gl.tensor, HEAD_DIM: gl.constexpr, O_LAYOUT: gl.constexpr, S_ROWS: gl.constexpr
) -> gl.tuple:
    """Return where a part lies: its sums `[ROWS, HEAD_DIM]`, and its maximum, `[ROWS]`; the sums of rows follow."""
    start = parts_pointer + index * (ROWS * (HEAD_DIM + 2))
    row = gl.arange(0, ROWS, layout=gl.SliceLayout(1, O_LAYOUT))
    column = gl.arange(0, HEAD_DIM, layout=gl.SliceLayout(0, O_LAYOUT))
    of_sums = start + row[:, None] * HEAD_DIM + column[None, :]
    return of_sums, start + ROWS * HEAD_DIM + gl.arange(0, ROWS, layout=S_ROWS)


@gluon.jit  # type: ignore[untyped-decorator]
def keep(
    parts_pointer: gl.tensor,
    index: gl.tensor,
    out: gl.tensor,
    maximum: gl.tensor,
    sums_of_rows: gl.tensor,
    HEAD_DIM: gl.constexpr,
    O_LAYOUT: gl.constexpr,
    S_ROWS: gl.constexpr,
) -> None:
    """Write a part of a tile into global memory."""
    of_sums, of_rows = _addresses(parts_pointer, index, HEAD_DIM, O_LAYOUT, S_ROWS)
    gl.store(of_sums, out)
    gl.store(of_rows, maximum)
    gl.store(of_rows + ROWS, sums_of_rows)


@gluon.jit  # type: ignore[untyped-decorator]
def _kept(
    parts_pointer: gl.tensor, index: gl.tensor, HEAD_DIM: gl.constexpr, O_LAYOUT: gl.constexpr, S_ROWS: gl.constexpr
) -> gl.tuple:
    """Read a part of a tile that another program may have written, past this multiprocessor's own cache."""
    of_sums, of_rows = _addresses(parts_pointer, index, HEAD_DIM, O_LAYOUT, S_ROWS)
    return (
        gl.load(of_sums, cache_modifier=".cg"),
        gl.load(of_rows, cache_modifier=".cg"),
        gl.load(of_rows + ROWS, cache_modifier=".cg"),
    )


@gluon.jit  # type: ignore[untyped-decorator]
def merged(
    parts_pointer: gl.tensor,
    tile: gl.tensor,
    lowest: gl.tensor,
    count: gl.tensor,
    blocks_n: gl.tensor,
    share: gl.tensor,
    HEAD_DIM: gl.constexpr,
    CONSUMERS: gl.constexpr,
    CONSUMER: gl.constexpr,
    O_LAYOUT: gl.constexpr,
    S_ROWS: gl.constexpr,
    O_ROWS: gl.constexpr,
) -> gl.tuple:
    """Return a tile's sums, maximum and sums of rows from its parts, added in the order of the keys."""
    index = slot(lowest, tile, blocks_n, share) * CONSUMERS + CONSUMER
    out, maximum, sums_of_rows = _kept(parts_pointer, index, HEAD_DIM, O_LAYOUT, S_ROWS)
    for program in range(lowest + 1, lowest + count):
        index = slot(program, tile, blocks_n, share) * CONSUMERS + CONSUMER
        more, maximum_more, sums_more = _kept(parts_pointer, index, HEAD_DIM, O_LAYOUT, S_ROWS)
        maximum_new = gl.maximum(maximum, maximum_more)
        rescale = gl.exp2(maximum - maximum_new)
        rescale_more = gl.exp2(maximum_more - maximum_new)
        out = out * gl.convert_layout(rescale, O_ROWS)[:, None]
        out += more * gl.convert_layout(rescale_more, O_ROWS)[:, None]
        sums_of_rows = sums_of_rows * rescale + sums_more * rescale_more
        maximum = maximum_new
    return out, maximum, sums_of_rows
