"""Products and softmax of the 8-bit kernel: what happens to the scores of one block of keys."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma

from fluxbench.kernels.flash_gluon_tiles import ROWS

# 1.5 * 2**23: as bits of an int32, this plus i are the bits of the float32 that is this plus i, for |i| < 2**22. So the
# int32 sums of int8 products, of at most 128 * 127**2, need no conversion.
_OFFSET = gl.constexpr(12582912.0)
_OFFSET_BITS = gl.constexpr(0x4B400000)
_LOG2_LARGEST = gl.constexpr(8.0)  # weights are multiplied by 2**8, of the 448 that float8 reaches


@gluon.jit  # type: ignore[untyped-decorator]
def multiply_scores(
    q: gl.tensor, k_buffer: gl.tensor, BLOCK_N: gl.constexpr, INT8: gl.constexpr, S_LAYOUT: gl.constexpr
) -> gl.tensor:
    """Start the product of queries and keys, `[ROWS, BLOCK_N]`; that of int8 is offset by _OFFSET_BITS."""
    if INT8:
        offset = gl.full([ROWS, BLOCK_N], _OFFSET_BITS, gl.int32, S_LAYOUT)
        scores = warpgroup_mma(q, k_buffer.permute((1, 0)), offset, is_async=True)
    else:
        nothing = gl.zeros([ROWS, BLOCK_N], gl.float32, S_LAYOUT)
        scores = warpgroup_mma(q, k_buffer.permute((1, 0)), nothing, use_acc=False, is_async=True)
    return scores


@gluon.jit  # type: ignore[untyped-decorator]
def packed(weights: gl.tensor, BLOCK_N: gl.constexpr) -> gl.tensor:
    """Round weights `[ROWS, BLOCK_N]` to float8 and pack them by four into int32, `[ROWS, BLOCK_N // 16, 4]`.

    Of 16 keys thread t of the four that share a row has 2t, 2t + 1, 2t + 8 and 2t + 9. As an operand of the next
    product these are 4t to 4t + 3: V is stored in that order.
    """
    in_order = gl.permute(gl.reshape(weights, [ROWS, BLOCK_N // 16, 2, 4, 2]), (0, 1, 3, 2, 4))
    even, odd = gl.split(in_order)
    first, third = gl.split(even)
    second, fourth = gl.split(odd)
    return gl.inline_asm_elementwise(
        """{
        .reg .b16 low, high;
        cvt.rn.satfinite.e4m3x2.f32 low, $2, $1;
        cvt.rn.satfinite.e4m3x2.f32 high, $4, $3;
        mov.b32 $0, {low, high};
        }""",
        "=r,f,f,f,f",
        [first, second, third, fourth],
        dtype=gl.int32,
        is_pure=True,
        pack=1,
    )


@gluon.jit  # type: ignore[untyped-decorator]
def _unpacked(weights: gl.tensor, BLOCK_N: gl.constexpr, P_LAYOUT: gl.constexpr) -> gl.tensor:
    """Return what `packed` packed, `[ROWS, BLOCK_N]`, as an operand. Nothing moves."""
    low, high = weights.to(gl.int16), (weights >> 16).to(gl.int16)
    even = gl.join(low.to(gl.int8), high.to(gl.int8))
    odd = gl.join((low >> 8).to(gl.int8), (high >> 8).to(gl.int8))
    values = gl.cast(gl.reshape(gl.join(even, odd), [ROWS, BLOCK_N]), gl.float8e4nv, bitcast=True)
    return gl.convert_layout(values, P_LAYOUT, assert_trivial=True)


@gluon.jit  # type: ignore[untyped-decorator]
def multiply_values(
    weights: gl.tensor,
    v_buffer: gl.tensor,
    out: gl.tensor,
    BLOCK_N: gl.constexpr,
    PROMOTE: gl.constexpr,
    P_LAYOUT: gl.constexpr,
) -> gl.tensor:
    """Start the product of packed weights and values, added to `out` on the tensor cores unless PROMOTE."""
    operand = _unpacked(weights, BLOCK_N, P_LAYOUT)
    if PROMOTE:
        nothing = gl.zeros_like(out)
        sums = warpgroup_mma(operand, v_buffer.permute((1, 0)), nothing, use_acc=False, is_async=True)
    else:
        sums = warpgroup_mma(operand, v_buffer.permute((1, 0)), out, is_async=True)
    return sums


@gluon.jit  # type: ignore[untyped-decorator]
def halves(out: gl.tensor, HEAD_DIM: gl.constexpr, LAYOUT: gl.constexpr) -> gl.tuple:
    """Return the first and the last columns of `[ROWS, HEAD_DIM]`. Nothing moves."""
    first, last = gl.split(gl.permute(gl.reshape(out, [ROWS, 2, HEAD_DIM // 2]), (0, 2, 1)))
    return gl.convert_layout(first, LAYOUT, assert_trivial=True), gl.convert_layout(last, LAYOUT, assert_trivial=True)


@gluon.jit  # type: ignore[untyped-decorator]
def whole(first: gl.tensor, last: gl.tensor, HEAD_DIM: gl.constexpr, LAYOUT: gl.constexpr) -> gl.tensor:
    """Put together what `halves` took apart."""
    out = gl.reshape(gl.permute(gl.join(first, last), (0, 2, 1)), [ROWS, HEAD_DIM])
    return gl.convert_layout(out, LAYOUT, assert_trivial=True)


@gluon.jit  # type: ignore[untyped-decorator]
def as_float(scores: gl.tensor, INT8: gl.constexpr) -> gl.tensor:
    """Return scores as float32, those of int8 still offset."""
    if INT8:
        scores = gl.cast(scores, gl.float32, bitcast=True)
    return scores


@gluon.jit  # type: ignore[untyped-decorator]
def scales_of(scales_pointer: gl.tensor) -> gl.tuple:
    """Load the scales of a block of keys: that of k, and of v its logarithm to the base 2 and its inverse."""
    return gl.load(scales_pointer), gl.load(scales_pointer + 1), gl.load(scales_pointer + 2)


@gluon.jit  # type: ignore[untyped-decorator]
def maximum_step(
    scores: gl.tensor,
    q_scales: gl.tensor,
    block_scales: gl.tuple,
    maximum: gl.tensor,
    INT8: gl.constexpr,
    GUARD: gl.constexpr,
) -> gl.tuple:
    """Take one block of scores `[ROWS, BLOCK_N]` into the running maximum `[ROWS]`, float32.

    Returns the new maximum, which includes the scale of its block of V; what scores are multiplied by, and what is then
    subtracted; and the factor that rescales what came before. GUARD: rows may see no key yet.
    """
    key_scale, log2_value_scale, _ = block_scales
    scale = q_scales * key_scale
    largest = gl.max(scores, 1)
    if INT8:
        largest -= _OFFSET
    maximum_new = gl.maximum(maximum, largest * scale + log2_value_scale)
    subtracted = maximum_new
    if GUARD:
        subtracted = gl.where(maximum_new == -float("inf"), 0.0, maximum_new)
    shift = subtracted - (log2_value_scale + _LOG2_LARGEST)
    if INT8:
        shift += _OFFSET * scale
    return maximum_new, scale, shift, gl.exp2(maximum - subtracted)


@gluon.jit  # type: ignore[untyped-decorator]
def exponentials(
    scores: gl.tensor,
    scale: gl.tensor,
    shift: gl.tensor,
    rescale: gl.tensor,
    total: gl.tensor,
    block_scales: gl.tuple,
    BLOCK_N: gl.constexpr,
    PARTS: gl.constexpr,
) -> gl.tuple:
    """Return the unnormalized weights of a block `[ROWS, BLOCK_N]`, and the sums with theirs, `[ROWS, 4]`, float32.

    A weight includes the scale of its block of V; the sums do not.
    """
    weights = gl.exp2(scores * scale[:, None] - shift[:, None])
    parts_of_sum = gl.sum(gl.sum(gl.reshape(weights, [ROWS, BLOCK_N // 8, 4, 2]), 3), 1)
    total = total * gl.convert_layout(rescale, gl.SliceLayout(1, PARTS))[:, None]
    total += gl.convert_layout(parts_of_sum, PARTS) * block_scales[2]
    return weights, total
