"""What each variant declares: where it runs, what it refuses, and by which kernels it is known."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from calls import call
from fakes import CPU, GPU
from families import ALL, CUDNN, DET, FA, FA3, FLEX, IN_TORCH, OURS, SAGE, TE, TORCH, TRITON, named

from fluxbench import operations, variants
from fluxbench.device.model import Device
from fluxbench.variants._base import HEAD_DIMS, YES, Variant, part_of

QUANTIZED = {*SAGE, "flash_attn_3_fp8", "cudnn_frontend_fp8", "gluon_int8_fp8", "hf_sage"}
BACKWARD = (TORCH | FLEX | FA | TE | DET | OURS | {"flex_flash", "xformers", "cudnn_frontend"}) - {"flash_attn_3_fp8"}
GLUON = {"gluon_flash", "gluon_int8_fp8"}
VARLEN = {"flash_attn_2", "flash_attn_3", "flash_attn_4", "sage_int8_fp16_triton", "xformers", *TE}
NOT_AMPERE = {*FA3, *IN_TORCH, "flash_attn_4", *GLUON, "cudnn_frontend_fp8", "sage_int8_fp8_sm90"}
FOR_HOPPER_ALONE = {*FA3, *GLUON, "torch_fa3", "sage_int8_fp8_sm90", "hf_flash_attn3"}
SEPARATE = {"torch_efficient", "torch_math", "torch_native", "torch_cudnn", "flash_attn_4", "flex", "flex_eager"}
FLUX = {"tokens": 4608, "heads": 24, "dim": 128}


def running(device: Device, **asked: Any) -> set[str]:
    """Return the variants that support such calls on a device."""
    return {name for name in ALL | DET | TRITON if named(name).supports(device, call(**asked)) is None}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, ALL),
        ({"causal": True}, ALL),
        ({"kv_heads": 8}, ALL - {"torch_efficient"}),
        ({"kv_heads": 8, "causal": True}, ALL - {"torch_efficient"}),
        ({"seq_len_q": 1}, ALL),
        ({"seq_len_q": 512, "causal": True}, FA | FLEX | OURS | GLUON),
        ({"backward": True}, BACKWARD),
        ({"backward": True, "causal": True}, BACKWARD),
        ({"backward": True, "kv_heads": 8}, BACKWARD - {"torch_efficient", "torch_efficient_det", "xformers"}),
        ({"lengths": (4096, 512)}, VARLEN),
        ({"dtype": "float16"}, ALL - FA3),
        ({"dtype": "float32"}, FLEX | TRITON | TORCH - {"torch_flash", "torch_cudnn"}),
        (
            {"dtype": "float32", "backward": True, "dim": 32},
            FLEX | TRITON | {"torch_efficient_det"} | TORCH - {"torch_flash", "torch_cudnn"},
        ),
        ({"head_dim_v": 64}, SEPARATE),
        ({"dim": 192, "head_dim_v": 128}, SEPARATE | {"flash_attn_3"}),
        ({"dim": 32}, ALL - SAGE - GLUON),
        ({"dim": 64}, ALL),
        ({"dim": 96}, ALL - OURS - GLUON),
        ({"dim": 72}, ALL - SAGE - OURS - GLUON - {"cudnn_frontend_fp8"}),
        ({"dim": 20}, ALL - SAGE - CUDNN - OURS - GLUON),
        ({"dim": 256}, ALL - SAGE - OURS - GLUON - {"hf_sage"}),
        ({"dim": 264}, set()),
    ],
)
def test_an_h200_runs_what_each_library_has(asked: dict[str, Any], expected: set[str]) -> None:
    assert running(GPU, **{**FLUX, **asked}) == expected


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        ((5, 0), set()),
        ((7, 5), set()),
        ((8, 0), ALL - NOT_AMPERE),
        ((8, 6), ALL - NOT_AMPERE - {"sage_int8_fp16_cuda", "hf_sage"}),
        ((8, 9), ALL - NOT_AMPERE),
        ((9, 0), ALL),
        ((10, 0), ALL - FOR_HOPPER_ALONE - {"hf_sage"}),
        ((12, 0), ALL - FOR_HOPPER_ALONE - {"torch_fa4"}),
        (None, set()),
    ],
)
def test_a_gpu_runs_those_that_have_kernels_for_it(capability: tuple[int, int] | None, expected: set[str]) -> None:
    assert running(replace(GPU, compute_capability=capability), **FLUX) == expected


def test_float16_and_float32_run_on_older_gpus_where_the_library_does() -> None:
    for capability, dtype in (((7, 5), "float16"), ((7, 5), "float32"), ((5, 0), "float16")):
        found = running(replace(GPU, compute_capability=capability), dtype=dtype)
        assert found == {"torch_efficient", "torch_math", "torch_native"}
    assert running(replace(GPU, compute_capability=(4, 9)), dtype="float16") == set()


def test_a_cpu_runs_torch_and_flex_whose_gradient_needs_a_gpu() -> None:
    assert running(CPU) == {"torch_flash", "torch_math", "torch_native", *FLEX}
    assert running(CPU, backward=True) == {"torch_flash", "torch_math", "torch_native"}


def test_no_variant_runs_where_none_was_checked() -> None:
    for kind in ("rocm", "xpu", "mps", "of a vendor to come"):
        device = Device(kind=kind, name="a chip", compute_capability=(9, 0))
        reasons = {variant.supports(device, call()) for variant in variants.REGISTRY}
        assert reasons == {f"no variant has been checked on {kind} devices yet; this is a chip"}


SMALL_HEADS = "fluxbench's Triton kernels take head_dim 16, 32, 64 and 128, got 80"
LARGE_HEADS = "fluxbench's Gluon kernel takes head_dim 64 and 128, got 80"
NINE_ALONE = "has kernels for compute capability 9.x only; NVIDIA Made Up has 10.0"
TWO_HEAD_DIMS = (
    "flash_attn_3 takes another head_dim of v where that of q and k is up to 64 and of v up to 512, or where they are "
    "over 128 to 192 and over 96 to 128, got 128 and 64"
)
MISFIT = "the causal mask of torch_flash needs as many queries as keys, got 50 and 123"
FOR_HOPPER = "has kernels for compute capability 9.x and 10.x only; NVIDIA Made Up has 12.0"
PASSED_OVER = "SageAttention 2.x runs its Triton kernel on compute capability 8.6: sage_int8_fp16_triton"
FOUR_ALONE = "has kernels for compute capability 8.0, 8.9, 9.0 and 12.0 only; NVIDIA Made Up has another"


@pytest.mark.parametrize(
    ("name", "capability", "asked", "reason"),
    [
        ("flash_attn_2", None, {}, "needs compute capability 8.0 or newer; that of NVIDIA Made Up is unknown"),
        ("torch_math", (7, 5), {}, "needs compute capability 8.0 or newer; NVIDIA Made Up has 7.5"),  # of bfloat16
        ("triton_flash", (9, 0), {"dim": 80}, SMALL_HEADS),
        ("gluon_flash", (9, 0), {"dim": 80}, LARGE_HEADS),
        ("gluon_flash", (10, 0), {}, NINE_ALONE),
        ("gluon_int8_fp8", (9, 0), {"dim": 80}, LARGE_HEADS.replace("Gluon", "8-bit")),
        ("torch_efficient", (9, 0), {"kv_heads": 2}, "torch_efficient does not support 4 heads of q on 2 of k and v"),
        ("flex", (9, 0), {"lengths": (100, 23)}, "flex is measured without several sequences in one call"),
        ("flash_attn_3", (9, 0), {"dim": 128, "head_dim_v": 64}, TWO_HEAD_DIMS),
        ("torch_flash", (9, 0), {"head_dim_v": 32}, "torch_flash needs one head_dim, got 64 of q and k and 32 of v"),
        ("torch_flash", (9, 0), {"seq_len_q": 50, "causal": True}, MISFIT),
        ("flash_attn_4_det", (12, 0), {"backward": True}, FOR_HOPPER),
        ("te_fused_det", (9, 0), {}, "te_fused_det differs from te_fused in its backward pass alone"),
        ("sage_int8_fp16_cuda", (8, 6), {}, PASSED_OVER),
        ("cudnn_frontend_fp8", (10, 0), {"dim": 256}, "cuDNN takes head_dim up to 128 in steps of 16, got 256"),
        ("hf_sage", (8, 6), {}, FOUR_ALONE),
    ],
)
def test_it_says_why_not(name: str, capability: tuple[int, int] | None, asked: dict[str, Any], reason: str) -> None:
    assert named(name).supports(replace(GPU, compute_capability=capability), call(**asked)) == reason


# Names of kernels as the profiler gives them: from the published records, the symbols of the packages' binaries, the
# names of their Triton functions, and as CuTe DSL makes them from a class.
FA2_KERNEL = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t"
FA2_SPLIT = "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false, false, cutlass::"
FA3_KERNEL = "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloop"
FA3_FLOAT8 = FA3_KERNEL + "FwdSm90<2, cute::tuple<cute::C<1>, cute::C<1> >, 128, cutlass::float_e4m3_t, float"
FA3_BACK = "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnBwdSm90<flash::CollectiveMainloopBwdSm90<2"
FA4_KERNEL = "kernel_cutlass_kernel_flash_attncuteflash_fwd_sm90FlashAttentionForwardSm90_object_at__tensor"
FA4_BACK = "kernel_cutlass_kernel_flash_attncuteflash_bwd_sm90FlashAttentionBackwardSm90_object_at__tensor"
CUDNN_KERNEL = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_cga1x1x1_kernel0_0"
CUDNN_BACK = "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x128x128_1x1x1_kernel0_0"
MATRIX = "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNT"
FORWARD_KERNELS = {
    FA2_KERNEL: {"flash_attn_2", "te_flash", "xformers", "hf_flash_attn2"},
    FA2_SPLIT: {"flash_attn_2", "te_flash", "xformers", "hf_flash_attn2"},
    FA2_KERNEL.replace("flash::", "pytorch_flash::"): {"torch_flash", "xformers"},
    FA3_KERNEL: {"flash_attn_3", "torch_fa3", "xformers", "hf_flash_attn3"},
    FA3_FLOAT8: {"flash_attn_3", "flash_attn_3_fp8", "torch_fa3", "xformers", "hf_flash_attn3"},
    FA4_KERNEL: {"flash_attn_4", "torch_fa4", "flex_flash", "xformers"},
    CUDNN_KERNEL: {"torch_cudnn", "te_fused", "xformers", *CUDNN},
    "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::Attention": {"torch_efficient", "xformers"},
    "triton_tem_fused_flex_attention_0": {"flex"},
    "flash_forward_kernel": {"triton_flash", "xformers"},
    "gluon_forward_kernel": {"gluon_flash"},
    "quantized_forward_kernel": {"gluon_int8_fp8"},
    "_attn_fwd": {"sage_int8_fp16_triton"},
    "void qk_int_sv_f16_attn_kernel<128u": {"sage_int8_fp16_cuda", "hf_sage"},
    "void qk_int8_sv_f8_attn_kernel<64u": {"sage_int8_fp8_sm90", "hf_sage"},
    "void transformer_engine::scaled_softmax_forward::scaled_softmax_warp_forward<__nv_bfloat16": {"te_unfused"},
    MATRIX: {"te_unfused"},
}
BACKWARD_KERNELS = {
    FA2_KERNEL.replace("fwd", "bwd"): {"flash_attn_2", "flash_attn_2_det", "te_flash", "xformers", "hf_flash_attn2"},
    FA2_KERNEL.replace("fwd", "bwd").replace("flash::", "pytorch_flash::"): {
        "torch_flash",
        "torch_flash_det",
        "xformers",
    },
    FA3_BACK: {"flash_attn_3", "xformers", "hf_flash_attn3"},
    FA4_BACK: {"flash_attn_4", "flash_attn_4_det", "flex_flash", "xformers"},
    CUDNN_BACK: {"torch_cudnn", "te_fused", "te_fused_det", "cudnn_frontend", "cudnn_frontend_det", "xformers"},
    "fmha_cutlassB_bf16_aligned_128x64_k128_sm80(PyTorchMemEffAttention::Attention": {
        "torch_efficient",
        "torch_efficient_det",
        "xformers",
    },
    "triton_tem_fused_flex_attention_backward_1": {"flex"},
    **{f"flash_backward_{name}_kernel": {"triton_flash"} for name in ("delta", "keys", "queries")},
    **{
        f"gluon_backward{name}_kernel": {"gluon_flash", "gluon_flash_det"} for name in ("", "_rows", "_queries", "_end")
    },
    MATRIX: {"te_unfused"},
    **{kernel: set() for kernel in (FA2_KERNEL, FA3_KERNEL, FA4_KERNEL, "flash_forward_kernel")},
}


@pytest.mark.parametrize(("backward", "kernels"), [(False, FORWARD_KERNELS), (True, BACKWARD_KERNELS)])
def test_a_pattern_matches_the_kernels_of_its_variants_and_no_others(
    backward: bool, kernels: dict[str, set[str]]
) -> None:
    patterns = {name: named(name).pattern(call(backward=backward)) for name in ALL | (DET if backward else set())}
    for kernel, expected in kernels.items():
        found = {name for name, pattern in patterns.items() if pattern and re.search(pattern, kernel)}
        assert found == expected, kernel
    assert {name for name, pattern in patterns.items() if pattern} == set().union(*kernels.values())


PARTS = {"copies": r"(?i)memcpy|copy", "other": r"Memset|FillFunctor"}


@pytest.mark.parametrize(
    ("name", "backward", "kernel", "part"),
    [
        ("sage_int8_fp16_triton", False, "quant_per_block_int8_kernel", "quantization"),
        ("sage_int8_fp16_cuda", False, "quant_query_per_thread_int8_kernel", "quantization"),
        ("sage_int8_fp8_sm90", False, "void MeanScaleKernel<64u, 1u, false, __nv_bfloat16>", "quantization"),
        ("flash_attn_3_fp8", False, "quantize_per_head_amax_kernel", "quantization"),
        ("flash_attn_3_fp8", False, FA3_FLOAT8, "attention"),
        ("hf_sage", False, "void QuantInt8Kernel<128u", "quantization"),
        ("gluon_int8_fp8", False, "quantize_qkv_kernel", "quantization"),
        ("flash_attn_2", False, FA2_KERNEL, "attention"),
        ("flash_attn_2", True, FA2_KERNEL, "attention"),  # in training
        ("flash_attn_2", False, FA2_KERNEL.replace("fwd", "bwd"), "other"),
        ("flash_attn_2", True, FA2_KERNEL.replace("fwd", "bwd"), "attention"),
        ("flash_attn_2", False, "Memcpy DtoD (Device -> Device)", "copies"),
        ("flash_attn_2", False, MATRIX, "other"),
        ("torch_math", False, MATRIX, "attention"),  # whose kernels have no one name
        ("torch_math", False, "void at::native::vectorized_elementwise_kernel<4, FillFunctor<float>", "other"),
    ],
)
def test_a_kernel_is_told_by_what_it_does(name: str, backward: bool, kernel: str, part: str) -> None:
    assert part_of(named(name), call(backward=backward), PARTS, kernel) == part


@pytest.mark.parametrize("operation", operations.NAMES)
def test_a_kernel_of_a_call_is_attention_beside_the_parts_of_any_operation(operation: str) -> None:
    parts = operations.find(operation).parts
    for backward, kernels in ((False, FORWARD_KERNELS), (True, FORWARD_KERNELS), (True, BACKWARD_KERNELS)):
        asked = call(backward=backward)
        for kernel, names in kernels.items():
            assert {part_of(named(name), asked, parts, kernel) for name in names} <= {"attention"}, kernel
        for variant in (*variants.REGISTRY, *variants.CERTIFICATE):  # all patterns are tried on an unknown kernel
            assert part_of(variant, asked, parts, "?") in {*parts, "other" if variant.pattern(asked) else "attention"}


@pytest.mark.parametrize("variant", variants.REGISTRY, ids=lambda variant: variant.name)
def test_what_a_variant_declares_is_of_one_piece(variant: Variant) -> None:
    declared, quantized = variant.capabilities, variant.precision_class == "quantized"
    others = dict.fromkeys(("te_unfused", "torch_eager"), "rounded")
    others |= dict.fromkeys(("triton_flash_tf32", "torch_math_tf32", "torch_efficient_tf32"), "tf32")
    assert variant.precision_class == others.get(variant.name, "quantized" if quantized else "exact")
    assert variant.precision_class != "tf32" or declared.dtypes == ("float32",)
    assert variant.name not in ALL or quantized == (variant.name in QUANTIZED)
    for needed in (declared.computes_in, variant.quantized_budget_rel_l2, variant.quantization_pattern):
        assert bool(needed) == quantized
    assert {size for size in declared.head_dims if size >= min(HEAD_DIMS)} <= set(HEAD_DIMS)
    assert variant.packages[0] == "torch"
    assert variant.load.__module__.startswith("fluxbench.variants.")
    assert not declared.causal_rectangular or declared.causal is YES
    if declared.backward is not YES or variant.kernel_pattern:
        assert bool(variant.backward_kernel_pattern) == (declared.backward is YES)
