"""Forward flash attention in Triton: exact, with or without a causal mask, in bfloat16 or float16.

One program computes one block of query rows of one head, and walks over the keys in blocks, keeping a running
maximum, a running sum and an unnormalized output in float32 (online softmax: Milakov and Gimelshein, 2018; the
blocks: FlashAttention-2, Dao, 2023, algorithm 1). The softmax is taken in base 2, `exp(x) = exp2(x * log2(e))`, so
that log2(e) and the scale are one multiplication.

Three things are arranged for speed:
- The last block of keys, the only one that can be ragged, is taken before the loop: the loop needs no mask.
- Of a causal mask, blocks that are hidden are skipped, and those on the diagonal have a loop of their own.
- With `overlap`, the product of one block's weights with V is issued before the softmax of the next block, so that
  asynchronous tensor cores (compute capability 9.0) are busy during it (FlashAttention-3, Shah et al., 2024,
  section 3.2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from fluxbench.kernels.flash_tensors import (
    SUMS,
    check,
    compute_capability_of,
    descriptor,
    fits_descriptor,
    load_rows,
    of_device,
    store_rows,
)


@dataclass(frozen=True, kw_only=True)
class Tiling:
    """How the work is cut: query rows and keys of a block, warps, depth of the load pipeline, and the two paths."""

    block_m: int
    block_n: int
    warps: int
    stages: int
    descriptors: bool  # load through tensor descriptors (the TMA unit, compute capability 9.0 and newer)
    overlap: bool  # product with V in flight during the next softmax: for asynchronous tensor cores; not if causal


# By the oldest compute capability and by head_dim. No tuning at run time: a benchmark must run the same kernel twice.
# Shared memory allows 163 KB a block at 8.0, 99 KB at 8.6, 8.9 and 12.0, 227 KB at 9.0 and 10.0 (CUDA C++
# Programming Guide, technical specifications per compute capability).
TILINGS: dict[tuple[int, int], dict[int, Tiling]] = {
    (8, 0): {
        64: Tiling(block_m=128, block_n=64, warps=4, stages=3, descriptors=False, overlap=False),
        128: Tiling(block_m=128, block_n=64, warps=8, stages=3, descriptors=False, overlap=False),
    },
    (8, 6): {
        64: Tiling(block_m=128, block_n=64, warps=4, stages=3, descriptors=False, overlap=False),
        128: Tiling(block_m=128, block_n=64, warps=8, stages=2, descriptors=False, overlap=False),
    },
    # Measured on an H200 (Triton 3.6.0, 24 heads, 4,224 to 4,608 tokens, rested card): 0.42 to 0.56 ms, against 0.52 to
    # 0.63 ms at 128 x 128 with 8 warps. Two small programs a multiprocessor hide each other's softmax.
    (9, 0): {
        64: Tiling(block_m=128, block_n=64, warps=4, stages=2, descriptors=True, overlap=False),
        128: Tiling(block_m=128, block_n=64, warps=4, stages=2, descriptors=True, overlap=False),
    },
    (10, 0): {
        64: Tiling(block_m=128, block_n=128, warps=8, stages=2, descriptors=True, overlap=False),
        128: Tiling(block_m=128, block_n=128, warps=8, stages=2, descriptors=True, overlap=False),
    },
    (12, 0): {
        64: Tiling(block_m=128, block_n=64, warps=4, stages=3, descriptors=False, overlap=False),
        128: Tiling(block_m=128, block_n=64, warps=8, stages=2, descriptors=False, overlap=False),
    },
}


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
    # Each source is a pointer to the shape here, or a descriptor with seq_len and heads swapped; 16 bits an element.
    q_source: tl.tensor,  # [batch, seq_len_q, heads, head_dim]
    k_source: tl.tensor,  # [batch, seq_len_k, kv_heads, head_dim]
    v_source: tl.tensor,  # [batch, seq_len_k, kv_heads, head_dim]
    out_source: tl.tensor,  # [batch, seq_len_q, heads, head_dim], contiguous
    lse_pointer: tl.tensor | None,  # [batch, heads, seq_len_q], float32, contiguous; None: not written
    seq_len_q: tl.tensor,
    seq_len_k: tl.tensor,
    scale_log2: tl.tensor,  # log2(e) / sqrt(head_dim)
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
        scores = tl.dot(q, k.T)
        if RAGGED:
            scores = tl.where((start + tl.arange(0, BLOCK_N))[None, :] < seq_len_k, scores, -float("inf"))
        maximum, total, weights, rescale = _softmax_step(scores, maximum, total, scale_log2)
        if not OVERLAP:
            v = load_rows(
                v_source, batch, kv_head, start, seq_len_k, stride_vb, stride_vs, stride_vh,
                BLOCK_N, HEAD_DIM, DESCRIPTORS, True,
            )  # fmt: skip
            out = tl.dot(weights.to(v.dtype), v, out)

    for block in tl.range(0, blocks_in_loop):
        k = load_rows(
            k_source, batch, kv_head, block * BLOCK_N, seq_len_k, stride_kb, stride_ks, stride_kh,
            BLOCK_N, HEAD_DIM, DESCRIPTORS, False,
        )  # fmt: skip
        scores = tl.dot(q, k.T)
        if OVERLAP:
            # The weights are of the block before, and stay in float32 between iterations: in 16 bits the compiler
            # passes them through shared memory and then waits for the product.
            before = tl.where(block == 0, last, block - 1)
            v = load_rows(
                v_source, batch, kv_head, before * BLOCK_N, seq_len_k, stride_vb, stride_vs, stride_vh,
                BLOCK_N, HEAD_DIM, DESCRIPTORS, RAGGED,
            )  # fmt: skip
            out = tl.dot(weights.to(v.dtype), v, out * rescale[:, None])
        maximum, total, weights, rescale = _softmax_step(scores, maximum, total, scale_log2)
        if not OVERLAP:
            v = load_rows(
                v_source, batch, kv_head, block * BLOCK_N, seq_len_k, stride_vb, stride_vs, stride_vh,
                BLOCK_N, HEAD_DIM, DESCRIPTORS, False,
            )  # fmt: skip
            out = tl.dot(weights.to(v.dtype), v, out * rescale[:, None])

    if OVERLAP:
        before = tl.where(last == 0, last, last - 1)
        v = load_rows(
            v_source, batch, kv_head, before * BLOCK_N, seq_len_k, stride_vb, stride_vs, stride_vh,
            BLOCK_N, HEAD_DIM, DESCRIPTORS, True,
        )  # fmt: skip
        out = tl.dot(weights.to(v.dtype), v, out * rescale[:, None])

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
            scores = tl.where(visible, tl.dot(q, k.T), -float("inf"))
            maximum, total, weights, rescale = _softmax_step(scores, maximum, total, scale_log2)
            v = load_rows(
                v_source, batch, kv_head, start, seq_len_k, stride_vb, stride_vs, stride_vh,
                BLOCK_N, HEAD_DIM, DESCRIPTORS, True,
            )  # fmt: skip
            out = tl.dot(weights.to(v.dtype), v, out * rescale[:, None])

    result = (out * (1.0 / total)[:, None]).to(q.dtype)
    store_rows(out_source, result, batch, head, start_m, seq_len_q, HEADS, BLOCK_M, HEAD_DIM, DESCRIPTORS)
    if lse_pointer is not None:
        row = start_m + tl.arange(0, BLOCK_M)
        of_head = lse_pointer + (batch.to(tl.int64) * HEADS + head) * seq_len_q
        tl.store(of_head + row, maximum + tl.log2(total), mask=row < seq_len_q)


def flash_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False, tiling: Tiling | None = None
) -> torch.Tensor:
    """Return softmax(q @ k.T / sqrt(head_dim)) @ v, head by head.

    q:      [batch, seq_len_q, heads, head_dim], bfloat16 or float16; head_dim 64 or 128, contiguous; other strides free
    k, v:   [batch, seq_len_k, kv_heads, head_dim], of the same dtype; kv_heads divides heads
    causal: mask the keys after each query, aligned to the end: the last query sees all keys
    tiling: how the work is cut; the device's own by default
    result: [batch, seq_len_q, heads, head_dim], contiguous, of the same dtype

    Raises `ValueError` for other inputs.
    """
    return _launch(q, k, v, causal, tiling, with_lse=False)[0]


def flash_forward_with_lse(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False, tiling: Tiling | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the same, and what its gradient needs: the log-sum-exp of each query's scores, to the base 2.

    It is log2(sum(exp(q @ k.T / sqrt(head_dim)))), [batch, heads, seq_len_q], float32.
    """
    out, lse = _launch(q, k, v, causal, tiling, with_lse=True)
    assert lse is not None
    return out, lse


