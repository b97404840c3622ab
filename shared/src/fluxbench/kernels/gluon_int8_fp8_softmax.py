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
_LOG2_LEAST = gl.constexpr(-7.0)  # of a weight whose code is 0, if codes are linear in the logarithm
_LARGEST_CODE = gl.constexpr(120.0)  # of 2**8; a power of two has 8 codes


@gluon.jit  # type: ignore[untyped-decorator]
def multiply_scores(
    q: gl.tensor, k_buffer: gl.tensor, BLOCK_N: gl.constexpr, OFFSET: gl.constexpr, S_LAYOUT: gl.constexpr
) -> gl.tensor:
    """Start the product of queries and keys, `[ROWS, BLOCK_N]`. OFFSET: it is of int8, and offset by _OFFSET_BITS."""
    if OFFSET:
        offset = gl.full([ROWS, BLOCK_N], _OFFSET_BITS, gl.int32, S_LAYOUT)
        scores = warpgroup_mma(q, k_buffer.permute((1, 0)), offset, is_async=True)
    else:
        nothing = gl.zeros([ROWS, BLOCK_N], gl.int32 if q.dtype == gl.int8 else gl.float32, S_LAYOUT)
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
def add_up(weights: gl.tensor, ones: gl.tensor, total: gl.tensor, BLOCK_N: gl.constexpr) -> gl.tensor:
    """Start to add up the rows of packed weights, as a product with `ones`, `[8, BLOCK_N]`; the sums are like total."""
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 8, 32])
    operand = _unpacked(weights, BLOCK_N, gl.DotOperandLayout(0, LAYOUT, 4))
    return warpgroup_mma(operand, ones.permute((1, 0)), gl.zeros_like(total), use_acc=False, is_async=True)


@gluon.jit  # type: ignore[untyped-decorator]
def as_float(scores: gl.tensor, OFFSET: gl.constexpr) -> gl.tensor:
    """Return scores as float32, still offset if they were."""
    return gl.cast(scores, gl.float32, bitcast=OFFSET)


@gluon.jit  # type: ignore[untyped-decorator]
def scales_of(scales_pointer: gl.tensor) -> gl.tuple:
    """Load the scales of a block of keys: that of k, and of v its logarithm to the base 2 and its inverse."""
    return gl.load(scales_pointer), gl.load(scales_pointer + 1), gl.load(scales_pointer + 2)


