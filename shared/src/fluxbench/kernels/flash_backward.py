"""The backward pass of flash attention in Triton: dq, dk and dv (Dao, FlashAttention-2, 2023, algorithm 2).

With S = q @ k.T * scale, P = softmax(S), and the gradient dout of out = P @ v:

    dv = P.T @ dout,  dP = dout @ v.T,  dS = P * (dP - delta),  dq = dS @ k * scale,  dk = dS.T @ q * scale

where delta is the sum of dout * out over head_dim. P is computed again, from the log-sum-exp of the forward pass. P and
dS are rounded to the inputs' dtype before they meet another matrix; all sums are float32. Products of float32 are IEEE
ones, or in TF32, as in the forward pass. IEEE ones are added along head_dim one by one, so that scores have the same
bits in all kernels: delta comes from the weights of the forward pass, and their errors cancel in dP - delta.

A first kernel computes delta. In the second, a program owns a block of keys, and adds up dk and dv over all queries of
all heads that share it. In the third, a program owns a block of queries, and adds up dq over the keys. So S and dP are
computed twice, seven matrix products instead of five, and no program adds to what another one writes: there are no
atomic additions, and the same inputs give the same bits on the same device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from fluxbench.kernels.flash_backward_keys import flash_backward_keys_kernel
from fluxbench.kernels.flash_backward_queries import flash_backward_queries_kernel
from fluxbench.kernels.flash_launch import launch
from fluxbench.kernels.flash_tensors import (
    MAX_ROW_STRIDE,
    SUMS,
    cdiv,
    check,
    compute_capability_of,
    descriptor,
    fits_descriptor,
    input_precision,
    load_rows,
    lse_dtype,
    of_device,
)

_DELTA_ROWS = 64  # of a program, which holds two blocks of them: 32 KiB at head_dim 128, 64 KiB in float32


@dataclass(frozen=True, kw_only=True)
class Part:
    """How one kernel's work is cut: query rows and keys of a block, warps, depth of the load pipeline, how it loads."""

    block_m: int
    block_n: int
    warps: int
    stages: int
    descriptors: bool  # load through tensor descriptors (the TMA unit, compute capability 9.0 and newer)


@dataclass(frozen=True, kw_only=True)
class Tiling:
    """How the backward pass is cut."""

    keys: Part  # of the kernel for dk and dv
    queries: Part  # of the kernel for dq


def _tiling(keys: tuple[int, int, int], queries: tuple[int, int, int], *, descriptors: bool) -> Tiling:
    """Return a tiling of 8 warps, from block_m, block_n and stages of both kernels."""
    of_keys, of_queries = (
        Part(block_m=block_m, block_n=block_n, warps=8, stages=stages, descriptors=descriptors)
        for block_m, block_n, stages in (keys, queries)
    )
    return Tiling(keys=of_keys, queries=of_queries)


