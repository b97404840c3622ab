"""The sums of dq, in float32, to which programs of the backward kernel in Gluon add, and what is done around it.

A chunk is what a warpgroup adds at once: 64 rows of dq and 64 of its columns. It lies in the order of the threads
that hold it, four values of one thread side by side, so that adding needs no exchange between threads.
"""

from __future__ import annotations

from typing import Any

from triton._C.libtriton import ir
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language._core import builtin
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, tma

# Of a chunk as `[128, 32]`: a register's bits, a lane's and a warp's, as (row, column).
_FLAT = gl.constexpr(
    gl.DistributedLinearLayout(
        [[0, 1], [0, 2], [4, 0], [8, 0], [16, 0]],
        [[0, 4], [0, 8], [0, 16], [1, 0], [2, 0]],
        [[32, 0], [64, 0]],
        [],
        [128, 32],
    )
)


@builtin  # type: ignore[untyped-decorator]
def _start_to_add(source: Any, coordinates: Any, buffer: Any, _semantic: Any = None) -> None:
    """Start to add a buffer to a block of global memory, which Triton 3.6 can do, and has no function for."""
    coordinates = _semantic._convert_to_ir_values(coordinates, require_i64=False)
    kind = ir.DESCRIPTOR_REDUCE_KIND.ADD
    _semantic.builder.create_async_tma_reduce(kind, source.handle, coordinates, buffer.handle)


_tma_add = tma.async_atomic_add if hasattr(tma, "async_atomic_add") else _start_to_add  # of Triton 3.9


@gluon.jit  # type: ignore[untyped-decorator]
def add(
    sums_source: gl.tensor,  # a descriptor of [chunks * 128, 32]
    buffer: gl.tensor,
    chunk: gl.tensor,
    dq: gl.tensor,
) -> None:
    """Start to add `[64, 64]` of a product, float32, to a chunk."""
    # A row is (warp, half, lane / 4), a column (block of 8, lane % 4, one of two).
    values = gl.permute(gl.reshape(dq, [4, 2, 8, 8, 4, 2]), [0, 3, 2, 4, 1, 5])
    values = gl.convert_layout(gl.reshape(values, [128, 32]), _FLAT, assert_trivial=True)
    tma.store_wait(0)  # the chunk before has left the buffer
    buffer.store(values)
    fence_async_shared()
    _tma_add(sums_source, [chunk * 128, 0], buffer)


