"""What a warpgroup of the 8-bit kernel does: scores, softmax and the product with V of 64 query rows of a tile."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma_wait

from fluxbench.kernels.flash_gluon_barriers import give_turn, take_turn
from fluxbench.kernels.flash_gluon_consumer import hide
from fluxbench.kernels.flash_gluon_parts import end_tile
from fluxbench.kernels.flash_gluon_softmax import columns, late
from fluxbench.kernels.flash_gluon_tiles import ROWS, job, turns
from fluxbench.kernels.gluon_int8_fp8_softmax import (
    BLOCK_N,
    COPIES,
    codes_of,
    grown_maximum,
    hold,
    multiply_scores,
    multiply_weights,
    packed,
    scales_of,
)

CONSUMERS = gl.constexpr(2)  # warpgroups that share k and v
STAGES = gl.constexpr(4)  # buffers of k and of v


@gluon.jit  # type: ignore[untyped-decorator]
def _added(sums: gl.tensor, factor: gl.tensor, more: gl.tensor, LAYOUT: gl.constexpr) -> gl.tensor:
    """Return sums times the factors of their rows, plus other sums."""
    return sums * gl.convert_layout(factor, gl.SliceLayout(1, LAYOUT))[:, None] + more


@gluon.jit  # type: ignore[untyped-decorator]
def _add_products(
    products: gl.tuple,
    empty: gl.tensor,
    out: gl.tensor,
    total: gl.tensor,
    rescale: gl.tensor,
    ratio: gl.tensor,
    O_LAYOUT: gl.constexpr,
    T_LAYOUT: gl.constexpr,
) -> gl.tuple:
    """Wait for the products of weights with V and with ones, give V back, and return out and total with them.

    `products` are both, and the weights, whose registers they read.
    """
    sums, row_sums, _ = warpgroup_mma_wait(0, deps=products)
    mbarrier.arrive(empty, count=1)
    return _added(out, rescale * ratio, sums, O_LAYOUT), _added(total, rescale, row_sums, T_LAYOUT)


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
    diagonal: gl.tensor,
    weights: gl.tensor,
    out: gl.tensor,
    maximum: gl.tensor,
    total: gl.tensor,
    rescale: gl.tensor,
    ratio: gl.tensor,
    value_scale: gl.tensor,
    HEAD_DIM: gl.constexpr,
    HIDE: gl.constexpr,
    CONSUMER: gl.constexpr,
    S_LAYOUT: gl.constexpr,
    O_LAYOUT: gl.constexpr,
    T_LAYOUT: gl.constexpr,
) -> gl.tuple:
    """Multiply the weights of block `step` with its V, while block `step + 1` goes from its scores to its weights.

    `scales_pointer` leads to the scales of block `step + 1`. Sums in `out` count in scales of V: `value_scale`
    is that of block `step`, `ratio` that of the block before it, divided by this. HIDE: of block `step + 1`, row i sees
    the keys up to `diagonal` + i alone. Returns the new weights, out, maximum, total, rescale, ratio and value_scale.
    """
    block_scales = scales_of(scales_pointer)  # here, so that they arrive while products run
    stage_v = step % STAGES
    stage_k = (step + 1) % STAGES
    mbarrier.wait(k_full.index(stage_k), ((step + 1) // STAGES) & 1)
    take_turn(CONSUMER)
    scores = multiply_scores(q, k_buffers.index(stage_k), S_LAYOUT)
    mbarrier.wait(v_full.index(stage_v), (step // STAGES) & 1)
    sums = multiply_weights(weights, v_buffers.index(stage_v), HEAD_DIM, O_LAYOUT)
    row_sums = multiply_weights(weights, ones, COPIES, T_LAYOUT)
    give_turn(CONSUMER)
    scores = warpgroup_mma_wait(2, deps=(scores,))
    mbarrier.arrive(k_empty.index(stage_k), count=1)
    if HIDE:
        scores = hide(gl.cast(scores, gl.float32), late(diagonal), 0, 0, 0, BLOCK_N, True, S_LAYOUT)
    maximum, scale, shift, next_rescale = grown_maximum(scores, q_scales, block_scales[0], maximum, HIDE, S_LAYOUT)
    first, last = columns(gl.cast(scores, gl.float32), 32)
    first = hold(codes_of(first, scale, shift))
    products = (sums, row_sums, weights)
    out, total = _add_products(products, v_empty.index(stage_v), out, total, rescale, ratio, O_LAYOUT, T_LAYOUT)
    # Packed after the wait: until then the product reads the registers of the weights before.
    weights = packed(first, codes_of(last, scale, shift))
    return weights, out, maximum, total, next_rescale, value_scale * block_scales[2], block_scales[1]


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
    RAGGED: gl.constexpr,
    CAUSAL: gl.constexpr,
    CONSUMER: gl.constexpr,
) -> None:
    """Compute the ROWS rows of each tile that belong to one warpgroup."""
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 32])
    O_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 32])
    T_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COPIES, 32])
    S_ROWS: gl.constexpr = gl.SliceLayout(1, S_LAYOUT)
    O_ROWS: gl.constexpr = gl.SliceLayout(1, O_LAYOUT)
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
        diagonal = start_m + seq_len_k - seq_len_q  # the last key that the first row sees, if CAUSAL
        open_blocks = blocks - 1  # of which every row here sees every key; the last block has a step of its own
        if CAUSAL:
            open_blocks = gl.minimum(open_blocks, (diagonal + 1) // BLOCK_N)
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
        scores = multiply_scores(q, k_buffers.index(stage), S_LAYOUT)
        scores = warpgroup_mma_wait(0, deps=(scores,))
        mbarrier.arrive(k_empty.index(stage), count=1)
        last = (first + blocks - 1) * BLOCK_N
        if CAUSAL:
            scores = hide(gl.cast(scores, gl.float32), late(diagonal - last), 0, 0, 0, BLOCK_N, True, S_LAYOUT)
        elif RAGGED:
            scores = hide(gl.cast(scores, gl.float32), 0, last, 0, seq_len_k, BLOCK_N, False, S_LAYOUT)
        maximum = gl.full([ROWS], -float("inf"), gl.float32, S_ROWS)
        maximum, scale, shift, rescale = grown_maximum(scores, q_scales, block_scales[0], maximum, CAUSAL, S_LAYOUT)
        left, right = columns(gl.cast(scores, gl.float32), 32)
        weights = packed(codes_of(left, scale, shift), codes_of(right, scale, shift))
        value_scale = block_scales[1]
        ratio = value_scale * block_scales[2]  # about 1, of no sums
        total = gl.zeros([ROWS, COPIES], gl.float32, T_LAYOUT)
        out = gl.zeros([ROWS, HEAD_DIM], gl.float32, O_LAYOUT)

        if CAUSAL:
            for block in range(blocks - 2, open_blocks - 1, -1):
                scales -= 3
                weights, out, maximum, total, rescale, ratio, value_scale = _step(
                    q, q_scales, k_buffers, v_buffers, k_full, k_empty, v_full, v_empty, ones, scales, step,
                    diagonal - block * BLOCK_N, weights, out, maximum, total, rescale, ratio, value_scale,
                    HEAD_DIM, True, CONSUMER, S_LAYOUT, O_LAYOUT, T_LAYOUT,
                )  # fmt: skip
                step += 1
        for _ in range(open_blocks):
            scales -= 3
            weights, out, maximum, total, rescale, ratio, value_scale = _step(
                q, q_scales, k_buffers, v_buffers, k_full, k_empty, v_full, v_empty, ones, scales, step,
                0, weights, out, maximum, total, rescale, ratio, value_scale,
                HEAD_DIM, False, CONSUMER, S_LAYOUT, O_LAYOUT, T_LAYOUT,
            )  # fmt: skip
            step += 1
        mbarrier.arrive(q_empty.index(CONSUMER), count=1)

        stage = step % STAGES
        mbarrier.wait(v_full.index(stage), (step // STAGES) & 1)
        sums = multiply_weights(weights, v_buffers.index(stage), HEAD_DIM, O_LAYOUT)
        row_sums = multiply_weights(weights, ones, COPIES, T_LAYOUT)
        products = (sums, row_sums, weights)
        out, total = _add_products(products, v_empty.index(stage), out, total, rescale, ratio, O_LAYOUT, T_LAYOUT)
        out *= value_scale
        step += 1

        sums_of_rows = gl.convert_layout(gl.sum(total, 1), S_ROWS)
        end_tile(
            out_source, None, parts_pointer, arrivals_pointer, out_buffers.index(CONSUMER),
            turn, pair, heads, start_m, seq_len_q, blocks_m, pairs, blocks_n, share, out, maximum, sums_of_rows,
            HEAD_DIM, CONSUMERS, CONSUMER, O_LAYOUT, S_ROWS, O_ROWS,
        )  # fmt: skip
    tma.store_wait(0)
