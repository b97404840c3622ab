"""The backward pass of flash attention in Gluon, Triton's lower level, for NVIDIA GPUs of compute capability 9.0.

`flash_backward.py` has the formulas. A first kernel computes delta, the sum of dout * out. In the second, a program
owns 128 keys of a head: one warp loads with the TMA unit, and two warpgroups of 64 keys each compute. They keep dk and
dv in registers over all queries of all heads that share the keys. P and dS are transposed there, so that they go from
the product that makes them to the next one without leaving their registers. dS also goes through shared memory, where
the two warpgroups share it: each of them multiplies half of dq. This is the design of FlashAttention-3's backward pass
(Shah et al., 2024).

Many programs give to one row of dq. They add to sums in float32, and a third kernel rounds these. The order of adding
is not fixed, so that dq differs in its last bits from call to call; dk and dv do not. With `deterministic` the second
kernel leaves dq out, which takes four products instead of five, and another one, of 128 queries a program, computes dq
by three.

Without a mask, tiles of keys after the last round in which every multiprocessor has one are split along the queries.
Their parts of dk and dv are kept in float32, at most 128 KiB for each of four times the multiprocessors, and the third
kernel adds them in one order.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import torch
from triton.experimental.gluon.language import NVMMASharedLayout

from fluxbench.kernels.flash_backward import check_gradient
from fluxbench.kernels.flash_gluon import describe, descriptor_of, unsupported
from fluxbench.kernels.flash_gluon_backward_kernel import gluon_backward_kernel
from fluxbench.kernels.flash_gluon_backward_queries import gluon_backward_queries_kernel
from fluxbench.kernels.flash_gluon_backward_sums import (
    gluon_backward_end_kernel,
    gluon_backward_rows_kernel,
)
from fluxbench.kernels.flash_launch import launch
from fluxbench.kernels.flash_tensors import cdiv, check, fits_descriptor, multiprocessors

_OF_PROGRAM = 128  # keys, or of the kernel for dq alone queries
_ROWS = 64  # of a warpgroup
_SHARES = 8  # programs that add the parts of a tile
_STAGES = 2  # buffers of q, and of dout
_STAGES_OF_QUERIES = 4  # of the kernel for dq alone: buffers of k, and of v
# Estimates, in blocks of queries: what a program takes at its ends, and what adding parts takes.
_COST_OF_A_PART = 2
_COST_OF_SPLITTING = 6
_MOST_PARTS = 4
_OF_ROWS = NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=32, rank=2)  # made once: it takes 30 us
_OF_SUMS = NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=32, rank=2)


@dataclass(frozen=True, kw_only=True)
class Tiling:
    """How the work is cut."""

    split: bool = True  # share out the queries of the tiles after the last full round of programs; not if causal
    programs: int | None = None  # at once, which splitting goes by; None: one a multiprocessor


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
    checked: bool = False,
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """Return dq, dk and dv, of the shapes and the dtype of q, k and v, contiguous.

    dout:     [batch, seq_len_q, heads, head_dim], the gradient of `out`, of q's dtype; any strides
    q, k, v:  as `gluon_forward` takes them
    out, lse: what `gluon_forward_with_lse` or `flash_forward_with_lse` returned for q, k, v, `causal` and `scale`
    scale:    of the scores; 1 / sqrt(head_dim) by default
    of_q:     compute dq; else it is None
    of_kv:    compute dk and dv; else they are None
    deterministic: the same inputs give the same bits of dq too; by default only of dk and dv
    tiling:   how the work is cut
    checked:  `check`, `check_gradient` and `unsupported` have accepted the tensors

    The sums of dq take 4 * batch * heads * seq_len_q * head_dim bytes. Raises `ValueError` for other inputs and other
    GPUs.
    """
    if not checked:
        check(q, k, v, causal=causal, scale=scale)
        check_gradient(dout, q, out, lse)
        if reason := unsupported(q, k, v):
            raise ValueError(reason)
    batch, seq_len_q, heads, head_dim = q.shape
    tiling = tiling or Tiling()
    if dout.stride(3) != 1 or not fits_descriptor(dout):  # such as the gradient of a sum, one element expanded
        dout = dout.contiguous()
    scale = 1 / math.sqrt(head_dim) if scale is None else float(scale)
    block_m = _block_m(head_dim)
    lines = batch * heads * cdiv(seq_len_q, block_m)
    rows = q.new_empty((lines * 2, block_m), dtype=torch.float32)
    dq = q.new_empty(q.shape) if of_q else None
    dk, dv = (k.new_empty(k.shape) if of_kv else None for _ in "kv")
    sums = None
    if of_q and of_kv and not deterministic:
        sums = q.new_empty((lines * block_m * head_dim // 32, 32), dtype=torch.float32)
    with torch.cuda.device_of(q):
        launch(
            gluon_backward_rows_kernel,
            (q.device, q.dtype, *dout.stride()[:3]),
            lines,
            (
                out,
                dout,
                lse,
                rows,
                sums,
                seq_len_q,
                heads,
                *dout.stride()[:3],
                math.log2(math.e) * scale,
            ),
            {"HEAD_DIM": head_dim, "BLOCK_M": block_m},
            num_warps=4,
        )
        if dk is not None and dv is not None:
            _launch_keys(q, k, v, dout, rows, sums, dq, dk, dv, causal, scale, tiling)
        if dq is not None and sums is None:
            _launch_queries(q, k, v, dout, rows, dq, causal, scale)
    return dq, dk, dv


def _launch_keys(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor,
    rows: torch.Tensor,
    sums: torch.Tensor | None,
    dq: torch.Tensor | None,
    dk: torch.Tensor,
    dv: torch.Tensor,
    causal: bool,
    scale: float,
    tiling: Tiling,
) -> None:
    """Write dk and dv, and dq if there is memory for its sums."""
    batch, seq_len_q, heads, head_dim = q.shape
    _, seq_len_k, kv_heads, _ = k.shape
    block_m, group = _block_m(head_dim), heads // kv_heads
    blocks_m = cdiv(seq_len_q, block_m)
    tiles = cdiv(seq_len_k, _OF_PROGRAM) * batch * kv_heads
    whole, parts = tiles, 1
    if tiling.split and not causal:
        programs = tiling.programs or multiprocessors(q.device)
        parts = _parts(tiles % programs, blocks_m, group, programs)
        whole = tiles - tiles % programs if parts > 1 else tiles
    split = tiles - whole
    of_part = (2, _OF_PROGRAM, head_dim)
    kept = q.new_empty((split, parts, *of_part), dtype=torch.float32) if split else None
    launch(
        gluon_backward_kernel,
        (q.device, q.dtype),
        whole + split * parts,
        (
            describe(q, block_m),
            describe(k, _OF_PROGRAM),
            describe(v, _OF_PROGRAM),
            describe(dout, block_m),
            describe(dk, _ROWS),
            describe(dv, _ROWS),
            _describe_lines(rows, 1, _OF_ROWS),
            None if sums is None else _describe_lines(sums, _OF_PROGRAM, _OF_SUMS),
            kept,
            seq_len_q,
            seq_len_k,
            blocks_m,
            batch * kv_heads,
            kv_heads,
            group,
            _at_once(head_dim) if causal else 1,
            whole,
            parts,
            scale,
            math.log2(math.e) * scale,
        ),
        {
            "HEAD_DIM": head_dim,
            "BLOCK_M": block_m,
            "STAGES": _STAGES,
            "RAGGED": seq_len_k % _OF_PROGRAM != 0 and not causal,
            "CAUSAL": causal,
        },
        num_warps=4,
    )
    chunks = 0 if sums is None else 2 * batch * heads * blocks_m
    if chunks or split:
        launch(
            gluon_backward_end_kernel,
            (q.device, q.dtype),
            split * _SHARES + chunks,
            (
                sums,
                kept,
                dq,
                dk,
                dv,
                seq_len_q,
                seq_len_k,
                heads,
                kv_heads,
                whole,
                split,
                parts,
                scale,
            ),
            {"HEAD_DIM": head_dim, "BLOCK_M": block_m, "SHARES": _SHARES},
            num_warps=4,
        )


def _launch_queries(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor,
    rows: torch.Tensor,
    dq: torch.Tensor,
    causal: bool,
    scale: float,
) -> None:
    """Write dq."""
    batch, seq_len_q, heads, head_dim = q.shape
    _, seq_len_k, kv_heads, _ = k.shape
    block_n = 128 if causal and head_dim == 64 else 64
    launch(
        gluon_backward_queries_kernel,
        (q.device, q.dtype),
        cdiv(seq_len_q, _OF_PROGRAM) * batch * heads,
        (
            describe(q, _ROWS),
            describe(k, block_n),
            describe(v, block_n),
            describe(dout, _ROWS),
            describe(dq, _ROWS),
            rows,
            seq_len_q,
            seq_len_k,
            batch * heads,
            heads,
            heads // kv_heads,
            _at_once(head_dim) * (heads // kv_heads) if causal else 1,
            scale,
            math.log2(math.e) * scale,
        ),
        {
            "HEAD_DIM": head_dim,
            "ROWS_BLOCK": _block_m(head_dim),
            "BLOCK_N": block_n,
            "STAGES": _STAGES_OF_QUERIES,
            "RAGGED": seq_len_k % block_n != 0 and not causal,
            "CAUSAL": causal,
        },
        num_warps=4,
    )


def _block_m(head_dim: int) -> int:
    """Return the queries of a block: as many as shared memory and registers hold."""
    return 8192 // head_dim


def _at_once(head_dim: int) -> int:
    """Return of how many heads of k and v, under a causal mask, the programs come by the block of keys."""
    return 512 // head_dim


@functools.cache
def _parts(tiles: int, blocks_m: int, group: int, programs: int) -> int:
    """Return into how many parts to split each of the tiles after the last full round; 1 if splitting does not pay.

    The time is counted in blocks of queries, as the rounds of programs that the parts take.
    """
    counts = range(1, min(_MOST_PARTS, blocks_m) + 1)
    times = {
        count: cdiv(tiles * count, programs) * (cdiv(blocks_m, count) * group + _COST_OF_A_PART)
        + (_COST_OF_SPLITTING if count > 1 else 0)
        for count in counts
    }
    return min(counts, key=lambda count: times[count])


def _describe_lines(tensor: Any, lines: int, layout: Any) -> Any:
    """Describe a contiguous matrix, in blocks of whole lines."""
    return descriptor_of(tensor, [*tensor.shape], [*tensor.stride()], [lines, tensor.shape[1]], layout)
