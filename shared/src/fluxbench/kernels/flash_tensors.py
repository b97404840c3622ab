"""The tensors of the flash attention kernels: what they must be, and how kernels read and write their rows."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from fluxbench.kernels.flash_launch import unchecked

HEAD_DIMS = (16, 32, 64, 128)
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
SUMS = tl.constexpr(tl.float32)  # of matrix products, of the softmax and of gradients; a test of derivatives widens it
_TMA_ALIGNMENT_BYTES = 16  # of a tensor's address and strides: CUDA driver API, cuTensorMapEncodeTiled
MAX_ROW_STRIDE = 2**24  # elements: the offsets within a block of at most 128 rows then fit in int32
_OfHeadDim = TypeVar("_OfHeadDim")


@triton.jit  # type: ignore[untyped-decorator]
def load_rows(
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
def store_rows(
    target: tl.tensor,
    block: tl.tensor,
    batch: tl.tensor,
    head: tl.tensor,
    start: tl.tensor,
    length: tl.tensor,
    HEADS: tl.constexpr,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DESCRIPTORS: tl.constexpr,
) -> None:
    """Store `[ROWS, HEAD_DIM]` from row `start` of one head of a contiguous tensor; rows past `length` are dropped."""
    if DESCRIPTORS:
        target.store([batch, head, start, 0], block.reshape([1, 1, ROWS, HEAD_DIM]))
    else:
        row = tl.arange(0, ROWS)
        first = target + ((batch.to(tl.int64) * length + start) * HEADS + head) * HEAD_DIM
        pointers = first + row[:, None] * (HEADS * HEAD_DIM) + tl.arange(0, HEAD_DIM)[None, :]
        tl.store(pointers, block, mask=(start + row)[:, None] < length)


@triton.jit  # type: ignore[untyped-decorator]
def exponents_of(scores: tl.tensor, lse: tl.tensor) -> tl.tensor:
    """Return scores - lse in the dtype of the scores; of an lse in float64 nothing is rounded away."""
    if lse.dtype == tl.float64:
        rounded = lse.to(scores.dtype)
        exponents = scores - rounded - (lse - rounded).to(scores.dtype)
    else:
        exponents = scores - lse
    return exponents


def of_device(
    table: Mapping[tuple[int, int], Mapping[int, _OfHeadDim]], compute_capability: tuple[int, int], head_dim: int
) -> _OfHeadDim:
    """Return what a table has for a device: that of the newest compute capability in it which the device has.

    A table has entries for head_dim 64 and 128; those of 16 and 32 are the ones of 64.
    """
    known = [capability for capability in table if capability <= compute_capability]
    if not known:
        raise ValueError(
            f"the device of q must have compute capability 8.0 or newer, got {compute_capability}; use an Ampere GPU "
            "or newer"
        )
    return table[max(known)][max(head_dim, 64)]


def lse_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of the log-sum-exp for inputs of a dtype: float64 for float32, else float32.

    Where scores are large, rounding it to float32 would err more than all else that happens to a weight in float32: at
    87 = 60 * log2(e) by up to 2.6e-6 of the weight.
    """
    return torch.float64 if dtype == torch.float32 else torch.float32


def input_precision(tf32: bool) -> str:
    """Return how Triton multiplies float32 (`tl.dot`'s `input_precision`): in TF32 where allowed, else by IEEE 754."""
    return "tf32" if tf32 else "ieee"


@functools.cache
def capability_of_device(device: torch.device) -> tuple[int, int]:
    """Return the compute capability of a GPU, kept for the process: torch takes some microseconds for it."""
    major, minor = torch.cuda.get_device_capability(device)
    return major, minor


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """Return the number of multiprocessors of a GPU, likewise."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def cdiv(of: int, by: int) -> int:
    """Return of / by, rounded up. On the host `triton.cdiv` takes 2 us, and launches need ten of them."""
    return -(-of // by)


def compute_capability_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the compute capability of a tensor's device. Raises `ValueError` where Triton has no kernel for it."""
    if tensor.is_cuda and torch.version.hip is None:
        return capability_of_device(tensor.device)
    if tensor.device.type == "cpu" and triton.knobs.runtime.interpret:
        return (9, 0)  # the interpreter runs every path of the kernel
    raise ValueError(f"q must be on an NVIDIA GPU, got {tensor.device}; move q, k and v there")


