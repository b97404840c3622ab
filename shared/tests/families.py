"""Variants by the library whose kernels they call, and a variant by its name."""

from __future__ import annotations

from fluxbench import variants
from fluxbench.variants._base import Variant

TORCH = {"torch_flash", "torch_cudnn", "torch_efficient", "torch_math", "torch_native"}
FLEX = {"flex", "flex_eager"}
FA = {"flash_attn_2", "flash_attn_3", "flash_attn_3_fp8", "flash_attn_4", "hf_flash_attn2", "hf_flash_attn3"}
FA3 = {"flash_attn_3", "flash_attn_3_fp8"}
IN_TORCH = {"torch_fa3", "torch_fa4", "flex_flash"}
TE = {"te_fused", "te_flash", "te_unfused"}
SAGE = {"sage_int8_fp16_triton", "sage_int8_fp16_cuda", "sage_int8_fp8_sm90"}
CUDNN = {"cudnn_frontend", "cudnn_frontend_fp8"}
DET = {f"{name}_det" for name in ("torch_flash", "torch_efficient", "flash_attn_2", "flash_attn_4", "te_fused")}
DET |= {"cudnn_frontend_det", "gluon_flash_det"}
TRITON = {"triton_flash", "triton_flash_tf32"}
OURS = {"triton_flash", "gluon_flash"}
ALL = TORCH | FLEX | FA | IN_TORCH | TE | SAGE | CUDNN | OURS | {"gluon_int8_fp8", "xformers", "hf_sage"}


def named(name: str) -> Variant:
    return variants.find(name).variant
