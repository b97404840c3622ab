"""The kernel of the forward pass; `flash_forward.py` says what it computes, and how."""

from __future__ import annotations

import triton
import triton.language as tl

from fluxbench.kernels.flash_tensors import SUMS, load_rows, store_rows


@triton.jit  # type: ignore[untyped-decorator]
def _softmax_step(scores: tl.tensor, maximum: tl.tensor, total: tl.tensor, scale_log2: tl.tensor) -> tl.tuple:
    """Take one block of scores `[BLOCK_M, BLOCK_N]` into the running maximum and sum, both `[BLOCK_M]`, float32.

    Returns the new maximum and sum, the unnormalized weights and the factor that rescales what came before.
    """
    maximum_new = tl.maximum(maximum, tl.max(scores, 1) * scale_log2)
    weights = tl.exp2(scores * scale_log2 - maximum_new[:, None])
    rescale = tl.exp2(maximum - maximum_new)
    return maximum_new, total * rescale + tl.sum(weights, 1), weights, rescale


@triton.jit(do_not_specialize=["seq_len_q", "seq_len_k"])  # type: ignore[untyped-decorator]
def flash_forward_kernel(
    # Each source is a pointer to the shape here, or a descriptor with seq_len and heads swapped; all of one dtype.
    q_source: tl.tensor,  # [batch, seq_len_q, heads, head_dim]
    k_source: tl.tensor,  # [batch, seq_len_k, kv_heads, head_dim]
    v_source: tl.tensor,  # [batch, seq_len_k, kv_heads, head_dim]
    out_source: tl.tensor,  # [batch, seq_len_q, heads, head_dim], contiguous
    lse_pointer: tl.tensor | None,  # [batch, heads, seq_len_q], float32 or float64, contiguous; None: not written
    seq_len_q: tl.tensor,
    seq_len_k: tl.tensor,
    scale_log2: tl.tensor,  # log2(e) times the scale of the scores
    stride_qb: tl.tensor,
    stride_qs: tl.tensor,
    stride_qh: tl.tensor,
    stride_kb: tl.tensor,
    stride_ks: tl.tensor,
    stride_kh: tl.tensor,
    stride_vb: tl.tensor,
    stride_vs: tl.tensor,
    stride_vh: tl.tensor,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,  # query heads to a head of k and v
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    RAGGED: tl.constexpr,  # seq_len_k is no multiple of BLOCK_N
    DESCRIPTORS: tl.constexpr,
    OVERLAP: tl.constexpr,
    CAUSAL: tl.constexpr,  # aligned to the end: the last query sees all keys; then neither RAGGED nor OVERLAP
    INPUT_PRECISION: tl.constexpr,  # of products of float32: "tf32" or "ieee"; others have their own
) -> None:
    """Write BLOCK_M rows of one head of softmax(q @ k.T * scale) @ v, and the logarithms of their softmax's sums.

    These are to the base 2 and include the maximum: a weight is exp2(q @ k.T * scale_log2 - lse).
    """
    blocks_m = tl.cdiv(seq_len_q, BLOCK_M)
    # Neighbours share a head, so that its k and v are read from L2 and not from memory.
    start_m = (tl.program_id(0) % blocks_m) * BLOCK_M
    if CAUSAL:  # the longest programs first
        start_m = (blocks_m - 1 - tl.program_id(0) % blocks_m) * BLOCK_M
    batch = tl.program_id(0) // blocks_m // HEADS
    head = tl.program_id(0) // blocks_m % HEADS
    kv_head = head // GROUP
    last = tl.cdiv(seq_len_k, BLOCK_N) - 1

    q = load_rows(
        q_source, batch, head, start_m, seq_len_q, stride_qb, stride_qs, stride_qh, BLOCK_M, HEAD_DIM, DESCRIPTORS, True
    )
    maximum = tl.full([BLOCK_M], -float("inf"), SUMS)
    total = tl.zeros([BLOCK_M], SUMS)
    out = tl.zeros([BLOCK_M, HEAD_DIM], SUMS)
    blocks_in_loop = last + 1
    if CAUSAL:
        ahead = seq_len_k - seq_len_q
        blocks_in_loop = (start_m + ahead + 1) // BLOCK_N  # of which every query here sees every key

    if RAGGED or OVERLAP:
        blocks_in_loop = last
        start = last * BLOCK_N
        k = load_rows(
            k_source, batch, kv_head, start, seq_len_k, stride_kb, stride_ks, stride_kh,
            BLOCK_N, HEAD_DIM, DESCRIPTORS, True,
        )  # fmt: skip
        scores = tl.dot(q, k.T, input_precision=INPUT_PRECISION)
        if RAGGED:
            scores = tl.where((start + tl.arange(0, BLOCK_N))[None, :] < seq_len_k, scores, -float("inf"))
        maximum, total, weights, rescale = _softmax_step(scores, maximum, total, scale_log2)
        if not OVERLAP:
            v = load_rows(
                v_source, batch, kv_head, start, seq_len_k, stride_vb, stride_vs, stride_vh,
                BLOCK_N, HEAD_DIM, DESCRIPTORS, True,
            )  # fmt: skip
            out = tl.dot(weights.to(v.dtype), v, out, input_precision=INPUT_PRECISION)

    for block in tl.range(0, blocks_in_loop):
        k = load_rows(
            k_source, batch, kv_head, block * BLOCK_N, seq_len_k, stride_kb, stride_ks, stride_kh,
            BLOCK_N, HEAD_DIM, DESCRIPTORS, False,
        )  # fmt: skip
        scores = tl.dot(q, k.T, input_precision=INPUT_PRECISION)
        if OVERLAP:
            # The weights are of the block before, and stay in float32 between iterations: in 16 bits the compiler
            # passes them through shared memory and then waits for the product.
            before = tl.where(block == 0, last, block - 1)
            v = load_rows(
                v_source, batch, kv_head, before * BLOCK_N, seq_len_k, stride_vb, stride_vs, stride_vh,
                BLOCK_N, HEAD_DIM, DESCRIPTORS, RAGGED,
            )  # fmt: skip
            out = tl.dot(weights.to(v.dtype), v, out * rescale[:, None], input_precision=INPUT_PRECISION)
        maximum, total, weights, rescale = _softmax_step(scores, maximum, total, scale_log2)
        if not OVERLAP:
            v = load_rows(
                v_source, batch, kv_head, block * BLOCK_N, seq_len_k, stride_vb, stride_vs, stride_vh,
                BLOCK_N, HEAD_DIM, DESCRIPTORS, False,
            )  # fmt: skip
            out = tl.dot(weights.to(v.dtype), v, out * rescale[:, None], input_precision=INPUT_PRECISION)

    if OVERLAP:
        before = tl.where(last == 0, last, last - 1)
        v = load_rows(
            v_source, batch, kv_head, before * BLOCK_N, seq_len_k, stride_vb, stride_vs, stride_vh,
            BLOCK_N, HEAD_DIM, DESCRIPTORS, True,
        )  # fmt: skip
        out = tl.dot(weights.to(v.dtype), v, out * rescale[:, None], input_precision=INPUT_PRECISION)

    if CAUSAL:
        # The blocks on the diagonal come last, so that each query has a maximum that is finite.
        query = start_m + tl.arange(0, BLOCK_M)
        for block in tl.range(blocks_in_loop, tl.cdiv(tl.minimum(start_m + BLOCK_M + ahead, seq_len_k), BLOCK_N)):
            start = block * BLOCK_N
            k = load_rows(
                k_source, batch, kv_head, start, seq_len_k, stride_kb, stride_ks, stride_kh,
                BLOCK_N, HEAD_DIM, DESCRIPTORS, True,
            )  # fmt: skip
            visible = (start + tl.arange(0, BLOCK_N))[None, :] <= (query + ahead)[:, None]
            scores = tl.where(visible, tl.dot(q, k.T, input_precision=INPUT_PRECISION), -float("inf"))
            maximum, total, weights, rescale = _softmax_step(scores, maximum, total, scale_log2)
            v = load_rows(
                v_source, batch, kv_head, start, seq_len_k, stride_vb, stride_vs, stride_vh,
                BLOCK_N, HEAD_DIM, DESCRIPTORS, True,
            )  # fmt: skip
            out = tl.dot(weights.to(v.dtype), v, out * rescale[:, None], input_precision=INPUT_PRECISION)

    result = (out * (1.0 / total)[:, None]).to(q.dtype)
    store_rows(out_source, result, batch, head, start_m, seq_len_q, HEADS, BLOCK_M, HEAD_DIM, DESCRIPTORS)
    if lse_pointer is not None:
        row = start_m + tl.arange(0, BLOCK_M)
        of_head = lse_pointer + (batch.to(tl.int64) * HEADS + head) * seq_len_q
        tl.store(of_head + row, maximum.to(of_head.dtype.element_ty) + tl.log2(total), mask=row < seq_len_q)
