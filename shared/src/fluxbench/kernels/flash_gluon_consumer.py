"""What a warpgroup of the Gluon kernel does: scores, softmax and the product with V of 64 query rows of a tile."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

from fluxbench.kernels.flash_gluon_barriers import OF_K, OF_V, STAGES, give_back, give_back_after, give_turn, take_turn
from fluxbench.kernels.flash_gluon_parts import end_tile
from fluxbench.kernels.flash_gluon_softmax import (
    beside,
    columns,
    grown_maximum,
    late,
    packed,
    rescaled,
    sums_of,
    unpacked,
    weights_of,
)
from fluxbench.kernels.flash_gluon_tiles import ROWS, job, turns


@gluon.jit  # type: ignore[untyped-decorator]
def hide(
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
def _step(
    q: gl.tensor,
    k_buffers: gl.tensor,
    v_buffers: gl.tensor,
    k_full: gl.tensor,
    v_full: gl.tensor,
    step: gl.tensor,
    diagonal: gl.tensor,
    weights: gl.tensor,
    out: gl.tensor,
    maximum: gl.tensor,
    total: gl.tensor,
    scale_log2: gl.tensor,
    HEAD_DIM: gl.constexpr,
    BLOCK_N: gl.constexpr,
    HIDE: gl.constexpr,
    CONSUMER: gl.constexpr,
    S_LAYOUT: gl.constexpr,
    P_LAYOUT: gl.constexpr,
    O_ROWS: gl.constexpr,
    PARTS: gl.constexpr,
) -> gl.tuple:
    """Multiply the packed weights of block `step` with its V, while block `step + 1` goes from scores to weights.

    HIDE: of the next block, row i sees the keys up to `diagonal` + i alone.
    Returns the new weights, out, maximum and total.
    """
    stage_v = step % STAGES
    stage_k = (step + 1) % STAGES
    mbarrier.wait(v_full.index(stage_v), (step // STAGES) & 1)  # V of a block is loaded before K of the next one
    mbarrier.wait(k_full.index(stage_k), ((step + 1) // STAGES) & 1)
    take_turn(CONSUMER)
    nothing = gl.zeros([ROWS, BLOCK_N], gl.float32, S_LAYOUT)
    scores = warpgroup_mma(q, k_buffers.index(stage_k).permute((1, 0)), nothing, use_acc=False, is_async=True)
    dtype: gl.constexpr = v_buffers.dtype
    operand = unpacked(weights, dtype, P_LAYOUT)
    sums = warpgroup_mma(operand, v_buffers.index(stage_v), out, is_async=True)
    give_turn(CONSUMER)
    scores = warpgroup_mma_wait(1, deps=(scores,))
    if HIDE:
        scores = hide(scores, late(diagonal), 0, 0, 0, BLOCK_N, True, S_LAYOUT)
    maximum, shift, rescale = grown_maximum(scores, maximum, scale_log2, HIDE)
    total = total * gl.convert_layout(rescale, gl.SliceLayout(1, PARTS))[:, None]

    # Three eighths of the columns become weights while the product with V runs, at least.
    half, last = columns(scores, 16)
    first, third = columns(half, 16)
    first, second = columns(first, 16)
    third, fourth = columns(third, 16)
    first = weights_of(first, scale_log2, shift)
    total += sums_of(first, PARTS)
    second = weights_of(second, scale_log2, shift)
    total += sums_of(second, PARTS)
    third = weights_of(third, scale_log2, shift)
    total += sums_of(third, PARTS)
    give_back_after(total, stage_k, OF_K, PARTS)
    fourth = weights_of(fourth, scale_log2, shift)
    total += sums_of(fourth, PARTS)
    last = weights_of(last, scale_log2, shift)
    total += sums_of(last, PARTS)
    out, operand = warpgroup_mma_wait(0, deps=(sums, operand))
    give_back(stage_v, OF_V)
    weights = packed(beside(beside(beside(first, second), beside(third, fourth)), last), dtype)
    out = rescaled(out, gl.convert_layout(rescale, O_ROWS), HEAD_DIM)
    return weights, out, maximum, total


@gluon.jit  # type: ignore[untyped-decorator]
def consume(
    out_source: gl.tensor,
    lse_pointer: gl.tensor,
    parts_pointer: gl.tensor,
    arrivals_pointer: gl.tensor,
    q_buffers: gl.tensor,
    k_buffers: gl.tensor,
    v_buffers: gl.tensor,
    out_buffers: gl.tensor,
    q_full: gl.tensor,
    q_empty: gl.tensor,
    k_full: gl.tensor,
    v_full: gl.tensor,
    seq_len_q: gl.tensor,
    seq_len_k: gl.tensor,
    blocks_m: gl.tensor,
    pairs: gl.tensor,
    heads: gl.tensor,
    share: gl.tensor,
    scale_log2: gl.tensor,
    HEAD_DIM: gl.constexpr,
    BLOCK_N: gl.constexpr,
    CONSUMERS: gl.constexpr,
    CAUSAL: gl.constexpr,
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
        diagonal = start_m + seq_len_k - seq_len_q  # the last key that the first row sees, if causal
        open_blocks = blocks - 1  # of which every row here sees every key; the last block has a step of its own
        if CAUSAL:
            open_blocks = gl.minimum(open_blocks, (diagonal + 1) // BLOCK_N)

        stage = step % STAGES
        mbarrier.wait(q_full.index(CONSUMER), turn & 1)
        q = q_buffers.index(CONSUMER).load(gl.DotOperandLayout(0, S_LAYOUT, 2))
        mbarrier.wait(k_full.index(stage), (step // STAGES) & 1)
        nothing = gl.zeros([ROWS, BLOCK_N], gl.float32, S_LAYOUT)
        scores = warpgroup_mma(q, k_buffers.index(stage).permute((1, 0)), nothing, use_acc=False, is_async=True)
        scores = warpgroup_mma_wait(0, deps=(scores,))
        # Not before the product: neither the load of the queries nor a barrier after it waits until they are there, and
        # the next tile's may overwrite them where this one has a single block.
        mbarrier.arrive(q_empty.index(CONSUMER), count=1)
        give_back(stage, OF_K)
        last = (first + blocks - 1) * BLOCK_N
        if CAUSAL:
            scores = hide(scores, late(diagonal - last), 0, 0, 0, BLOCK_N, True, S_LAYOUT)
        elif last + BLOCK_N > seq_len_k:
            scores = hide(scores, 0, late(last), 0, seq_len_k, BLOCK_N, False, S_LAYOUT)
        maximum = gl.full([ROWS], -float("inf"), gl.float32, S_ROWS)
        maximum, shift, _ = grown_maximum(scores, maximum, scale_log2, CAUSAL)
        exact = weights_of(scores, scale_log2, shift)
        total = sums_of(exact, PARTS)
        weights = packed(exact, dtype)
        out = gl.zeros([ROWS, HEAD_DIM], gl.float32, O_LAYOUT)

        if CAUSAL:
            for block in range(blocks - 2, open_blocks - 1, -1):
                weights, out, maximum, total = _step(
                    q, k_buffers, v_buffers, k_full, v_full, step,
                    diagonal - block * BLOCK_N, weights, out, maximum, total, scale_log2, HEAD_DIM, BLOCK_N,
                    True, CONSUMER, S_LAYOUT, P_LAYOUT, O_ROWS, PARTS,
                )  # fmt: skip
                step += 1
        for _ in range(open_blocks):
            weights, out, maximum, total = _step(
                q, k_buffers, v_buffers, k_full, v_full, step,
                0, weights, out, maximum, total, scale_log2, HEAD_DIM, BLOCK_N,
                False, CONSUMER, S_LAYOUT, P_LAYOUT, O_ROWS, PARTS,
            )  # fmt: skip
            step += 1

        stage = step % STAGES
        mbarrier.wait(v_full.index(stage), (step // STAGES) & 1)
        operand = unpacked(weights, dtype, P_LAYOUT)
        sums = warpgroup_mma(operand, v_buffers.index(stage), out, is_async=True)
        out, operand = warpgroup_mma_wait(0, deps=(sums, operand))
        give_back(stage, OF_V)
        step += 1

        maximum = maximum * scale_log2
        sums_of_rows = gl.convert_layout(gl.sum(total, 1), S_ROWS)
        end_tile(
            out_source, lse_pointer, parts_pointer, arrivals_pointer, out_buffers.index(CONSUMER),
            turn, pair, heads, start_m, seq_len_q, blocks_m, pairs, blocks_n, share, out, maximum, sums_of_rows,
            HEAD_DIM, CONSUMERS, CONSUMER, O_LAYOUT, S_ROWS, O_ROWS,
        )  # fmt: skip
    tma.store_wait(0)
