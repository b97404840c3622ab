"""Quantization of q, k and v to float8 with one scale a head, and back with one scale, in Triton; in torch on a CPU.

Symmetric and by the largest magnitude: `x ~= x8 * descale` with `descale = amax / 448`, so that the largest element of
a head becomes the largest float8 of the e4m3fn format (448; OCP 8-bit Floating Point Specification, revision 1.0,
table 2). Two launches for all three, since the host's time for six is nearly that of the attention: the largest
magnitude of every block of rows, then scale and cast. Nothing waits for the host.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

FLOAT8_MAX = 448.0
_Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
DTYPES = (torch.bfloat16, torch.float16)
# A head whose elements are all smaller counts as one of this magnitude: no division by zero, no subnormal scale.
_LEAST_AMAX = 2.0**-100
_BLOCK = 4096  # elements that a program casts back
_ROWS = 64  # of a head, for one program: 16 KiB of 16-bit elements at head_dim 128


@triton.jit  # type: ignore[untyped-decorator]
def _of_mine(
    of_q: tl.tensor, of_k: tl.tensor, of_v: tl.tensor, HEADS: tl.constexpr, KV_HEADS: tl.constexpr
) -> tl.tensor:
    """Return what belongs to this program's tensor: axis 0 counts the heads of q, then those of k, then those of v."""
    column = tl.program_id(0)
    return tl.where(column < HEADS, of_q, tl.where(column < HEADS + KV_HEADS, of_k, of_v))


@triton.jit  # type: ignore[untyped-decorator]
def _offsets(
    block: tl.tensor,
    seq_len_q: tl.tensor,
    seq_len_k: tl.tensor,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    ROWS: tl.constexpr,
    D: tl.constexpr,
) -> tl.tuple:
    """Return where this program's rows of its head lie in its tensor, `[ROWS, D]`, and which of them exist."""
    seq_len = _of_mine(seq_len_q, seq_len_k, seq_len_k, HEADS, KV_HEADS)
    heads = _of_mine(HEADS, KV_HEADS, KV_HEADS, HEADS, KV_HEADS)
    head = tl.program_id(0) - _of_mine(0, HEADS, HEADS + KV_HEADS, HEADS, KV_HEADS)
    row = block * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, D)
    token = tl.program_id(2).to(tl.int64) * seq_len + row
    offsets = (token[:, None] * heads + head) * HEAD_DIM + column[None, :]
    return offsets, (row[:, None] < seq_len) & (column[None, :] < HEAD_DIM)


@triton.jit  # type: ignore[untyped-decorator]
def quantize_per_head_amax_kernel(
    q_pointer: tl.tensor,  # [batch, seq_len_q, heads, head_dim], contiguous
    k_pointer: tl.tensor,  # [batch, seq_len_k, kv_heads, head_dim], contiguous
    v_pointer: tl.tensor,  # like k
    amax_pointer: tl.tensor,  # [batch, heads + 2 kv_heads, blocks], float32
    seq_len_q: tl.tensor,
    seq_len_k: tl.tensor,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    ROWS: tl.constexpr,
    D: tl.constexpr,  # head_dim, rounded up to a power of two
) -> None:
    """Write the largest magnitude of ROWS rows of one head, 0 past its end. Grid: all heads, blocks, batch."""
    offsets, exists = _offsets(tl.program_id(1), seq_len_q, seq_len_k, HEADS, KV_HEADS, HEAD_DIM, ROWS, D)
    x_pointer = _of_mine(q_pointer, k_pointer, v_pointer, HEADS, KV_HEADS)
    x = tl.load(x_pointer + offsets, mask=exists, other=0.0).to(tl.float32)
    amax = tl.max(tl.max(tl.abs(x), 1), 0)
    head = tl.program_id(2) * tl.num_programs(0) + tl.program_id(0)
    tl.store(amax_pointer + head * tl.num_programs(1) + tl.program_id(1), amax)


