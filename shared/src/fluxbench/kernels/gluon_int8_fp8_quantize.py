"""Quantization of q, k and v for the 8-bit kernel, in one launch in Triton.

- q: int8, one scale a row.
- k: the same, one scale a block of rows, after subtracting a row that estimates the mean of a head's keys. That adds
  the same to all scores of a query, so the softmax does not change, and large offsets of channels vanish ("smoothing":
  SageAttention, Zhang et al., 2024, section 4.2). The estimate is the mean of 64 keys, evenly spaced: every program
  computes it by itself, from L2, instead of waiting for all the others.
- v: float8, one scale a block of rows, transposed: Hopper multiplies 8-bit matrices only if both are contiguous in the
  summed dimension, which is that of the keys. Their order is that in which a thread of the kernel has its weights.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from fluxbench.kernels.float8 import FLOAT8_MAX

INT8_MAX = 127.0
_SAMPLES = 64  # keys of which the mean is taken
# A row or block whose elements are all smaller counts as one of this magnitude: neither is divided by zero, nor do the
# product of two scales and the sum of weights, which are divided by a scale, leave the range of float32.
_LEAST_AMAX = 2.0**-50


class Quantized(NamedTuple):
    """q, k and v as the 8-bit kernel reads them."""

    q: torch.Tensor  # [batch, seq_len_q, heads, head_dim], int8
    k: torch.Tensor  # [batch, seq_len_k, kv_heads, head_dim], int8
    v: torch.Tensor  # [batch, kv_heads, head_dim, whole blocks of keys], float8_e4m3fn, zero past the sequence
    q_scales: torch.Tensor  # [batch, heads, seq_len_q], float32: of a row, times log2(e) and the scale of the scores
    scales: torch.Tensor  # [batch, kv_heads, blocks, 3], float32: k's; v's; the inverse of v's


@triton.jit  # type: ignore[untyped-decorator]
def _rows(first: tl.tensor, row: tl.tensor, count: tl.tensor, stride: tl.tensor, HEAD_DIM: tl.constexpr) -> tl.tensor:
    """Load rows after `first`, in float32; those from `count` on are zero."""
    pointers = first + row[:, None] * stride + tl.arange(0, HEAD_DIM)[None, :]
    return tl.load(pointers, mask=(row < count)[:, None], other=0.0).to(tl.float32)


@triton.jit  # type: ignore[untyped-decorator]
def _scale_of(amax: tl.tensor, LARGEST: tl.constexpr, LEAST_AMAX: tl.constexpr) -> tl.tensor:
    """Return what the largest magnitude is divided by to become the largest of a dtype."""
    return tl.maximum(amax, LEAST_AMAX) * (1.0 / LARGEST)


@triton.jit  # type: ignore[untyped-decorator]
def _rounded(x: tl.tensor, scale: tl.tensor) -> tl.tensor:
    """Return x / scale, rounded to the nearest int8."""
    # The last byte of a float32 at 1.5 * 2**23, where the spacing is 1: faster than a conversion.
    return (x * (1 / scale) + 12582912.0).to(tl.int32, bitcast=True).to(tl.int8)


@triton.jit  # type: ignore[untyped-decorator]
def _store_rows(
    first: tl.tensor, x: tl.tensor, row: tl.tensor, count: tl.tensor, heads: tl.tensor, HEAD_DIM: tl.constexpr
) -> None:
    """Store rows of one head of a contiguous tensor after `first`; those from `count` on are dropped."""
    pointers = first + row[:, None] * (heads * HEAD_DIM) + tl.arange(0, HEAD_DIM)[None, :]
    tl.store(pointers, x, mask=(row < count)[:, None])


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["seq_len_q", "seq_len_k", "heads", "kv_heads", "blocks"]
)
def quantize_qkv_kernel(
    q_pointer: tl.tensor,  # [batch, seq_len_q, heads, HEAD_DIM], bfloat16 or float16, contiguous in HEAD_DIM
    k_pointer: tl.tensor,  # [batch, seq_len_k, kv_heads, HEAD_DIM], likewise
    v_pointer: tl.tensor,  # like k
    q8_pointer: tl.tensor,  # this and the next four: as `Quantized` says, contiguous
    k8_pointer: tl.tensor,
    v8_pointer: tl.tensor,
    q_scales_pointer: tl.tensor,
    scales_pointer: tl.tensor,
    q_stride_b: tl.tensor,
    q_stride_s: tl.tensor,
    q_stride_h: tl.tensor,
    k_stride_b: tl.tensor,
    k_stride_s: tl.tensor,
    k_stride_h: tl.tensor,
    v_stride_b: tl.tensor,
    v_stride_s: tl.tensor,
    v_stride_h: tl.tensor,
    seq_len_q: tl.tensor,
    seq_len_k: tl.tensor,
    heads: tl.tensor,
    kv_heads: tl.tensor,
    blocks: tl.tensor,  # of keys
    scale_log2: tl.tensor,  # log2(e) times the scale of the scores
    HEAD_DIM: tl.constexpr,
    BLOCK_N: tl.constexpr,
    INT8_LARGEST: tl.constexpr,
    FLOAT8_LARGEST: tl.constexpr,
    LEAST_AMAX: tl.constexpr,
    SAMPLES: tl.constexpr,
) -> None:
    """Quantize a block of BLOCK_N rows of one head. Grid: the heads of q, then of k, then of v; blocks; batch."""
    column = tl.program_id(0)
    block = tl.program_id(1)
    batch = tl.program_id(2).to(tl.int64)
    start = (block * BLOCK_N).to(tl.int64)
    row = tl.arange(0, BLOCK_N)
    if column < heads:
        if start < seq_len_q:
            q_first = q_pointer + batch * q_stride_b + column.to(tl.int64) * q_stride_h + start * q_stride_s
            q = _rows(q_first, row, seq_len_q - start, q_stride_s, HEAD_DIM)
            q_scale = _scale_of(tl.max(tl.abs(q), 1), INT8_LARGEST, LEAST_AMAX)
            q8_first = q8_pointer + ((batch * seq_len_q + start) * heads + column) * HEAD_DIM
            _store_rows(q8_first, _rounded(q, q_scale[:, None]), row, seq_len_q - start, heads, HEAD_DIM)
            q_scales = q_scales_pointer + (batch * heads + column) * seq_len_q + start
            tl.store(q_scales + row, q_scale * scale_log2, mask=row < seq_len_q - start)
    elif block < blocks:
        if column < heads + kv_heads:
            k_head = column - heads
            k_first = k_pointer + batch * k_stride_b + k_head.to(tl.int64) * k_stride_h
            sampled = tl.arange(0, SAMPLES).to(tl.int64) * seq_len_k // SAMPLES
            mean = tl.sum(_rows(k_first, sampled, seq_len_k, k_stride_s, HEAD_DIM), 0) * (1.0 / SAMPLES)
            k = _rows(k_first + start * k_stride_s, row, seq_len_k - start, k_stride_s, HEAD_DIM)
            k = tl.where((row < seq_len_k - start)[:, None], k - mean[None, :], 0.0)
            k_scale = _scale_of(tl.max(tl.max(tl.abs(k), 1), 0), INT8_LARGEST, LEAST_AMAX)
            k8_first = k8_pointer + ((batch * seq_len_k + start) * kv_heads + k_head) * HEAD_DIM
            _store_rows(k8_first, _rounded(k, k_scale), row, seq_len_k - start, kv_heads, HEAD_DIM)
            tl.store(scales_pointer + ((batch * kv_heads + k_head) * blocks + block) * 3, k_scale)
        else:
            v_head = column - heads - kv_heads
            v_first = v_pointer + batch * v_stride_b + v_head.to(tl.int64) * v_stride_h + start * v_stride_s
            key = row // 16 * 16 + row // 2 % 2 * 8 + row // 4 % 4 * 2 + row % 2  # 0, 1, 8, 9, 2, 3, 10, 11, 4 ..
            v = _rows(v_first, key, seq_len_k - start, v_stride_s, HEAD_DIM)
            v_scale = _scale_of(tl.max(tl.max(tl.abs(v), 1), 0), FLOAT8_LARGEST, LEAST_AMAX)
            v8 = tl.trans((v * (1 / v_scale)).to(v8_pointer.dtype.element_ty))
            v8_first = v8_pointer + (batch * kv_heads + v_head) * HEAD_DIM * blocks * BLOCK_N + start
            tl.store(v8_first + tl.arange(0, HEAD_DIM)[:, None] * (blocks * BLOCK_N) + row[None, :], v8)
            v_scales = scales_pointer + ((batch * kv_heads + v_head) * blocks + block) * 3
            tl.store(v_scales + 1, v_scale)
            tl.store(v_scales + 2, 1 / v_scale)


def quantize(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, scale: float, block_n: int) -> Quantized:
    """Return what the 8-bit kernel reads.

    q:       [batch, seq_len_q, heads, head_dim], bfloat16 or float16, contiguous in head_dim; other strides are free
    k, v:    [batch, seq_len_k, kv_heads, head_dim], of the same dtype
    scale:   of the scores
    block_n: keys of a block, a power of two from 32 on
    """
    batch, seq_len_q, heads, head_dim = q.shape
    _, seq_len_k, kv_heads, _ = k.shape
    blocks = triton.cdiv(seq_len_k, block_n)
    result = Quantized(
        q=torch.empty(q.shape, dtype=torch.int8, device=q.device),
        k=torch.empty(k.shape, dtype=torch.int8, device=q.device),
        v=torch.empty((batch, kv_heads, head_dim, blocks * block_n), dtype=torch.float8_e4m3fn, device=q.device),
        q_scales=torch.empty((batch, heads, seq_len_q), dtype=torch.float32, device=q.device),
        scales=torch.empty((batch, kv_heads, blocks, 3), dtype=torch.float32, device=q.device),
    )
    # Neighbours read neighbouring heads of the same tokens, which lie side by side.
    grid = (heads + 2 * kv_heads, max(triton.cdiv(seq_len_q, block_n), blocks), batch)
    quantize_qkv_kernel[grid](
        q,
        k,
        v,
        *result,
        *q.stride()[:3],
        *k.stride()[:3],
        *v.stride()[:3],
        seq_len_q,
        seq_len_k,
        heads,
        kv_heads,
        blocks,
        math.log2(math.e) * scale,
        HEAD_DIM=head_dim,
        BLOCK_N=block_n,
        INT8_LARGEST=INT8_MAX,
        FLOAT8_LARGEST=FLOAT8_MAX,
        LEAST_AMAX=_LEAST_AMAX,
        SAMPLES=_SAMPLES,
        num_warps=block_n * head_dim // 2048,  # with twice as many it takes longer
    )
    return result
