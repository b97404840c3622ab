"""Quantization of q, k or v to float8 with one scale a head, and back with one scale, in Triton; in torch on a CPU.

Symmetric and by the largest magnitude: `x ~= x8 * descale` with `descale = amax / 448`, so that the largest element of
a head becomes the largest float8 of the e4m3fn format (448; OCP 8-bit Floating Point Specification, revision 1.0,
table 2). Two kernels: the largest magnitude of every block of rows, then scale and cast. Nothing waits for the host.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

FLOAT8_MAX = 448.0
DTYPES = (torch.bfloat16, torch.float16)
# A head whose elements are all smaller counts as one of this magnitude: no division by zero, no subnormal scale.
_LEAST_AMAX = 2.0**-100
_BLOCK = 4096  # elements that a program casts back
_ROWS = 64  # of a head, for one program: 16 KiB of 16-bit elements at head_dim 128


@triton.jit  # type: ignore[untyped-decorator]
def _offsets(
    seq_len: tl.tensor, HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr
) -> tl.tuple:
    """Return where this program's rows of its head lie, `[ROWS, D]`, and which of them exist."""
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, D)
    token = tl.program_id(2).to(tl.int64) * seq_len + row
    offsets = (token[:, None] * HEADS + tl.program_id(0)) * HEAD_DIM + column[None, :]
    return offsets, (row[:, None] < seq_len) & (column[None, :] < HEAD_DIM)


@triton.jit  # type: ignore[untyped-decorator]
def quantize_per_head_amax_kernel(
    x_pointer: tl.tensor,  # [batch, seq_len, heads, head_dim], contiguous
    amax_pointer: tl.tensor,  # [batch, heads, blocks], float32
    seq_len: tl.tensor,
    HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    ROWS: tl.constexpr,
    D: tl.constexpr,  # head_dim, rounded up to a power of two
) -> None:
    """Write the largest magnitude of ROWS rows of one head. Grid: heads, blocks, batch."""
    offsets, exists = _offsets(seq_len, HEADS, HEAD_DIM, ROWS, D)
    x = tl.load(x_pointer + offsets, mask=exists, other=0.0).to(tl.float32)
    amax = tl.max(tl.max(tl.abs(x), 1), 0)
    head = tl.program_id(2) * HEADS + tl.program_id(0)
    tl.store(amax_pointer + head * tl.num_programs(1) + tl.program_id(1), amax)


