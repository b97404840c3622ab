"""The Gluon kernel of the forward pass on compute capability 9.0; `flash_gluon.py` says what it computes, and how."""

from __future__ import annotations

import re

import triton

if [int(part) for part in re.findall(r"\d+", triton.__version__)[:2]] < [3, 6]:  # whose `warp_specialize` is another
    raise ImportError(f"the forward kernel in Gluon needs Triton 3.6 or newer, got {triton.__version__}")

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

ROWS = gl.constexpr(64)  # query rows of a consumer: those of one matrix instruction of a warpgroup
# Triton 3.9 renamed the copies.
_load = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
_store = tma.async_store if hasattr(tma, "async_store") else tma.async_copy_shared_to_global


@gluon.jit  # type: ignore[untyped-decorator]
def _turns(tiles: gl.tensor) -> gl.tensor:
    """Return how many tiles this program computes."""
    programs = gl.num_programs(0)
    rounds = tiles // programs
    slot = gl.where(rounds % 2 == 0, gl.program_id(0), programs - 1 - gl.program_id(0))
    return rounds + gl.where(slot < tiles % programs, 1, 0)


@gluon.jit  # type: ignore[untyped-decorator]
def _tile(turn: gl.tensor, blocks_m: gl.tensor, pairs: gl.tensor, CAUSAL: gl.constexpr) -> gl.tuple:
    """Return the block of rows and the (batch, head) pair of a turn of this program.

    Neighbours share a head, so that its k and v are read from L2. Of a causal mask the tiles go by length, the longest
    first, and each round goes through the programs in the other direction: none has the longest tile twice.
    """
    programs = gl.num_programs(0)
    slot = gl.where(turn % 2 == 0, gl.program_id(0), programs - 1 - gl.program_id(0))
    index = turn * programs + slot
    if CAUSAL:
        block_m = blocks_m - 1 - index // pairs
        pair = index % pairs
    else:
        block_m = index % blocks_m
        pair = index // blocks_m
    return block_m, pair


@gluon.jit  # type: ignore[untyped-decorator]
def _blocks(
    start_m: gl.tensor,
    seq_len_q: gl.tensor,
    seq_len_k: gl.tensor,
    TILE_ROWS: gl.constexpr,
    BLOCK_N: gl.constexpr,
    CAUSAL: gl.constexpr,
) -> gl.tensor:
    """Return how many blocks of keys any row of a tile sees."""
    keys = seq_len_k
    if CAUSAL:
        keys = gl.minimum(start_m + TILE_ROWS + seq_len_k - seq_len_q, seq_len_k)
    return (keys + BLOCK_N - 1) // BLOCK_N


