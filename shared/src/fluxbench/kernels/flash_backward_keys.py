"""The kernel that computes dk and dv; `flash_backward.py` has the formulas."""

from __future__ import annotations

import triton
import triton.language as tl

from fluxbench.kernels.flash_tensors import SUMS, exponents_of, load_rows, store_rows


@triton.jit(do_not_specialize=["seq_len_q", "seq_len_k"])  # type: ignore[untyped-decorator]
def flash_backward_keys_kernel(
    # Each source is a pointer to the shape here, or a descriptor with seq_len and heads swapped; all of one dtype.
    q_source: tl.tensor,  # [batch, seq_len_q, heads, head_dim]
    k_source: tl.tensor,  # [batch, seq_len_k, kv_heads, head_dim]
    v_source: tl.tensor,  # [batch, seq_len_k, kv_heads, head_dim]
    dout_source: tl.tensor,  # [batch, seq_len_q, heads, head_dim]
    dk_source: tl.tensor,  # [batch, seq_len_k, kv_heads, head_dim], contiguous
    dv_source: tl.tensor,  # [batch, seq_len_k, kv_heads, head_dim], contiguous
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
    RAGGED: tl.constexpr,  # seq_len_q is no multiple of BLOCK_M
    DESCRIPTORS: tl.constexpr,
    CAUSAL: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,  # of products of float32: "tf32" or "ieee"; others have their own
) -> None:
    """Write BLOCK_N rows of dk and dv of one head of keys. Scores are transposed here: keys by queries.

    Queries past the end need no mask: their rows of q and dout are zero, and so is all that they add. One loop runs
    over the blocks of all heads of the group, because a loop in a loop needs more registers than there are.
    """
    KV_HEADS: tl.constexpr = HEADS // GROUP
    blocks_n = tl.cdiv(seq_len_k, BLOCK_N)
    start_n = (tl.program_id(0) % blocks_n) * BLOCK_N  # under a causal mask the longest programs come first
    batch = tl.program_id(0) // blocks_n // KV_HEADS
    kv_head = tl.program_id(0) // blocks_n % KV_HEADS
    k = load_rows(
        k_source, batch, kv_head, start_n, seq_len_k, stride_kb, stride_ks, stride_kh,
        BLOCK_N, HEAD_DIM, DESCRIPTORS, True,
    )  # fmt: skip
    v = load_rows(
        v_source, batch, kv_head, start_n, seq_len_k, stride_vb, stride_vs, stride_vh,
        BLOCK_N, HEAD_DIM, DESCRIPTORS, True,
    )  # fmt: skip
    dk = tl.zeros([BLOCK_N, HEAD_DIM], SUMS)
    dv = tl.zeros([BLOCK_N, HEAD_DIM], SUMS)
    blocks_m = tl.cdiv(seq_len_q, BLOCK_M)
    ahead = seq_len_k - seq_len_q
    first = 0
    if CAUSAL:
        first = tl.maximum(start_n - ahead, 0) // BLOCK_M  # block of queries that sees some of these keys
    count = blocks_m - first
    key = start_n + tl.arange(0, BLOCK_N)
    for step in tl.range(0, GROUP * count):
        start_m = (first + step % count) * BLOCK_M
        head = kv_head * GROUP + step // count
        if GROUP == 1:
            start_m = (first + step) * BLOCK_M
            head = kv_head
        of_head = (batch.to(tl.int64) * HEADS + head) * seq_len_q
        query = start_m + tl.arange(0, BLOCK_M)
        q = load_rows(
            q_source, batch, head, start_m, seq_len_q, stride_qb, stride_qs, stride_qh,
            BLOCK_M, HEAD_DIM, DESCRIPTORS, RAGGED,
        )  # fmt: skip
        if RAGGED:
            lse = tl.load(lse_pointer + of_head + query, mask=query < seq_len_q, other=0.0)
        else:
            lse = tl.load(lse_pointer + of_head + query)
        exponents = exponents_of(tl.dot(k, q.T, input_precision=INPUT_PRECISION) * scale_log2, lse[None, :])
        if CAUSAL and start_m + ahead < start_n + BLOCK_N - 1:
            exponents = tl.where(key[:, None] <= (query + ahead)[None, :], exponents, -float("inf"))
        weights = tl.exp2(exponents)
        dout = load_rows(
            dout_source, batch, head, start_m, seq_len_q, stride_db, stride_ds, stride_dh,
            BLOCK_M, HEAD_DIM, DESCRIPTORS, RAGGED,
        )  # fmt: skip
        dv = tl.dot(weights.to(dout.dtype), dout, dv, input_precision=INPUT_PRECISION)
        if RAGGED:
            delta = tl.load(delta_pointer + of_head + query, mask=query < seq_len_q, other=0.0)
        else:
            delta = tl.load(delta_pointer + of_head + query)
        of_scores = weights * (tl.dot(v, dout.T, input_precision=INPUT_PRECISION) - delta[None, :])
        dk = tl.dot(of_scores.to(q.dtype), q, dk, input_precision=INPUT_PRECISION)

    dk = (dk * scale).to(k.dtype)
    store_rows(dk_source, dk, batch, kv_head, start_n, seq_len_k, KV_HEADS, BLOCK_N, HEAD_DIM, DESCRIPTORS)
    store_rows(dv_source, dv.to(v.dtype), batch, kv_head, start_n, seq_len_k, KV_HEADS, BLOCK_N, HEAD_DIM, DESCRIPTORS)
