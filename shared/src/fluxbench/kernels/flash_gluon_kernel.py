"""The Gluon kernel of the forward pass on compute capability 9.0; `flash_gluon.py` says what it computes, and how."""

from __future__ import annotations

import re

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

from fluxbench.kernels.flash_gluon_barriers import OF_K, OF_V, STAGES, wait_for_the_last, wait_until_empty
from fluxbench.kernels.flash_gluon_consumer import consume
from fluxbench.kernels.flash_gluon_tiles import ROWS, job, turns

if [int(part) for part in re.findall(r"\d+", triton.__version__)[:2]] < [3, 6]:  # whose `warp_specialize` is another
    raise ImportError(f"the forward kernel in Gluon needs Triton 3.6 or newer, got {triton.__version__}")

load = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared  # renamed in Triton 3.9


@gluon.jit  # type: ignore[untyped-decorator]
def fetch(
    source: gl.tensor,
    batch: gl.tensor,
    head: gl.tensor,
    row: gl.tensor,
    buffer: gl.tensor,
    full: gl.tensor,
    empty: gl.tensor,
    phase: gl.tensor,
) -> None:
    """Once the buffer is empty, start to copy rows of one head into it. Rows past the sequence arrive as zeros."""
    mbarrier.wait(empty, phase)
    _fill(source, batch, head, row, buffer, full)


@gluon.jit  # type: ignore[untyped-decorator]
def _fill(
    source: gl.tensor, batch: gl.tensor, head: gl.tensor, row: gl.tensor, buffer: gl.tensor, full: gl.tensor
) -> None:
    """Start to copy rows of one head into a buffer."""
    mbarrier.expect(full, source.block_type.nbytes)
    load(source, [batch, head, row, 0], full, buffer)


@gluon.jit  # type: ignore[untyped-decorator]
def _produce(
    q_source: gl.tensor,
    k_source: gl.tensor,
    v_source: gl.tensor,
    q_buffers: gl.tensor,
    k_buffers: gl.tensor,
    v_buffers: gl.tensor,
    q_full: gl.tensor,
    q_empty: gl.tensor,
    k_full: gl.tensor,
    v_full: gl.tensor,
    seq_len_q: gl.tensor,
    seq_len_k: gl.tensor,
    blocks_m: gl.tensor,
    pairs: gl.tensor,
    heads: gl.tensor,
    group: gl.tensor,
    share: gl.tensor,
    BLOCK_N: gl.constexpr,
    CONSUMERS: gl.constexpr,
    CAUSAL: gl.constexpr,
    SPLIT: gl.constexpr,
) -> None:
    """Load what the consumers need, in the order in which they need it: the keys from the last block to the first."""
    step = 0
    for turn in range(turns(blocks_m, pairs, gl.cdiv(seq_len_k, BLOCK_N), share, SPLIT)):
        start_m, pair, first, blocks = job(
            turn, blocks_m, pairs, seq_len_q, seq_len_k, share, ROWS * CONSUMERS, BLOCK_N, CAUSAL, SPLIT
        )
        batch = pair // heads
        head = pair % heads
        kv_head = head // group

        stage = step % STAGES
        start_n = (first + blocks - 1) * BLOCK_N
        # The buffer of these keys is empty before that of the queries is.
        wait_until_empty(step, OF_K)
        _fill(k_source, batch, kv_head, start_n, k_buffers.index(stage), k_full.index(stage))
        for consumer in gl.static_range(CONSUMERS):
            fetch(
                q_source, batch, head, start_m + consumer * ROWS,
                q_buffers.index(consumer), q_full.index(consumer), q_empty.index(consumer), (turn & 1) ^ 1,
            )  # fmt: skip
        wait_until_empty(step, OF_V)
        _fill(v_source, batch, kv_head, start_n, v_buffers.index(stage), v_full.index(stage))
        step += 1
        for done in range(1, blocks):
            stage = step % STAGES
            start_n = (first + blocks - 1 - done) * BLOCK_N
            wait_until_empty(step, OF_K)
            _fill(k_source, batch, kv_head, start_n, k_buffers.index(stage), k_full.index(stage))
            wait_until_empty(step, OF_V)
            _fill(v_source, batch, kv_head, start_n, v_buffers.index(stage), v_full.index(stage))
            step += 1
    wait_for_the_last(step)


