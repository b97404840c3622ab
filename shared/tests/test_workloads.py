"""The named shapes, and what they cost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluxbench.operations import workloads
from fluxbench.operations.workloads import BY_NAME, SETS, Workload, named

TEXT = (128, 256, 320, 384, 448, 512)


def test_flux1_at_1024_pixels_is_six_text_lengths_after_4096_image_tokens() -> None:
    assert [(w.name, w.seq_len, w.text_tokens) for w in named("flux1-1024px")] == [
        (f"flux1-1024px-t{text}", 4096 + text, text) for text in TEXT
    ]


def test_flux1_at_512_pixels_has_1024_image_tokens() -> None:
    assert [w.seq_len for w in named("flux1-512px")] == [1024 + text for text in TEXT]


@pytest.mark.parametrize(("pixels", "image_tokens"), [(768, 2304), (1536, 9216), (2048, 16384)])
def test_flux1_at_other_resolutions_has_a_token_for_16_by_16_pixels(pixels: int, image_tokens: int) -> None:
    assert [w.seq_len for w in named(f"flux1-{pixels}px")] == [image_tokens + text for text in TEXT]


def test_flux1_is_batch_1_with_24_heads_of_128_in_bfloat16_without_a_mask() -> None:
    seen = {(w.batch, w.heads, w.kv_heads, w.head_dim, w.dtype, w.causal, w.direction) for w in named("flux1-1024px")}
    assert seen == {(1, 24, 24, 128, "bfloat16", False, "forward")}


def test_flux2_has_48_heads() -> None:
    assert {w.heads for name in SETS if name.startswith("flux2-") for w in named(name)} == {48}


def test_the_texts_of_qwen_image_are_ragged() -> None:
    assert [w.text_tokens % 16 == 0 for w in named("qwen-image-1024px")] == [False] * 6


def test_wan_has_40_heads_at_its_two_lengths() -> None:
    assert [(w.heads, w.seq_len) for w in named("wan-480p", "wan-720p")] == [(40, 32_760), (40, 75_600)]


def test_a_workload_is_found_by_its_own_name() -> None:
    assert [w.seq_len for w in named("flux1-1024px-t512")] == [4608]


def test_a_workload_that_is_named_twice_is_measured_once() -> None:
    assert len(named("flux1-1024px", "flux1-1024px-t512")) == 6


def test_every_name_is_of_one_workload() -> None:
    assert len(BY_NAME) == sum(len(group) for name, group in SETS.items())


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(KeyError, match="got 'flux1-1024'; did you mean 'flux1-1024px'"):
        named("flux1-1024")


def test_a_name_that_is_near_to_none_is_answered_with_the_sets() -> None:
    with pytest.raises(KeyError, match="the sets are flux1-512px, "):
        named("???")


# What they cost.

FLUX = BY_NAME["flux1-1024px-t512"]


def of(**changes: Any) -> Workload:
    return Workload(**{"name": "made-up", "seq_len": 4608, "heads": 24, "head_dim": 128, **changes})


def test_the_flops_at_4608_tokens_are_those_of_the_two_matrix_products() -> None:
    assert FLUX.flops == 4 * 24 * 4608**2 * 128 == 260_919_263_232


def test_the_fewest_bytes_are_q_k_v_and_the_output_once() -> None:
    assert FLUX.min_bytes == 4 * (4608 * 24 * 128) * 2 == 113_246_208


def test_a_causal_mask_halves_the_flops() -> None:
    assert of(causal=True).flops * 2 == of().flops


@pytest.mark.parametrize(("direction", "times"), [("forward", 1.0), ("backward", 2.5), ("forward_backward", 3.5)])
def test_a_backward_pass_costs_two_and_a_half_forward_passes(direction: str, times: float) -> None:
    assert of(direction=direction).flops == times * of().flops


def test_fewer_key_heads_save_bytes_and_no_flops() -> None:
    assert of(kv_heads=8).flops == of().flops
    assert of(kv_heads=8).min_bytes == (2 * 24 + 2 * 8) * 4608 * 128 * 2


def test_float32_moves_twice_the_bytes() -> None:
    assert of(dtype="float32").min_bytes == 2 * of().min_bytes


@given(seq_len=st.integers(1, 10_000), times=st.integers(1, 8))
def test_flops_grow_with_the_square_of_the_length_and_bytes_with_the_length(seq_len: int, times: int) -> None:
    short, long = of(seq_len=seq_len), of(seq_len=seq_len * times)
    assert (long.flops, long.min_bytes) == (short.flops * times**2, short.min_bytes * times)


# What cannot be.


@pytest.mark.parametrize("field", ["batch", "seq_len", "heads", "kv_heads", "head_dim"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "4", True])
def test_a_size_that_is_no_positive_integer_is_refused(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{field} of workload 'made-up' must be a positive integer, got"):
        of(**{field: value})


def test_an_unknown_dtype_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="must be one of bfloat16, float16, float32, got 'fp8'"):
        of(dtype="fp8")


def test_an_unknown_direction_is_refused() -> None:
    with pytest.raises(ValueError, match="must be forward, backward or forward_backward, got 'sideways'"):
        of(direction="sideways")


def test_query_heads_that_cannot_share_the_key_heads_evenly_are_refused() -> None:
    with pytest.raises(ValueError, match="heads of workload 'made-up' must be a multiple of kv_heads"):
        of(kv_heads=7)


def test_named_sets_are_there_for_each_model() -> None:
    models = ("flux1-", "flux2-", "qwen-image-", "wan-")
    assert [any(name.startswith(model) for name in workloads.SETS) for model in models] == [True] * 4