@triton.jit  # type: ignore[untyped-decorator]
def quantize_per_head_cast_kernel(
    x_pointer: tl.tensor,  # [batch, seq_len, heads, head_dim], contiguous
    amax_pointer: tl.tensor,  # [batch, heads, blocks], float32
    x8_pointer: tl.tensor,  # [batch, seq_len, heads, head_dim], contiguous, float8_e4m3fn
    descale_pointer: tl.tensor,  # [batch, heads / SHARE], float32
    seq_len: tl.tensor,
    HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    SHARE: tl.constexpr,  # neighbouring heads that have one scale
    LARGEST: tl.constexpr,
    LEAST_AMAX: tl.constexpr,
    ROWS: tl.constexpr,
    D: tl.constexpr,
    CHUNK: tl.constexpr,  # magnitudes that are read at once
) -> None:
    """Scale and cast ROWS rows of one head; the first block of a scale's first head writes the scale."""
    offsets, exists = _offsets(seq_len, HEADS, HEAD_DIM, ROWS, D)
    x = tl.load(x_pointer + offsets, mask=exists, other=0.0).to(tl.float32)
    group = tl.program_id(2) * (HEADS // SHARE) + tl.program_id(0) // SHARE
    count = SHARE * tl.num_programs(1)  # whose magnitudes lie side by side
    amaxes = tl.zeros([CHUNK], tl.float32)
    for start in range(0, count, CHUNK):
        index = start + tl.arange(0, CHUNK)
        amaxes = tl.maximum(amaxes, tl.load(amax_pointer + group * count + index, mask=index < count, other=0.0))
    amax = tl.maximum(tl.max(amaxes, 0), LEAST_AMAX)
    tl.store(x8_pointer + offsets, (x * (LARGEST / amax)).to(x8_pointer.dtype.element_ty), mask=exists)
    if (tl.program_id(1) == 0) & (tl.program_id(0) % SHARE == 0):
        tl.store(descale_pointer + group, amax / LARGEST)


def quantize_per_head(x: torch.Tensor, share: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `(x8, descale)` with x ~= x8 * descale, head by head.

    x:       [batch, seq_len, heads, head_dim], bfloat16 or float16, contiguous, on a GPU of compute capability 8.9 or
             newer or on a CPU
    share:   neighbouring heads that have one scale: heads / kv_heads for the queries of grouped heads, or heads for
             one scale a batch entry; divides heads
    x8:      [batch, seq_len, heads, head_dim], float8_e4m3fn, contiguous
    descale: [batch, heads / share], float32, over 0 and finite where x is

    Raises `ValueError` for other inputs.
    """
    _check(x, share)
    batch, seq_len, heads, head_dim = x.shape
    if not x.is_cuda and not triton.knobs.runtime.interpret:
        return _quantize_in_torch(x, share)
    x8 = torch.empty_like(x, dtype=torch.float8_e4m3fn)
    descale = torch.empty((batch, heads // share), dtype=torch.float32, device=x.device)
    blocks = triton.cdiv(seq_len, _ROWS)
    amax = torch.empty((batch, heads, blocks), dtype=torch.float32, device=x.device)
    grid = (heads, blocks, batch)  # neighbours read neighbouring heads of the same tokens, which lie side by side
    sizes = {"HEADS": heads, "HEAD_DIM": head_dim, "ROWS": _ROWS, "D": triton.next_power_of_2(head_dim)}
    with torch.cuda.device_of(x):
        quantize_per_head_amax_kernel[grid](x, amax, seq_len, **sizes)
        quantize_per_head_cast_kernel[grid](
            x, amax, x8, descale, seq_len, SHARE=share, LARGEST=FLOAT8_MAX, LEAST_AMAX=_LEAST_AMAX, CHUNK=128, **sizes
        )
    return x8, descale


@triton.jit  # type: ignore[untyped-decorator]
def dequantize_kernel(
    x8_pointer: tl.tensor,  # float8_e4m3fn
    descale_pointer: tl.tensor,  # one float32
    x_pointer: tl.tensor,  # of 16 bits
    count: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """Cast and scale BLOCK elements."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x8_pointer + offsets, mask=offsets < count, other=0.0).to(tl.float32) * tl.load(descale_pointer)
    tl.store(x_pointer + offsets, x.to(x_pointer.dtype.element_ty), mask=offsets < count)


def dequantize(x8: torch.Tensor, descale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return x8 * descale, rounded once.

    x8:      float8_e4m3fn, contiguous, of any shape
    descale: float32, one element
    result:  bfloat16 or float16 as `dtype` says, contiguous, of the shape of x8

    Raises `ValueError` for another dtype.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype must be bfloat16 or float16, got {dtype}; cast the result")
    if not x8.is_cuda and not triton.knobs.runtime.interpret:
        return (x8.float() * descale.view(())).to(dtype)
    x = torch.empty_like(x8, dtype=dtype)
    with torch.cuda.device_of(x8):
        dequantize_kernel[(triton.cdiv(x8.numel(), _BLOCK),)](x8, descale, x, x8.numel(), BLOCK=_BLOCK)
    return x


def _quantize_in_torch(x: torch.Tensor, share: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Do what the kernels do, in float32."""
    amax = x.float().abs().amax(dim=(1, 3)).unflatten(1, (-1, share)).amax(dim=2).clamp_min(_LEAST_AMAX)
    scale = (FLOAT8_MAX / amax).repeat_interleave(share, dim=1)
    return (x.float() * scale[:, None, :, None]).to(torch.float8_e4m3fn), amax / FLOAT8_MAX


def _check(x: torch.Tensor, share: int) -> None:
    if x.ndim != 4 or 0 in x.shape:
        raise ValueError(
            f"x must be [batch, seq_len, heads, head_dim] with no empty dimension, got {list(x.shape)}; reshape it"
        )
    if x.dtype not in DTYPES:
        raise ValueError(f"x must be bfloat16 or float16, got {x.dtype}; cast it")
    if not x.is_contiguous():
        raise ValueError(f"x must be contiguous, got strides {list(x.stride())}; call contiguous() on it")
    if share < 1 or x.shape[2] % share:
        raise ValueError(f"share must divide the heads of x, {x.shape[2]}, got {share}; pass heads / kv_heads")
