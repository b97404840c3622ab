"""The kernel that computes dq; `flash_backward.py` has the formulas."""

from __future__ import annotations

import triton
import triton.language as tl

from fluxbench.kernels.flash_tensors import SUMS, exponents_of, load_rows, store_rows


@triton.jit(do_not_specialize=["seq_len_q", "seq_len_k"])  # type: ignore[untyped-decorator]
def flash_backward_queries_kernel(
    # Each source is a pointer to the shape here, or a descriptor with seq_len and heads swapped; all of one dtype.
    q_source: tl.tensor,  # [batch, seq_len_q, heads, head_dim]
    k_source: tl.tensor,  # [batch, seq_len_k, kv_heads, head_dim]
    v_source: tl.tensor,  # [batch, seq_len_k, kv_heads, head_dim]
    dout_source: tl.tensor,  # [batch, seq_len_q, heads, head_dim]
    dq_source: tl.tensor,  # [batch, seq_len_q, heads, head_dim], contiguous
    lse_pointer: tl.tensor,  # [batch, heads, seq_len_q], float32 or float64, to the base 2
    delta_pointer: tl.tensor,  # [batch, heads, seq_len_q], float32
    seq_len_q: tl.tensor,
    seq_len_k: tl.tensor,
    scale: tl.tensor,  # of the scores
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
    stride_db: tl.tensor,
    stride_ds: tl.tensor,
    stride_dh: tl.tensor,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,  # query heads to a head of k and v
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    RAGGED: tl.constexpr,  # seq_len_k is no multiple of BLOCK_N
    DESCRIPTORS: tl.constexpr,
    CAUSAL: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,  # of products of float32: "tf32" or "ieee"; others have their own
) -> None:
    """Write BLOCK_M rows of dq of one head."""
    blocks_m = tl.cdiv(seq_len_q, BLOCK_M)
    start_m = (blocks_m - 1 - tl.program_id(0) % blocks_m) * BLOCK_M  # under a causal mask the longest come first
    batch = tl.program_id(0) // blocks_m // HEADS
    head = tl.program_id(0) // blocks_m % HEADS
    kv_head = head // GROUP
    q = load_rows(
        q_source, batch, head, start_m, seq_len_q, stride_qb, stride_qs, stride_qh, BLOCK_M, HEAD_DIM, DESCRIPTORS, True
    )
    dout = load_rows(
        dout_source, batch, head, start_m, seq_len_q, stride_db, stride_ds, stride_dh,
        BLOCK_M, HEAD_DIM, DESCRIPTORS, True,
    )  # fmt: skip
    query = start_m + tl.arange(0, BLOCK_M)
    row = (batch.to(tl.int64) * HEADS + head) * seq_len_q
    lse = tl.load(lse_pointer + row + query, mask=query < seq_len_q, other=0.0)
    delta = tl.load(delta_pointer + row + query, mask=query < seq_len_q, other=0.0)
    ahead = seq_len_k - seq_len_q
    seen_by_all = seq_len_k  # keys that no query here has masked
    seen = seq_len_k  # keys that some query here sees
    if CAUSAL:
        seen_by_all = start_m + ahead + 1
        seen = tl.minimum(start_m + BLOCK_M + ahead, seq_len_k)

    dq = tl.zeros([BLOCK_M, HEAD_DIM], SUMS)
    for block in tl.range(0, tl.cdiv(seen, BLOCK_N)):
        start_n = block * BLOCK_N
        k = load_rows(
            k_source, batch, kv_head, start_n, seq_len_k, stride_kb, stride_ks, stride_kh,
            BLOCK_N, HEAD_DIM, DESCRIPTORS, RAGGED,
        )  # fmt: skip
        exponents = exponents_of(tl.dot(q, k.T, input_precision=INPUT_PRECISION) * scale_log2, lse[:, None])
        if (CAUSAL or RAGGED) and start_n + BLOCK_N > seen_by_all:
            key = start_n + tl.arange(0, BLOCK_N)
            visible = key[None, :] <= (query + ahead)[:, None] if CAUSAL else key[None, :] < seq_len_k
            exponents = tl.where(visible, exponents, -float("inf"))
        weights = tl.exp2(exponents)
        v = load_rows(
            v_source, batch, kv_head, start_n, seq_len_k, stride_vb, stride_vs, stride_vh,
            BLOCK_N, HEAD_DIM, DESCRIPTORS, RAGGED,
        )  # fmt: skip
        of_scores = weights * (tl.dot(dout, v.T, input_precision=INPUT_PRECISION) - delta[:, None])
        dq = tl.dot(of_scores.to(k.dtype), k, dq, input_precision=INPUT_PRECISION)

    dq = (dq * scale).to(q.dtype)
    store_rows(dq_source, dq, batch, head, start_m, seq_len_q, HEADS, BLOCK_M, HEAD_DIM, DESCRIPTORS)
