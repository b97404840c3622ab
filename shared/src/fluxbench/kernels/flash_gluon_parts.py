"""The end of a tile of the Gluon kernel: it is written, or is a part that is kept until all parts are merged."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, tma

from fluxbench.kernels.flash_gluon_tiles import ROWS, parts, slot

# Triton 3.9 has other names.
_store = tma.async_store if hasattr(tma, "async_store") else tma.async_copy_shared_to_global
barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier


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
def _keep(
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
def _merged(
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


@gluon.jit  # type: ignore[untyped-decorator]
def _finish(
    out_source: gl.tensor,
    lse_pointer: gl.tensor,
    buffer: gl.tensor,
    pair: gl.tensor,
    heads: gl.tensor,
    start_m: gl.tensor,
    seq_len_q: gl.tensor,
    out: gl.tensor,
    maximum: gl.tensor,
    sums_of_rows: gl.tensor,
    S_ROWS: gl.constexpr,
    O_ROWS: gl.constexpr,
) -> None:
    """Normalize and write the rows of a tile, and their log-sum-exp. The maximum is scaled."""
    out = out * gl.convert_layout(1 / sums_of_rows, O_ROWS)[:, None]
    tma.store_wait(0)  # the tile before has left the buffer
    buffer.store(out.to(out_source.dtype))
    fence_async_shared()
    _store(out_source, [pair // heads, pair % heads, start_m, 0], buffer)
    if lse_pointer is not None:
        row = start_m + gl.arange(0, ROWS, layout=S_ROWS)
        pointers = lse_pointer + gl.cast(pair, gl.int64) * seq_len_q + row
        gl.store(pointers, maximum + gl.log2(sums_of_rows), mask=row < seq_len_q)


@gluon.jit  # type: ignore[untyped-decorator]
def end_tile(
    out_source: gl.tensor,
    lse_pointer: gl.tensor,
    parts_pointer: gl.tensor,
    arrivals_pointer: gl.tensor,
    buffer: gl.tensor,
    turn: gl.tensor,
    pair: gl.tensor,
    heads: gl.tensor,
    start_m: gl.tensor,
    seq_len_q: gl.tensor,
    blocks_m: gl.tensor,
    pairs: gl.tensor,
    blocks_n: gl.tensor,
    share: gl.tensor,
    out: gl.tensor,
    maximum: gl.tensor,
    sums_of_rows: gl.tensor,
    HEAD_DIM: gl.constexpr,
    CONSUMERS: gl.constexpr,
    CONSUMER: gl.constexpr,
    O_LAYOUT: gl.constexpr,
    S_ROWS: gl.constexpr,
    O_ROWS: gl.constexpr,
) -> None:
    """Write the rows of a tile; of a part of one keep it, and write the tile if its other parts are there."""
    complete = True
    if parts_pointer is not None:
        tile, lowest, count = parts(turn, blocks_m, pairs, blocks_n, share)
        complete = count == 1
        if count > 1:
            kept = slot(gl.program_id(0), tile, blocks_n, share) * CONSUMERS + CONSUMER
            _keep(parts_pointer, kept, out, maximum, sums_of_rows, HEAD_DIM, O_LAYOUT, S_ROWS)
            barrier()
            arrived = gl.atomic_add(arrivals_pointer + tile * CONSUMERS + CONSUMER, 1, sem="acq_rel", scope="gpu")
            complete = arrived == count - 1
            if complete:
                out, maximum, sums_of_rows = _merged(
                    parts_pointer, tile, lowest, count, blocks_n, share,
                    HEAD_DIM, CONSUMERS, CONSUMER, O_LAYOUT, S_ROWS, O_ROWS,
                )  # fmt: skip
    if complete:
        _finish(
            out_source, lse_pointer, buffer, pair, heads, start_m, seq_len_q,
            out, maximum, sums_of_rows, S_ROWS, O_ROWS,
        )  # fmt: skip
