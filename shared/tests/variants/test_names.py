"""What variants are called, in each of their forms, and that all are listed."""

from __future__ import annotations

import re

import pytest
from families import ALL, CUDNN, FA3, IN_TORCH, OURS, SAGE, named

from fluxbench import variants
from fluxbench.variants import forms


def test_the_reference_is_listed_first_and_no_name_twice() -> None:
    assert variants.NAMES[:4] == tuple(f"torch_flash{suffix}" for suffix in ("", "_copy", "_compile_d", "_compile_ma"))
    assert len(set(variants.NAMES)) == len(variants.NAMES) > len(ALL)
    assert {variant.name for variant in variants.REGISTRY} >= ALL


def test_every_name_is_found_in_its_form() -> None:
    formed = [variants.find(name) for name in variants.NAMES]
    assert [each.variant.name + each.form.suffix for each in formed] == list(variants.NAMES)
    assert variants.find("torch_flash_copy").form == forms.COPY
    assert variants.find("torch_flash_compile_d").form.compile_mode == "default"
    assert variants.find("flash_attn_2_compile_ma").form.compile_mode == "max-autotune"


def test_every_name_has_a_short_label_of_its_own() -> None:
    labels = [variants.label(name) for name in (*variants.NAMES, *(slowed.name for slowed in variants.CERTIFICATE))]
    assert len(set(labels)) == len(labels)
    assert not set(labels) & {*variants.NAMES, ""}
    assert all(len(variant.label) <= 28 for variant in variants.REGISTRY)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("torch_native", "PyTorch default (SDPA)"),
        ("flash_attn_3_compile_d", "FlashAttention-3, compiled"),
        ("torch_cudnn_compile_ma", "cuDNN (SDPA), max-autotune"),
        ("torch_cudnn_copy", "cuDNN (SDPA), with a layout copy"),
        ("torch_cudnn_compile_d_plus_0_twin", "cuDNN (SDPA), compiled, slowed by 0% (twin)"),
        ("torch_math_copy", "torch_math_copy"),  # there is no such form
        ("mine", "mine"),
    ],
)
def test_a_label_names_the_form(name: str, label: str) -> None:
    assert variants.label(name) == label


@pytest.mark.parametrize(
    ("names", "suffixes"),
    [
        (("torch_flash", "torch_cudnn", "torch_efficient"), ("", "_copy", "_compile_d", "_compile_ma")),
        (("torch_math", "flex", "te_fused", "xformers", "flash_attn_2", *FA3), ("", "_compile_d", "_compile_ma")),
        (("flex_eager", "flash_attn_4", "te_flash", *OURS, *IN_TORCH, *SAGE, *CUDNN), ("",)),
    ],
)
def test_a_variant_has_these_forms(names: tuple[str, ...], suffixes: tuple[str, ...]) -> None:
    for name in names:
        assert named(name).names == tuple(f"{name}{suffix}" for suffix in suffixes)


def test_torch_compile_takes_part_in_compiled_forms_and_in_what_calls_it() -> None:
    names = {name for known in ALL for name in named(known).names}
    compiling = {name for name in names if variants.find(name).compiles}
    assert compiling == {name for name in names if "_compile_" in name} | {"flex", "flex_flash"}


def test_an_unknown_name_is_answered_with_the_nearest_or_with_all() -> None:
    nearest, every = "got 'torch_cuddn'; did you mean 'torch_cudnn'", "the variants are torch_flash, torch_flash_copy, "
    for name, message in (("torch_cuddn", nearest), ("???", every), ("torch_math_copy", "got 'torch_math_copy'")):
        with pytest.raises(ValueError, match=re.escape(message)):
            variants.find(name)
