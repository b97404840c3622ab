"""Each kernel of a step or a layer is of the part that its name says."""

from __future__ import annotations

import pytest

from fluxbench import operations, variants
from fluxbench.operations import sets
from fluxbench.variants._base import part_of

STEP = sets.by_name()["flux1-1024px-step"]
# Names of kernels: torch 2.11's on an H200, from records of the published pages, and Inductor's of FLUX.1's blocks.
KERNELS = {
    "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_bias_TNT": "products",
    "nvjet_sm90_tst_192x192_64x3_2x1_v_bz_coopB_bias_TNT": "products",  # as the cuBLAS of CUDA 13 names them
    "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>": "products",
    "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, float, "
    "at::native::binary_internal::MulFunctor<float> > >": "rotary",
    "triton_red_fused__fused_rms_norm__scaled_dot_product_cudnn_attention__to_copy_add_mul_neg_permute_stack_unbind_"
    "unsqueeze_view_2": "rotary",
    "triton_red_fused__fused_rms_norm__scaled_dot_product_flash_attention__to_copy_add_mul_neg_permute_stack_unbind_"
    "unsqueeze_view_2": "rotary",
    "triton_poi_fused__to_copy_add_cat_flex_attention_mul_neg_stack_unbind_unsqueeze_view_6": "rotary",
    "triton_red_fused_add_mul_native_layer_norm_split_unsqueeze_1": "norms",
    "triton_per_fused__fused_rms_norm_view_3": "norms",
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float, false>": "norms",
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy_alignedK_contig<c10::BFloat16, 2>": "copies",
    "triton_poi_fused_cat_2": "copies",
    "triton_poi_fused_clone_permute_view_2": "copies",
    "triton_poi_fused_cat_gelu_permute_view_3": "rest",
    "triton_poi_fused_add_cat_mul_split_unsqueeze_view_4": "rest",
    "void at::native::vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl>": "rest",
    "triton_poi_fused_gelu_view_10": "rest",
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128": "attention",
}


@pytest.mark.parametrize(("kernel", "part"), KERNELS.items())
def test_each_kernel_of_a_step_has_its_part(kernel: str, part: str) -> None:
    operation = operations.find("model_step")
    asked = operation.attention(STEP.shape)
    for name in ("torch_native", "torch_cudnn", "flex"):
        if name == "flex" and part == "attention":
            continue
        assert part_of(variants.find(name).variant, asked, operation.parts, kernel) == part


@pytest.mark.parametrize("name", ["nvjet_{}_128x256_64x4_2x1_v_bz_TNT", "nvjet_sm90_{}_128x256_64x4_2x1_v_bz_TNT"])
def test_products_of_16_bits_are_those_of_a_layers_projections_and_float32_ones_of_its_unfused_attention(
    name: str,
) -> None:
    layer = operations.find("layer")
    shape = next(each.shape for each in sets.by_name().values() if each.operation == "layer")
    unfused = variants.find("torch_math").variant
    found = [part_of(unfused, layer.attention(shape), layer.parts, name.format(types)) for types in ("tst", "sss")]
    assert found == ["projections", "attention"]


@pytest.mark.parametrize(
    ("kernel", "part"),
    [
        ("triton_poi_fused_clone_permute_view_2", "copies"),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy_alignedK_contig<c10::BFloat16, 2>", "copies"),
        ("triton_poi_fused__to_copy_add_cat_mul_neg_slice_1", "elementwise"),  # rotates
    ],
)
def test_a_compiled_kernel_of_a_layer_is_a_copy_where_it_does_nothing_else(kernel: str, part: str) -> None:
    layer = operations.find("layer")
    shape = next(each.shape for each in sets.by_name().values() if each.operation == "layer")
    assert part_of(variants.find("torch_cudnn").variant, layer.attention(shape), layer.parts, kernel) == part