@triton.jit  # type: ignore[untyped-decorator]
def quantize_per_head_cast_kernel(
    q_pointer: tl.tensor,  # [batch, seq_len_q, heads, head_dim], contiguous
    k_pointer: tl.tensor,  # [batch, seq_len_k, kv_heads, head_dim], contiguous
    v_pointer: tl.tensor,  # like k
    amax_pointer: tl.tensor,  # [batch, heads + 2 kv_heads, blocks], float32
    q8_pointer: tl.tensor,  # like q, float8_e4m3fn
    k8_pointer: tl.tensor,  # like k, float8_e4m3fn
    v8_pointer: tl.tensor,  # like k, float8_e4m3fn
    descale_pointer: tl.tensor,  # [3, batch, groups], float32, contiguous from the second dimension on
    descale_stride: tl.tensor,  # of the first
    seq_len_q: tl.tensor,
    seq_len_k: tl.tensor,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    GROUPS: tl.constexpr,  # of neighbouring heads that have one scale, in each tensor
    LARGEST: tl.constexpr,
    LEAST_AMAX: tl.constexpr,
    ROWS: tl.constexpr,
    D: tl.constexpr,
    CHUNK: tl.constexpr,  # magnitudes that are read at once
) -> None:
    """Scale and cast ROWS rows of one head; the first block of a group's first head writes the scale."""
    block = tl.num_programs(1) - 1 - tl.program_id(1)  # the cache holds what was read last: 6% of the time of both
    offsets, exists = _offsets(block, seq_len_q, seq_len_k, HEADS, KV_HEADS, HEAD_DIM, ROWS, D)
    x_pointer = _of_mine(q_pointer, k_pointer, v_pointer, HEADS, KV_HEADS)
    x8_pointer = _of_mine(q8_pointer, k8_pointer, v8_pointer, HEADS, KV_HEADS)
    x = tl.load(x_pointer + offsets, mask=exists, other=0.0).to(tl.float32)
    first = _of_mine(0, HEADS, HEADS + KV_HEADS, HEADS, KV_HEADS)
    share = _of_mine(HEADS // GROUPS, KV_HEADS // GROUPS, KV_HEADS // GROUPS, HEADS, KV_HEADS)
    head = tl.program_id(0) - first
    group = head // share
    count = share * tl.num_programs(1)  # whose magnitudes lie side by side
    start = (tl.program_id(2) * tl.num_programs(0) + first + group * share) * tl.num_programs(1)
    amaxes = tl.zeros([CHUNK], tl.float32)
    for chunk in range(0, count, CHUNK):
        index = chunk + tl.arange(0, CHUNK)
        amaxes = tl.maximum(amaxes, tl.load(amax_pointer + start + index, mask=index < count, other=0.0))
    amax = tl.maximum(tl.max(amaxes, 0), LEAST_AMAX)
    tl.store(x8_pointer + offsets, (x * (LARGEST / amax)).to(x8_pointer.dtype.element_ty), mask=exists)
    if (tl.program_id(1) == 0) & (head % share == 0):
        descale_pointer += _of_mine(0, 1, 2, HEADS, KV_HEADS) * descale_stride
        tl.store(descale_pointer + tl.program_id(2) * GROUPS + group, amax / LARGEST)


def quantize_per_head(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, groups: int) -> tuple[_Three, _Three]:
    """Return `(q8, k8, v8), (q_descale, k_descale, v_descale)` with x ~= x8 * descale, group by group of heads.

    q:            [batch, seq_len_q, heads, head_dim], bfloat16 or float16, contiguous, on a GPU of compute capability
                  8.9 or newer or on a CPU
    k, v:         [batch, seq_len_k, kv_heads, head_dim], of q's dtype and device, contiguous
    groups:       of neighbouring heads that have one scale, in each tensor: kv_heads for one scale a head of k and v,
                  and for the query heads that share it; or 1 for one a batch entry; divides heads and kv_heads
    q8, k8, v8:   of the shapes of q, k and v, float8_e4m3fn, contiguous
    the descales: [batch, groups], float32, contiguous, over 0 and finite where the inputs are

    Raises `ValueError` for other inputs.
    """
    _check(q, k, v, groups)
    if not q.is_cuda and not triton.knobs.runtime.interpret:
        (q8, q_descale), (k8, k_descale), (v8, v_descale) = (_quantize_in_torch(x, groups) for x in (q, k, v))
        return (q8, k8, v8), (q_descale, k_descale, v_descale)
    batch, seq_len_q, heads, head_dim = q.shape
    _, seq_len_k, kv_heads, _ = k.shape
    # Neighbours read neighbouring heads of the same tokens, which lie side by side.
    grid = (heads + 2 * kv_heads, triton.cdiv(max(seq_len_q, seq_len_k), _ROWS), batch)
    amax = torch.empty((batch, *grid[:2]), dtype=torch.float32, device=q.device)
    q8, k8, v8 = (torch.empty_like(x, dtype=torch.float8_e4m3fn) for x in (q, k, v))
    stride = triton.cdiv(batch * groups, 4) * 4  # each descale starts at 16 bytes, which cuDNN takes for granted
    descale = torch.empty_strided((3, batch, groups), (stride, groups, 1), dtype=torch.float32, device=q.device)
    sizes = {"HEADS": heads, "KV_HEADS": kv_heads, "HEAD_DIM": head_dim}
    sizes |= {"ROWS": _ROWS, "D": triton.next_power_of_2(head_dim)}
    more = {"GROUPS": groups, "LARGEST": FLOAT8_MAX, "LEAST_AMAX": _LEAST_AMAX, "CHUNK": 128}
    with torch.cuda.device_of(q):
        quantize_per_head_amax_kernel[grid](q, k, v, amax, seq_len_q, seq_len_k, **sizes)
        quantize_per_head_cast_kernel[grid](
            q, k, v, amax, q8, k8, v8, descale, stride, seq_len_q, seq_len_k, **sizes, **more
        )
    q_descale, k_descale, v_descale = descale.unbind()
    return (q8, k8, v8), (q_descale, k_descale, v_descale)


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


def _quantize_in_torch(x: torch.Tensor, groups: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Do what the kernels do to one of the tensors, in float32."""
    amax = x.float().abs().amax(dim=(1, 3)).unflatten(1, (groups, -1)).amax(dim=2).clamp_min(_LEAST_AMAX)
    scale = (FLOAT8_MAX / amax).repeat_interleave(x.shape[2] // groups, dim=1)
    return (x.float() * scale[:, None, :, None]).to(torch.float8_e4m3fn), amax / FLOAT8_MAX


def _check(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, groups: int) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.ndim != 4 or 0 in x.shape:
            raise ValueError(
                f"{name} must be [batch, seq_len, heads, head_dim] with no empty dimension, "
                f"got {list(x.shape)}; reshape it"
            )
        if x.dtype not in DTYPES:
            raise ValueError(f"{name} must be bfloat16 or float16, got {x.dtype}; cast it")
        if (x.dtype, x.device) != (q.dtype, q.device):
            raise ValueError(f"{name} must be {q.dtype} on {q.device} like q, got {x.dtype} on {x.device}; convert it")
        if not x.is_contiguous():
            raise ValueError(f"{name} must be contiguous, got strides {list(x.stride())}; call contiguous() on it")
        if groups < 1 or x.shape[2] % groups:
            raise ValueError(
                f"groups must divide the heads of {name}, {x.shape[2]}, got {groups}; pass the heads of k, or 1"
            )
    if (k.shape[0], k.shape[3]) != (q.shape[0], q.shape[3]):
        raise ValueError(f"k must have the batch and head_dim of q, {list(q.shape)}, got {list(k.shape)}; reshape it")
    if v.shape != k.shape:
        raise ValueError(f"v must have the shape of k, {list(k.shape)}, got {list(v.shape)}; reshape it")
