"""A Triton kernel compiled for a GPU that need not be here."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import triton

# Shared memory of one block, CUDA C++ Programming Guide, technical specifications per compute capability.
SHARED_MEMORY_KIB = {(8, 0): 163, (8, 6): 99, (9, 0): 227, (10, 0): 227, (12, 0): 99}


def compiled(
    kernel: Any,
    capability: tuple[int, int],
    constants: dict[str, Any],
    rows: dict[str, int],
    warps: int,
    stages: int,
    dtype: str = "bf16",
) -> Any:
    """Compile a flash kernel for a dtype. `rows` are those of a block of each source that is a descriptor."""
    names = kernel.arg_names

    def type_of(name: str) -> str:
        if name in constants:
            return "constexpr"
        if name.endswith("_source") and constants.get("DESCRIPTORS"):
            return f"tensordesc<{dtype}[1, 1, {rows[name.removesuffix('_source')]}, {constants['HEAD_DIM']}]>"
        if name.endswith("_source"):
            return f"*{dtype}"
        if name.endswith("_pointer"):
            return "*fp64" if name == "lse_pointer" and dtype == "fp32" else "*fp32"
        return "fp32" if name.startswith("scale") else "i32"

    types = {name: type_of(name) for name in names}
    aligned = [name for name in names if types[name].startswith("*") or name.startswith("stride_")]
    source = triton.compiler.ASTSource(
        fn=kernel,
        signature=types,
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in aligned},
    )
    target = triton.backends.compiler.GPUTarget("cuda", capability[0] * 10 + capability[1], 32)
    return triton.compile(source, target=target, options={"num_warps": warps, "num_stages": stages})


def compiled_gluon(
    kernel: Any, head_dim: int, dtype: str, constants: dict[str, Any], blocks: Mapping[str, tuple[int, ...]]
) -> Any:
    """Compile a flash kernel in Gluon for compute capability 9.0. What is None in `constants` is not given.

    `blocks` are of each descriptor: of `[batch, heads, seq_len, head_dim]` the rows, of a matrix of float32 the shape.
    """
    sources = {name: (*each, "fp32") if each[1:] else (each[0], head_dim, dtype) for name, each in blocks.items()}
    return _of_gluon(kernel, sources, {"HEAD_DIM": head_dim, **constants}, dtype)


def compiled_quantized(head_dim: int, dtype: str, constants: dict[str, Any]) -> Any:
    """Compile the 8-bit kernel for compute capability 9.0."""
    from fluxbench.kernels.gluon_int8_fp8 import BLOCK_N
    from fluxbench.kernels.gluon_int8_fp8_kernel import quantized_forward_kernel

    sources = {
        **{"q": (64, head_dim, "i8"), "k": (BLOCK_N, head_dim, "i8")},
        **{"v": (head_dim, BLOCK_N, "fp8e4nv"), "out": (64, head_dim, dtype)},
    }
    return _of_gluon(quantized_forward_kernel, sources, {"HEAD_DIM": head_dim, **constants}, dtype)


def _of_gluon(kernel: Any, sources: Mapping[str, tuple[Any, ...]], constants: dict[str, Any], dtype: str) -> Any:
    """Compile a kernel; `sources` are rows, columns and dtype of the blocks of its descriptors."""
    from triton.experimental.gluon._runtime import GluonASTSource
    from triton.experimental.gluon.language import NVMMASharedLayout

    names = kernel.arg_names

    def type_of(name: str) -> str:
        if name in constants:
            return "constexpr"
        if name.endswith("_source"):
            rows, columns, of_source = sources[name.removesuffix("_source")]
            bits = {"bf16": 16, "fp16": 16, "fp32": 32}.get(of_source, 8)
            swizzled = 0 if rows == 1 else min(128, columns * bits // 8)  # a single line is as it is in memory
            rank, ones = (2, "") if of_source == "fp32" else (4, "1, 1, ")
            layout = NVMMASharedLayout(swizzle_byte_width=swizzled, element_bitwidth=bits, rank=rank)
            return f"tensordesc<{of_source}[{ones}{rows}, {columns}],{layout!r}>"
        if name in ("out_pointer", "dout_pointer", "dq_pointer", "dk_pointer", "dv_pointer"):
            return f"*{dtype}"
        if name.endswith("_pointer"):
            return "*i32" if name == "arrivals_pointer" else "*fp32"
        return "fp32" if name.startswith("scale") else "i32"

    types = {name: type_of(name) for name in names}
    source = GluonASTSource(
        fn=kernel,
        signature=types,
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in names if types[name].startswith("*")},
    )
    target = triton.backends.compiler.GPUTarget("cuda", 90, 32)
    return triton.compile(source, target=target, options={"num_warps": 4})


def assembled(done: Any, folder: Path) -> tuple[str, list[list[str]]]:
    """Return what the assembler says of a compiled kernel, and its innermost loops: lists of machine instructions."""
    tools = triton.knobs.nvidia
    (folder / "kernel.ptx").write_text(done.asm["ptx"], encoding="utf-8")
    assemble = [tools.ptxas.path, "-v", "--gpu-name=sm_90a", folder / "kernel.ptx", "-o", folder / "kernel.cubin"]
    disassemble = [tools.cuobjdump.path, "-sass", folder / "kernel.cubin"]
    says, listed = (
        subprocess.run(command, capture_output=True, text=True, check=True) for command in (assemble, disassemble)
    )
    found = re.findall(r"/\*([0-9a-f]{4,})\*/ +([^;]+);", listed.stdout)
    code = {int(address, 16): instruction for address, instruction in found}
    jumps = [
        (int(to[1], 16), address) for address, each in code.items() if (to := re.search(r"BRA 0x([0-9a-f]+)", each))
    ]
    loops = [(first, last) for first, last in jumps if first < last]
    inner = [
        (first, last)
        for first, last in loops
        if not any((first, last) != (a, b) and first <= a and b <= last for a, b in loops)
    ]
    return says.stderr, [[each for at, each in code.items() if first <= at <= last] for first, last in inner]