@gluon.jit  # type: ignore[untyped-decorator]
def _fetch(
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
    mbarrier.expect(full, source.block_type.nbytes)
    _load(source, [batch, head, row, 0], full, buffer)


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
    k_empty: gl.tensor,
    v_full: gl.tensor,
    v_empty: gl.tensor,
    seq_len_q: gl.tensor,
    seq_len_k: gl.tensor,
    blocks_m: gl.tensor,
    pairs: gl.tensor,
    heads: gl.tensor,
    group: gl.tensor,
    BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr,
    CAUSAL: gl.constexpr,
) -> None:
    """Load what the consumers need, in the order in which they need it: the keys from the last block to the first."""
    step = 0
    for turn in range(_turns(blocks_m * pairs)):
        block_m, pair = _tile(turn, blocks_m, pairs, CAUSAL)
        batch = pair // heads
        head = pair % heads
        kv_head = head // group
        start_m = block_m * (ROWS * CONSUMERS)
        blocks = _blocks(start_m, seq_len_q, seq_len_k, ROWS * CONSUMERS, BLOCK_N, CAUSAL)

        stage = step % STAGES
        phase = ((step // STAGES) & 1) ^ 1  # a wait for the phase before the first passes
        start_n = (blocks - 1) * BLOCK_N
        # The buffer of these keys is empty before that of the queries is.
        _fetch(
            k_source, batch, kv_head, start_n,
            k_buffers.index(stage), k_full.index(stage), k_empty.index(stage), phase,
        )  # fmt: skip
        for consumer in gl.static_range(CONSUMERS):
            _fetch(
                q_source, batch, head, start_m + consumer * ROWS,
                q_buffers.index(consumer), q_full.index(consumer), q_empty.index(consumer), (turn & 1) ^ 1,
            )  # fmt: skip
        _fetch(
            v_source, batch, kv_head, start_n,
            v_buffers.index(stage), v_full.index(stage), v_empty.index(stage), phase,
        )  # fmt: skip
        step += 1
        for done in range(1, blocks):
            stage = step % STAGES
            phase = ((step // STAGES) & 1) ^ 1
            start_n = (blocks - 1 - done) * BLOCK_N
            _fetch(
                k_source, batch, kv_head, start_n,
                k_buffers.index(stage), k_full.index(stage), k_empty.index(stage), phase,
            )  # fmt: skip
            _fetch(
                v_source, batch, kv_head, start_n,
                v_buffers.index(stage), v_full.index(stage), v_empty.index(stage), phase,
            )  # fmt: skip
            step += 1


@gluon.jit  # type: ignore[untyped-decorator]
def _hide(
    scores: gl.tensor,
    start_m: gl.tensor,
    start_n: gl.tensor,
    seq_len_q: gl.tensor,
    seq_len_k: gl.tensor,
    BLOCK_N: gl.constexpr,
    CAUSAL: gl.constexpr,
    LAYOUT: gl.constexpr,
) -> gl.tensor:
    """Set the scores of hidden keys to -inf: those past the sequence, and of a causal mask those after each query."""
    key = start_n + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, LAYOUT))
    if CAUSAL:
        query = start_m + gl.arange(0, ROWS, layout=gl.SliceLayout(1, LAYOUT))
        visible = key[None, :] <= (query + (seq_len_k - seq_len_q))[:, None]
    else:
        visible = (key < seq_len_k)[None, :]
    return gl.where(visible, scores, -float("inf"))


@gluon.jit  # type: ignore[untyped-decorator]
def _softmax_step(
    scores: gl.tensor,
    maximum: gl.tensor,
    total: gl.tensor,
    scale_log2: gl.tensor,
    BLOCK_N: gl.constexpr,
    GUARD: gl.constexpr,
    PARTS: gl.constexpr,
) -> gl.tuple:
    """Take one block of scores `[ROWS, BLOCK_N]` into the running maximum `[ROWS]` and sums `[ROWS, 4]`, float32.

    Returns the new maximum and sums, the unnormalized weights and the factor that rescales what came before. The
    maximum is of raw scores, so that scaling and subtracting are one instruction. The sums are those of each of the
    four threads that share a row: they need not speak to each other. GUARD: rows may see no key yet.
    """
    maximum_new = gl.maximum(maximum, gl.max(scores, 1))
    shift = maximum_new * scale_log2
    if GUARD:
        shift = gl.where(maximum_new == -float("inf"), 0.0, shift)
    weights = gl.exp2(scores * scale_log2 - shift[:, None])
    rescale = gl.exp2(maximum * scale_log2 - shift)
    parts = gl.sum(gl.sum(gl.reshape(weights, [ROWS, BLOCK_N // 8, 4, 2]), 3), 1)
    total = total * gl.convert_layout(rescale, gl.SliceLayout(1, PARTS))[:, None] + gl.convert_layout(parts, PARTS)
    return maximum_new, total, weights, rescale


@gluon.jit  # type: ignore[untyped-decorator]
def _named_barrier(ASM: gl.constexpr) -> None:
    """Run a barrier instruction once a thread of a warpgroup."""
    thread = gl.arange(0, 128, layout=gl.BlockedLayout([1], [32], [4], [0]))
    gl.inline_asm_elementwise(ASM, "=r,r", [thread], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit  # type: ignore[untyped-decorator]
def _step(
    q: gl.tensor,
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
    weights: gl.tensor,
    out: gl.tensor,
    maximum: gl.tensor,
    total: gl.tensor,
    scale_log2: gl.tensor,
    BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr,
    HIDE: gl.constexpr,
    IN_TURNS: gl.constexpr,
    CONSUMER: gl.constexpr,
    S_LAYOUT: gl.constexpr,
    P_LAYOUT: gl.constexpr,
    O_ROWS: gl.constexpr,
    PARTS: gl.constexpr,
) -> gl.tuple:
    """Multiply the weights of block `step` with its V, while block `step + 1` goes from its scores to its weights.

    Returns the new weights, out, maximum and total.
    """
    stage_v = step % STAGES
    stage_k = (step + 1) % STAGES
    mbarrier.wait(k_full.index(stage_k), ((step + 1) // STAGES) & 1)
    if IN_TURNS:
        if CONSUMER == 0:
            _named_barrier("bar.sync 9, 256; mov.b32 $0, $1;")
        else:
            _named_barrier("bar.sync 10, 256; mov.b32 $0, $1;")
    nothing = gl.zeros([ROWS, BLOCK_N], gl.float32, S_LAYOUT)
    scores = warpgroup_mma(q, k_buffers.index(stage_k).permute((1, 0)), nothing, use_acc=False, is_async=True)
    mbarrier.wait(v_full.index(stage_v), (step // STAGES) & 1)
    sums = warpgroup_mma(weights, v_buffers.index(stage_v), out, is_async=True)
    if IN_TURNS:
        if CONSUMER == 0:
            _named_barrier("bar.arrive 10, 256; mov.b32 $0, $1;")
        else:
            _named_barrier("bar.arrive 9, 256; mov.b32 $0, $1;")
    scores = warpgroup_mma_wait(1, deps=(scores,))
    mbarrier.arrive(k_empty.index(stage_k), count=1)
    if HIDE:
        scores = _hide(scores, start_m, start_n, seq_len_q, seq_len_k, BLOCK_N, True, S_LAYOUT)
    maximum, total, exact, rescale = _softmax_step(scores, maximum, total, scale_log2, BLOCK_N, HIDE, PARTS)
    out, weights = warpgroup_mma_wait(0, deps=(sums, weights))
    mbarrier.arrive(v_empty.index(stage_v), count=1)
    out = out * gl.convert_layout(rescale, O_ROWS)[:, None]
    weights = gl.convert_layout(exact.to(weights.dtype), P_LAYOUT)
    return weights, out, maximum, total


@gluon.jit  # type: ignore[untyped-decorator]
def _consume(
    out_source: gl.tensor,
    lse_pointer: gl.tensor,
    q_buffers: gl.tensor,
    k_buffers: gl.tensor,
    v_buffers: gl.tensor,
    out_buffers: gl.tensor,
    q_full: gl.tensor,
    q_empty: gl.tensor,
    k_full: gl.tensor,
    k_empty: gl.tensor,
    v_full: gl.tensor,
    v_empty: gl.tensor,
    seq_len_q: gl.tensor,
    seq_len_k: gl.tensor,
    blocks_m: gl.tensor,
    pairs: gl.tensor,
    heads: gl.tensor,
    scale_log2: gl.tensor,
    HEAD_DIM: gl.constexpr,
    BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr,
    RAGGED: gl.constexpr,
    CAUSAL: gl.constexpr,
    Q_IN_REGISTERS: gl.constexpr,
    IN_TURNS: gl.constexpr,
    CONSUMER: gl.constexpr,
) -> None:
    """Compute the ROWS rows of each tile that belong to one warpgroup."""
    dtype: gl.constexpr = out_source.dtype
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    O_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    P_LAYOUT: gl.constexpr = gl.DotOperandLayout(0, O_LAYOUT, 2)
    S_ROWS: gl.constexpr = gl.SliceLayout(1, S_LAYOUT)
    O_ROWS: gl.constexpr = gl.SliceLayout(1, O_LAYOUT)
    # Four threads share a row, as in the layout of a product.
    PARTS: gl.constexpr = gl.DistributedLinearLayout(
        [[8, 0]], [[0, 1], [0, 2], [1, 0], [2, 0], [4, 0]], [[16, 0], [32, 0]], [], [64, 4]
    )
    if IN_TURNS and CONSUMER == 1:
        _named_barrier("bar.arrive 9, 256; mov.b32 $0, $1;")
    step = 0
    for turn in range(_turns(blocks_m * pairs)):
        block_m, pair = _tile(turn, blocks_m, pairs, CAUSAL)
        start_m = block_m * (ROWS * CONSUMERS)
        blocks = _blocks(start_m, seq_len_q, seq_len_k, ROWS * CONSUMERS, BLOCK_N, CAUSAL)
        start_m += CONSUMER * ROWS
        open_blocks = blocks - 1  # of which every row here sees every key; the last block has a step of its own
        if CAUSAL:
            open_blocks = gl.minimum(open_blocks, (start_m + seq_len_k - seq_len_q + 1) // BLOCK_N)

        stage = step % STAGES
        mbarrier.wait(q_full.index(CONSUMER), turn & 1)
        if Q_IN_REGISTERS:
            q = q_buffers.index(CONSUMER).load(gl.DotOperandLayout(0, S_LAYOUT, 2))
            mbarrier.arrive(q_empty.index(CONSUMER), count=1)
        else:
            q = q_buffers.index(CONSUMER)
        mbarrier.wait(k_full.index(stage), (step // STAGES) & 1)
        nothing = gl.zeros([ROWS, BLOCK_N], gl.float32, S_LAYOUT)
        scores = warpgroup_mma(q, k_buffers.index(stage).permute((1, 0)), nothing, use_acc=False, is_async=True)
        scores = warpgroup_mma_wait(0, deps=(scores,))
        mbarrier.arrive(k_empty.index(stage), count=1)
        if CAUSAL or RAGGED:
            scores = _hide(
                scores, start_m, (blocks - 1) * BLOCK_N, seq_len_q, seq_len_k, BLOCK_N, CAUSAL, S_LAYOUT
            )  # fmt: skip
        maximum = gl.full([ROWS], -float("inf"), gl.float32, S_ROWS)
        total = gl.zeros([ROWS, 4], gl.float32, PARTS)
        maximum, total, exact, _ = _softmax_step(scores, maximum, total, scale_log2, BLOCK_N, CAUSAL, PARTS)
        weights = gl.convert_layout(exact.to(dtype), P_LAYOUT)
        out = gl.zeros([ROWS, HEAD_DIM], gl.float32, O_LAYOUT)

        if CAUSAL:
            for done in range(1, blocks - open_blocks):
                weights, out, maximum, total = _step(
                    q, k_buffers, v_buffers, k_full, k_empty, v_full, v_empty, step,
                    start_m, (blocks - 1 - done) * BLOCK_N, seq_len_q, seq_len_k, weights, out, maximum, total,
                    scale_log2, BLOCK_N, STAGES, True, IN_TURNS, CONSUMER, S_LAYOUT, P_LAYOUT, O_ROWS, PARTS,
                )  # fmt: skip
                step += 1
        for _ in range(open_blocks):
            weights, out, maximum, total = _step(
                q, k_buffers, v_buffers, k_full, k_empty, v_full, v_empty, step,
                start_m, 0, seq_len_q, seq_len_k, weights, out, maximum, total,
                scale_log2, BLOCK_N, STAGES, False, IN_TURNS, CONSUMER, S_LAYOUT, P_LAYOUT, O_ROWS, PARTS,
            )  # fmt: skip
            step += 1
        if not Q_IN_REGISTERS:
            mbarrier.arrive(q_empty.index(CONSUMER), count=1)

        stage = step % STAGES
        mbarrier.wait(v_full.index(stage), (step // STAGES) & 1)
        sums = warpgroup_mma(weights, v_buffers.index(stage), out, is_async=True)
        out, weights = warpgroup_mma_wait(0, deps=(sums, weights))
        mbarrier.arrive(v_empty.index(stage), count=1)
        step += 1

        sums_of_rows = gl.convert_layout(gl.sum(total, 1), S_ROWS)
        out = out * gl.convert_layout(1 / sums_of_rows, O_ROWS)[:, None]
        tma.store_wait(0)  # the tile before has left the buffer
        out_buffers.index(CONSUMER).store(out.to(dtype))
        fence_async_shared()
        _store(out_source, [pair // heads, pair % heads, start_m, 0], out_buffers.index(CONSUMER))
        if lse_pointer is not None:
            row = start_m + gl.arange(0, ROWS, layout=S_ROWS)
            pointers = lse_pointer + gl.cast(pair, gl.int64) * seq_len_q + row
            gl.store(pointers, maximum * scale_log2 + gl.log2(sums_of_rows), mask=row < seq_len_q)
    tma.store_wait(0)


@gluon.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["seq_len_q", "seq_len_k", "blocks_m", "pairs", "heads", "group"]
)
def gluon_forward_kernel(
    # Descriptors of [batch, heads, seq_len, head_dim], in blocks of ROWS or BLOCK_N rows of one head; all of one dtype.
    q_source: gl.tensor,
    k_source: gl.tensor,
    v_source: gl.tensor,
    out_source: gl.tensor,
    lse_pointer: gl.tensor,  # [batch, heads, seq_len_q], float32, contiguous; None: not written
    seq_len_q: gl.tensor,
    seq_len_k: gl.tensor,
    blocks_m: gl.tensor,  # blocks of ROWS * CONSUMERS query rows of one head
    pairs: gl.tensor,  # batch * heads
    heads: gl.tensor,
    group: gl.tensor,  # query heads to a head of k and v
    scale_log2: gl.tensor,  # log2(e) times the scale of the scores
    HEAD_DIM: gl.constexpr,
    BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr,  # buffers of k and of v
    CONSUMERS: gl.constexpr,  # 2: warpgroups that share k and v
    RAGGED: gl.constexpr,  # seq_len_k is no multiple of BLOCK_N
    CAUSAL: gl.constexpr,  # aligned to the end: the last query sees all keys; seq_len_q <= seq_len_k
    Q_IN_REGISTERS: gl.constexpr,
    IN_TURNS: gl.constexpr,  # consumers issue their products in turns
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
    k_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    v_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    for consumer in gl.static_range(CONSUMERS):
        mbarrier.init(q_full.index(consumer), count=1)
        mbarrier.init(q_empty.index(consumer), count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(k_full.index(stage), count=1)
        mbarrier.init(k_empty.index(stage), count=CONSUMERS)
        mbarrier.init(v_full.index(stage), count=1)
        mbarrier.init(v_empty.index(stage), count=CONSUMERS)
    fence_async_shared()
    # The tuples are written out: constants lose their type in a variable.
    gl.warp_specialize(
        [
            (_consume, (
                out_source, lse_pointer, q_buffers, k_buffers, v_buffers, out_buffers,
                q_full, q_empty, k_full, k_empty, v_full, v_empty,
                seq_len_q, seq_len_k, blocks_m, pairs, heads, scale_log2,
                HEAD_DIM, BLOCK_N, STAGES, CONSUMERS, RAGGED, CAUSAL, Q_IN_REGISTERS, IN_TURNS, 0,
            )),
            (_consume, (
                out_source, lse_pointer, q_buffers, k_buffers, v_buffers, out_buffers,
                q_full, q_empty, k_full, k_empty, v_full, v_empty,
                seq_len_q, seq_len_k, blocks_m, pairs, heads, scale_log2,
                HEAD_DIM, BLOCK_N, STAGES, CONSUMERS, RAGGED, CAUSAL, Q_IN_REGISTERS, IN_TURNS, 1,
            )),
            (_produce, (
                q_source, k_source, v_source, q_buffers, k_buffers, v_buffers,
                q_full, q_empty, k_full, k_empty, v_full, v_empty,
                seq_len_q, seq_len_k, blocks_m, pairs, heads, group,
                BLOCK_N, STAGES, CONSUMERS, CAUSAL,
            )),
        ],
        [4, 1],  # warps of the second consumer and of the producer
        [240, 24],  # their registers a thread; the first consumer has what is left, 240
    )  # fmt: skip
