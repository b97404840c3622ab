"""What a warpgroup of the 8-bit kernel does: scores, softmax and the product with V of 64 query rows of a tile."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma_wait

from fluxbench.kernels.flash_gluon_consumer import barrier, finish, give_turn, hide, take_turn
from fluxbench.kernels.flash_gluon_parts import keep, merged
from fluxbench.kernels.flash_gluon_tiles import ROWS, job, parts, slot, turns
from fluxbench.kernels.gluon_int8_fp8_softmax import (
    add_up,
    as_float,
    hold,
    joined,
    multiply_scores,
    multiply_values,
    packed,
    scales_of,
    softmax_step,
)


@gluon.jit  # type: ignore[untyped-decorator]
def _step(
    q: gl.tensor,
    q_scales: gl.tensor,
    k_buffers: gl.tensor,
    v_buffers: gl.tensor,
    k_full: gl.tensor,
    k_empty: gl.tensor,
    v_full: gl.tensor,
    v_empty: gl.tensor,
    ones: gl.tensor,
    scales_pointer: gl.tensor,
    step: gl.tensor,
    start_m: gl.tensor,
    start_n: gl.tensor,
    seq_len_q: gl.tensor,
    seq_len_k: gl.tensor,
    weights: gl.tensor,
    out: gl.tensor,
    maximum: gl.tensor,
    total: gl.tensor,
    rescale: gl.tensor,
    inverse: gl.tensor,
    HEAD_DIM: gl.constexpr,
    BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr,
    HIDE: gl.constexpr,
    OFFSET: gl.constexpr,
    PROMOTE: gl.constexpr,
    HOLD: gl.constexpr,
    ONES: gl.constexpr,
    LINEAR: gl.constexpr,
    CONSUMER: gl.constexpr,
    S_LAYOUT: gl.constexpr,
    P_LAYOUT: gl.constexpr,
    O_LAYOUT: gl.constexpr,
    PARTS: gl.constexpr,
) -> gl.tuple:
    """Multiply the weights of block `step` with its V, while block `step + 1` goes from its scores to its weights.

    `scales_pointer` leads to the scales of block `step + 1`. `inverse` is the inverse scale of the V of block
    `step`. Returns the new weights, out, maximum, total, rescale and inverse.
    """
    O_ROWS: gl.constexpr = gl.SliceLayout(1, O_LAYOUT)
    block_scales = scales_of(scales_pointer)  # here, so that they arrive while products run
    stage_v = step % STAGES
    stage_k = (step + 1) % STAGES
    mbarrier.wait(k_full.index(stage_k), ((step + 1) // STAGES) & 1)
    take_turn(CONSUMER)
    scores = multiply_scores(q, k_buffers.index(stage_k), BLOCK_N, OFFSET, S_LAYOUT)
    mbarrier.wait(v_full.index(stage_v), (step // STAGES) & 1)
    v_buffer = v_buffers.index(stage_v)
    sums = multiply_values(weights, v_buffer, out, BLOCK_N, PROMOTE, P_LAYOUT)
    if ONES:
        row_sums = add_up(weights, ones, total, BLOCK_N)
    give_turn(CONSUMER)
    scores = warpgroup_mma_wait(2 if ONES else 1, deps=(scores,))
    mbarrier.arrive(k_empty.index(stage_k), count=1)
    if HIDE:
        scores = hide(as_float(scores, OFFSET), start_m, start_n, seq_len_q, seq_len_k, BLOCK_N, True, S_LAYOUT)
    exact, maximum, total, next_rescale = softmax_step(
        scores, q_scales, block_scales, maximum, total, BLOCK_N, OFFSET, HIDE, ONES, LINEAR, S_LAYOUT, PARTS
    )
    if HOLD:
        maximum = hold(maximum)
    if ONES:
        sums, row_sums, weights = warpgroup_mma_wait(0, deps=(sums, row_sums, weights))
        total = total * gl.convert_layout(rescale, gl.SliceLayout(1, PARTS))[:, None] + row_sums * inverse
    else:
        sums, weights = warpgroup_mma_wait(0, deps=(sums, weights))
    mbarrier.arrive(v_empty.index(stage_v), count=1)
    if PROMOTE:
        out = out * gl.convert_layout(rescale, O_ROWS)[:, None] + sums
    else:
        out = sums * gl.convert_layout(next_rescale, O_ROWS)[:, None]
    # After the wait: until then the product reads the registers of those before.
    weights = joined(exact) if LINEAR else packed(exact, BLOCK_N)
    return weights, out, maximum, total, next_rescale, block_scales[2]


@gluon.jit  # type: ignore[untyped-decorator]
def consume(
    out_source: gl.tensor,
    q_scales_pointer: gl.tensor,
    scales_pointer: gl.tensor,
    parts_pointer: gl.tensor,
    arrivals_pointer: gl.tensor,
    q_buffers: gl.tensor,
    k_buffers: gl.tensor,
    v_buffers: gl.tensor,
    out_buffers: gl.tensor,
    ones: gl.tensor,
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
    share: gl.tensor,
    HEAD_DIM: gl.constexpr,
    BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr,
    RAGGED: gl.constexpr,
    CAUSAL: gl.constexpr,
    PROMOTE: gl.constexpr,
    HOLD: gl.constexpr,
    ONES: gl.constexpr,
    LINEAR: gl.constexpr,
    OFFSET: gl.constexpr,
    CONSUMER: gl.constexpr,
) -> None:
    """Compute the ROWS rows of each tile that belong to one warpgroup."""
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 32])
    O_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 32])
    P_LAYOUT: gl.constexpr = gl.DotOperandLayout(0, O_LAYOUT, 4)
    S_ROWS: gl.constexpr = gl.SliceLayout(1, S_LAYOUT)
    O_ROWS: gl.constexpr = gl.SliceLayout(1, O_LAYOUT)
    # Of the row sums. Four threads share a row, as in the layout of a product.
    PARTS: gl.constexpr = (
        gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 8, 32])
        if ONES
        else gl.DistributedLinearLayout(
            [[8, 0]], [[0, 1], [0, 2], [1, 0], [2, 0], [4, 0]], [[16, 0], [32, 0]], [], [64, 4]
        )
    )
    if CONSUMER == 1:
        give_turn(CONSUMER)
    step = 0
    SPLIT: gl.constexpr = parts_pointer is not None
    blocks_n = gl.cdiv(seq_len_k, BLOCK_N)
    for turn in range(turns(blocks_m, pairs, blocks_n, share, SPLIT)):
        start_m, pair, first, blocks = job(
            turn, blocks_m, pairs, seq_len_q, seq_len_k, share, ROWS * CONSUMERS, BLOCK_N, CAUSAL, SPLIT
        )
        start_m += CONSUMER * ROWS
        open_blocks = blocks - 1  # of which every row here sees every key; the last block has a step of its own
        if CAUSAL:
            open_blocks = gl.minimum(open_blocks, (start_m + seq_len_k - seq_len_q + 1) // BLOCK_N)
        row = start_m + gl.arange(0, ROWS, layout=S_ROWS)
        q_scales = gl.load(
            q_scales_pointer + gl.cast(pair, gl.int64) * seq_len_q + row, mask=row < seq_len_q, other=1.0
        )
        # A head of k and v is `group` neighbouring pairs.
        scales = scales_pointer + (gl.cast(pair // group, gl.int64) * blocks_n + first + blocks - 1) * 3
        block_scales = scales_of(scales)

        stage = step % STAGES
        mbarrier.wait(q_full.index(CONSUMER), turn & 1)
        q = q_buffers.index(CONSUMER)
        mbarrier.wait(k_full.index(stage), (step // STAGES) & 1)
        scores = multiply_scores(q, k_buffers.index(stage), BLOCK_N, OFFSET, S_LAYOUT)
        scores = warpgroup_mma_wait(0, deps=(scores,))
        mbarrier.arrive(k_empty.index(stage), count=1)
        if CAUSAL or RAGGED:
            scores = hide(
                as_float(scores, OFFSET), start_m, (first + blocks - 1) * BLOCK_N,
                seq_len_q, seq_len_k, BLOCK_N, CAUSAL, S_LAYOUT,
            )  # fmt: skip
        maximum = gl.full([ROWS], -float("inf"), gl.float32, S_ROWS)
        total = gl.zeros([ROWS, 8 if ONES else 4], gl.float32, PARTS)
        exact, maximum, total, rescale = softmax_step(
            scores, q_scales, block_scales, maximum, total, BLOCK_N, OFFSET, CAUSAL, ONES, LINEAR, S_LAYOUT, PARTS
        )
        weights = joined(exact) if LINEAR else packed(exact, BLOCK_N)
        inverse = block_scales[2]
        out = gl.zeros([ROWS, HEAD_DIM], gl.float32, O_LAYOUT)

        if CAUSAL:
            for block in range(blocks - 2, open_blocks - 1, -1):
                scales -= 3
                weights, out, maximum, total, rescale, inverse = _step(
                    q, q_scales, k_buffers, v_buffers, k_full, k_empty, v_full, v_empty, ones, scales, step,
                    start_m, block * BLOCK_N, seq_len_q, seq_len_k, weights, out, maximum, total, rescale, inverse,
                    HEAD_DIM, BLOCK_N, STAGES, True, OFFSET, PROMOTE, HOLD, ONES, LINEAR, CONSUMER,
                    S_LAYOUT, P_LAYOUT, O_LAYOUT, PARTS,
                )  # fmt: skip
                step += 1
        for _ in range(open_blocks):
            scales -= 3
            weights, out, maximum, total, rescale, inverse = _step(
                q, q_scales, k_buffers, v_buffers, k_full, k_empty, v_full, v_empty, ones, scales, step,
                start_m, 0, seq_len_q, seq_len_k, weights, out, maximum, total, rescale, inverse,
                HEAD_DIM, BLOCK_N, STAGES, False, OFFSET, PROMOTE, HOLD, ONES, LINEAR, CONSUMER,
                S_LAYOUT, P_LAYOUT, O_LAYOUT, PARTS,
            )  # fmt: skip
            step += 1
        mbarrier.arrive(q_empty.index(CONSUMER), count=1)

        stage = step % STAGES
        mbarrier.wait(v_full.index(stage), (step // STAGES) & 1)
        sums = multiply_values(weights, v_buffers.index(stage), out, BLOCK_N, PROMOTE, P_LAYOUT)
        if ONES:
            row_sums = add_up(weights, ones, total, BLOCK_N)
            sums, row_sums, weights = warpgroup_mma_wait(0, deps=(sums, row_sums, weights))
            total = total * gl.convert_layout(rescale, gl.SliceLayout(1, PARTS))[:, None] + row_sums * inverse
        else:
            sums, weights = warpgroup_mma_wait(0, deps=(sums, weights))
        mbarrier.arrive(v_empty.index(stage), count=1)
        out = out * gl.convert_layout(rescale, O_ROWS)[:, None] + sums if PROMOTE else sums
        step += 1

        sums_of_rows = gl.convert_layout(gl.sum(total, 1), S_ROWS)
        complete = True
        if SPLIT:
            tile, lowest, count = parts(turn, blocks_m, pairs, blocks_n, share)
            complete = count == 1
            if count > 1:
                kept = slot(gl.program_id(0), tile, blocks_n, share) * CONSUMERS + CONSUMER
                keep(parts_pointer, kept, out, maximum, sums_of_rows, HEAD_DIM, O_LAYOUT, S_ROWS)
                barrier()
                arrived = gl.atomic_add(arrivals_pointer + tile * CONSUMERS + CONSUMER, 1, sem="acq_rel", scope="gpu")
                complete = arrived == count - 1
                if complete:
                    out, maximum, sums_of_rows = merged(
                        parts_pointer, tile, lowest, count, blocks_n, share,
                        HEAD_DIM, CONSUMERS, CONSUMER, O_LAYOUT, S_ROWS, O_ROWS,
                    )  # fmt: skip
        if complete:
            finish(
                out_source, None, out_buffers.index(CONSUMER), pair, heads, start_m, seq_len_q,
                out, maximum, sums_of_rows, S_ROWS, O_ROWS,
            )  # fmt: skip
    tma.store_wait(0)
