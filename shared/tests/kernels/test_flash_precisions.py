"""Our Triton attention as variants, in the interpreter: small head_dims, and float32 by IEEE 754 and in TF32.

Each is judged as a measured one is, on all kinds of inputs. The interpreter runs this file as a script.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from calls import wrong  # noqa: E402
from compiled import SHARED_MEMORY_KIB, compiled  # noqa: E402

from fluxbench import variants  # noqa: E402
from fluxbench.kernels import flash_backward, flash_forward, flash_tensors  # noqa: E402
from fluxbench.kernels.flash_backward_keys import flash_backward_keys_kernel  # noqa: E402
from fluxbench.kernels.flash_backward_queries import flash_backward_queries_kernel  # noqa: E402
from fluxbench.kernels.flash_forward_kernel import flash_forward_kernel  # noqa: E402
from fluxbench.variants import triton_flash  # noqa: E402

SHAPES: dict[int, dict[str, Any]] = {
    16: {"tokens": 70, "heads": 2, "kv_heads": 1, "causal": True},
    32: {"tokens": 150, "seq_len_q": 50, "heads": 1, "causal": True},
    64: {"tokens": 33, "heads": 2, "kv_heads": 1, "batch": 2},
    128: {"tokens": 70, "heads": 1, "causal": True},
}
RIGHT = [
    (name, {"dim": dim, "dtype": dtype, **SHAPES[dim]})
    for name, dtype, dims in (
        ("triton_flash", "float32", (16, 32, 128)),
        ("triton_flash_tf32", "float32", (32, 64)),
        ("triton_flash", "bfloat16", (16, 32)),
        ("triton_flash", "float16", (32,)),
    )
    for dim in dims
]
BOTH = "attention_training"  # the output and the gradients


def interpret() -> None:
    """Print why each case is wrong, or None; and the same of TF32 where IEEE 754 is asked for."""
    from interpreted import teach_the_interpreter_rounding

    teach_the_interpreter_rounding()
    reasons = [wrong(variants.find(name).variant, BOTH, **asked) for name, asked in RIGHT]
    as_exact = replace(triton_flash.TF32, precision_class="exact")
    print(json.dumps({"right": reasons, "tf32 as exact": wrong(as_exact, dtype="float32", tokens=33, heads=2)}))


@pytest.fixture(scope="module")
def interpreted() -> dict[str, Any]:
    from interpreted import printed

    return printed(__file__)


@pytest.mark.parametrize("index", range(len(RIGHT)), ids=[f"{name} {asked}" for name, asked in RIGHT])
def test_a_variant_is_within_the_budget_of_its_class(index: int, interpreted: dict[str, Any]) -> None:
    assert interpreted["right"][index] is None


def test_tf32_is_no_exact_product_of_float32(interpreted: dict[str, Any]) -> None:
    assert "over the budget" in interpreted["tf32 as exact"]
    assert "within that of class tf32" in interpreted["tf32 as exact"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tokens", [1, 33, 123, 1024, 4097])
@pytest.mark.parametrize("dim", SHAPES)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [("triton_flash", "float32"), ("triton_flash_tf32", "float32"), ("triton_flash", "bfloat16")],
)
def test_a_variant_on_the_gpu_is_within_the_budget_of_its_class(
    name: str, dtype: str, dim: int, tokens: int, causal: bool
) -> None:
    asked = {"dim": dim, "dtype": dtype, "tokens": tokens, "causal": causal, "kv_heads": 2}
    assert wrong(variants.find(name).variant, BOTH, device="cuda", **asked) is None


def test_the_largest_blocks_of_float32_fit_into_the_smallest_shared_memory() -> None:
    precision, head_dim = "tf32", 128
    forward = flash_tensors.of_device(flash_forward.FLOAT32_TILINGS[precision], (8, 6), head_dim)
    backward = flash_tensors.of_device(flash_backward.FLOAT32_TILINGS[precision], (8, 6), head_dim)
    for kernel, tiling in (
        (flash_forward_kernel, forward),
        (flash_backward_keys_kernel, backward.keys),
        (flash_backward_queries_kernel, backward.queries),
    ):
        constants = {
            **{"HEADS": 24, "GROUP": 1, "HEAD_DIM": head_dim, "BLOCK_M": tiling.block_m, "BLOCK_N": tiling.block_n},
            **{"RAGGED": False, "DESCRIPTORS": False, "CAUSAL": False, "INPUT_PRECISION": precision},
            **({"OVERLAP": False, "lse_pointer": None} if tiling is forward else {}),
        }
        done = compiled(kernel, (8, 6), constants, {}, tiling.warps, tiling.stages, "fp32")
        assert done.metadata.shared <= min(SHARED_MEMORY_KIB.values()) * 1024


if __name__ == "__main__":
    interpret()
