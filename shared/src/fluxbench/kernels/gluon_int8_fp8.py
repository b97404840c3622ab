"""Forward flash attention of quantized q, k and v, in Gluon, for NVIDIA GPUs of compute capability 9.0.

A launch in Triton quantizes (`gluon_int8_fp8_quantize.py`); then the design is that of the exact kernel in Gluon
(`flash_gluon.py`). Scores are products of int8, since rounding q and k to float8 would be most of the error. Their sums
are exact. The weights and v are float8 (e4m3). A weight's code is linear in its logarithm, so no exponential is taken,
and the tensor cores add up the rows. Those of Hopper keep about 14 bits of sums of float8, so the sum of each block of
keys is added to those before in float32, in the instruction that rescales these.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from triton.experimental.gluon import language as gl

from fluxbench.kernels.flash_gluon import (
    COMPUTE_CAPABILITY,
    DTYPES,
    HEAD_DIMS,
    Tiling,
    describe,
    descriptor_of,
    split_tiles,
)
from fluxbench.kernels.flash_launch import launch
from fluxbench.kernels.flash_tensors import capability_of_device, cdiv, check, multiprocessors
from fluxbench.kernels.gluon_int8_fp8_kernel import quantized_forward_kernel
from fluxbench.kernels.gluon_int8_fp8_quantize import quantize
from fluxbench.kernels.gluon_int8_fp8_softmax import BLOCK_N as _CONSTANT

BLOCK_N = _CONSTANT.value  # keys of a block
_ROWS = 64  # of a consumer
_CONSUMERS = 2
_LAYOUTS = {  # by bytes of a row of a block, and bytes of an element; made once: it takes 30 us
    (columns * size, size): gl.NVMMASharedLayout(min(128, columns * size), 8 * size, rank=4)
    for columns in (64, 128)
    for size in (1, 2)
}


def quantized_forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    tiling: Tiling | None = None,
) -> torch.Tensor:
    """Return about softmax(q @ k.T * scale) @ v, head by head, from 8-bit products.

    q:      [batch, seq_len_q, heads, head_dim], bfloat16 or float16; head_dim 64 or 128, contiguous; other strides are
            free and copy nothing
    k, v:   [batch, seq_len_k, kv_heads, head_dim], of the same dtype; kv_heads divides heads
    causal: mask the keys after each query, aligned to the end: the last query sees all keys
    scale:  of the scores, over 0; 1 / sqrt(head_dim) by default
    tiling: how the work is cut
    result: [batch, seq_len_q, heads, head_dim], contiguous, of the same dtype

    Raises `ValueError` for other inputs and other GPUs.
    """
    check(q, k, v, causal=causal, scale=scale)
    tiling = tiling or Tiling()
    if reason := unsupported(q):
        raise ValueError(reason)
    batch, seq_len_q, heads, head_dim = q.shape
    _, seq_len_k, kv_heads, _ = k.shape
    out = q.new_empty((batch, seq_len_q, heads, head_dim))
    blocks_m, blocks_n = cdiv(seq_len_q, _ROWS * _CONSUMERS), cdiv(seq_len_k, BLOCK_N)
    programs = tiling.programs or multiprocessors(q.device)
    tiles = blocks_m * batch * heads
    programs, share, parts, arrivals = split_tiles(q, tiles, blocks_n, programs, split=tiling.split and not causal)
    with torch.cuda.device_of(q):
        scale = 1 / math.sqrt(head_dim) if scale is None else scale
        quantized = quantize(q, k, v, scale=scale, block_n=BLOCK_N)
        launch(
            quantized_forward_kernel,
            (q.device, q.dtype),
            programs,
            (
                _describe(quantized.q, _ROWS),
                _describe(quantized.k, BLOCK_N),
                descriptor_of(
                    *(quantized.v, [*quantized.v.shape], [*quantized.v.stride()]),
                    *([1, 1, head_dim, BLOCK_N], _LAYOUTS[BLOCK_N, 1]),
                ),
                _describe(out, _ROWS),
                quantized.q_scales,
                quantized.scales,
                parts,
                arrivals,
                seq_len_q,
                seq_len_k,
                blocks_m,
                batch * heads,
                heads,
                heads // kv_heads,
                share,
            ),
            {"HEAD_DIM": head_dim, "RAGGED": seq_len_k % BLOCK_N != 0 and not causal, "CAUSAL": causal},
            num_warps=4,
        )
    return out


def unsupported(q: torch.Tensor) -> str | None:
    """Return why the kernel does not take tensors which `check` accepts, or None."""
    if q.dtype not in DTYPES:
        return f"q must be bfloat16 or float16, got {q.dtype}; cast q, k and v"
    if q.shape[3] not in HEAD_DIMS:
        return f"head_dim must be 64 or 128, got {q.shape[3]}; use an exact kernel"
    if not q.is_cuda or torch.version.hip or capability_of_device(q.device) != COMPUTE_CAPABILITY:
        return f"q must be on a GPU of compute capability 9.0, got {q.device}; use an exact kernel"
    return None


def _describe(tensor: torch.Tensor, rows: int) -> Any:
    """Describe it as `describe` does, in the layout of its elements, of one byte or two."""
    size = tensor.element_size()
    return describe(tensor, rows, _LAYOUTS[tensor.shape[3] * size, size])
