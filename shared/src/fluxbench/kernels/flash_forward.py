"""Forward flash attention in Triton: exact, not causal, in bfloat16 or float16.

One program computes one block of query rows of one head, and walks over the keys in blocks, keeping a running
maximum, a running sum and an unnormalized output in float32 (online softmax: Milakov and Gimelshein, 2018; the
blocks: FlashAttention-2, Dao, 2023, algorithm 1). The softmax is taken in base 2, `exp(x) = exp2(x * log2(e))`, so
that log2(e) and the scale are one multiplication.

Two things are arranged for speed:
- The last block of keys, the only one that can be ragged, is taken before the loop: the loop needs no mask.
- With `overlap`, the product of one block's weights with V is issued before the softmax of the next block, so that
  asynchronous tensor cores (compute capability 9.0) are busy during it (FlashAttention-3, Shah et al., 2024,
  section 3.2).

Past 300 lines because one kernel serves every device and both ways to load, and its arguments take a line each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

HEAD_DIMS = (64, 128)
DTYPES = (torch.bfloat16, torch.float16)
_TMA_ALIGNMENT_BYTES = 16  # of a tensor's address and strides: CUDA driver API, cuTensorMapEncodeTiled
_MAX_ROW_STRIDE = 2**24  # elements: the offsets within a block of at most 128 rows then fit in int32


@dataclass(frozen=True, kw_only=True)
class Tiling:
    """How the work is cut: query rows and keys of a block, warps, depth of the load pipeline, and the two paths."""

    block_m: int
    block_n: int
    warps: int
    stages: int
    descriptors: bool  # load through tensor descriptors (the TMA unit, compute capability 9.0 and newer)
    overlap: bool  # product with V in flight during the next softmax: for asynchronous tensor cores


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
def _load_rows(
    source: tl.tensor,
    batch: tl.tensor,
    head: tl.tensor,
    start: tl.tensor,
    length: tl.tensor,
    stride_b: tl.tensor,
    stride_s: tl.tensor,
    stride_h: tl.tensor,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DESCRIPTORS: tl.constexpr,
    MASKED: tl.constexpr,
) -> tl.tensor:
    """Load `[ROWS, HEAD_DIM]` from row `start` of one head. Rows past `length` are zero where MASKED."""
    if DESCRIPTORS:  # which are always bounded
        block = source.load([batch, head, start, 0]).reshape([ROWS, HEAD_DIM])
    else:
        row = tl.arange(0, ROWS)
        first = source + (
            tl.cast(batch, tl.int64) * stride_b
            + tl.cast(head, tl.int64) * stride_h
            + tl.cast(start, tl.int64) * stride_s
        )
        pointers = first + row[:, None] * stride_s + tl.arange(0, HEAD_DIM)[None, :]
        if MASKED:  # noqa: SIM108  (constexpr: only one side is compiled)
            block = tl.load(pointers, mask=(start + row)[:, None] < length, other=0.0)
        else:
            block = tl.load(pointers)
    return block


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
) -> None:
    """Write BLOCK_M rows of one head of softmax(q @ k.T * scale) @ v."""
    blocks_m = tl.cdiv(seq_len_q, BLOCK_M)
    # Neighbours share a head, so that its k and v are read from L2 and not from memory.
    start_m = (tl.program_id(0) % blocks_m) * BLOCK_M
    batch = tl.program_id(0) // blocks_m // HEADS
    head = tl.program_id(0) // blocks_m % HEADS
    kv_head = head // GROUP
    last = tl.cdiv(seq_len_k, BLOCK_N) - 1

    q = _load_rows(
        q_source, batch, head, start_m, seq_len_q, stride_qb, stride_qs, stride_qh, BLOCK_M, HEAD_DIM, DESCRIPTORS, True
    )
    maximum = tl.full([BLOCK_M], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    out = tl.zeros([BLOCK_M, HEAD_DIM], tl.float32)
    blocks_in_loop = last + 1

    if RAGGED or OVERLAP:
        blocks_in_loop = last
        start = last * BLOCK_N
        k = _load_rows(
            k_source, batch, kv_head, start, seq_len_k, stride_kb, stride_ks, stride_kh,
            BLOCK_N, HEAD_DIM, DESCRIPTORS, True,
        )  # fmt: skip
        scores = tl.dot(q, k.T)
        if RAGGED:
            scores = tl.where((start + tl.arange(0, BLOCK_N))[None, :] < seq_len_k, scores, -float("inf"))
        maximum, total, weights, rescale = _softmax_step(scores, maximum, total, scale_log2)
        if not OVERLAP:
            v = _load_rows(
                v_source, batch, kv_head, start, seq_len_k, stride_vb, stride_vs, stride_vh,
                BLOCK_N, HEAD_DIM, DESCRIPTORS, True,
            )  # fmt: skip
            out = tl.dot(weights.to(v.dtype), v, out)

    for block in tl.range(0, blocks_in_loop):
        k = _load_rows(
            k_source, batch, kv_head, block * BLOCK_N, seq_len_k, stride_kb, stride_ks, stride_kh,
            BLOCK_N, HEAD_DIM, DESCRIPTORS, False,
        )  # fmt: skip
        scores = tl.dot(q, k.T)
        if OVERLAP:
            # The weights are of the block before, and stay in float32 between iterations: in 16 bits the compiler
            # passes them through shared memory and then waits for the product.
            before = tl.where(block == 0, last, block - 1)
            v = _load_rows(
                v_source, batch, kv_head, before * BLOCK_N, seq_len_k, stride_vb, stride_vs, stride_vh,
                BLOCK_N, HEAD_DIM, DESCRIPTORS, RAGGED,
            )  # fmt: skip
            out = tl.dot(weights.to(v.dtype), v, out * rescale[:, None])
        maximum, total, weights, rescale = _softmax_step(scores, maximum, total, scale_log2)
        if not OVERLAP:
            v = _load_rows(
                v_source, batch, kv_head, block * BLOCK_N, seq_len_k, stride_vb, stride_vs, stride_vh,
                BLOCK_N, HEAD_DIM, DESCRIPTORS, False,
            )  # fmt: skip
            out = tl.dot(weights.to(v.dtype), v, out * rescale[:, None])

    if OVERLAP:
        before = tl.where(last == 0, last, last - 1)
        v = _load_rows(
            v_source, batch, kv_head, before * BLOCK_N, seq_len_k, stride_vb, stride_vs, stride_vh,
            BLOCK_N, HEAD_DIM, DESCRIPTORS, True,
        )  # fmt: skip
        out = tl.dot(weights.to(v.dtype), v, out * rescale[:, None])

    result = (out * (1.0 / total)[:, None]).to(q.dtype)
    if DESCRIPTORS:
        out_source.store([batch, head, start_m, 0], result.reshape([1, 1, BLOCK_M, HEAD_DIM]))
    else:  # out is contiguous
        row = tl.arange(0, BLOCK_M)
        first = out_source + ((batch.to(tl.int64) * seq_len_q + start_m) * HEADS + head) * HEAD_DIM
        pointers = first + row[:, None] * (HEADS * HEAD_DIM) + tl.arange(0, HEAD_DIM)[None, :]
        tl.store(pointers, result, mask=(start_m + row)[:, None] < seq_len_q)


def flash_forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tiling: Tiling | None = None) -> torch.Tensor:
    """Return softmax(q @ k.T / sqrt(head_dim)) @ v, head by head.

    q:      [batch, seq_len_q, heads, head_dim], bfloat16 or float16; head_dim 64 or 128, contiguous; other strides free
    k, v:   [batch, seq_len_k, kv_heads, head_dim], of the same dtype; kv_heads divides heads
    tiling: how the work is cut; the device's own by default
    result: [batch, seq_len_q, heads, head_dim], contiguous, of the same dtype

    Raises `ValueError` for other inputs.
    """
    _check(q, k, v)
    capability = _compute_capability(q)
    batch, seq_len_q, heads, head_dim = q.shape
    _, seq_len_k, kv_heads, _ = k.shape
    tiling = tiling or tiling_for(capability, head_dim)
    out = torch.empty((batch, seq_len_q, heads, head_dim), dtype=q.dtype, device=q.device)
    # Strides that the TMA unit cannot walk are rare: they take the pointers of the same kernel.
    descriptors = tiling.descriptors and all(_fits_descriptor(tensor) for tensor in (q, k, v))
    block_m, block_n = tiling.block_m, tiling.block_n
    sources: tuple[Any, ...] = (q, k, v, out)
    if descriptors:
        rows = (block_m, block_n, block_n, block_m)
        sources = tuple(_descriptor(tensor, count) for tensor, count in zip(sources, rows, strict=True))
    with torch.cuda.device_of(q):
        flash_forward_kernel[(triton.cdiv(seq_len_q, block_m) * batch * heads,)](
            *sources,
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
            RAGGED=seq_len_k % block_n != 0,
            DESCRIPTORS=descriptors,
            OVERLAP=tiling.overlap,
            num_warps=tiling.warps,
            num_stages=tiling.stages,
        )
    return out


def tiling_for(compute_capability: tuple[int, int], head_dim: int) -> Tiling:
    """Return the tiling of a device: that of the newest compute capability in the table which it has."""
    known = [capability for capability in TILINGS if capability <= compute_capability]
    if not known:
        raise ValueError(
            f"the device of q must have compute capability 8.0 or newer, got {compute_capability}; use an Ampere GPU "
            "or newer"
        )
    return TILINGS[max(known)][head_dim]


def _compute_capability(tensor: torch.Tensor) -> tuple[int, int]:
    if tensor.is_cuda and torch.version.hip is None:
        major, minor = torch.cuda.get_device_capability(tensor.device)
        return (major, minor)
    if tensor.device.type == "cpu" and triton.knobs.runtime.interpret:
        return (9, 0)  # the interpreter runs every path of the kernel
    raise ValueError(f"q must be on an NVIDIA GPU, got {tensor.device}; move q, k and v there")


def _check(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Raise `ValueError` where the kernel would not compute what was asked."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.ndim != 4 or 0 in tensor.shape:
            raise ValueError(
                f"{name} must be [batch, seq_len, heads, head_dim] with no empty dimension, got {list(tensor.shape)}; "
                "reshape it"
            )
        if tensor.dtype not in DTYPES or tensor.dtype != q.dtype:
            raise ValueError(
                f"{name} must be bfloat16 or float16, the same for q, k and v, got {tensor.dtype} and q {q.dtype}; "
                "cast all three"
            )
        if tensor.device != q.device:
            raise ValueError(f"{name} must be on the device of q, {q.device}, got {tensor.device}; move it there")
        if tensor.stride(3) != 1:
            raise ValueError(
                f"{name} must be contiguous in head_dim, got a stride of {tensor.stride(3)}; call contiguous() on it"
            )
        if tensor.stride(1) >= _MAX_ROW_STRIDE:
            raise ValueError(
                f"{name} must have a stride of seq_len under 2**24 elements, got {tensor.stride(1)}; "
                "call contiguous() on it"
            )
    batch, _, heads, head_dim = q.shape
    if head_dim not in HEAD_DIMS:
        raise ValueError(f"head_dim must be 64 or 128, got {head_dim}; pad q, k and v, or use another variant")
    if k.shape != v.shape:
        raise ValueError(f"k and v must have one shape, got {list(k.shape)} and {list(v.shape)}; pass matching ones")
    if (k.shape[0], k.shape[3]) != (batch, head_dim):
        raise ValueError(
            f"k must have the batch and head_dim of q, {batch} and {head_dim}, got {k.shape[0]} and {k.shape[3]}; "
            "pass matching ones"
        )
    if heads % k.shape[2]:
        raise ValueError(f"kv_heads must divide the heads of q, {heads}, got {k.shape[2]}; repeat k and v")


def _walked_strides(tensor: torch.Tensor) -> list[int]:
    """Return the strides as [batch, heads, seq_len, head_dim], in elements. Those of dimensions of one are free."""
    swapped = tensor.transpose(1, 2)
    return [
        stride if size > 1 or axis == 3 else tensor.shape[3]
        for axis, (size, stride) in enumerate(zip(swapped.shape, swapped.stride(), strict=True))
    ]


def _fits_descriptor(tensor: torch.Tensor) -> bool:
    """Say whether the TMA unit can walk the tensor: an aligned address, and aligned strides that are not zero."""
    return tensor.data_ptr() % _TMA_ALIGNMENT_BYTES == 0 and all(
        stride > 0 and stride * tensor.element_size() % _TMA_ALIGNMENT_BYTES == 0
        for stride in _walked_strides(tensor)[:3]
    )


def _descriptor(tensor: torch.Tensor, rows: int) -> Any:
    """Describe `[batch, seq_len, heads, head_dim]` as [batch, heads, seq_len, head_dim], in blocks of rows of a head.

    Only leading dimensions of one vanish in a load without a copy, hence the order.
    """
    batch, seq_len, heads, head_dim = tensor.shape
    return TensorDescriptor(tensor, [batch, heads, seq_len, head_dim], _walked_strides(tensor), [1, 1, rows, head_dim])
