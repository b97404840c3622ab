"""Forward flash attention in Triton: exact, with or without a causal mask, in bfloat16, float16 or float32.

Matrix products of float32 are IEEE ones, or in TF32 where the caller allows it; torch's own setting decides nothing.

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

from fluxbench.kernels.flash_forward_kernel import flash_forward_kernel
from fluxbench.kernels.flash_launch import launch
from fluxbench.kernels.flash_tensors import (
    cdiv,
    check,
    compute_capability_of,
    descriptor,
    fits_descriptor,
    input_precision,
    lse_dtype,
    of_device,
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
# Of float32, by what its products may round. Chosen by what the compiler reports for 8.0 and 9.0 (Triton 3.7.1 with
# ptxas 12.8), not by measurement: they fit into 99 KB, and no more than 8 bytes a thread are spilled. IEEE products run
# without tensor cores, on blocks that are small because a thread keeps whole rows of its operands in registers.
FLOAT32_TILINGS: dict[str, dict[tuple[int, int], dict[int, Tiling]]] = {
    "ieee": {
        (8, 0): {
            64: Tiling(block_m=64, block_n=32, warps=8, stages=2, descriptors=False, overlap=False),
            128: Tiling(block_m=32, block_n=32, warps=8, stages=2, descriptors=False, overlap=False),
        }
    },
    "tf32": {
        (8, 0): {
            64: Tiling(block_m=128, block_n=32, warps=4, stages=2, descriptors=False, overlap=False),
            128: Tiling(block_m=64, block_n=32, warps=4, stages=2, descriptors=False, overlap=False),
        }
    },
}


def flash_forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    tf32: bool = False,
    tiling: Tiling | None = None,
    checked: bool = False,
) -> torch.Tensor:
    """Return softmax(q @ k.T * scale) @ v, head by head.

    q:      [batch, seq_len_q, heads, head_dim], bfloat16, float16 or float32; head_dim 16, 32, 64 or 128, contiguous;
            other strides free
    k, v:   [batch, seq_len_k, kv_heads, head_dim], of the same dtype; kv_heads divides heads
    causal: mask the keys after each query, aligned to the end: the last query sees all keys
    scale:  of the scores, over 0; 1 / sqrt(head_dim) by default
    tf32:   round what enters a product of float32 to TF32; 16-bit products are the same either way
    tiling: how the work is cut; the device's own by default
    checked: `check` has accepted the tensors
    result: [batch, seq_len_q, heads, head_dim], contiguous, of the same dtype

    Raises `ValueError` for other inputs.
    """
    return _launch(q, k, v, causal, scale, tf32, tiling, checked, with_lse=False)[0]


def flash_forward_with_lse(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    tf32: bool = False,
    tiling: Tiling | None = None,
    checked: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the same, and what its gradient needs: the log-sum-exp of each query's scores, to the base 2.

    It is log2(sum(exp(q @ k.T * scale))), [batch, heads, seq_len_q], float32; float64 for float32 inputs.
    """
    out, lse = _launch(q, k, v, causal, scale, tf32, tiling, checked, with_lse=True)
    assert lse is not None
    return out, lse


def _launch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    scale: float | None,
    tf32: bool,
    tiling: Tiling | None,
    checked: bool,
    *,
    with_lse: bool,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    if not checked:
        check(q, k, v, causal=causal, scale=scale)
    capability = compute_capability_of(q)
    batch, seq_len_q, heads, head_dim = q.shape
    _, seq_len_k, kv_heads, _ = k.shape
    precision = input_precision(tf32)
    table = FLOAT32_TILINGS[precision] if q.dtype == torch.float32 else TILINGS
    tiling = tiling or of_device(table, capability, head_dim)
    out = q.new_empty((batch, seq_len_q, heads, head_dim))
    lse = q.new_empty((batch, heads, seq_len_q), dtype=lse_dtype(q.dtype)) if with_lse else None
    # Strides that the TMA unit cannot walk are rare: they take the pointers of the same kernel.
    descriptors = tiling.descriptors and all(fits_descriptor(tensor) for tensor in (q, k, v))
    block_m, block_n = tiling.block_m, tiling.block_n
    sources: tuple[Any, ...] = (q, k, v, out)
    if descriptors:
        rows = (block_m, block_n, block_n, block_m)
        sources = tuple(descriptor(tensor, count) for tensor, count in zip(sources, rows, strict=True))
    strides = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3])
    with torch.cuda.device_of(q):
        launch(
            flash_forward_kernel,
            (q.device, q.dtype, *strides),
            cdiv(seq_len_q, block_m) * batch * heads,
            (
                *sources,
                lse,
                seq_len_q,
                seq_len_k,
                math.log2(math.e) * (1 / math.sqrt(head_dim) if scale is None else float(scale)),
                *strides,
            ),
            {
                "HEADS": heads,
                "GROUP": heads // kv_heads,
                "HEAD_DIM": head_dim,
                "BLOCK_M": block_m,
                "BLOCK_N": block_n,
                "RAGGED": seq_len_k % block_n != 0 and not causal,
                "DESCRIPTORS": descriptors,
                "OVERLAP": tiling.overlap and not causal,
                "CAUSAL": causal,
                "INPUT_PRECISION": precision,
            },
            num_warps=tiling.warps,
            num_stages=tiling.stages,
        )
    return out, lse