@gluon.jit(do_not_specialize=["seq_len_q", "heads"])  # type: ignore[untyped-decorator]
def gluon_backward_rows_kernel(
    out_pointer: gl.tensor,  # [batch, seq_len_q, heads, head_dim], contiguous
    dout_pointer: gl.tensor,  # [batch, seq_len_q, heads, head_dim]
    lse_pointer: gl.tensor,  # [batch, heads, seq_len_q], float32, contiguous, to the base 2
    rows_pointer: gl.tensor,  # [batch * heads, blocks_m, 2, BLOCK_M], float32, contiguous
    sums_pointer: gl.tensor,  # [batch * heads, blocks_m, BLOCK_M * HEAD_DIM], float32, contiguous; or None
    seq_len_q: gl.tensor,
    heads: gl.tensor,
    stride_db: gl.tensor,
    stride_ds: gl.tensor,
    stride_dh: gl.tensor,
    scale_log2: gl.tensor,
    HEAD_DIM: gl.constexpr,
    BLOCK_M: gl.constexpr,
) -> None:
    """Write where the sums of both products with k and v start, of BLOCK_M queries of one head; clear their dq.

    These are -lse / scale_log2 and -sum(dout * out): the first is -inf for rows past the sequence, which so have no
    weight.
    """
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 8], [256 // HEAD_DIM, HEAD_DIM // 8], [4, 1], [1, 0])
    OF_ROWS: gl.constexpr = gl.SliceLayout(1, LAYOUT)
    blocks_m = gl.cdiv(seq_len_q, BLOCK_M)
    pair = gl.program_id(0) // blocks_m
    block = gl.program_id(0) % blocks_m
    row = block * BLOCK_M + gl.arange(0, BLOCK_M, layout=OF_ROWS)
    column = gl.arange(0, HEAD_DIM, layout=gl.SliceLayout(0, LAYOUT))
    inside = row < seq_len_q
    batch = gl.cast(pair // heads, gl.int64)
    of_out = out_pointer + (batch * seq_len_q * heads + pair % heads) * HEAD_DIM
    of_dout = dout_pointer + batch * stride_db + gl.cast(pair % heads, gl.int64) * stride_dh
    row_64 = gl.cast(row, gl.int64)
    out = gl.load(of_out + (row_64 * (heads * HEAD_DIM))[:, None] + column[None, :], mask=inside[:, None], other=0.0)
    dout = gl.load(of_dout + (row_64 * stride_ds)[:, None] + column[None, :], mask=inside[:, None], other=0.0)
    lse = gl.load(lse_pointer + gl.cast(pair, gl.int64) * seq_len_q + row, mask=inside, other=float("inf"))
    program = gl.cast(gl.program_id(0), gl.int64)
    of_rows = rows_pointer + program * (2 * BLOCK_M) + gl.arange(0, BLOCK_M, layout=OF_ROWS)
    gl.store(of_rows, -lse / scale_log2)  # no load moves past a store: so all are issued before
    if sums_pointer is not None:
        CLEARED: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
        of_sums = sums_pointer + program * (BLOCK_M * HEAD_DIM)
        gl.store(
            of_sums + gl.arange(0, BLOCK_M * HEAD_DIM, layout=CLEARED),
            gl.zeros([BLOCK_M * HEAD_DIM], gl.float32, CLEARED),
        )
    gl.store(of_rows + BLOCK_M, -gl.sum(out.to(gl.float32) * dout.to(gl.float32), 1))


@gluon.jit  # type: ignore[untyped-decorator]
def _write_dq(
    sums_pointer: gl.tensor,
    dq_pointer: gl.tensor,
    chunk: gl.tensor,
    seq_len_q: gl.tensor,
    heads: gl.tensor,
    scale: gl.tensor,
    HEAD_DIM: gl.constexpr,
    BLOCK_M: gl.constexpr,
) -> None:
    """Write a chunk of sums, scaled, where it belongs in dq."""
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    blocks_m = gl.cdiv(seq_len_q, BLOCK_M)
    pair = chunk // (2 * blocks_m)
    block = chunk // 2 % blocks_m
    part = chunk % 2
    line = gl.arange(0, 128, layout=gl.SliceLayout(1, _FLAT))
    column = gl.arange(0, 32, layout=gl.SliceLayout(0, _FLAT))
    start = sums_pointer + gl.cast(chunk, gl.int64) * (64 * 64)
    values = gl.load(start + (line * 32)[:, None] + column[None, :])
    values = gl.permute(gl.reshape(values * scale, [4, 8, 8, 4, 2, 2]), [0, 4, 2, 1, 3, 5])
    dq = gl.convert_layout(gl.reshape(values, [64, 64]), LAYOUT).to(dq_pointer.dtype.element_ty)
    row = block * BLOCK_M + gl.arange(0, 64, layout=gl.SliceLayout(1, LAYOUT))
    column = gl.arange(0, 64, layout=gl.SliceLayout(0, LAYOUT))
    if BLOCK_M == 64:  # chunks halve the columns, else the rows
        column += part * 64
    else:
        row += part * 64
    of_dq = dq_pointer + (gl.cast(pair // heads, gl.int64) * seq_len_q * heads + pair % heads) * HEAD_DIM
    pointers = of_dq + (gl.cast(row, gl.int64) * (heads * HEAD_DIM))[:, None] + column[None, :]
    gl.store(pointers, dq, mask=(row < seq_len_q)[:, None])


@gluon.jit  # type: ignore[untyped-decorator]
def _add_parts(
    parts_pointer: gl.tensor,
    dk_pointer: gl.tensor,
    dv_pointer: gl.tensor,
    share: gl.tensor,
    seq_len_k: gl.tensor,
    kv_heads: gl.tensor,
    whole: gl.tensor,
    parts: gl.tensor,
    scale: gl.tensor,
    HEAD_DIM: gl.constexpr,
    SHARES: gl.constexpr,
) -> None:
    """Write a share of the keys of dk and dv of a split tile: the sum of its parts, always in one order."""
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 8], [256 // HEAD_DIM, HEAD_DIM // 8], [4, 1], [1, 0])
    KEYS: gl.constexpr = 128 // SHARES
    blocks_n = gl.cdiv(seq_len_k, 128)
    tile = whole + share // SHARES
    pair = tile // blocks_n
    row = share % SHARES * KEYS + gl.arange(0, KEYS, layout=gl.SliceLayout(1, LAYOUT))
    column = gl.arange(0, HEAD_DIM, layout=gl.SliceLayout(0, LAYOUT))
    part = parts_pointer + gl.cast(share // SHARES, gl.int64) * parts * (2 * 128 * HEAD_DIM)
    of_part = (row * HEAD_DIM)[:, None] + column[None, :]
    dk = gl.zeros([KEYS, HEAD_DIM], gl.float32, LAYOUT)
    dv = gl.zeros([KEYS, HEAD_DIM], gl.float32, LAYOUT)
    for _ in range(parts):
        dk += gl.load(part + of_part)
        dv += gl.load(part + 128 * HEAD_DIM + of_part)
        part += 2 * 128 * HEAD_DIM
    key = tile % blocks_n * 128 + row
    of_rows = (gl.cast(pair // kv_heads, gl.int64) * seq_len_k + key) * kv_heads + pair % kv_heads
    pointers = (of_rows * HEAD_DIM)[:, None] + column[None, :]
    mask = (key < seq_len_k)[:, None]
    gl.store(dk_pointer + pointers, (dk * scale).to(dk_pointer.dtype.element_ty), mask=mask)
    gl.store(dv_pointer + pointers, dv.to(dv_pointer.dtype.element_ty), mask=mask)


@gluon.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["seq_len_q", "seq_len_k", "heads", "kv_heads", "whole", "split", "parts"]
)
def gluon_backward_end_kernel(
    sums_pointer: gl.tensor,  # [batch * heads, blocks_m, 2, 64 * 64], float32, contiguous; or None
    parts_pointer: gl.tensor,  # [split tiles, parts, 2, 128, head_dim], float32, contiguous; or None
    dq_pointer: gl.tensor,  # [batch, seq_len_q, heads, head_dim], contiguous
    dk_pointer: gl.tensor,  # [batch, seq_len_k, kv_heads, head_dim], contiguous
    dv_pointer: gl.tensor,  # [batch, seq_len_k, kv_heads, head_dim], contiguous
    seq_len_q: gl.tensor,
    seq_len_k: gl.tensor,
    heads: gl.tensor,
    kv_heads: gl.tensor,
    whole: gl.tensor,  # tiles before the first that is split
    split: gl.tensor,  # tiles that are split
    parts: gl.tensor,  # of each
    scale: gl.tensor,
    HEAD_DIM: gl.constexpr,
    BLOCK_M: gl.constexpr,
    SHARES: gl.constexpr,  # programs of a tile that is split
) -> None:
    """Write dk and dv of the tiles that are split, and a chunk of dq with each later program."""
    of_parts = split * SHARES
    if parts_pointer is not None:  # noqa: SIM102  (only this one is known to the compiler)
        if gl.program_id(0) < of_parts:
            _add_parts(
                parts_pointer, dk_pointer, dv_pointer, gl.program_id(0), seq_len_k, kv_heads, whole, parts, scale,
                HEAD_DIM, SHARES,
            )  # fmt: skip
    if sums_pointer is not None:  # noqa: SIM102
        if gl.program_id(0) >= of_parts:
            _write_dq(sums_pointer, dq_pointer, gl.program_id(0) - of_parts, seq_len_q, heads, scale, HEAD_DIM, BLOCK_M)
