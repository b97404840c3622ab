"""Every variant, in the order in which a page lists them. To add one: its file, a line here, and a cell."""

import difflib

from fluxbench.variants import (
    cudnn_frontend,
    flash_attn_2,
    flash_attn_3,
    flash_attn_4,
    flex,
    flex_flash,
    hf_kernels,
    sageattention,
    slowed,
    torch_cudnn,
    torch_efficient,
    torch_fa,
    torch_flash,
    torch_math,
    torch_native,
    transformer_engine,
    triton_flash,
    xformers,
)
from fluxbench.variants._base import Variant
from fluxbench.variants.forms import FormedVariant

REGISTRY: tuple[Variant, ...] = (
    torch_flash.VARIANT,
    torch_cudnn.VARIANT,
    torch_efficient.VARIANT,
    torch_math.VARIANT,
    torch_native.VARIANT,
    flex.VARIANT,
    flex.UNFUSED,
    flash_attn_2.VARIANT,
    flash_attn_3.VARIANT,
    flash_attn_3.FLOAT8,
    flash_attn_4.VARIANT,
    torch_fa.FA3,
    torch_fa.FA4,
    flex_flash.VARIANT,
    triton_flash.VARIANT,
    sageattention.VARIANT,
    sageattention.CUDA,
    sageattention.SM90,
    transformer_engine.FUSED,
    transformer_engine.FLASH,
    transformer_engine.UNFUSED,
    xformers.VARIANT,
    cudnn_frontend.VARIANT,
    cudnn_frontend.FLOAT8,
    hf_kernels.VARIANT,
    hf_kernels.FLASH_3,
    hf_kernels.SAGE_ATTENTION,
)
# Slower on purpose: the certificate measures them, and no page lists them.
CERTIFICATE: tuple[Variant, ...] = tuple(
    form
    for base in (torch_flash.VARIANT, torch_cudnn.VARIANT, torch_math.VARIANT, triton_flash.VARIANT)
    for form in slowed.of(base)
)

NAMES: tuple[str, ...] = tuple(name for variant in REGISTRY for name in variant.names)


def notes() -> dict[str, str]:
    """Return what a reader must know of a variant, by its name without a form, where there is something."""
    return {variant.name: variant.note for variant in REGISTRY if variant.note}


def find(name: str) -> FormedVariant:
    """Return the variant and the form that a name stands for. Raises `ValueError` with the nearest name."""
    for variant in (*REGISTRY, *CERTIFICATE):
        for form in variant.forms:
            if variant.name + form.suffix == name:
                return FormedVariant(variant, form)
    near = difflib.get_close_matches(name, NAMES, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"the variants are {', '.join(NAMES)}"
    raise ValueError(f"variant must be a registered name, got {name!r}; {hint}")
