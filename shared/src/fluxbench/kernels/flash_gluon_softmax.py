"""The softmax of the Gluon kernel: a block of scores becomes weights, and what was summed before is rescaled."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from fluxbench.kernels.flash_gluon_tiles import ROWS


@gluon.jit  # type: ignore[untyped-decorator]
def late(index: gl.tensor) -> gl.tensor:
    """Return an int32 as it is, but none before what was waited for in the source.

    Comparisons that need no score are else moved before the scores are there: 64 bits a thread are kept, by 230
    instructions more.
    """
    return gl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [index], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit  # type: ignore[untyped-decorator]
def softmax_step(
    scores: gl.tensor,
    maximum: gl.tensor,
    total: gl.tensor,
    scale_log2: gl.tensor,
    BLOCK_N: gl.constexpr,
    GUARD: gl.constexpr,
    PARTS: gl.constexpr,
) -> gl.tuple:
    """Take one block of scores `[ROWS, BLOCK_N]` into the running maximum `[ROWS]` and sums `[ROWS, 4]`, float32.

    Returns the new maximum and sums, the unnormalized weights and the factor that rescales what came before. The
    maximum is of raw scores, so that scaling and subtracting are one instruction. The sums are those of each of the
    four threads that share a row: they need not speak to each other. GUARD: rows may see no key yet.
    """
    maximum_new = gl.maximum(maximum, gl.max(scores, 1))
    shift = maximum_new * scale_log2
    if GUARD:
        shift = gl.where(maximum_new == -float("inf"), 0.0, shift)
    weights = gl.exp2(scores * scale_log2 - shift[:, None])
    rescale = gl.exp2(maximum * scale_log2 - shift)
    parts = gl.sum(gl.sum(gl.reshape(weights, [ROWS, BLOCK_N // 8, 4, 2]), 3), 1)
    total = total * gl.convert_layout(rescale, gl.SliceLayout(1, PARTS))[:, None] + gl.convert_layout(parts, PARTS)
    return maximum_new, total, weights, rescale


@gluon.jit  # type: ignore[untyped-decorator]
def packed(weights: gl.tensor, dtype: gl.constexpr) -> gl.tensor:
    """Round weights `[ROWS, n]` to 16 bits and pack neighbours into int32, `[ROWS, n / 2]`.

    As 16-bit values through two loops they cost an instruction a pair and block.
    """
    even, odd = gl.split(gl.reshape(weights, [ROWS, weights.shape[1] // 2, 2]))
    ASM: gl.constexpr = "cvt.rn.bf16x2.f32 $0, $2, $1;" if dtype == gl.bfloat16 else "cvt.rn.f16x2.f32 $0, $2, $1;"
    return gl.inline_asm_elementwise(ASM, "=r,f,f", [even, odd], dtype=gl.int32, is_pure=True, pack=1)


@gluon.jit  # type: ignore[untyped-decorator]
def unpacked(weights: gl.tensor, dtype: gl.constexpr, LAYOUT: gl.constexpr) -> gl.tensor:
    """Return what `packed` packed, `[ROWS, n]`, as an operand of LAYOUT. Nothing moves."""
    pairs = gl.join(weights.to(gl.int16), (weights >> 16).to(gl.int16))
    values = gl.cast(gl.reshape(pairs, [ROWS, 2 * weights.shape[1]]), dtype, bitcast=True)
    return gl.convert_layout(values, LAYOUT, assert_trivial=True)
