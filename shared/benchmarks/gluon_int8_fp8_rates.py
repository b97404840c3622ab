"""Measure the cycles that a scheduler needs for instructions of the 8-bit kernel, and the tensor cores for products.

    PYTHONPATH=shared/src python shared/benchmarks/gluon_int8_fp8_rates.py

Cycles of a warp instruction, of one warp on each of the four schedulers of a multiprocessor and of four, alone and with
one ex2 for each. The sum of both means that they share a pipe; the larger of both, that they do not. Then cycles of a
product of 64 rows and 32 summed bytes, of one warpgroup and of two. A full-rate product of n columns takes n / 2.
"""

from __future__ import annotations

import re

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma, warpgroup_mma_wait

from fluxbench.kernels.flash_gluon_parts import barrier

CHAINS = 8  # independent ones of a thread
ROUNDS = 256
UNROLLED = 4  # rounds; few, so that they stay in the cache next to a scheduler
PRODUCTS = 32  # of 128 summed bytes each, that is, of four instructions
# What one chain does in a round: x, y and w are its registers, c those of all; and how many instructions that is.
INSTRUCTIONS = {
    "ex2": ("ex2.approx.ftz.f32 x, x;", 1),
    "fma": ("fma.rn.f32 x, x, c, c;", 1),
    "fma, saturated": ("fma.rn.sat.f32 x, x, c, c;", 1),
    "max": ("max.f32 x, x, n;", 1),
    "max of int32": ("max.s32 w, w, v;", 1),
    "max of 3 int32": ("max.s32 w, w, v; max.s32 w, w, o;", 1),
    "prmt": ("prmt.b32 w, w, v, 0x5410;", 1),
    "int32 to float32": ("mov.b32 w, x; cvt.rn.f32.s32 x, w;", 1),
    "2 float32 to bfloat16": ("cvt.rn.bf16x2.f32 w, x, c; mov.b32 x, w;", 1),
    "2 float32 to float16": ("cvt.rn.f16x2.f32 w, x, c; mov.b32 x, w;", 1),
    "2 float32 to e4m3": (
        "cvt.rn.satfinite.e4m3x2.f32 h, x, c; cvt.rn.satfinite.e4m3x2.f32 g, c, x; mov.b32 x, {h, g};",
        2,
    ),
    "2 float16 to e4m3, prmt": ("cvt.rn.satfinite.e4m3x2.f16x2 h, w; mov.b32 w, {h, h};", 1),
}


def source(name: str, with_ex2: bool) -> str:
    """Return PTX that repeats an instruction and gives back the cycles that it took, and the results."""
    registers, starts, body, ends = [], [], [], []
    text, count = INSTRUCTIONS[name]
    for chain in range(CHAINS):
        registers.append(f".reg .f32 x{chain}, e{chain}; .reg .b32 w{chain}; .reg .b16 h{chain}, g{chain};")
        starts.append(f"cvt.rn.f32.u32 x{chain}, $2; add.f32 x{chain}, x{chain}, 0f3F80000{chain};")
        starts.append(f"mov.b32 w{chain}, x{chain}; mov.f32 e{chain}, x{chain};")
        line = re.sub(r"\b([xwhg])\b", rf"\g<1>{chain}", text)
        others = {"n": f"x{(chain + 1) % CHAINS}", "v": f"w{chain ^ 1}", "o": f"w{chain ^ 2}"}
        for word, register in others.items():
            line = re.sub(rf"\b{word}\b", register, line)
        body.append(line)
        body += [f"ex2.approx.ftz.f32 e{chain}, e{chain};"] * (count if with_ex2 else 0)
        ends.append(f"mov.b32 w, x{chain}; xor.b32 $1, $1, w; xor.b32 $1, $1, w{chain};")
        ends.append(f"mov.b32 w, e{chain}; xor.b32 $1, $1, w;")
    return "\n".join(
        [
            "{",
            *(".reg .u32 start, left;", ".reg .pred more;", ".reg .f32 c;", ".reg .b32 w;", *registers, *starts),
            *("cvt.rn.f32.u32 c, $2;", f"mov.u32 left, {ROUNDS // UNROLLED};", "mov.u32 start, %clock;"),
            *("again:", '.pragma "nounroll";', *body * UNROLLED),
            *("sub.u32 left, left, 1;", "setp.ne.u32 more, left, 0;", "@more bra again;"),
            *("mov.u32 $0, %clock;", "sub.u32 $0, $0, start;", "mov.b32 $1, 0;", *ends, "}"),
        ]
    )


