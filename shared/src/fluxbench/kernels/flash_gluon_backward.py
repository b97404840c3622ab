"""The backward pass of flash attention in Gluon, Triton's lower level, for NVIDIA GPUs of compute capability 9.0.

`flash_backward.py` has the formulas. A first kernel computes delta, the sum of dout * out. In the second, a program
owns 128 keys of a head: one warp loads with the TMA unit, and two warpgroups of 64 keys each compute. They keep dk and
dv in registers over all queries of all heads that share the keys. P and dS are transposed there, so that they go from
the product that makes them to the next one without leaving their registers. dS also goes through shared memory, where
the two warpgroups share it: each of them multiplies half of dq. This is the design of FlashAttention-3's backward pass
(Shah et al., 2024).

Many programs give to one row of dq. They add to sums in float32, and a third kernel rounds these. The order of adding
is not fixed, so that dq differs in its last bits from call to call; dk and dv do not. With `deterministic` the second
kernel leaves dq out, which takes four products instead of five, and the Triton kernel for dq computes it by three.

Without a mask, tiles of keys after the last round in which every multiprocessor has one are split along the queries.
Their parts of dk and dv are kept in float32, at most 128 KiB for each of four times the multiprocessors, and a last
kernel adds them in one order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import triton
from triton.experimental.gluon.language import NVMMASharedLayout
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from fluxbench.kernels.flash_backward import check_gradient, flash_backward
from fluxbench.kernels.flash_gluon import describe, unsupported
from fluxbench.kernels.flash_gluon_backward_kernel import gluon_backward_kernel
from fluxbench.kernels.flash_gluon_backward_sums import (
    gluon_backward_dq_kernel,
    gluon_backward_parts_kernel,
    gluon_backward_rows_kernel,
)
from fluxbench.kernels.flash_tensors import check, fits_descriptor

_KEYS = 128  # of a program
_ROWS = 64  # of a warpgroup
# Estimates, in blocks of queries: what a program takes at its ends, and what adding parts takes.
_COST_OF_A_PART = 2
_COST_OF_SPLITTING = 6
_MOST_PARTS = 4
_OF_ROWS = NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=32, rank=2)  # made once: it takes 30 us
_OF_SUMS = NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=32, rank=2)


@dataclass(frozen=True, kw_only=True)
class Tiling:
    """How the work is cut."""

    block_m: int = 64  # queries of a block; 128 only at head_dim 64
    stages: int = 2  # buffers of q, and of dout
    tma_adds: bool = True  # add to dq by the TMA unit, from shared memory; else by atomic additions, from registers
    dv_first: bool = False  # start the product of dv before dS is computed
    dk_first: bool = False  # start the product of dk before that of dq
    at_once: int = 8  # heads of k and v whose programs come by the block of keys; only if causal
    split: bool = True  # share out the queries of the tiles after the last full round of programs; not if causal
    programs: int | None = None  # at once, which splitting goes by; None: one a multiprocessor


TILINGS = {64: Tiling(block_m=128), 128: Tiling()}  # by head_dim; not measured yet


def gluon_backward(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    of_q: bool = True,
    of_kv: bool = True,
    deterministic: bool = False,
    tiling: Tiling | None = None,
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """Return dq, dk and dv, of the shapes and the dtype of q, k and v, contiguous.

    dout:     [batch, seq_len_q, heads, head_dim], the gradient of `out`, of q's dtype; any strides
    q, k, v:  as `gluon_forward` takes them
    out, lse: what `gluon_forward_with_lse` or `flash_forward_with_lse` returned for q, k, v, `causal` and `scale`
    scale:    of the scores; 1 / sqrt(head_dim) by default
    of_q:     compute dq; else it is None
    of_kv:    compute dk and dv; else they are None, and the Triton kernel computes dq
    deterministic: the same inputs give the same bits of dq too; by default only of dk and dv
    tiling:   how the work is cut

    The sums of dq take 4 * batch * heads * seq_len_q * head_dim bytes. Raises `ValueError` for other inputs and other
    GPUs.
    """
    check(q, k, v, causal=causal, scale=scale)
    check_gradient(dout, q, out, lse)
    if reason := unsupported(q, k, v):
        raise ValueError(reason)
    batch, seq_len_q, heads, head_dim = q.shape
    _, seq_len_k, kv_heads, _ = k.shape
    tiling = tiling or TILINGS[head_dim]
    if tiling.block_m != _ROWS and (tiling.block_m, head_dim) != (2 * _ROWS, 64):
        raise ValueError(
            f"block_m must be 64, or 128 at head_dim 64, got {tiling.block_m} at {head_dim}; pass another tiling"
        )
    if dout.stride(3) != 1 or not fits_descriptor(dout):  # such as the gradient of a sum, one element expanded
        dout = dout.contiguous()
    dq = dk = dv = None
    if of_q and (deterministic or not of_kv):
        dq = flash_backward(dout, q, k, v, out, lse, causal=causal, scale=scale, of_kv=False)[0]
    if not of_kv:
        return dq, dk, dv
    scale = 1 / math.sqrt(head_dim) if scale is None else scale
    scale_log2 = math.log2(math.e) * scale
    block_m = tiling.block_m
    blocks_m, pairs = triton.cdiv(seq_len_q, block_m), batch * heads
    rows = torch.empty((pairs * blocks_m * 2, block_m), dtype=torch.float32, device=q.device)
    dk, dv = (torch.empty(k.shape, dtype=k.dtype, device=k.device) for _ in "kv")
    sums = None
    if of_q and not deterministic:
        sums = torch.empty((pairs * blocks_m * block_m * head_dim // 32, 32), dtype=torch.float32, device=q.device)
        dq = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    tiles = triton.cdiv(seq_len_k, _KEYS) * batch * kv_heads
    whole, parts = tiles, 1
    if tiling.split and not causal:
        programs = tiling.programs or torch.cuda.get_device_properties(q.device).multi_processor_count
        parts = _parts(tiles % programs, blocks_m, heads // kv_heads, programs)
        whole = tiles - tiles % programs if parts > 1 else tiles
    split = tiles - whole
    kept = torch.empty((split, parts, 2, _KEYS, head_dim), dtype=torch.float32, device=q.device) if split else None
    by_tma = sums is not None and tiling.tma_adds
    with torch.cuda.device_of(q):
        gluon_backward_rows_kernel[(pairs * blocks_m,)](
            out,
            dout,
            lse,
            rows,
            sums,
            seq_len_q,
            heads,
            *dout.stride()[:3],
            scale_log2,
            HEAD_DIM=head_dim,
            BLOCK_M=block_m,
            num_warps=4,
        )
        gluon_backward_kernel[(whole + split * parts,)](
            describe(q, block_m),
            describe(k, _KEYS),
            describe(v, _KEYS),
            describe(dout, block_m),
            describe(dk, _ROWS),
            describe(dv, _ROWS),
            _describe_lines(rows, 1, _OF_ROWS),
            _describe_lines(sums, block_m * head_dim // 64, _OF_SUMS) if by_tma else None,
            None if by_tma else sums,
            kept,
            seq_len_q,
            seq_len_k,
            blocks_m,
            batch * kv_heads,
            kv_heads,
            heads // kv_heads,
            tiling.at_once if causal else 1,
            whole,
            parts,
            scale,
            scale_log2,
            HEAD_DIM=head_dim,
            BLOCK_M=block_m,
            STAGES=tiling.stages,
            RAGGED=seq_len_k % _KEYS != 0 and not causal,
            CAUSAL=causal,
            DV_FIRST=tiling.dv_first,
            DK_FIRST=tiling.dk_first,
            num_warps=4,
        )
        if kept is not None:
            gluon_backward_parts_kernel[(2 * split,)](
                kept, dk, dv, seq_len_k, kv_heads, whole, parts, scale, HEAD_DIM=head_dim, num_warps=4
            )
        if sums is not None:
            gluon_backward_dq_kernel[(pairs * blocks_m * 2,)](
                sums, dq, seq_len_q, heads, scale, HEAD_DIM=head_dim, BLOCK_M=block_m, num_warps=4
            )
    return dq, dk, dv


def _parts(tiles: int, blocks_m: int, group: int, programs: int) -> int:
    """Return into how many parts to split each of the tiles after the last full round; 1 if splitting does not pay.

    The time is counted in blocks of queries, as the rounds of programs that the parts take.
    """
    counts = range(1, min(_MOST_PARTS, blocks_m) + 1)
    times = {
        count: triton.cdiv(tiles * count, programs) * (triton.cdiv(blocks_m, count) * group + _COST_OF_A_PART)
        + (_COST_OF_SPLITTING if count > 1 else 0)
        for count in counts
    }
    return min(counts, key=lambda count: times[count])


def _describe_lines(tensor: Any, lines: int, layout: Any) -> Any:
    """Describe a contiguous matrix, in blocks of whole lines."""
    return TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), [lines, tensor.shape[1]], layout)
