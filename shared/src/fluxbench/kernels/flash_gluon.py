"""Forward flash attention in Gluon, Triton's lower level: exact, for NVIDIA GPUs of compute capability 9.0.

One program a multiprocessor computes tiles of 128 query rows. In it one warp loads with the TMA unit, and two
warpgroups of 64 rows each compute; barriers in shared memory (mbarriers) say which buffers are full and which are
empty. This is the design of FlashAttention-3 (Shah et al., 2024), and so is what a warpgroup does: the product of a
block's weights with V runs on the tensor cores while the softmax of the next block is taken.

Without a mask, tiles after the last round in which every program has one are split along the keys, in one order of
adding: Stream-K (Osama et al., 2023) for the last round alone. Their parts need up to 18 MB on 132 multiprocessors.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import torch
from triton.experimental.gluon.language import NVMMASharedLayout
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from fluxbench.kernels.flash_gluon_kernel import gluon_forward_kernel
from fluxbench.kernels.flash_launch import launch, unchecked
from fluxbench.kernels.flash_tensors import (
    capability_of_device,
    cdiv,
    check,
    fits_descriptor,
    multiprocessors,
    walked_strides,
)

HEAD_DIMS = (64, 128)
DTYPES = (torch.bfloat16, torch.float16)
COMPUTE_CAPABILITY = (9, 0)
_LAYOUT = NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=4)  # made once: it takes 30 us
_ROWS = 64  # of a consumer
_CONSUMERS = 2
_BLOCK_N = 128  # keys of a block
# Estimates: parts of a tile, about; and what parts must save at least, in blocks of keys.
_MOST_PARTS = 8
_COST_OF_PARTS = 4


@dataclass(frozen=True, kw_only=True)
class Tiling:
    """How the work is cut."""

    programs: int | None = None  # at once; None: one a multiprocessor
    split: bool = True  # share out the keys of the tiles after the last full round; not if causal


def gluon_forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    tiling: Tiling | None = None,
    checked: bool = False,
) -> torch.Tensor:
    """Return softmax(q @ k.T * scale) @ v, head by head.

    q:      [batch, seq_len_q, heads, head_dim], bfloat16 or float16; head_dim 64 or 128, contiguous; other strides
            multiples of 16 bytes, as is the address
    k, v:   [batch, seq_len_k, kv_heads, head_dim], of the same dtype; kv_heads divides heads
    causal: mask the keys after each query, aligned to the end: the last query sees all keys
    scale:  of the scores, over 0; 1 / sqrt(head_dim) by default
    tiling: how the work is cut
    checked: `check` and `unsupported` have accepted the tensors
    result: [batch, seq_len_q, heads, head_dim], contiguous, of the same dtype

    Raises `ValueError` for other inputs and other GPUs.
    """
    return _launch(q, k, v, causal, scale, tiling, checked, with_lse=False)[0]


def gluon_forward_with_lse(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    tiling: Tiling | None = None,
    checked: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the same, and what its gradient needs: the log-sum-exp of each query's scores, to the base 2.

    It is log2(sum(exp(q @ k.T * scale))), [batch, heads, seq_len_q], float32.
    """
    out, lse = _launch(q, k, v, causal, scale, tiling, checked, with_lse=True)
    assert lse is not None
    return out, lse