# By the oldest compute capability and by head_dim. At 9.0 the fastest of 24 by
# `shared/benchmarks/flash_backward_tilings.py` on an H200 (driver 580.159.04, Triton 3.6.0, 2026-11-23), in ms, with
# FlexAttention's: at head_dim 128 1.56 (1.65) for 4,608 tokens of 24 heads, 1.16 (1.32) for 4,096 causal ones of 32
# heads on 8, and at head_dim 64 0.80 (0.87) for these. The others are chosen by what the compiler reports (Triton 3.7.1
# with ptxas 12.8), at 10.0 and 12.0 by shared memory alone, elsewhere also by registers: no more than 4 bytes a thread
# are spilled. For the limits of shared memory see `flash_forward.TILINGS`.
TILINGS: dict[tuple[int, int], dict[int, Tiling]] = {
    (8, 0): {
        64: _tiling((64, 64, 2), (128, 64, 2), descriptors=False),
        128: _tiling((64, 64, 2), (64, 64, 2), descriptors=False),
    },
    (8, 6): {
        64: _tiling((64, 64, 2), (128, 64, 2), descriptors=False),
        128: _tiling((32, 64, 2), (64, 64, 1), descriptors=False),
    },
    (9, 0): {
        64: Tiling(
            keys=Part(block_m=64, block_n=64, warps=4, stages=2, descriptors=False),
            queries=Part(block_m=128, block_n=64, warps=8, stages=3, descriptors=True),
        ),
        128: Tiling(
            keys=Part(block_m=64, block_n=64, warps=4, stages=2, descriptors=True),
            queries=Part(block_m=128, block_n=64, warps=8, stages=3, descriptors=True),
        ),
    },
    (10, 0): {
        64: _tiling((64, 128, 2), (128, 64, 2), descriptors=True),
        128: _tiling((64, 128, 2), (128, 64, 2), descriptors=True),
    },
    (12, 0): {
        64: _tiling((64, 64, 2), (128, 64, 2), descriptors=False),
        128: _tiling((32, 64, 2), (64, 64, 1), descriptors=False),
    },
}
# Of float32, by what its products may round; chosen as those of the forward pass are.
FLOAT32_TILINGS: dict[str, dict[tuple[int, int], dict[int, Tiling]]] = {
    "ieee": {
        (8, 0): {
            64: _tiling((32, 32, 2), (32, 32, 2), descriptors=False),
            128: _tiling((32, 32, 2), (32, 32, 2), descriptors=False),
        }
    },
    "tf32": {
        (8, 0): {
            64: _tiling((32, 64, 2), (64, 32, 2), descriptors=False),
            128: _tiling((32, 32, 1), (64, 32, 1), descriptors=False),
        }
    },
}


