"""Products and softmax of the 8-bit kernel: what happens to the scores of one block of keys."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma

from fluxbench.kernels.flash_gluon_tiles import ROWS

BLOCK_N = gl.constexpr(128)  # keys of a block
COPIES = gl.constexpr(8)  # of the sum of a row: the least columns of a product
_INTEGERS = gl.constexpr(12582912.0)  # 1.5 * 2**23: next to it the spacing of float32 is 1
_LOG2_LARGEST = gl.constexpr(8.75)  # of the largest weight of a row, with codes that are linear: that is 1.75 * 2**8
_LOG2_LEAST = gl.constexpr(-7.0)  # of a weight whose code is 0
_LARGEST_CODE = gl.constexpr(126.0)  # of 448, the largest that float8 reaches; a power of two has 8 codes
_OPERANDS = gl.constexpr(",".join(["=r"] * 16 + [str(i) for i in range(16)]))


@gluon.jit  # type: ignore[untyped-decorator]
def multiply_scores(q: gl.tensor, k_buffer: gl.tensor, S_LAYOUT: gl.constexpr) -> gl.tensor:
    """Start the product of queries and keys, `[ROWS, BLOCK_N]`, int32."""
    nothing = gl.zeros([ROWS, BLOCK_N], gl.int32, S_LAYOUT)
    return warpgroup_mma(q, k_buffer.permute((1, 0)), nothing, use_acc=False, is_async=True)


@gluon.jit  # type: ignore[untyped-decorator]
def multiply_weights(weights: gl.tensor, right: gl.tensor, COLUMNS: gl.constexpr, LAYOUT: gl.constexpr) -> gl.tensor:
    """Start the product of packed weights and `right`, `[COLUMNS, BLOCK_N]`: V, or ones, which adds up the rows."""
    low, high = weights.to(gl.int16), (weights >> 16).to(gl.int16)
    even = gl.join(low.to(gl.int8), high.to(gl.int8))
    odd = gl.join((low >> 8).to(gl.int8), (high >> 8).to(gl.int8))
    values = gl.cast(gl.reshape(gl.join(even, odd), [ROWS, BLOCK_N]), gl.float8e4nv, bitcast=True)
    operand = gl.convert_layout(values, gl.DotOperandLayout(0, LAYOUT, 4), assert_trivial=True)
    nothing = gl.zeros([ROWS, COLUMNS], gl.float32, LAYOUT)
    return warpgroup_mma(operand, right.permute((1, 0)), nothing, use_acc=False, is_async=True)


@gluon.jit  # type: ignore[untyped-decorator]
def scales_of(scales_pointer: gl.tensor) -> gl.tuple:
    """Load the scales of a block of keys: that of k, that of v, and the inverse of that of v."""
    return gl.load(scales_pointer), gl.load(scales_pointer + 1), gl.load(scales_pointer + 2)


@gluon.jit  # type: ignore[untyped-decorator]
def _largest(scores: gl.tensor, S_LAYOUT: gl.constexpr) -> gl.tensor:
    """Return the largest of each row, `[ROWS]`. It is a tree: of a chain each instruction waits for the one before.

    Integers take half the instructions, since these have three operands.
    """
    first, last = gl.split(gl.permute(gl.reshape(scores, [ROWS, 2, BLOCK_N // 2]), (0, 2, 1)))
    larger = gl.maximum(first, last)
    first, last = gl.split(gl.permute(gl.reshape(larger, [ROWS, 2, BLOCK_N // 4]), (0, 2, 1)))
    return gl.convert_layout(gl.max(gl.maximum(first, last), 1), gl.SliceLayout(1, S_LAYOUT), assert_trivial=True)


@gluon.jit  # type: ignore[untyped-decorator]
def grown_maximum(
    scores: gl.tensor,
    q_scales: gl.tensor,
    key_scale: gl.tensor,
    maximum: gl.tensor,
    GUARD: gl.constexpr,
    S_LAYOUT: gl.constexpr,
) -> gl.tuple:
    """Take a block of scores `[ROWS, BLOCK_N]`, int32 or float32, into the running maximum `[ROWS]`, float32.

    Returns the new maximum; what scores are multiplied by, and what is then subtracted; and the factor that rescales
    what came before. GUARD: rows may see no key yet.
    """
    scale = q_scales * key_scale
    largest = gl.cast(_largest(scores, S_LAYOUT), gl.float32)
    maximum_new = gl.maximum(maximum, largest * scale)
    subtracted = maximum_new
    if GUARD:
        subtracted = gl.where(maximum_new == -float("inf"), 0.0, maximum_new)
    return maximum_new, scale, subtracted - _LOG2_LARGEST, gl.exp2(maximum - subtracted)


@gluon.jit  # type: ignore[untyped-decorator]
def codes_of(scores: gl.tensor, scale: gl.tensor, shift: gl.tensor) -> gl.tensor:
    """Return float8 codes of the unnormalized weights of half a block, by two: `[ROWS, BLOCK_N // 32, 4, 2]`, int32.

    A code is linear in the logarithm of its weight: between powers of two 2**f is taken to be 1 + f. These weights are
    4% larger than exact ones in the mean, so the sums of rows must be theirs.

    Of 16 keys thread t of the four that share a row has 2t, 2t + 1, 2t + 8 and 2t + 9. As an operand of the next
    product these are 4t to 4t + 3: V is stored in that order.
    """
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N // 2, 32])
    STEP: gl.constexpr = 1.0 / (_LOG2_LARGEST - _LOG2_LEAST)
    factor = gl.convert_layout(scale * STEP, gl.SliceLayout(1, LAYOUT), assert_trivial=True)
    rest = gl.convert_layout((-_LOG2_LEAST - shift) * STEP, gl.SliceLayout(1, LAYOUT), assert_trivial=True)
    shares = gl.inline_asm_elementwise(  # of the largest code, from 0 to 1
        "fma.rn.sat.f32 $0, $1, $2, $3;",
        "=f,f,f,f",
        [scores, factor[:, None], rest[:, None]],
        dtype=gl.float32,
        is_pure=True,
        pack=1,
    )
    in_order = gl.permute(gl.reshape(shares, [ROWS, BLOCK_N // 32, 2, 4, 2]), (0, 1, 3, 2, 4))
    even, odd = gl.split(in_order)
    # Next to 256 * _INTEGERS the spacing of float32 is 256. The difference is the odd code times 256, plus _INTEGERS.
    odd = odd * (256 * _LARGEST_CODE) + 256 * _INTEGERS - 255 * _INTEGERS
    return gl.cast(even * _LARGEST_CODE + odd, gl.int32, bitcast=True)


@gluon.jit  # type: ignore[untyped-decorator]
def hold(codes: gl.tensor) -> gl.tensor:
    """Return codes of half a block as they are, and keep waits for products behind them.

    The assembler moves these waits up as far as it can, but not over a barrier, not even one that no thread reaches:
    no code is -1.
    """
    return gl.inline_asm_elementwise(
        "{ .reg .pred never; .reg .b32 all; or.b32 all, $0, $5; or.b32 all, all, $10; or.b32 all, all, $15; "
        "setp.eq.s32 never, all, -1; @never bar.arrive 15, 256; }",
        _OPERANDS,
        [codes],
        dtype=gl.int32,
        is_pure=False,
        pack=16,
    )


@gluon.jit  # type: ignore[untyped-decorator]
def packed(first: gl.tensor, last: gl.tensor) -> gl.tensor:
    """Pack codes of both halves of a block, which come by two, by four: `[ROWS, BLOCK_N // 16, 4]`, int32."""
    codes = gl.reshape(gl.permute(gl.join(first, last), (0, 4, 1, 2, 3)), [ROWS, BLOCK_N // 16, 4, 2])
    low, high = gl.split(codes)
    return gl.inline_asm_elementwise(
        "prmt.b32 $0, $1, $2, 0x5410;", "=r,r,r", [low, high], dtype=gl.int32, is_pure=True, pack=1
    )