def check(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool, scale: float | None) -> None:
    """Raise `ValueError` where the kernels would not compute what was asked."""
    dtype, device = q.dtype, q.device
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        shape, stride = tensor.shape, tensor.stride()
        if len(shape) != 4 or 0 in shape:
            raise ValueError(
                f"{name} must be [batch, seq_len, heads, head_dim] with no empty dimension, got {list(shape)}; "
                "reshape it"
            )
        if tensor.dtype != dtype or dtype not in DTYPES:
            raise ValueError(
                f"{name} must be bfloat16, float16 or float32, the same for q, k and v, got {tensor.dtype} and q "
                f"{dtype}; cast all three"
            )
        if tensor.device != device:
            raise ValueError(f"{name} must be on the device of q, {device}, got {tensor.device}; move it there")
        if stride[3] != 1:
            raise ValueError(
                f"{name} must be contiguous in head_dim, got a stride of {stride[3]}; call contiguous() on it"
            )
        if stride[1] >= MAX_ROW_STRIDE:
            raise ValueError(
                f"{name} must have a stride of seq_len under 2**24 elements, got {stride[1]}; call contiguous() on it"
            )
    batch, _, heads, head_dim = q.shape
    if head_dim not in HEAD_DIMS:
        raise ValueError(f"head_dim must be 16, 32, 64 or 128, got {head_dim}; use another kernel")
    if k.shape != v.shape:
        raise ValueError(f"k and v must have one shape, got {list(k.shape)} and {list(v.shape)}; pass matching ones")
    if (k.shape[0], k.shape[3]) != (batch, head_dim):
        raise ValueError(
            f"k must have the batch and head_dim of q, {batch} and {head_dim}, got {k.shape[0]} and {k.shape[3]}; "
            "pass matching ones"
        )
    if heads % k.shape[2]:
        raise ValueError(f"kv_heads must divide the heads of q, {heads}, got {k.shape[2]}; repeat k and v")
    if causal and q.shape[1] > k.shape[1]:
        raise ValueError(
            f"a causal q must have no more tokens than k, got {q.shape[1]} and {k.shape[1]}; "
            "its first tokens would have no key"
        )
    if scale is not None and not 0 < scale < math.inf:  # the largest score must stay the largest
        raise ValueError(f"scale must be over 0 and finite, got {scale}; negate q for a negative one")


def walked_strides(tensor: torch.Tensor) -> list[int]:
    """Return the strides as [batch, heads, seq_len, head_dim], in elements. Those of dimensions of one are free."""
    batch, seq_len, heads, head_dim = tensor.shape
    of_batch, of_row, of_head, of_element = tensor.stride()
    return [
        of_batch if batch > 1 else head_dim,
        of_head if heads > 1 else head_dim,
        of_row if seq_len > 1 else head_dim,
        of_element,
    ]


def fits_descriptor(tensor: torch.Tensor) -> bool:
    """Say whether the TMA unit can walk the tensor: an aligned address, and aligned strides that are not zero."""
    first, second, third, _ = walked_strides(tensor)
    together = first | second | third  # a multiple of a power of two if all of them are
    return (
        tensor.data_ptr() % _TMA_ALIGNMENT_BYTES == 0
        and min(first, second, third) > 0
        and together * tensor.element_size() % _TMA_ALIGNMENT_BYTES == 0
    )


def descriptor(tensor: torch.Tensor, rows: int) -> Any:
    """Describe `[batch, seq_len, heads, head_dim]` as [batch, heads, seq_len, head_dim], in blocks of rows of a head.

    Only leading dimensions of one vanish in a load without a copy, hence the order.
    """
    batch, seq_len, heads, head_dim = tensor.shape
    fields = {"base": tensor, "shape": [batch, heads, seq_len, head_dim], "strides": walked_strides(tensor)}
    return unchecked(TensorDescriptor, **fields, block_shape=[1, 1, rows, head_dim])