def unsupported(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> str | None:
    """Return why the kernel does not take these tensors, which `check` accepts, or None."""
    if q.dtype not in DTYPES:
        return f"q must be bfloat16 or float16, got {q.dtype}; use the Triton kernel"
    if q.shape[3] not in HEAD_DIMS:
        return f"head_dim must be 64 or 128, got {q.shape[3]}; use the Triton kernel"
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not fits_descriptor(tensor):
            return (
                f"{name} must have an address and strides that are multiples of 16 bytes and no stride of zero, got "
                f"strides of {tensor.stride()} elements; call contiguous() on it"
            )
    if not q.is_cuda or torch.version.hip or capability_of_device(q.device) != COMPUTE_CAPABILITY:
        return f"q must be on a GPU of compute capability 9.0, got {q.device}; use the Triton kernel"
    return None


def _launch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    scale: float | None,
    tiling: Tiling | None,
    checked: bool,
    *,
    with_lse: bool,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    if not checked:
        check(q, k, v, causal=causal, scale=scale)
        if reason := unsupported(q, k, v):
            raise ValueError(reason)
    tiling = tiling or Tiling()
    batch, seq_len_q, heads, head_dim = q.shape
    _, seq_len_k, kv_heads, _ = k.shape
    group = heads // kv_heads
    out = q.new_empty((batch, seq_len_q, heads, head_dim))
    lse = q.new_empty((batch, heads, seq_len_q), dtype=torch.float32) if with_lse else None
    blocks_m, blocks_n = cdiv(seq_len_q, _ROWS * _CONSUMERS), cdiv(seq_len_k, _BLOCK_N)
    programs = tiling.programs or multiprocessors(q.device)
    tiles = blocks_m * batch * heads
    programs, share, parts, arrivals = split_tiles(q, tiles, blocks_n, programs, split=tiling.split and not causal)
    with torch.cuda.device_of(q):
        launch(
            gluon_forward_kernel,
            (q.device, q.dtype),
            programs,
            (
                describe(q, _ROWS),
                describe(k, _BLOCK_N),
                describe(v, _BLOCK_N),
                describe(out, _ROWS),
                lse,
                parts,
                arrivals,
                seq_len_q,
                seq_len_k,
                blocks_m,
                batch * heads,
                heads,
                group,
                share,
                math.log2(math.e) * (1 / math.sqrt(head_dim) if scale is None else float(scale)),
            ),
            {"HEAD_DIM": head_dim, "BLOCK_N": _BLOCK_N, "CONSUMERS": _CONSUMERS, "CAUSAL": causal},
            num_warps=4,
        )
    return out, lse


def split_tiles(
    q: torch.Tensor, tiles: int, blocks_n: int, programs: int, *, split: bool
) -> tuple[int, int, torch.Tensor | None, torch.Tensor | None]:
    """Return how many programs a persistent grid has, `share_of` its last tiles, and what their parts need.

    Those are memory, [programs, 2, consumers, ...], float32, and counters of the parts that were written,
    [split tiles, consumers], int32. There are at most `programs` programs; a tile is 128 queries of a head, and its
    keys are `blocks_n` blocks.
    """
    share = share_of(tiles % programs, blocks_n, programs) if split else 0
    if not share:
        return min(programs, tiles), 0, None, None
    if tiles < programs:  # all of them are split
        programs = cdiv(tiles * blocks_n, share)
    parts = q.new_empty((programs, 2, _CONSUMERS, _ROWS * (q.shape[3] + 2)), dtype=torch.float32)
    return programs, share, parts, q.new_zeros((tiles % programs, _CONSUMERS), dtype=torch.int32)


@functools.cache
def share_of(tiles: int, blocks_n: int, programs: int) -> int:
    """Return how many blocks of keys of the last tiles each program computes, or 0 if splitting them does not pay.

    Each part has a start and an end, and is written and read once more; a tile of many parts is read by one program.
    """
    share = max(cdiv(tiles * blocks_n, programs), cdiv(blocks_n, _MOST_PARTS))
    return share if tiles and share + _COST_OF_PARTS <= blocks_n else 0


def describe(tensor: torch.Tensor, rows: int, layout: Any = _LAYOUT) -> Any:
    """Describe `[batch, seq_len, heads, head_dim]` as [batch, heads, seq_len, head_dim], in blocks of rows of a head.

    So the TMA unit knows where a sequence ends: past it a load is zeros, and a store writes nothing.
    """
    batch, seq_len, heads, head_dim = tensor.shape
    return descriptor_of(
        tensor, [batch, heads, seq_len, head_dim], walked_strides(tensor), [1, 1, rows, head_dim], layout
    )


def descriptor_of(tensor: torch.Tensor, shape: list[int], strides: list[int], block: list[int], layout: Any) -> Any:
    """Describe a tensor that `fits_descriptor` accepts."""
    fields = {"base": tensor, "shape": shape, "strides": strides, "block_shape": block, "layout": layout}
    return unchecked(TensorDescriptor, **fields)