@triton.jit  # type: ignore[untyped-decorator]
def instructions_kernel(
    cycles_pointer: tl.tensor, rest_pointer: tl.tensor, SOURCE: tl.constexpr, LANES: tl.constexpr
) -> None:
    """Run PTX in all lanes; store its cycles and results."""
    lane = tl.arange(0, LANES)
    cycles, rest = tl.inline_asm_elementwise(
        SOURCE, "=&r,=&r,r", [lane], dtype=(tl.int32, tl.int32), is_pure=False, pack=1
    )
    tl.store(cycles_pointer + lane, cycles)
    tl.store(rest_pointer + lane, rest)


@gluon.jit  # type: ignore[untyped-decorator]
def _now(after: gl.tensor) -> gl.tensor:
    """Return the clock of a multiprocessor, not before `after` is there."""
    barrier()
    return gl.inline_asm_elementwise(
        "mov.u32 $0, %clock; // $1", "=r,r", [after], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit  # type: ignore[untyped-decorator]
def products_kernel(
    cycles_pointer: gl.tensor,
    rest_pointer: gl.tensor,
    COLUMNS: gl.constexpr,
    PRODUCTS: gl.constexpr,
    DTYPE: gl.constexpr,
    REGISTERS: gl.constexpr,  # the left operand is in registers
    num_warps: gl.constexpr,
) -> None:
    """Multiply 64 rows of each warpgroup by the same columns, again and again; store cycles and results."""
    ROWS: gl.constexpr = 16 * num_warps
    SUM: gl.constexpr = gl.int32 if DTYPE == gl.int8 else gl.float32  # noqa: SIM300
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [num_warps, 1], [16, COLUMNS, 32])
    A: gl.constexpr = gl.DotOperandLayout(0, LAYOUT, 4)
    SHARED: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, 128], DTYPE)
    a_buffer = gl.allocate_shared_memory(DTYPE, [ROWS, 128], SHARED)
    b_buffer = gl.allocate_shared_memory(DTYPE, [COLUMNS, 128], SHARED)
    a = a_buffer.load(A) if REGISTERS else a_buffer
    sums = gl.zeros([ROWS, COLUMNS], SUM, LAYOUT)
    row = gl.arange(0, ROWS, layout=gl.SliceLayout(1, LAYOUT))
    start = _now(row)
    for _ in gl.static_range(PRODUCTS):
        sums = warpgroup_mma(a, b_buffer.permute((1, 0)), sums, is_async=True)
    sums = warpgroup_mma_wait(0, deps=(sums,))
    rest = gl.sum(sums, 1)
    cycles = _now(row) - start
    gl.store(cycles_pointer + row, cycles)
    gl.store(rest_pointer + row, rest)


def main() -> None:
    """Print a line for each instruction and each product."""
    cycles, rest = (torch.zeros(512, dtype=torch.int32, device="cuda") for _ in range(2))
    for name, (_, count) in INSTRUCTIONS.items():
        found = []
        for warps, with_ex2 in ((4, False), (16, False), (4, True), (16, True)):
            for _ in range(2):  # the first one compiles, and fills the caches
                instructions_kernel[(1,)](cycles, rest, source(name, with_ex2), 32 * warps, num_warps=warps)
            of_a_scheduler = ROUNDS * CHAINS * count * warps // 4
            found.append(float(cycles[: 32 * warps].max()) / of_a_scheduler)
        print("{:<24}{:6.2f}{:6.2f}   with ex2{:6.2f}{:6.2f}".format(name, *found), flush=True)
    for name, dtype, columns, registers in (
        ("int8, shared memory", gl.int8, 128, False),
        ("e4m3, shared memory", gl.float8e4nv, 128, False),
        ("e4m3, registers", gl.float8e4nv, 128, True),
        ("e4m3, registers", gl.float8e4nv, 8, True),
    ):
        found = []
        for warps in (4, 8):
            sums = rest if dtype == gl.int8 else rest.view(torch.float32)
            for _ in range(2):
                products_kernel[(1,)](cycles, sums, columns, PRODUCTS, dtype, registers, num_warps=warps)
            found.append(float(cycles[: 16 * warps].max()) / (4 * PRODUCTS))
        print("{:<24}{:>4} columns{:7.1f}{:7.1f}".format(name, columns, *found), flush=True)


if __name__ == "__main__":
    main()
