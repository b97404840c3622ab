"""Decoding in Triton: one query a sequence against a contiguous cache or one in pages, in bfloat16 or float16.

The keys of a sequence are split among several programs (Dao et al., Flash-Decoding, 2023), because one query gives too
few programs to fill a device. A program takes all query heads that share a head of k and v, so that these are
read once, and walks over its keys in blocks with a running maximum and sum (online softmax: Milakov and Gimelshein,
2018). A second kernel adds up the splits, weighted by the sums of their softmaxes. The softmax is taken in base 2.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from fluxbench.kernels.flash_tensors import SUMS

HEAD_DIMS = (64, 128)
DTYPES = (torch.bfloat16, torch.float16)
BLOCK = 64  # keys of a block
_LEAST_ROWS = 16  # of a matrix product: query heads are filled up to so many
_PROGRAMS = 4  # to a multiprocessor
_LEAST_BLOCKS = 4  # of a split
_WARPS, _STAGES = 4, 3


@triton.jit(do_not_specialize=["seq_len", "of_split"])  # type: ignore[untyped-decorator]
def flash_decode_kernel(
    q_source: tl.tensor,  # [batch, 1, kv_heads * GROUP, HEAD_DIM], 16 bits an element
    k_source: tl.tensor,  # [batch, seq_len, kv_heads, HEAD_DIM]; in pages [pages, PAGE, kv_heads, HEAD_DIM]
    v_source: tl.tensor,  # as k
    table_pointer: tl.tensor | None,  # [batch, pages of a sequence], int32, contiguous; of a cache in pages
    partial_pointer: tl.tensor,  # [batch, kv_heads * GROUP, splits, HEAD_DIM], float32, contiguous
    lse_pointer: tl.tensor,  # [batch, kv_heads * GROUP, splits], float32, contiguous
    seq_len: tl.tensor,
    of_split: tl.tensor,  # keys of a split, a multiple of BLOCK
    scale_log2: tl.tensor,  # log2(e) / sqrt(HEAD_DIM)
    stride_qb: tl.tensor,
    stride_qh: tl.tensor,
    stride_kb: tl.tensor,  # of a sequence, or of a page
    stride_ks: tl.tensor,
    stride_kh: tl.tensor,
    stride_vb: tl.tensor,
    stride_vs: tl.tensor,
    stride_vh: tl.tensor,
    GROUP: tl.constexpr,  # query heads to a head of k and v
    ROWS: tl.constexpr,  # GROUP, filled up
    HEAD_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    PAGE: tl.constexpr,  # tokens of a page; 0: contiguous
) -> None:
    """Write the attention of one group of heads to one split of the keys, and its log-sum-exp to the base 2."""
    split, kv_head, batch = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    row, dim, key = tl.arange(0, ROWS), tl.arange(0, HEAD_DIM), tl.arange(0, BLOCK)
    head = kv_head * GROUP + row
    q = tl.load(
        q_source + batch * stride_qb + head[:, None] * stride_qh + dim[None, :], mask=row[:, None] < GROUP, other=0.0
    )
    maximum = tl.full([ROWS], -float("inf"), SUMS)
    total = tl.zeros([ROWS], SUMS)
    out = tl.zeros([ROWS, HEAD_DIM], SUMS)
    first = split * of_split
    for start in tl.range(first, tl.minimum(first + of_split, seq_len), BLOCK):
        token = start + key
        here = token < seq_len
        if PAGE > 0:
            pages = table_pointer + batch * tl.cdiv(seq_len, PAGE)
            page = tl.load(pages + token // PAGE, mask=here, other=0).to(tl.int64)
            of_k, of_v = page * stride_kb + (token % PAGE) * stride_ks, page * stride_vb + (token % PAGE) * stride_vs
        else:
            of_k = batch * stride_kb + token.to(tl.int64) * stride_ks
            of_v = batch * stride_vb + token.to(tl.int64) * stride_vs
        k = tl.load(k_source + of_k[:, None] + kv_head * stride_kh + dim[None, :], mask=here[:, None], other=0.0)
        v = tl.load(v_source + of_v[:, None] + kv_head * stride_vh + dim[None, :], mask=here[:, None], other=0.0)
        scores = tl.where(here[None, :], tl.dot(q, k.T) * scale_log2, -float("inf"))
        maximum_new = tl.maximum(maximum, tl.max(scores, 1))
        weights = tl.exp2(scores - maximum_new[:, None])
        rescale = tl.exp2(maximum - maximum_new)
        total = total * rescale + tl.sum(weights, 1)
        out = tl.dot(weights.to(v.dtype), v, out * rescale[:, None])
        maximum = maximum_new
    splits = tl.num_programs(0)
    place = (batch * tl.num_programs(1) * GROUP + head) * splits + split
    tl.store(partial_pointer + place[:, None] * HEAD_DIM + dim[None, :], out / total[:, None], row[:, None] < GROUP)
    tl.store(lse_pointer + place, maximum + tl.log2(total), mask=row < GROUP)


@triton.jit  # type: ignore[untyped-decorator]
def flash_decode_sum_kernel(
    partial_pointer: tl.tensor,  # [batch * heads, splits, HEAD_DIM], float32
    lse_pointer: tl.tensor,  # [batch * heads, splits], float32
    out_pointer: tl.tensor,  # [batch * heads, HEAD_DIM], 16 bits an element
    SPLITS: tl.constexpr,
    ROWS: tl.constexpr,  # SPLITS, up to a power of two
    HEAD_DIM: tl.constexpr,
) -> None:
    """Write the attention of one head to all keys."""
    head = tl.program_id(0).to(tl.int64)
    split, dim = tl.arange(0, ROWS), tl.arange(0, HEAD_DIM)
    lse = tl.load(lse_pointer + head * SPLITS + split, mask=split < SPLITS, other=-float("inf"))
    weights = tl.exp2(lse - tl.max(lse, 0))
    partial = tl.load(
        partial_pointer + (head * SPLITS + split)[:, None] * HEAD_DIM + dim[None, :],
        mask=(split < SPLITS)[:, None],
        other=0.0,
    )
    out = tl.sum(partial * weights[:, None], 0) / tl.sum(weights, 0)
    tl.store(out_pointer + head * HEAD_DIM + dim, out.to(out_pointer.dtype.element_ty))


def flash_decode(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    table: torch.Tensor | None = None,
    *,
    seq_len: int,
    splits: int | None = None,
) -> torch.Tensor:
    """Return softmax(q @ k.T / sqrt(head_dim)) @ v of one query a sequence, head by head.

    q:       [batch, 1, heads, head_dim], bfloat16 or float16; head_dim 64 or 128
    k, v:    [batch, seq_len, kv_heads, head_dim], of the same dtype, kv_heads divides heads; with a table they are
             [pages, page_size, kv_heads, head_dim]. All are contiguous in head_dim; other strides are free
    table:   [batch, pages of a sequence], int32, contiguous: where the pages of each sequence lie
    seq_len: cached tokens of each sequence
    splits:  among how many programs the keys of a head are split; the device's own by default
    result:  [batch, 1, heads, head_dim], contiguous, of the same dtype

    Raises `ValueError` for other inputs.
    """
    batch, heads, head_dim, kv_heads = q.shape[0], q.shape[2], q.shape[3], k.shape[2]
    _check(q, k, v, table, seq_len)
    blocks = triton.cdiv(seq_len, BLOCK)
    if splits is None:
        programs = _PROGRAMS * torch.cuda.get_device_properties(q.device).multi_processor_count
        splits = max(1, min(triton.cdiv(programs, batch * kv_heads), triton.cdiv(blocks, _LEAST_BLOCKS)))
    of_split = triton.cdiv(blocks, splits) * BLOCK
    splits = triton.cdiv(seq_len, of_split)  # no split is empty
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    partial = torch.empty((batch, heads, splits, head_dim), dtype=torch.float32, device=q.device)
    lse = torch.empty((batch, heads, splits), dtype=torch.float32, device=q.device)
    with torch.cuda.device_of(q):
        flash_decode_kernel[splits, kv_heads, batch](
            q, k, v, table, partial, lse,
            seq_len, of_split, math.log2(math.e) / math.sqrt(head_dim),
            q.stride(0), q.stride(2), *k.stride()[:3], *v.stride()[:3],
            GROUP=heads // kv_heads, ROWS=max(_LEAST_ROWS, triton.next_power_of_2(heads // kv_heads)),
            HEAD_DIM=head_dim, BLOCK=BLOCK, PAGE=0 if table is None else k.shape[1],
            num_warps=_WARPS, num_stages=_STAGES,
        )  # fmt: skip
        flash_decode_sum_kernel[(batch * heads,)](
            partial, lse, out, SPLITS=splits, ROWS=triton.next_power_of_2(splits), HEAD_DIM=head_dim
        )
    return out


def _check(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, table: torch.Tensor | None, seq_len: int) -> None:
    """Raise `ValueError` where the tensors are not of one call."""
    batch, queries, heads, head_dim = q.shape
    if queries != 1:
        raise ValueError(f"flash_decode takes one query a sequence, got {queries}; call flash_forward")
    if head_dim not in HEAD_DIMS or q.dtype not in DTYPES:
        raise ValueError(f"q must be bfloat16 or float16 of head_dim 64 or 128, got {q.dtype} of {head_dim}")
    if k.shape != v.shape or {k.dtype, v.dtype} != {q.dtype} or heads % k.shape[2] or k.shape[3] != head_dim:
        raise ValueError(
            f"k and v must have one shape, and dtype and head_dim of q, got {list(k.shape)}, {list(v.shape)}"
        )
    if any(x.stride(3) != 1 for x in (q, k, v)):
        raise ValueError("q, k and v must be contiguous in head_dim; call contiguous()")
    if table is None:
        if k.shape[:2] != (batch, seq_len):
            raise ValueError(f"k must hold {batch} sequences of {seq_len} tokens, got {list(k.shape)}; pass a table")
    elif table.shape != (batch, triton.cdiv(seq_len, k.shape[1])) or table.dtype != torch.int32:
        raise ValueError(f"table must be int32, of {batch} sequences and their pages, got {list(table.shape)}")
    elif not table.is_contiguous():
        raise ValueError("table must be contiguous; call contiguous()")