@gluon.jit  # type: ignore[untyped-decorator]
def _largest(scores: gl.tensor, BLOCK_N: gl.constexpr, S_LAYOUT: gl.constexpr) -> gl.tensor:
    """Return the largest of each row, `[ROWS]`. It is a tree: of a chain each instruction waits for the one before.

    Integers take half the instructions, since these have three operands.
    """
    first, last = gl.split(gl.permute(gl.reshape(scores, [ROWS, 2, BLOCK_N // 2]), (0, 2, 1)))
    larger = gl.maximum(first, last)
    first, last = gl.split(gl.permute(gl.reshape(larger, [ROWS, 2, BLOCK_N // 4]), (0, 2, 1)))
    return gl.convert_layout(gl.max(gl.maximum(first, last), 1), gl.SliceLayout(1, S_LAYOUT), assert_trivial=True)


@gluon.jit  # type: ignore[untyped-decorator]
def _maximum_step(
    scores: gl.tensor,
    q_scales: gl.tensor,
    block_scales: gl.tuple,
    maximum: gl.tensor,
    BLOCK_N: gl.constexpr,
    OFFSET: gl.constexpr,
    GUARD: gl.constexpr,
    S_LAYOUT: gl.constexpr,
) -> gl.tuple:
    """Take one block of scores `[ROWS, BLOCK_N]` into the running maximum `[ROWS]`, float32; they may still be int32.

    Returns the new maximum, which includes the scale of its block of V; what scores are multiplied by, and what is then
    subtracted; and the factor that rescales what came before. GUARD: rows may see no key yet.
    """
    key_scale, log2_value_scale, _ = block_scales
    scale = q_scales * key_scale
    largest = as_float(_largest(scores, BLOCK_N, S_LAYOUT), OFFSET)
    if OFFSET:
        largest -= _OFFSET
    maximum_new = gl.maximum(maximum, largest * scale + log2_value_scale)
    subtracted = maximum_new
    if GUARD:
        subtracted = gl.where(maximum_new == -float("inf"), 0.0, maximum_new)
    shift = subtracted - (log2_value_scale + _LOG2_LARGEST)
    if OFFSET:
        shift += _OFFSET * scale
    return maximum_new, scale, shift, gl.exp2(maximum - subtracted)


@gluon.jit  # type: ignore[untyped-decorator]
def _exponentials(scores: gl.tensor, scale: gl.tensor, shift: gl.tensor) -> gl.tensor:
    """Return the unnormalized weights of a block `[ROWS, BLOCK_N]`, float32, which include the scale of its V."""
    return gl.exp2(scores * scale[:, None] - shift[:, None])


@gluon.jit  # type: ignore[untyped-decorator]
def _added(
    weights: gl.tensor,
    rescale: gl.tensor,
    total: gl.tensor,
    inverse: gl.tensor,
    BLOCK_N: gl.constexpr,
    PARTS: gl.constexpr,
) -> gl.tensor:
    """Return the sums `[ROWS, 4]` with those of a block's weights, multiplied by the inverse scale of its V."""
    parts_of_sum = gl.sum(gl.sum(gl.reshape(weights, [ROWS, BLOCK_N // 8, 4, 2]), 3), 1)
    total = total * gl.convert_layout(rescale, gl.SliceLayout(1, PARTS))[:, None]
    return total + gl.convert_layout(parts_of_sum, PARTS) * inverse


@gluon.jit  # type: ignore[untyped-decorator]
def _linear_codes(scores: gl.tensor, scale: gl.tensor, shift: gl.tensor, BLOCK_N: gl.constexpr) -> gl.tensor:
    """Return the float8 codes of the unnormalized weights of a block, by two, `[ROWS, BLOCK_N // 16, 4, 2]`, int32.

    A code is linear in the logarithm of its weight: between powers of two 2**f is taken to be 1 + f. These weights are
    4% larger than exact ones in the mean, so the sums of rows must be theirs.
    """
    STEP: gl.constexpr = 1.0 / (_LOG2_LARGEST - _LOG2_LEAST)
    shares = gl.inline_asm_elementwise(  # of the largest code, from 0 to 1
        "fma.rn.sat.f32 $0, $1, $2, $3;",
        "=f,f,f,f",
        [scores, (scale * STEP)[:, None], ((-_LOG2_LEAST - shift) * STEP)[:, None]],
        dtype=gl.float32,
        is_pure=True,
        pack=1,
    )
    in_order = gl.permute(gl.reshape(shares, [ROWS, BLOCK_N // 16, 2, 4, 2]), (0, 1, 3, 2, 4))
    even, odd = gl.split(in_order)
    # Next to 256 * _OFFSET the spacing of float32 is 256. The difference is the odd code times 256, next to _OFFSET.
    odd = odd * (256 * _LARGEST_CODE) + 256 * _OFFSET - 255 * _OFFSET
    return gl.cast(even * _LARGEST_CODE + odd, gl.int32, bitcast=True)


@gluon.jit  # type: ignore[untyped-decorator]
def softmax_step(
    scores: gl.tensor,
    q_scales: gl.tensor,
    block_scales: gl.tuple,
    maximum: gl.tensor,
    total: gl.tensor,
    BLOCK_N: gl.constexpr,
    OFFSET: gl.constexpr,
    GUARD: gl.constexpr,
    ONES: gl.constexpr,
    LINEAR: gl.constexpr,
    S_LAYOUT: gl.constexpr,
    PARTS: gl.constexpr,
) -> gl.tuple:
    """Take one block of scores into the running maximum and, unless ONES, into the sums of weights.

    Returns the block's weights, with LINEAR their codes; the maximum, the sums, and what rescales those before.
    """
    maximum, scale, shift, rescale = _maximum_step(
        scores, q_scales, block_scales, maximum, BLOCK_N, OFFSET, GUARD, S_LAYOUT
    )
    scores = as_float(scores, OFFSET)
    exact = _linear_codes(scores, scale, shift, BLOCK_N) if LINEAR else _exponentials(scores, scale, shift)
    if not ONES:
        total = _added(exact, rescale, total, block_scales[2], BLOCK_N, PARTS)
    return exact, maximum, total, rescale


@gluon.jit  # type: ignore[untyped-decorator]
def joined(codes: gl.tensor) -> gl.tensor:
    """Pack codes that come by two, in the low halves of int32, by four, like `packed`."""
    low, high = gl.split(codes)
    return gl.inline_asm_elementwise(
        "prmt.b32 $0, $1, $2, 0x5410;", "=r,r,r", [low, high], dtype=gl.int32, is_pure=True, pack=1
    )


@gluon.jit  # type: ignore[untyped-decorator]
def hold(maximum: gl.tensor) -> gl.tensor:
    """Keep waits for products behind what comes before this, and return the maximum as it was.

    The assembler moves such a wait up as far as it can, but not over a branch. This branch changes no value.
    """
    return gl.inline_asm_elementwise(
        """{
        .reg .pred usual;
        setp.ne.f32 usual, $2, 0f7F7FFFFF;
        @usual bra done;
        nanosleep.u32 1;
        done:
        mov.b32 $0, $2;
        mov.b32 $1, $3;
        }""",
        "=f,=f,f,f",
        [maximum],
        dtype=gl.float32,
        is_pure=False,
        pack=2,
    )
