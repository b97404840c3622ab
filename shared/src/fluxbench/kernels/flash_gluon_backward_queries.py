"""The kernel in Gluon that computes dq alone, of 128 queries a program: sums in registers, always in one order."""

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

from fluxbench.kernels.flash_gluon_tiles import ROWS

# Triton 3.9 has other names.
_load = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
_store = tma.async_store if hasattr(tma, "async_store") else tma.async_copy_shared_to_global


@gluon.jit  # type: ignore[untyped-decorator]
def _produce(
    q_source: gl.tensor,
    k_source: gl.tensor,
    v_source: gl.tensor,
    dout_source: gl.tensor,
    q_buffers: gl.tensor,
    k_buffers: gl.tensor,
    v_buffers: gl.tensor,
    dout_buffers: gl.tensor,
    q_full: gl.tensor,
    k_full: gl.tensor,
    k_empty: gl.tensor,
    v_full: gl.tensor,
    v_empty: gl.tensor,
    start_m: gl.tensor,
    pair: gl.tensor,
    blocks: gl.tensor,
    heads: gl.tensor,
    group: gl.tensor,
    BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr,
) -> None:
    """Load q and dout once, and k and v from the last block that is seen to the first."""
    batch = pair // heads
    head = pair % heads
    for consumer in gl.static_range(2):
        full = q_full.index(consumer)
        mbarrier.expect(full, q_source.block_type.nbytes + dout_source.block_type.nbytes)
        _load(q_source, [batch, head, start_m + consumer * ROWS, 0], full, q_buffers.index(consumer))
        _load(dout_source, [batch, head, start_m + consumer * ROWS, 0], full, dout_buffers.index(consumer))
    for step in range(blocks):
        stage = step % STAGES
        phase = ((step // STAGES) & 1) ^ 1  # a wait for the phase before the first passes
        start_n = (blocks - 1 - step) * BLOCK_N
        mbarrier.wait(k_empty.index(stage), phase)
        mbarrier.expect(k_full.index(stage), k_source.block_type.nbytes)
        _load(k_source, [batch, head // group, start_n, 0], k_full.index(stage), k_buffers.index(stage))
        mbarrier.wait(v_empty.index(stage), phase)
        mbarrier.expect(v_full.index(stage), v_source.block_type.nbytes)
        _load(v_source, [batch, head // group, start_n, 0], v_full.index(stage), v_buffers.index(stage))


@gluon.jit  # type: ignore[untyped-decorator]
def _step(
    q: gl.tensor,
    dout: gl.tensor,
    k_buffers: gl.tensor,
    v_buffers: gl.tensor,
    k_full: gl.tensor,
    k_empty: gl.tensor,
    v_full: gl.tensor,
    v_empty: gl.tensor,
    step: gl.tensor,
    start_m: gl.tensor,
    start_n: gl.tensor,
    seq_len_q: gl.tensor,
    seq_len_k: gl.tensor,
    shift: gl.tensor,
    minus_delta: gl.tensor,
    ds: gl.tensor,
    dq: gl.tensor,
    scale_log2: gl.tensor,
    BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr,
    CAUSAL: gl.constexpr,
    HIDE: gl.constexpr,
    FIRST: gl.constexpr,
    S_LAYOUT: gl.constexpr,
    A_LAYOUT: gl.constexpr,
) -> gl.tuple:
    """Multiply dS of the block before with its keys, while this one goes from dP to dS. Returns dS and dq."""
    stage = step % STAGES
    phase = (step // STAGES) & 1
    before = (step + STAGES - 1) % STAGES
    nothing = gl.zeros([ROWS, BLOCK_N], gl.float32, S_LAYOUT)
    mbarrier.wait(k_full.index(stage), phase)
    scores = warpgroup_mma(q, k_buffers.index(stage).permute((1, 0)), nothing, use_acc=False, is_async=True)
    mbarrier.wait(v_full.index(stage), phase)
    products = warpgroup_mma(dout, v_buffers.index(stage).permute((1, 0)), nothing, use_acc=False, is_async=True)
    scores = warpgroup_mma_wait(1, deps=(scores,))
    weights = gl.exp2(scores * scale_log2 + shift[:, None])
    if HIDE:
        key = start_n + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, S_LAYOUT))
        if CAUSAL:
            query = start_m + (seq_len_k - seq_len_q) + gl.arange(0, ROWS, layout=gl.SliceLayout(1, S_LAYOUT))
            weights = gl.where(key[None, :] <= query[:, None], weights, 0.0)
        else:
            weights = gl.where((key < seq_len_k)[None, :], weights, 0.0)
    if FIRST:
        dp = warpgroup_mma_wait(0, deps=(products,))
        mbarrier.arrive(v_empty.index(stage), count=1)
        exact = weights * (dp + minus_delta[:, None])
    else:  # started here, this product keeps the assembler from waiting for the one before it too early
        dq_ahead = warpgroup_mma(ds, k_buffers.index(before), dq, is_async=True)
        dp = warpgroup_mma_wait(1, deps=(products,))
        mbarrier.arrive(v_empty.index(stage), count=1)
        exact = weights * (dp + minus_delta[:, None])
        dq, ds = warpgroup_mma_wait(0, deps=(dq_ahead, ds))
        mbarrier.arrive(k_empty.index(before), count=1)
    return gl.convert_layout(exact.to(k_buffers.dtype), A_LAYOUT), dq


@gluon.jit  # type: ignore[untyped-decorator]
def _consume(
    dq_source: gl.tensor,
    rows_pointer: gl.tensor,
    q_buffers: gl.tensor,
    k_buffers: gl.tensor,
    v_buffers: gl.tensor,
    dout_buffers: gl.tensor,
    q_full: gl.tensor,
    k_full: gl.tensor,
    k_empty: gl.tensor,
    v_full: gl.tensor,
    v_empty: gl.tensor,
    tile_m: gl.tensor,
    pair: gl.tensor,
    blocks: gl.tensor,
    heads: gl.tensor,
    seq_len_q: gl.tensor,
    seq_len_k: gl.tensor,
    scale: gl.tensor,
    scale_log2: gl.tensor,
    HEAD_DIM: gl.constexpr,
    ROWS_BLOCK: gl.constexpr,
    BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr,
    RAGGED: gl.constexpr,
    CAUSAL: gl.constexpr,
    CONSUMER: gl.constexpr,
) -> None:
    """Compute dq of the ROWS queries of this warpgroup."""
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    Q_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    A_LAYOUT: gl.constexpr = gl.DotOperandLayout(0, Q_LAYOUT, 2)
    q = q_buffers.index(CONSUMER)
    dout = dout_buffers.index(CONSUMER)
    start_m = tile_m + CONSUMER * ROWS
    row = start_m + gl.arange(0, ROWS, layout=gl.SliceLayout(1, S_LAYOUT))
    lines = gl.cast(pair, gl.int64) * gl.cdiv(seq_len_q, ROWS_BLOCK) + row // ROWS_BLOCK
    of_rows = rows_pointer + lines * (2 * ROWS_BLOCK) + row % ROWS_BLOCK
    inside = row < seq_len_q
    shift = gl.load(of_rows, mask=inside, other=-float("inf")) * scale_log2
    minus_delta = gl.load(of_rows + ROWS_BLOCK, mask=inside, other=0.0)
    dq = gl.zeros([ROWS, HEAD_DIM], gl.float32, Q_LAYOUT)
    open_blocks = blocks - 1  # of which every row here sees every key; the last block has a step of its own
    if CAUSAL:
        open_blocks = gl.minimum(open_blocks, (start_m + seq_len_k - seq_len_q + 1) // BLOCK_N)

    mbarrier.wait(q_full.index(CONSUMER), 0)
    ds, dq = _step(
        q, dout, k_buffers, v_buffers, k_full, k_empty, v_full, v_empty, 0, start_m, (blocks - 1) * BLOCK_N,
        seq_len_q, seq_len_k, shift, minus_delta, 0, dq, scale_log2,
        BLOCK_N, STAGES, CAUSAL, CAUSAL or RAGGED, True, S_LAYOUT, A_LAYOUT,
    )  # fmt: skip
    step = 1
    if CAUSAL:
        for block in range(blocks - 2, open_blocks - 1, -1):
            ds, dq = _step(
                q, dout, k_buffers, v_buffers, k_full, k_empty, v_full, v_empty, step, start_m, block * BLOCK_N,
                seq_len_q, seq_len_k, shift, minus_delta, ds, dq, scale_log2,
                BLOCK_N, STAGES, CAUSAL, True, False, S_LAYOUT, A_LAYOUT,
            )  # fmt: skip
            step += 1
    for _ in range(open_blocks):
        ds, dq = _step(
            q, dout, k_buffers, v_buffers, k_full, k_empty, v_full, v_empty, step, start_m, 0,
            seq_len_q, seq_len_k, shift, minus_delta, ds, dq, scale_log2,
            BLOCK_N, STAGES, CAUSAL, False, False, S_LAYOUT, A_LAYOUT,
        )  # fmt: skip
        step += 1
    dq_ahead = warpgroup_mma(ds, k_buffers.index((step - 1) % STAGES), dq, is_async=True)
    dq, ds = warpgroup_mma_wait(0, deps=(dq_ahead, ds))

    q.store((dq * scale).to(q.dtype))
    fence_async_shared()
    _store(dq_source, [pair // heads, pair % heads, start_m, 0], q)
    tma.store_wait(0)


@gluon.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["seq_len_q", "seq_len_k", "pairs", "heads", "group", "at_once"]
)
def gluon_backward_queries_kernel(
    # Descriptors of [batch, heads, seq_len, head_dim], in blocks of ROWS or BLOCK_N rows of one head; all of one dtype.
    q_source: gl.tensor,
    k_source: gl.tensor,
    v_source: gl.tensor,
    dout_source: gl.tensor,
    dq_source: gl.tensor,
    rows_pointer: gl.tensor,  # [batch * heads, blocks, 2, ROWS_BLOCK], float32: -lse / scale_log2, -delta in turns
    seq_len_q: gl.tensor,
    seq_len_k: gl.tensor,
    pairs: gl.tensor,  # batch * heads
    heads: gl.tensor,
    group: gl.tensor,  # query heads to a head of k and v
    at_once: gl.tensor,  # heads whose programs come by the block of queries
    scale: gl.tensor,  # of the scores
    scale_log2: gl.tensor,  # log2(e) times the scale of the scores
    HEAD_DIM: gl.constexpr,
    ROWS_BLOCK: gl.constexpr,
    BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr,  # buffers of k and of v; two at least
    RAGGED: gl.constexpr,  # seq_len_k is no multiple of BLOCK_N
    CAUSAL: gl.constexpr,  # aligned to the end: the last query sees all keys; seq_len_q <= seq_len_k
) -> None:
    """Write dq of 128 queries of one head. Of `at_once` heads all last blocks come first, which see most keys."""
    dtype: gl.constexpr = q_source.dtype
    LAYOUT: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, HEAD_DIM], dtype)
    BARRIER: gl.constexpr = mbarrier.MBarrierLayout()
    q_buffers = gl.allocate_shared_memory(dtype, [2, ROWS, HEAD_DIM], LAYOUT)
    dout_buffers = gl.allocate_shared_memory(dtype, [2, ROWS, HEAD_DIM], LAYOUT)
    k_buffers = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, HEAD_DIM], LAYOUT)
    v_buffers = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, HEAD_DIM], LAYOUT)
    q_full = gl.allocate_shared_memory(gl.int64, [2, 1], BARRIER)
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    k_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    v_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    for consumer in gl.static_range(2):
        mbarrier.init(q_full.index(consumer), count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(k_full.index(stage), count=1)
        mbarrier.init(k_empty.index(stage), count=2)
        mbarrier.init(v_full.index(stage), count=1)
        mbarrier.init(v_empty.index(stage), count=2)
    fence_async_shared()
    blocks_m = gl.cdiv(seq_len_q, 2 * ROWS)
    section = gl.program_id(0) // (at_once * blocks_m)
    index = gl.program_id(0) % (at_once * blocks_m)
    width = gl.minimum(at_once, pairs - section * at_once)
    pair = section * at_once + index % width
    start_m = (blocks_m - 1 - index // width) * (2 * ROWS)
    blocks = gl.cdiv(seq_len_k, BLOCK_N)
    if CAUSAL:
        blocks = gl.cdiv(gl.minimum(start_m + 2 * ROWS + seq_len_k - seq_len_q, seq_len_k), BLOCK_N)
    # The tuples are written out: constants lose their type in a variable.
    gl.warp_specialize(
        [
            (_consume, (
                dq_source, rows_pointer, q_buffers, k_buffers, v_buffers, dout_buffers,
                q_full, k_full, k_empty, v_full, v_empty, start_m, pair, blocks, heads,
                seq_len_q, seq_len_k, scale, scale_log2, HEAD_DIM, ROWS_BLOCK, BLOCK_N, STAGES, RAGGED, CAUSAL, 0,
            )),
            (_consume, (
                dq_source, rows_pointer, q_buffers, k_buffers, v_buffers, dout_buffers,
                q_full, k_full, k_empty, v_full, v_empty, start_m, pair, blocks, heads,
                seq_len_q, seq_len_k, scale, scale_log2, HEAD_DIM, ROWS_BLOCK, BLOCK_N, STAGES, RAGGED, CAUSAL, 1,
            )),
            (_produce, (
                q_source, k_source, v_source, dout_source, q_buffers, k_buffers, v_buffers, dout_buffers,
                q_full, k_full, k_empty, v_full, v_empty, start_m, pair, blocks, heads, group, BLOCK_N, STAGES,
            )),
        ],
        [4, 1],  # warps of the second consumer and of the producer
        [240, 24],  # their registers a thread; the first consumer has what is left, 240
    )  # fmt: skip
