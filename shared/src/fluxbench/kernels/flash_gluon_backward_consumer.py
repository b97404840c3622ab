"""What a warpgroup of the backward kernel in Gluon does: the products of 64 keys, and half of those of dq."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from fluxbench.kernels.flash_gluon_backward_sums import add
from fluxbench.kernels.flash_gluon_barriers import named_barrier
from fluxbench.kernels.flash_gluon_tiles import ROWS

# Triton 3.9 has another name.
_store = tma.async_store if hasattr(tma, "async_store") else tma.async_copy_shared_to_global


@gluon.jit  # type: ignore[untyped-decorator]
def _meet() -> None:
    """Wait until both warpgroups are here."""
    named_barrier("bar.sync 9, 256; mov.b32 $0, $1;")


@gluon.jit  # type: ignore[untyped-decorator]
def _hidden(
    values: gl.tensor,
    start_m: gl.tensor,
    start_n: gl.tensor,
    seq_len_q: gl.tensor,
    seq_len_k: gl.tensor,
    BLOCK_M: gl.constexpr,
    CAUSAL: gl.constexpr,
    HIDE: gl.constexpr,
    CONSUMER: gl.constexpr,
    LAYOUT: gl.constexpr,
) -> gl.tensor:
    """Set the values of hidden keys to -inf: those past the sequence, and of a causal mask those after each query."""
    if HIDE:
        key = start_n + CONSUMER * ROWS + gl.arange(0, ROWS, layout=gl.SliceLayout(1, LAYOUT))
        if CAUSAL:
            query = start_m + (seq_len_k - seq_len_q) + gl.arange(0, BLOCK_M, layout=gl.SliceLayout(0, LAYOUT))
            values = gl.where(key[:, None] <= query[None, :], values, -float("inf"))
        else:
            values = gl.where((key < seq_len_k)[:, None], values, -float("inf"))
    return values


@gluon.jit  # type: ignore[untyped-decorator]
def _step(
    sums_source: gl.tensor,
    sums_buffers: gl.tensor,
    k_buffer: gl.tensor,
    v_buffer: gl.tensor,
    q_buffers: gl.tensor,
    dout_buffers: gl.tensor,
    lse_buffers: gl.tensor,
    delta_buffers: gl.tensor,
    ds_buffers: gl.tensor,
    q_full: gl.tensor,
    q_empty: gl.tensor,
    dout_full: gl.tensor,
    dout_empty: gl.tensor,
    step: gl.tensor,
    chunk: gl.tensor,
    start_m: gl.tensor,
    start_n: gl.tensor,
    seq_len_q: gl.tensor,
    seq_len_k: gl.tensor,
    dk: gl.tensor,
    dv: gl.tensor,
    scale_log2: gl.tensor,
    HEAD_DIM: gl.constexpr,
    BLOCK_M: gl.constexpr,
    STAGES: gl.constexpr,
    CAUSAL: gl.constexpr,
    HIDE: gl.constexpr,
    ONE_BY_ONE: gl.constexpr,
    CONSUMER: gl.constexpr,
) -> gl.tuple:
    """Add what BLOCK_M queries give to dk and dv, and what these keys give to dq. Returns the new dk and dv.

    Scores are transposed: keys by queries. The product with q starts at -lse / scale_log2, and that with dout at
    -delta, so that neither takes registers or instructions of its own later. `ONE_BY_ONE`: the product with dout is
    issued once that with q is done, and that of dv before it is.
    """
    dtype: gl.constexpr = k_buffer.dtype
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_M, 16])
    K_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    A_LAYOUT: gl.constexpr = gl.DotOperandLayout(0, K_LAYOUT, 2)
    Q_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    OF_QUERIES: gl.constexpr = gl.SliceLayout(0, S_LAYOUT)
    k = k_buffer.slice(CONSUMER * ROWS, ROWS, 0)
    v = v_buffer.slice(CONSUMER * ROWS, ROWS, 0)
    stage = step % STAGES
    phase = (step // STAGES) & 1
    q = q_buffers.index(stage)
    dout = dout_buffers.index(stage)

    mbarrier.wait(q_full.index(stage), phase)
    starts = gl.zeros([ROWS, BLOCK_M], gl.float32, S_LAYOUT) + lse_buffers.index(stage).load(OF_QUERIES)[None, :]
    starts = _hidden(starts, start_m, start_n, seq_len_q, seq_len_k, BLOCK_M, CAUSAL, HIDE, CONSUMER, S_LAYOUT)
    scores = warpgroup_mma(k, q.permute((1, 0)), starts, is_async=True)
    mbarrier.wait(dout_full.index(stage), phase)
    starts = gl.zeros([ROWS, BLOCK_M], gl.float32, S_LAYOUT) + delta_buffers.index(stage).load(OF_QUERIES)[None, :]
    if ONE_BY_ONE:
        scores = warpgroup_mma_wait(0, deps=(scores,))
        products = warpgroup_mma(v, dout.permute((1, 0)), starts, is_async=True)
        weights = gl.exp2(scores * scale_log2)
        p = gl.convert_layout(weights.to(dtype), A_LAYOUT)
        dv_ahead = warpgroup_mma(p, dout, dv, is_async=True)
        dp = warpgroup_mma_wait(1, deps=(products,))
        exact_ds = weights * dp
    else:
        products = warpgroup_mma(v, dout.permute((1, 0)), starts, is_async=True)
        scores = warpgroup_mma_wait(1, deps=(scores,))
        weights = gl.exp2(scores * scale_log2)
        dp = warpgroup_mma_wait(0, deps=(products,))
        exact_ds = weights * dp
        p = gl.convert_layout(weights.to(dtype), A_LAYOUT)
        dv_ahead = warpgroup_mma(p, dout, dv, is_async=True)
    rounded = exact_ds.to(dtype)
    ds = gl.convert_layout(rounded, A_LAYOUT)
    if sums_source is not None:
        ds_buffer = ds_buffers.index(step % 2)
        ds_buffer.slice(CONSUMER * ROWS, ROWS, 0).store(rounded)
        fence_async_shared()
        _meet()  # all keys' dS is there; nobody reads the other buffer any more
        no_dq = gl.zeros([ROWS, 64], gl.float32, Q_LAYOUT)
        if BLOCK_M == ROWS:
            rows = ds_buffer.permute((1, 0))
            columns = k_buffer.slice(CONSUMER * 64, 64, 1)
            dq = warpgroup_mma(rows, columns, no_dq, use_acc=False, is_async=True)
        else:
            rows = ds_buffer.slice(CONSUMER * ROWS, ROWS, 1).permute((1, 0))
            dq = warpgroup_mma(rows, k_buffer, no_dq, use_acc=False, is_async=True)
        dk_ahead = warpgroup_mma(ds, q, dk, is_async=True)
        dv, dq, p = warpgroup_mma_wait(1, deps=(dv_ahead, dq, p))
        mbarrier.arrive(dout_empty.index(stage), count=1)
        add(sums_source, sums_buffers.index(CONSUMER), chunk + CONSUMER, dq)
    else:
        dk_ahead = warpgroup_mma(ds, q, dk, is_async=True)
        dv, p = warpgroup_mma_wait(1, deps=(dv_ahead, p))
        mbarrier.arrive(dout_empty.index(stage), count=1)
    dk, ds = warpgroup_mma_wait(0, deps=(dk_ahead, ds))
    mbarrier.arrive(q_empty.index(stage), count=1)
    return dk, dv


@gluon.jit  # type: ignore[untyped-decorator]
def consume(
    sums_source: gl.tensor,
    parts_pointer: gl.tensor,
    dk_source: gl.tensor,
    dv_source: gl.tensor,
    sums_buffers: gl.tensor,
    k_buffer: gl.tensor,
    v_buffer: gl.tensor,
    q_buffers: gl.tensor,
    dout_buffers: gl.tensor,
    lse_buffers: gl.tensor,
    delta_buffers: gl.tensor,
    ds_buffers: gl.tensor,
    k_full: gl.tensor,
    v_full: gl.tensor,
    q_full: gl.tensor,
    q_empty: gl.tensor,
    dout_full: gl.tensor,
    dout_empty: gl.tensor,
    start_n: gl.tensor,
    first: gl.tensor,
    end: gl.tensor,
    kept: gl.tensor,
    kv_pair: gl.tensor,
    kv_heads: gl.tensor,
    seq_len_q: gl.tensor,
    seq_len_k: gl.tensor,
    blocks_m: gl.tensor,
    group: gl.tensor,
    scale: gl.tensor,
    scale_log2: gl.tensor,
    HEAD_DIM: gl.constexpr,
    BLOCK_M: gl.constexpr,
    STAGES: gl.constexpr,
    RAGGED: gl.constexpr,
    CAUSAL: gl.constexpr,
    CONSUMER: gl.constexpr,
) -> None:
    """Compute dk and dv of the ROWS keys of this warpgroup, and add to the sums of dq."""
    dtype: gl.constexpr = dk_source.dtype
    ONE_BY_ONE: gl.constexpr = RAGGED and not CAUSAL  # there it is faster (docs/kernels.md)
    K_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    dk = gl.zeros([ROWS, HEAD_DIM], gl.float32, K_LAYOUT)
    dv = gl.zeros([ROWS, HEAD_DIM], gl.float32, K_LAYOUT)
    open_from = first  # the first block of queries to which no key here is hidden
    if CAUSAL:
        last_key = start_n + 2 * ROWS - 1 - (seq_len_k - seq_len_q)
        open_from = gl.minimum(gl.maximum(gl.cdiv(last_key, BLOCK_M), first), end)
    elif RAGGED:
        open_from = gl.where(start_n + 2 * ROWS > seq_len_k, end, first)

    mbarrier.wait(k_full.index(0), 0)
    mbarrier.wait(v_full.index(0), 0)
    step = 0
    for member in range(group):
        pair = kv_pair * group + member
        if CAUSAL or RAGGED:
            for block in range(first, open_from):
                dk, dv = _step(
                    sums_source, sums_buffers, k_buffer, v_buffer, q_buffers, dout_buffers, lse_buffers,
                    delta_buffers, ds_buffers, q_full, q_empty, dout_full, dout_empty, step,
                    (pair * blocks_m + block) * 2, block * BLOCK_M, start_n, seq_len_q, seq_len_k, dk, dv,
                    scale_log2, HEAD_DIM, BLOCK_M, STAGES, CAUSAL, True, ONE_BY_ONE, CONSUMER,
                )  # fmt: skip
                step += 1
        for block in range(open_from, end):
            dk, dv = _step(
                sums_source, sums_buffers, k_buffer, v_buffer, q_buffers, dout_buffers, lse_buffers,
                delta_buffers, ds_buffers, q_full, q_empty, dout_full, dout_empty, step,
                (pair * blocks_m + block) * 2, block * BLOCK_M, start_n, seq_len_q, seq_len_k, dk, dv,
                scale_log2, HEAD_DIM, BLOCK_M, STAGES, CAUSAL, False, ONE_BY_ONE, CONSUMER,
            )  # fmt: skip
            step += 1

    if parts_pointer is not None:  # noqa: SIM102  (only this one is known to the compiler)
        if kept >= 0:
            row = CONSUMER * ROWS + gl.arange(0, ROWS, layout=gl.SliceLayout(1, K_LAYOUT))
            column = gl.arange(0, HEAD_DIM, layout=gl.SliceLayout(0, K_LAYOUT))
            of_part = parts_pointer + gl.cast(kept, gl.int64) * (4 * ROWS * HEAD_DIM)
            pointers = of_part + (row * HEAD_DIM)[:, None] + column[None, :]
            gl.store(pointers, dk)
            gl.store(pointers + 2 * ROWS * HEAD_DIM, dv)
    _meet()  # nobody reads k any more
    k = k_buffer.slice(CONSUMER * ROWS, ROWS, 0)
    v = v_buffer.slice(CONSUMER * ROWS, ROWS, 0)
    k.store((dk * scale).to(dtype))
    v.store(dv.to(dtype))
    fence_async_shared()
    coordinates = [kv_pair // kv_heads, kv_pair % kv_heads, start_n + CONSUMER * ROWS, 0]
    if kept < 0:
        _store(dk_source, coordinates, k)
        _store(dv_source, coordinates, v)
    tma.store_wait(0)
