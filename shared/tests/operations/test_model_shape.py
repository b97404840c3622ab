"""Shapes of models: the published sizes, and what is no shape. Without diffusers."""

from __future__ import annotations

from typing import Any

import pytest
from models import FLUX1, SHAPES, step

from fluxbench import operations, variants
from fluxbench.operations import sets
from fluxbench.operations.words import describe
from fluxbench.report.usage.lines import of_variant


def test_flux1_has_the_operations_and_the_bytes_of_12_billion_weights() -> None:
    cost = sets.by_name()["flux1-1024px-step"].cost
    tokens, width = 4096 + 512, 3072
    products = 2 * 12 * width**2 * tokens * (19 + 38)
    attention = 4 * tokens**2 * width * (19 + 38)
    assert cost.flops == pytest.approx(products + attention, rel=0.001)
    assert cost.min_bytes == pytest.approx(2 * 11.8e9, rel=0.01)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "flux1-2048px-step",
            "FLUX.1, 19 double + 38 single blocks, 24 heads of 128, 16,384 + 512 text tokens, bfloat16",
        ),
        ("flux2-blocks", "FLUX.2, 1 double + 1 single blocks, 48 heads of 128, 4,096 + 512 text tokens, bfloat16"),
        ("qwen-image-block", "Qwen-Image, 1 block, 24 heads of 128, 4,096 + 512 text tokens, bfloat16"),
        ("wan-480p-block", "Wan 2.1, 1 block, 40 heads of 128, 32,760 + 512 text tokens, bfloat16"),
        (
            "wan-720p-both-of-8",
            "Wan 2.1, 1 block, 40 heads of 128, 75,600 + 512 text tokens, bfloat16, Ulysses 4 and ring 2",
        ),
    ],
)  # fmt: skip
def test_a_model_in_words(name: str, words: str) -> None:
    assert describe(sets.by_name()[name]) == words


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model": "sdxl"}, "model must be one of flux1, flux2, qwen-image, wan, got 'sdxl'"),
        ({"experts": 8}, "a model has no experts; its shape is "),
        ({"layers": 0}, "layers of a model must be a positive integer, got 0"),
        ({"heads": 4.0}, "heads of a model must be a positive integer, got 4.0"),
        ({"single_layers": -1}, "single_layers of a model must be an integer from 0 on, got -1"),
        ({"model": "qwen-image"}, "qwen-image has no single blocks, got single_layers 1"),
        ({"frames": 2}, "flux1 makes one frame, got frames 2"),
        ({"dtype": "int8"}, "dtype of an attention must be one of bfloat16, float16, float32, got 'int8'"),
    ],
)
def test_a_shape_that_no_model_has_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        step({**FLUX1, **changes})


def test_an_incomplete_shape_is_refused_with_what_it_lacks() -> None:
    with pytest.raises(ValueError, match=r"the shape of a model is incomplete: .*text_dim"):
        operations.find("model_step").cost({name: value for name, value in FLUX1.items() if name != "text_dim"})


def test_the_attention_is_of_all_tokens_and_in_wan_of_the_video_alone() -> None:
    asked = {name: operations.find("model_step").attention(shape).seq_len_k for name, shape in SHAPES.items()}
    assert asked == {"flux1": 48, "flux2": 48, "qwen-image": 48, "wan": 32}


def test_every_variant_has_compiled_blocks_which_no_page_of_attention_lists() -> None:
    for name in ("triton_flash", "flash_attn_4", "torch_native"):
        found = variants.find(f"{name}_blocks")
        assert (found.compiles, found.compiles_model, found.compiles_blocks) == (True, True, True)
        assert variants.label(f"{name}_blocks") == f"{variants.label(name)}, blocks compiled"
    assert not variants.find("torch_native_compile_d").compiles_blocks
    assert not [name for name in variants.NAMES if name.endswith("_blocks")]


def test_a_backend_of_a_variant_is_the_one_of_the_lines_for_diffusers() -> None:
    given = {each.name: each.diffusers for each in variants.REGISTRY if each.diffusers}
    assert given == {name: lines.backend for name in given if (lines := of_variant(name))}
    assert len(given) >= 10
