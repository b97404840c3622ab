"""The softmax of the Gluon kernel: a block of scores becomes weights, and what was summed before is rescaled."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from fluxbench.kernels.flash_gluon_tiles import ROWS

SLACK = gl.constexpr(8.0)  # powers of 2 by which a row's maximum may grow before its sums are rescaled


def _rescaling(values: int) -> str:
    """Return assembly that multiplies a thread's values of out by the factor of their row, of two rows in turn.

    A warp whose factors are all 1 jumps over it.
    """
    upper, lower = f"${2 * values}", f"${2 * values + 2}"
    products = " ".join(f"mul.f32 ${i}, ${i}, {lower if i & 2 else upper};" for i in range(values))
    return (
        f"{{ .reg .pred one, some; setp.neu.f32 one, {upper}, 0f3F800000; "
        f"setp.neu.or.f32 some, {lower}, 0f3F800000, one; vote.sync.any.pred some, some, 0xffffffff; "
        f"@!some bra.uni DONE; {products} DONE: }}"
    )


def _operands(values: int) -> str:
    """Return the constraints of that assembly: out, the same registers as out before, and factors."""
    return ",".join(["=f"] * values + [str(i) for i in range(values)] + ["f"] * values)


_OF_64, _OPERANDS_OF_64 = gl.constexpr(_rescaling(32)), gl.constexpr(_operands(32))
_OF_128, _OPERANDS_OF_128 = gl.constexpr(_rescaling(64)), gl.constexpr(_operands(64))


@gluon.jit  # type: ignore[untyped-decorator]
def late(index: gl.tensor) -> gl.tensor:
    """Return an int32 as it is, but none before what was waited for in the source.

    Comparisons that need no score are else moved before the scores are there: 64 bits a thread are kept, by 230
    instructions more.
    """
    return gl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [index], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit  # type: ignore[untyped-decorator]
def grown_maximum(scores: gl.tensor, maximum: gl.tensor, scale_log2: gl.tensor, GUARD: gl.constexpr) -> gl.tuple:
    """Take one block of scores `[ROWS, n]` into the running maximum `[ROWS]`, of raw scores.

    Returns the new maximum, the same scaled, and the factor that rescales what came before, all float32. A row keeps
    its maximum, and the factor is 1, until weights would be over 2**SLACK. GUARD: rows may see no key yet.
    """
    maximum_new = gl.maximum(maximum, gl.max(scores, 1))
    grown = (maximum_new - maximum) * scale_log2 > SLACK
    maximum_new = gl.where(grown, maximum_new, maximum)
    shift = maximum_new * scale_log2
    if GUARD:
        shift = gl.where(maximum_new == -float("inf"), 0.0, shift)
    rescale = gl.where(grown, gl.exp2(maximum * scale_log2 - shift), 1.0)
    return maximum_new, shift, rescale


@gluon.jit  # type: ignore[untyped-decorator]
def weights_of(scores: gl.tensor, scale_log2: gl.tensor, shift: gl.tensor) -> gl.tensor:
    """Return the unnormalized weights of columns of scores, `[ROWS, n]`. The shift is the scaled maximum `[ROWS]`.

    The maximum is of raw scores so that scaling and subtracting are one instruction.
    """
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, scores.shape[1], 16])
    shift = gl.convert_layout(shift, gl.SliceLayout(1, LAYOUT), assert_trivial=True)
    return gl.exp2(scores * scale_log2 - shift[:, None])


@gluon.jit  # type: ignore[untyped-decorator]
def sums_of(weights: gl.tensor, PARTS: gl.constexpr) -> gl.tensor:
    """Return sums of weights `[ROWS, n]`: those of each of the four threads that share a row, `[ROWS, 4]`.

    They need not speak to each other until the last block.
    """
    return gl.convert_layout(gl.sum(gl.sum(gl.reshape(weights, [ROWS, weights.shape[1] // 8, 4, 2]), 3), 1), PARTS)


@gluon.jit  # type: ignore[untyped-decorator]
def columns(values: gl.tensor, SUMMED: gl.constexpr) -> gl.tuple:
    """Return the first and the last columns, `[ROWS, n / 2]` each. Nothing moves.

    SUMMED: elements that an instruction of the product sums for a value, 16 of 16 bits or 32 of 8.
    """
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, values.shape[1] // 2, SUMMED])
    first, last = gl.split(gl.permute(gl.reshape(values, [ROWS, 2, values.shape[1] // 2]), (0, 2, 1)))
    return gl.convert_layout(first, LAYOUT, assert_trivial=True), gl.convert_layout(last, LAYOUT, assert_trivial=True)


@gluon.jit  # type: ignore[untyped-decorator]
def beside(first: gl.tensor, last: gl.tensor) -> gl.tensor:
    """Return what `columns` took apart. Nothing moves."""
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 2 * first.shape[1], 16])
    both = gl.reshape(gl.permute(gl.join(first, last), (0, 2, 1)), [ROWS, 2 * first.shape[1]])
    return gl.convert_layout(both, LAYOUT, assert_trivial=True)


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


@gluon.jit  # type: ignore[untyped-decorator]
def rescaled(out: gl.tensor, factor: gl.tensor, HEAD_DIM: gl.constexpr) -> gl.tensor:
    """Return out `[ROWS, HEAD_DIM]` times the factors of its rows. A warp whose factors are all 1 jumps over it."""
    ASM: gl.constexpr = _OF_64 if HEAD_DIM == 64 else _OF_128
    OPERANDS: gl.constexpr = _OPERANDS_OF_64 if HEAD_DIM == 64 else _OPERANDS_OF_128
    return gl.inline_asm_elementwise(
        ASM, OPERANDS, [out, factor[:, None]], dtype=gl.float32, is_pure=False, pack=HEAD_DIM // 2
    )