def _launch(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, tiling: Tiling | None, *, with_lse: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    check(q, k, v, causal=causal)
    capability = compute_capability_of(q)
    batch, seq_len_q, heads, head_dim = q.shape
    _, seq_len_k, kv_heads, _ = k.shape
    tiling = tiling or of_device(TILINGS, capability, head_dim)
    out = torch.empty((batch, seq_len_q, heads, head_dim), dtype=q.dtype, device=q.device)
    lse = torch.empty((batch, heads, seq_len_q), dtype=torch.float32, device=q.device) if with_lse else None
    # Strides that the TMA unit cannot walk are rare: they take the pointers of the same kernel.
    descriptors = tiling.descriptors and all(fits_descriptor(tensor) for tensor in (q, k, v))
    block_m, block_n = tiling.block_m, tiling.block_n
    sources: tuple[Any, ...] = (q, k, v, out)
    if descriptors:
        rows = (block_m, block_n, block_n, block_m)
        sources = tuple(descriptor(tensor, count) for tensor, count in zip(sources, rows, strict=True))
    with torch.cuda.device_of(q):
        flash_forward_kernel[(triton.cdiv(seq_len_q, block_m) * batch * heads,)](
            *sources,
            lse,
            seq_len_q,
            seq_len_k,
            math.log2(math.e) / math.sqrt(head_dim),
            *q.stride()[:3],
            *k.stride()[:3],
            *v.stride()[:3],
            HEADS=heads,
            GROUP=heads // kv_heads,
            HEAD_DIM=head_dim,
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            RAGGED=seq_len_k % block_n != 0 and not causal,
            DESCRIPTORS=descriptors,
            OVERLAP=tiling.overlap and not causal,
            CAUSAL=causal,
            num_warps=tiling.warps,
            num_stages=tiling.stages,
        )
    return out, lse