@gluon.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["seq_len_q", "seq_len_k", "blocks_m", "pairs", "heads", "group", "share"]
)
def gluon_forward_kernel(
    # Descriptors of [batch, heads, seq_len, head_dim], in blocks of ROWS or BLOCK_N rows of one head; all of one dtype.
    q_source: gl.tensor,
    k_source: gl.tensor,
    v_source: gl.tensor,
    out_source: gl.tensor,
    lse_pointer: gl.tensor,  # [batch, heads, seq_len_q], float32, contiguous; None: not written
    parts_pointer: gl.tensor,  # [programs, 2, CONSUMERS, (HEAD_DIM + 2) * ROWS], float32; None: no tile is split
    arrivals_pointer: gl.tensor,  # [split tiles, CONSUMERS], int32, zero; None: no tile is split
    seq_len_q: gl.tensor,
    seq_len_k: gl.tensor,
    blocks_m: gl.tensor,  # blocks of ROWS * CONSUMERS query rows of one head
    pairs: gl.tensor,  # batch * heads
    heads: gl.tensor,
    group: gl.tensor,  # query heads to a head of k and v
    share: gl.tensor,  # blocks of keys of the split tiles to a program
    scale_log2: gl.tensor,  # log2(e) times the scale of the scores
    HEAD_DIM: gl.constexpr,
    BLOCK_N: gl.constexpr,
    CONSUMERS: gl.constexpr,  # 2: warpgroups that share k and v
    CAUSAL: gl.constexpr,  # aligned to the end: the last query sees all keys; seq_len_q <= seq_len_k
) -> None:
    """Write softmax(q @ k.T * scale) @ v and the logarithms of the sums, tile by tile, as many as this program has.

    These are to the base 2 and include the maximum: a weight is exp2(q @ k.T * scale_log2 - lse).
    """
    dtype: gl.constexpr = q_source.dtype
    LAYOUT: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, HEAD_DIM], dtype)
    BARRIER: gl.constexpr = mbarrier.MBarrierLayout()
    q_buffers = gl.allocate_shared_memory(dtype, [CONSUMERS, ROWS, HEAD_DIM], LAYOUT)
    out_buffers = gl.allocate_shared_memory(dtype, [CONSUMERS, ROWS, HEAD_DIM], LAYOUT)
    k_buffers = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, HEAD_DIM], LAYOUT)
    v_buffers = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, HEAD_DIM], LAYOUT)
    q_full = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], BARRIER)
    q_empty = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], BARRIER)
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    for consumer in gl.static_range(CONSUMERS):
        mbarrier.init(q_full.index(consumer), count=1)
        mbarrier.init(q_empty.index(consumer), count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(k_full.index(stage), count=1)
        mbarrier.init(v_full.index(stage), count=1)
    fence_async_shared()
    # The tuples are written out: constants lose their type in a variable.
    gl.warp_specialize(
        [
            (consume, (
                out_source, lse_pointer, parts_pointer, arrivals_pointer, q_buffers, k_buffers, v_buffers, out_buffers,
                q_full, q_empty, k_full, v_full,
                seq_len_q, seq_len_k, blocks_m, pairs, heads, share, scale_log2,
                HEAD_DIM, BLOCK_N, CONSUMERS, CAUSAL, 0,
            )),
            (consume, (
                out_source, lse_pointer, parts_pointer, arrivals_pointer, q_buffers, k_buffers, v_buffers, out_buffers,
                q_full, q_empty, k_full, v_full,
                seq_len_q, seq_len_k, blocks_m, pairs, heads, share, scale_log2,
                HEAD_DIM, BLOCK_N, CONSUMERS, CAUSAL, 1,
            )),
            (_produce, (
                q_source, k_source, v_source, q_buffers, k_buffers, v_buffers,
                q_full, q_empty, k_full, v_full,
                seq_len_q, seq_len_k, blocks_m, pairs, heads, group, share,
                BLOCK_N, CONSUMERS, CAUSAL, parts_pointer is not None,
            )),
        ],
        [4, 1],  # warps of the second consumer and of the producer
        [240, 24],  # their registers a thread; the first consumer has what is left, 240
    )  # fmt: skip
