"""Forward flash attention of quantized q, k and v, in Gluon, for NVIDIA GPUs of compute capability 9.0.

A launch in Triton quantizes (`gluon_int8_fp8_quantize.py`); then the design is that of the exact kernel in Gluon
(`flash_gluon.py`). Scores are products of int8 by default: rounding q and k to float8 would be most of the error. Their
sums are exact. The weights and v are float8 (e4m3). Tensor cores of Hopper keep about 14 bits of sums of float8, so the
sum of each block of keys is added to those before in float32, in the instruction that rescales these.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import triton
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from fluxbench.kernels.flash_gluon import COMPUTE_CAPABILITY, DTYPES, HEAD_DIMS, share_of
from fluxbench.kernels.flash_tensors import check, walked_strides
from fluxbench.kernels.gluon_int8_fp8_kernel import quantized_forward_kernel
from fluxbench.kernels.gluon_int8_fp8_quantize import quantize

BLOCKS_N = (64, 128)
SCORES = {"int8": torch.int8, "float8": torch.float8_e4m3fn}
_ROWS = 64  # of a consumer
_CONSUMERS = 2
_LAYOUTS = {  # by bytes of a row of a block, and bytes of an element; made once: it takes 30 us
    (columns * size, size): gl.NVMMASharedLayout(min(128, columns * size), 8 * size, rank=4)
    for columns in (64, 128)
    for size in (1, 2)
}


@dataclass(frozen=True, kw_only=True)
class Tiling:
    """How the work is cut, and what is rounded."""

    block_n: int = 128  # keys of a block, 64 or 128
    stages: int = 4  # buffers of K, and of V
    programs: int | None = None  # at once; None: one a multiprocessor
    split: bool = True  # share out the keys of the tiles after the last full round; not if causal
    promote: bool = True  # add the blocks' products with V in float32, not on the tensor cores
    hold: bool = False  # wait for a product with V after the exponentials
    ones: bool = False  # add up the weights of a row on the tensor cores
    linear: bool = False  # with ones: weights of scores without exponentials, 2**f as 1 + f for f from 0 to 1
    offset: bool = True  # int8 sums start at the bits of a float32, instead of being converted
    scores: str = "int8"  # what q and k are rounded to: "int8" or "float8"


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
    tiling: how the work is cut, and what is rounded
    result: [batch, seq_len_q, heads, head_dim], contiguous, of the same dtype

    Raises `ValueError` for other inputs and other GPUs.
    """
    check(q, k, v, causal=causal, scale=scale)
    tiling = tiling or Tiling()
    if reason := unsupported(q) or _impossible(tiling):
        raise ValueError(reason)
    batch, seq_len_q, heads, head_dim = q.shape
    _, seq_len_k, kv_heads, _ = k.shape
    out = torch.empty((batch, seq_len_q, heads, head_dim), dtype=q.dtype, device=q.device)
    blocks_m, blocks_n = triton.cdiv(seq_len_q, _ROWS * _CONSUMERS), triton.cdiv(seq_len_k, tiling.block_n)
    programs = tiling.programs or torch.cuda.get_device_properties(q.device).multi_processor_count
    tiles = blocks_m * batch * heads
    share = share_of(tiles % programs, blocks_n, programs) if tiling.split and not causal else 0
    parts = arrivals = None
    if share:
        if tiles < programs:  # all of them are split
            programs = triton.cdiv(tiles * blocks_n, share)
        of_part = _ROWS * (head_dim + 2)
        parts = torch.empty((programs, 2, _CONSUMERS, of_part), dtype=torch.float32, device=q.device)
        arrivals = torch.zeros((tiles % programs, _CONSUMERS), dtype=torch.int32, device=q.device)
    else:
        programs = min(programs, tiles)
    with torch.cuda.device_of(q):
        quantized = quantize(
            *(q, k, v),
            scale=1 / math.sqrt(head_dim) if scale is None else scale,
            block_n=tiling.block_n,
            dtype=SCORES[tiling.scores],
        )
        quantized_forward_kernel[(programs,)](
            _descriptor(quantized.q, _ROWS),
            _descriptor(quantized.k, tiling.block_n),
            TensorDescriptor(
                *(quantized.v, list(quantized.v.shape), list(quantized.v.stride())),
                *([1, 1, head_dim, tiling.block_n], _LAYOUTS[tiling.block_n, 1]),
            ),
            _descriptor(out, _ROWS),
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
            HEAD_DIM=head_dim,
            BLOCK_N=tiling.block_n,
            STAGES=tiling.stages,
            CONSUMERS=_CONSUMERS,
            RAGGED=seq_len_k % tiling.block_n != 0 and not causal,
            CAUSAL=causal,
            PROMOTE=tiling.promote,
            HOLD=tiling.hold,
            ONES=tiling.ones,
            LINEAR=tiling.linear,
            OFFSET=tiling.offset and tiling.scores == "int8",
            num_warps=4,
        )
    return out


def unsupported(q: torch.Tensor) -> str | None:
    """Return why the kernel does not take tensors which `check` accepts, or None."""
    if q.dtype not in DTYPES:
        return f"q must be bfloat16 or float16, got {q.dtype}; cast q, k and v"
    if q.shape[3] not in HEAD_DIMS:
        return f"head_dim must be 64 or 128, got {q.shape[3]}; use an exact kernel"
    if not q.is_cuda or torch.version.hip or torch.cuda.get_device_capability(q.device) != COMPUTE_CAPABILITY:
        return f"q must be on a GPU of compute capability 9.0, got {q.device}; use an exact kernel"
    return None


def _impossible(tiling: Tiling) -> str | None:
    """Return why there is no such tiling, or None."""
    if tiling.block_n not in BLOCKS_N:
        return f"block_n must be 64 or 128, got {tiling.block_n}; use the default"
    if tiling.scores not in SCORES:
        return f"scores must be one of {', '.join(SCORES)}, got {tiling.scores!r}; use the default"
    if tiling.linear and not tiling.ones:
        return "linear must come with ones, got ones=False; use the default"
    return None


def _descriptor(tensor: torch.Tensor, rows: int) -> Any:
    """Describe `[batch, seq_len, heads, head_dim]` as [batch, heads, seq_len, head_dim], in blocks of a head's rows."""
    batch, seq_len, heads, head_dim = tensor.shape
    layout = _LAYOUTS[head_dim * tensor.element_size(), tensor.element_size()]
    return TensorDescriptor(
        tensor, [batch, heads, seq_len, head_dim], walked_strides(tensor), [1, 1, rows, head_dim], layout
    )
