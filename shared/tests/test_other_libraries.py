"""SageAttention, Transformer Engine, xFormers and cuDNN's graphs: what is declared, and why one will not run."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from fakes import CPU, GPU

from fluxbench.operations.workloads import Workload
from fluxbench.variants import cudnn_frontend, sageattention, transformer_engine, xformers
from fluxbench.variants._base import Variant

FLUX = Workload(name="flux", seq_len=4608, heads=24)
COMPILED = ("", "_compile_d", "_compile_ma")
# name, its forms, a package that its records must name, its class of precision, its minimum of compute capability
DECLARED = [
    (sageattention.VARIANT, "sage_int8_fp16_triton", ("",), "sageattention", "quantized", (8, 0)),
    (sageattention.CUDA, "sage_int8_fp16_cuda", ("",), "sageattention", "quantized", (8, 0)),
    (sageattention.SM90, "sage_int8_fp8_sm90", ("",), "sageattention", "quantized", (9, 0)),
    (transformer_engine.FUSED, "te_fused", COMPILED, "transformer-engine", "exact", (8, 0)),
    (transformer_engine.FLASH, "te_flash", ("",), "flash-attn", "exact", (8, 0)),
    (transformer_engine.UNFUSED, "te_unfused", ("",), "transformer-engine", "exact", (8, 0)),
    (xformers.VARIANT, "xformers", COMPILED, "xformers", "exact", (8, 0)),
    (cudnn_frontend.VARIANT, "cudnn_frontend", ("",), "nvidia-cudnn-frontend", "exact", (8, 0)),
    (cudnn_frontend.FLOAT8, "cudnn_frontend_fp8", ("",), "nvidia-cudnn-frontend", "quantized", (9, 0)),
]
VARIANTS = [declared[0] for declared in DECLARED]
# Names of kernels as the profiler gives them: from the published records, the symbols of the packages' binaries and the
# names of their Triton functions.
CUDNN = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_cga1x1x1_kernel0_0"
FA2 = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t"
TORCH_FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false"
TORCH_CUTLASS = "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t"
TE_SOFTMAX = "void transformer_engine::scaled_softmax_forward::scaled_softmax_warp_forward<__nv_bfloat16, __nv_bfloat16"
SAGE_TRITON, SAGE_F16, SAGE_F8 = (
    "_attn_fwd",
    "void qk_int_sv_f16_attn_kernel<128u",
    "void qk_int8_sv_f8_attn_kernel<64u",
)
KERNELS = {
    "sage_int8_fp16_triton": {SAGE_TRITON},
    "sage_int8_fp16_cuda": {SAGE_F16},
    "sage_int8_fp8_sm90": {SAGE_F8},
    "te_fused": {CUDNN},
    "te_flash": {FA2},
    "te_unfused": {TE_SOFTMAX},
    "xformers": {FA2, TORCH_FLASH, TORCH_CUTLASS, CUDNN},
    "cudnn_frontend": {CUDNN},
    "cudnn_frontend_fp8": {CUDNN},
}


def named(variant: Variant) -> str:
    return variant.name


@pytest.mark.parametrize(
    ("variant", "name", "forms", "package", "precision", "minimum"), DECLARED, ids=[row[1] for row in DECLARED]
)
def test_it_declares(
    variant: Variant, name: str, forms: tuple[str, ...], package: str, precision: str, minimum: tuple[int, int]
) -> None:
    assert variant.names == tuple(name + form for form in forms)
    assert package in variant.packages
    assert variant.precision_class == precision
    assert variant.capabilities
    assert variant.capabilities.minimum == minimum
    assert variant.supports(GPU, FLUX) is None


@pytest.mark.parametrize("variant", VARIANTS, ids=named)
def test_its_pattern_matches_its_kernels_and_no_other_s(variant: Variant) -> None:
    kernels = {CUDNN, FA2, TORCH_FLASH, TORCH_CUTLASS, TE_SOFTMAX, SAGE_TRITON, SAGE_F16, SAGE_F8}
    assert variant.kernel_pattern is not None
    assert {name for name in kernels if re.search(variant.kernel_pattern, name)} == KERNELS[variant.name]


@pytest.mark.parametrize(
    ("variant", "kernel"),
    [
        (sageattention.VARIANT, "quant_per_block_int8_kernel"),
        (sageattention.CUDA, "quant_query_per_thread_int8_kernel"),
        (sageattention.SM90, "quant_key_per_thread_int8_kernel"),
        (sageattention.SM90, "void MeanScaleKernel<64u, 1u, false, __nv_bfloat16>"),
        (cudnn_frontend.FLOAT8, "quantize_per_head_cast_kernel"),
    ],
)
def test_the_quantization_is_told_from_the_attention(variant: Variant, kernel: str) -> None:
    assert variant.quantization_pattern
    assert variant.kernel_pattern
    assert re.search(variant.quantization_pattern, kernel)
    assert not re.search(variant.kernel_pattern, kernel)


@pytest.mark.parametrize("variant", VARIANTS, ids=named)
def test_it_says_why_it_will_not_run(variant: Variant) -> None:
    assert "this is a CPU" in (variant.supports(CPU, FLUX) or "")
    assert "or newer" in (variant.supports(replace(GPU, compute_capability=(7, 5)), FLUX) or "")
    assert "got float32" in (variant.supports(GPU, replace(FLUX, dtype="float32")) or "")
    assert "forward" in (variant.supports(GPU, replace(FLUX, direction="backward")) or "")
    assert "causal" in (variant.supports(GPU, replace(FLUX, causal=True)) or "")


@pytest.mark.parametrize(
    ("variant", "capability", "workload", "reason"),
    [
        (sageattention.VARIANT, (9, 0), replace(FLUX, head_dim=256), "head_dim 64, 96 and 128, got 256"),
        (sageattention.VARIANT, (8, 6), FLUX, None),
        (sageattention.CUDA, (8, 6), FLUX, "Triton kernel on compute capability 8.6"),
        (sageattention.CUDA, (8, 0), FLUX, None),
        (sageattention.SM90, (8, 9), FLUX, "needs compute capability 9.0"),
        (sageattention.SM90, (10, 0), FLUX, "9.x only"),
        (xformers.VARIANT, (9, 0), replace(FLUX, kv_heads=8), "kv_heads equal to heads, got 8 and 24"),
        (cudnn_frontend.VARIANT, (9, 0), replace(FLUX, head_dim=264), "up to 256 in steps of 8, got 264"),
        (cudnn_frontend.FLOAT8, (9, 0), replace(FLUX, head_dim=72), "in steps of 16, got 72"),
        (cudnn_frontend.FLOAT8, (9, 0), replace(FLUX, head_dim=256), None),
        (cudnn_frontend.FLOAT8, (10, 0), replace(FLUX, head_dim=256), "up to 128 in steps of 16, got 256"),
        (cudnn_frontend.FLOAT8, (8, 9), FLUX, "needs compute capability 9.0"),
    ],
)
def test_it_knows_its_limits(
    variant: Variant, capability: tuple[int, int], workload: Workload, reason: str | None
) -> None:
    said = variant.supports(replace(GPU, compute_capability=capability), workload)
    assert said is None if reason is None else reason in (said or "")