@triton.jit(do_not_specialize=["seq_len_q"])  # type: ignore[untyped-decorator]
def flash_backward_delta_kernel(
    out_pointer: tl.tensor,  # [batch, seq_len_q, heads, head_dim]
    dout_pointer: tl.tensor,  # like out
    delta_pointer: tl.tensor,  # [batch, heads, seq_len_q], float32, contiguous
    seq_len_q: tl.tensor,
    stride_ob: tl.tensor,
    stride_os: tl.tensor,
    stride_oh: tl.tensor,
    stride_db: tl.tensor,
    stride_ds: tl.tensor,
    stride_dh: tl.tensor,
    HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    """Write the sums of dout * out over head_dim, of ROWS rows of one head."""
    blocks = tl.cdiv(seq_len_q, ROWS)
    start = (tl.program_id(0) % blocks) * ROWS
    batch = tl.program_id(0) // blocks // HEADS
    head = tl.program_id(0) // blocks % HEADS
    out = load_rows(
        out_pointer, batch, head, start, seq_len_q, stride_ob, stride_os, stride_oh, ROWS, HEAD_DIM, False, True
    )
    dout = load_rows(
        dout_pointer, batch, head, start, seq_len_q, stride_db, stride_ds, stride_dh, ROWS, HEAD_DIM, False, True
    )
    delta = tl.sum(out.to(SUMS) * dout.to(SUMS), 1)
    row = start + tl.arange(0, ROWS)
    of_head = delta_pointer + (batch.to(tl.int64) * HEADS + head) * seq_len_q
    tl.store(of_head + row, delta, mask=row < seq_len_q)


def flash_backward(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    tf32: bool = False,
    of_q: bool = True,
    of_kv: bool = True,
    tiling: Tiling | None = None,
    checked: bool = False,
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """Return dq, dk and dv, of the shapes and the dtype of q, k and v, contiguous. The same inputs give the same bits.

    dout:     [batch, seq_len_q, heads, head_dim], the gradient of `out`, of q's dtype; any strides
    q, k, v:  as `flash_forward` takes them
    out, lse: what `flash_forward_with_lse` returned for q, k, v, `causal`, `scale` and `tf32`
    scale:    of the scores; 1 / sqrt(head_dim) by default
    tf32:     round what enters a product of float32 to TF32
    of_q:     compute dq; else it is None
    of_kv:    compute dk and dv; else they are None
    tiling:   how the work is cut; the device's own by default
    checked:  `check` and `check_gradient` have accepted the tensors

    Raises `ValueError` for other inputs.
    """
    if not checked:
        check(q, k, v, causal=causal, scale=scale)
        check_gradient(dout, q, out, lse)
    batch, seq_len_q, heads, head_dim = q.shape
    _, seq_len_k, kv_heads, _ = k.shape
    precision = input_precision(tf32)
    table = FLOAT32_TILINGS[precision] if q.dtype == torch.float32 else TILINGS
    tiling = tiling or of_device(table, compute_capability_of(q), head_dim)
    if dout.stride(3) != 1 or dout.stride(1) >= MAX_ROW_STRIDE:  # such as the gradient of a sum, one element expanded
        dout = dout.contiguous()
    scale = 1 / math.sqrt(head_dim) if scale is None else float(scale)
    delta = torch.empty_like(lse, dtype=torch.float32)
    dq = q.new_empty(q.shape) if of_q else None
    dk, dv = (k.new_empty(k.shape) if of_kv else None for _ in "kv")
    strides = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *dout.stride()[:3])

    def launch_part(kernel: Any, part: Part, blocks: int, *results: torch.Tensor, rows: int, ragged: bool) -> None:
        of_sources = (part.block_m, part.block_n, part.block_n, part.block_m)
        descriptors = part.descriptors and all(fits_descriptor(tensor) for tensor in (q, k, v, dout))
        sources: list[Any] = [q, k, v, dout, *results]
        if descriptors:
            counts = (*of_sources, *(rows for _ in results))
            sources = [descriptor(tensor, count) for tensor, count in zip(sources, counts, strict=True)]
        launch(
            kernel,
            (q.device, q.dtype, *strides),
            blocks * batch,
            (
                *sources,
                lse,
                delta,
                seq_len_q,
                seq_len_k,
                scale,
                math.log2(math.e) * scale,
                *strides,
            ),
            {
                "HEADS": heads,
                "GROUP": heads // kv_heads,
                "HEAD_DIM": head_dim,
                "BLOCK_M": part.block_m,
                "BLOCK_N": part.block_n,
                "RAGGED": ragged,
                "DESCRIPTORS": descriptors,
                "CAUSAL": causal,
                "INPUT_PRECISION": precision,
            },
            num_warps=part.warps,
            num_stages=part.stages,
        )

    with torch.cuda.device_of(q):
        launch(
            flash_backward_delta_kernel,
            (q.device, q.dtype, *out.stride()[:3], *dout.stride()[:3]),
            cdiv(seq_len_q, _DELTA_ROWS) * batch * heads,
            (
                out,
                dout,
                delta,
                seq_len_q,
                *out.stride()[:3],
                *dout.stride()[:3],
            ),
            {"HEADS": heads, "HEAD_DIM": head_dim, "ROWS": _DELTA_ROWS},
        )
        if dk is not None and dv is not None:
            part = tiling.keys
            blocks = cdiv(seq_len_k, part.block_n) * kv_heads
            ragged = seq_len_q % part.block_m != 0
            launch_part(flash_backward_keys_kernel, part, blocks, dk, dv, rows=part.block_n, ragged=ragged)
        if dq is not None:
            part = tiling.queries
            blocks = cdiv(seq_len_q, part.block_m) * heads
            ragged = seq_len_k % part.block_n != 0
            launch_part(flash_backward_queries_kernel, part, blocks, dq, rows=part.block_m, ragged=ragged)
    return dq, dk, dv


def check_gradient(dout: torch.Tensor, q: torch.Tensor, out: torch.Tensor, lse: torch.Tensor) -> None:
    """Raise `ValueError` where what the forward pass left, or the gradient of its output, is not of the shape of q."""
    of_lse = (q.shape[0], q.shape[2], q.shape[1])
    for name, tensor, shape, dtype in (
        ("dout", dout, q.shape, q.dtype),
        ("out", out, q.shape, q.dtype),
        ("lse", lse, of_lse, lse_dtype(q.dtype)),
    ):
        if tensor.shape != shape or tensor.dtype != dtype or tensor.device != q.device:
            raise ValueError(
                f"{name} must be {list(shape)}, {dtype}, on {q.device}, got {list(tensor.shape)}, {tensor.dtype}, on "
                f"{tensor.device}; pass that of these q, k and v"
            )
    if not (out.is_contiguous() and lse.is_contiguous()):
        raise ValueError("out and lse must be contiguous, got other strides; pass those of flash_forward_with_lse")
