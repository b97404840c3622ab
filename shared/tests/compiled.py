"""A Triton kernel compiled for a GPU that need not be here."""

from __future__ import annotations

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


def compiled_gluon(head_dim: int, dtype: str, constants: dict[str, Any]) -> Any:
    """Compile the forward kernel in Gluon for compute capability 9.0. Pointers in `constants` are None."""
    from fluxbench.kernels.flash_gluon_kernel import gluon_forward_kernel

    keys = (constants["BLOCK_N"], head_dim, dtype)
    sources = {"q": (64, head_dim, dtype), "k": keys, "v": keys, "out": (64, head_dim, dtype)}
    return _of_gluon(gluon_forward_kernel, sources, {"HEAD_DIM": head_dim, **constants})


def compiled_float8(head_dim: int, dtype: str, scores: str, constants: dict[str, Any]) -> Any:
    """Compile the 8-bit kernel for compute capability 9.0. `scores` is the dtype of q and k: "i8" or "fp8e4nv"."""
    from fluxbench.kernels.gluon_int8_fp8_kernel import quantized_forward_kernel

    rows = constants["BLOCK_N"]
    sources = {
        **{"q": (64, head_dim, scores), "k": (rows, head_dim, scores)},
        **{"v": (head_dim, rows, "fp8e4nv"), "out": (64, head_dim, dtype)},
    }
    return _of_gluon(quantized_forward_kernel, sources, {"HEAD_DIM": head_dim, **constants})


def _of_gluon(kernel: Any, sources: dict[str, tuple[int, int, str]], constants: dict[str, Any]) -> Any:
    """Compile a kernel; `sources` are rows, columns and dtype of the blocks of its descriptors."""
    from triton.experimental.gluon._runtime import GluonASTSource
    from triton.experimental.gluon.language import NVMMASharedLayout

    names = kernel.arg_names

    def type_of(name: str) -> str:
        if name in constants:
            return "constexpr"
        if name.endswith("_source"):
            rows, columns, dtype = sources[name.removesuffix("_source")]
            bits = 16 if dtype in ("bf16", "fp16") else 8
            layout = NVMMASharedLayout(min(128, columns * bits // 8), bits, rank=4)
            return f"tensordesc<{dtype}[1, 1, {rows}, {columns}],{layout!r}>"
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
