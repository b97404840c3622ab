"""The Gluon kernel of the backward pass on compute capability 9.0; `flash_gluon_backward.py` says what it computes."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

from fluxbench.kernels.flash_gluon_backward_consumer import consume
from fluxbench.kernels.flash_gluon_tiles import ROWS

_load = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared  # renamed in Triton 3.9


@gluon.jit  # type: ignore[untyped-decorator]
def _produce(
    q_source: gl.tensor,
    k_source: gl.tensor,
    v_source: gl.tensor,
    dout_source: gl.tensor,
    rows_source: gl.tensor,
    k_buffer: gl.tensor,
    v_buffer: gl.tensor,
    q_buffers: gl.tensor,
    dout_buffers: gl.tensor,
    lse_buffers: gl.tensor,
    delta_buffers: gl.tensor,
    k_full: gl.tensor,
    v_full: gl.tensor,
    q_full: gl.tensor,
    q_empty: gl.tensor,
    dout_full: gl.tensor,
    dout_empty: gl.tensor,
    start_n: gl.tensor,
    first: gl.tensor,
    end: gl.tensor,
    kv_pair: gl.tensor,
    kv_heads: gl.tensor,
    blocks_m: gl.tensor,
    group: gl.tensor,
    BLOCK_M: gl.constexpr,
    STAGES: gl.constexpr,
) -> None:
    """Load k and v once, and of each head of the group blocks of q and dout, with a row of lse and of delta each."""
    batch = kv_pair // kv_heads
    kv_head = kv_pair % kv_heads
    mbarrier.expect(k_full.index(0), k_source.block_type.nbytes)
    _load(k_source, [batch, kv_head, start_n, 0], k_full.index(0), k_buffer)
    mbarrier.expect(v_full.index(0), v_source.block_type.nbytes)
    _load(v_source, [batch, kv_head, start_n, 0], v_full.index(0), v_buffer)
    step = 0
    for member in range(group):
        head = kv_head * group + member
        for block in range(first, end):
            stage = step % STAGES
            phase = ((step // STAGES) & 1) ^ 1  # a wait for the phase before the first passes
            row = ((kv_pair * group + member) * blocks_m + block) * 2
            mbarrier.wait(q_empty.index(stage), phase)
            mbarrier.expect(q_full.index(stage), q_source.block_type.nbytes + rows_source.block_type.nbytes)
            _load(q_source, [batch, head, block * BLOCK_M, 0], q_full.index(stage), q_buffers.index(stage))
            _load(rows_source, [row, 0], q_full.index(stage), lse_buffers.index(stage))
            mbarrier.wait(dout_empty.index(stage), phase)
            mbarrier.expect(dout_full.index(stage), dout_source.block_type.nbytes + rows_source.block_type.nbytes)
            _load(dout_source, [batch, head, block * BLOCK_M, 0], dout_full.index(stage), dout_buffers.index(stage))
            _load(rows_source, [row + 1, 0], dout_full.index(stage), delta_buffers.index(stage))
            step += 1


@gluon.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=[
        "seq_len_q",
        "seq_len_k",
        "blocks_m",
        "kv_pairs",
        "kv_heads",
        "group",
        "at_once",
        "whole",
        "parts",
    ]
)
def gluon_backward_kernel(
    # Descriptors of [batch, heads, seq_len, head_dim], in blocks of BLOCK_M or 128 rows of one head; all of one dtype.
    q_source: gl.tensor,
    k_source: gl.tensor,
    v_source: gl.tensor,
    dout_source: gl.tensor,
    dk_source: gl.tensor,  # in blocks of ROWS rows
    dv_source: gl.tensor,  # in blocks of ROWS rows
    rows_source: gl.tensor,  # a descriptor of [batch * heads * blocks_m * 2, BLOCK_M], float32: lse, delta in turns
    sums_source: gl.tensor,  # a descriptor of [chunks * 128, 32], float32; None: no dq
    parts_pointer: gl.tensor,  # [programs after the whole ones, 2, 128, HEAD_DIM], float32; or None: no tile is split
    seq_len_q: gl.tensor,
    seq_len_k: gl.tensor,
    blocks_m: gl.tensor,  # blocks of BLOCK_M queries of one head
    kv_pairs: gl.tensor,  # batch * kv_heads
    kv_heads: gl.tensor,
    group: gl.tensor,  # query heads to a head of k and v
    at_once: gl.tensor,  # heads of k and v whose programs come by the block of keys
    whole: gl.tensor,  # tiles of 128 keys that have one program
    parts: gl.tensor,  # programs of each later tile, which share the queries
    scale: gl.tensor,  # of the scores
    scale_log2: gl.tensor,  # log2(e) times the scale of the scores
    HEAD_DIM: gl.constexpr,
    BLOCK_M: gl.constexpr,  # 64 * 128 / HEAD_DIM
    STAGES: gl.constexpr,  # buffers of q and of dout
    RAGGED: gl.constexpr,  # seq_len_k is no multiple of 128
    CAUSAL: gl.constexpr,  # aligned to the end: the last query sees all keys; seq_len_q <= seq_len_k
) -> None:
    """Write dk and dv of 128 keys of one head, and add what they give to dq.

    Of `at_once` heads all first blocks of keys come first: under a causal mask these take longest. A program of a tile
    that is split writes its part of dk and dv, unscaled.
    """
    dtype: gl.constexpr = q_source.dtype
    BLOCK_N: gl.constexpr = 2 * ROWS
    OF_HEAD: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, HEAD_DIM], dtype)
    OF_DS: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, BLOCK_M], dtype)
    OF_ROWS: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=32, rank=1)
    OF_SUMS: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=32, rank=2)
    BARRIER: gl.constexpr = mbarrier.MBarrierLayout()
    # What is not needed takes little room.
    DS_BUFFERS: gl.constexpr = 1 if sums_source is None else 2
    LINES: gl.constexpr = 8 if sums_source is None else 128
    k_buffer = gl.allocate_shared_memory(dtype, [BLOCK_N, HEAD_DIM], OF_HEAD)
    v_buffer = gl.allocate_shared_memory(dtype, [BLOCK_N, HEAD_DIM], OF_HEAD)
    q_buffers = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_M, HEAD_DIM], OF_HEAD)
    dout_buffers = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_M, HEAD_DIM], OF_HEAD)
    ds_buffers = gl.allocate_shared_memory(dtype, [DS_BUFFERS, BLOCK_N, BLOCK_M], OF_DS)
    sums_buffers = gl.allocate_shared_memory(gl.float32, [2, LINES, 32], OF_SUMS)
    lse_buffers = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK_M], OF_ROWS)
    delta_buffers = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK_M], OF_ROWS)
    k_full = gl.allocate_shared_memory(gl.int64, [1, 1], BARRIER)
    v_full = gl.allocate_shared_memory(gl.int64, [1, 1], BARRIER)
    q_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    q_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    dout_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    dout_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    mbarrier.init(k_full.index(0), count=1)
    mbarrier.init(v_full.index(0), count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(q_full.index(stage), count=1)
        mbarrier.init(q_empty.index(stage), count=2)
        mbarrier.init(dout_full.index(stage), count=1)
        mbarrier.init(dout_empty.index(stage), count=2)
    fence_async_shared()
    tile = gl.program_id(0)
    if parts_pointer is not None:
        tile = gl.where(tile < whole, tile, whole + (tile - whole) // parts)
    blocks_n = gl.cdiv(seq_len_k, BLOCK_N)
    section = tile // (at_once * blocks_n)
    index = tile % (at_once * blocks_n)
    width = gl.minimum(at_once, kv_pairs - section * at_once)
    kv_pair = section * at_once + index % width
    start_n = index // width * BLOCK_N
    first = 0
    if CAUSAL:
        first = gl.maximum(start_n - (seq_len_k - seq_len_q), 0) // BLOCK_M
    end = blocks_m
    kept = -1  # where the part of this program lies; a whole tile has none
    if parts_pointer is not None:
        kept = gl.program_id(0) - whole
        first = gl.where(kept < 0, 0, kept % parts * blocks_m // parts)
        end = gl.where(kept < 0, blocks_m, (kept % parts + 1) * blocks_m // parts)
    # The tuples are written out: constants lose their type in a variable.
    gl.warp_specialize(
        [
            (consume, (
                sums_source, parts_pointer, dk_source, dv_source, sums_buffers, k_buffer, v_buffer,
                q_buffers, dout_buffers, lse_buffers, delta_buffers, ds_buffers,
                k_full, v_full, q_full, q_empty, dout_full, dout_empty, start_n, first, end, kept, kv_pair, kv_heads,
                seq_len_q, seq_len_k, blocks_m, group, scale, scale_log2,
                HEAD_DIM, BLOCK_M, STAGES, RAGGED, CAUSAL, 0,
            )),
            (consume, (
                sums_source, parts_pointer, dk_source, dv_source, sums_buffers, k_buffer, v_buffer,
                q_buffers, dout_buffers, lse_buffers, delta_buffers, ds_buffers,
                k_full, v_full, q_full, q_empty, dout_full, dout_empty, start_n, first, end, kept, kv_pair, kv_heads,
                seq_len_q, seq_len_k, blocks_m, group, scale, scale_log2,
                HEAD_DIM, BLOCK_M, STAGES, RAGGED, CAUSAL, 1,
            )),
            (_produce, (
                q_source, k_source, v_source, dout_source, rows_source, k_buffer, v_buffer, q_buffers, dout_buffers,
                lse_buffers, delta_buffers, k_full, v_full, q_full, q_empty, dout_full, dout_empty,
                start_n, first, end, kv_pair, kv_heads, blocks_m, group, BLOCK_M, STAGES,
            )),
        ],
        [4, 1],  # warps of the second consumer and of the producer
        [240, 24],  # their registers a thread; the first consumer has what is left, 240
    )  # fmt: skip
