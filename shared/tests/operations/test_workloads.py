"""Finding operations, making workloads, and the named sets of them."""

from __future__ import annotations

from typing import Any

import pytest
from calls import shape

from fluxbench import operations
from fluxbench.operations import sets
from fluxbench.operations.words import describe
from fluxbench.operations.workload import Cost, Workload

PASSES = {"attention": "", "attention_backward": "-backward", "attention_training": "-training"}
TEXT = (128, 256, 320, 384, 448, 512)


class Halved:
    """An operation outside of the package, that lacks a part."""

    name = "halved"
    cost = inputs = reference = bind = attention = None


def make(operation: str = "attention", **changes: Any) -> Workload:
    return operations.workload(operation, "made-up", shape(**changes), group="group", x=5, x_unit="text tokens")


def test_operations_are_found_by_name_and_by_module_and_attribute() -> None:
    assert [operations.find(name).name for name in operations.NAMES] == list(operations.NAMES)
    assert operations.find("fluxbench.operations.decode:Decode").name == "decode"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("atention", "operation must be a known name or module:attribute, got 'atention'; did you mean 'attention'"),
        ("gemm", "got 'gemm'; the operations are attention, attention_backward, attention_training, decode"),
        ("no_such_module:Layer", "operation 'no_such_module:Layer' cannot be loaded: No module named 'no_such_module'"),
        ("fluxbench.operations.decode:Layer", "cannot be loaded: module .* has no attribute"),
        (f"{__name__}:TEXT", "cannot be loaded: 'tuple' object is not callable"),
        (f"{__name__}:Halved", r"must have input_kinds, parts, differentiates, rescale, reference_at; see fluxbench"),
    ],
)
def test_an_operation_that_there_is_not_is_one_sentence(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        operations.find(name)


def test_a_workload_holds_its_shape_its_cost_and_its_place_on_a_curve() -> None:
    made = make("attention_backward", tokens=64)
    assert (made.operation, made.ranks, made.dtype) == ("attention_backward", 1, "bfloat16")
    assert made.shape == shape(tokens=64)
    assert made.cost == operations.find("attention_backward").cost(shape(tokens=64))
    with pytest.raises(ValueError, match="workload 'made-up': heads of an attention must be a multiple of kv_heads"):
        make(kv_heads=3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ""}, "name of a workload must be a non-empty string, got ''"),
        ({"group": None}, "group of a workload must be a non-empty string, got None"),
        ({"x": 0}, "x of workload 'w' must be a positive integer, got 0"),
        ({"x": True}, "x of workload 'w' must be a positive integer, got True"),
        ({"ranks": -2}, "ranks of workload 'w' must be a positive integer, got -2"),
        ({"cost": Cost(flops=1, min_flops=1, min_bytes=-1)}, "the cost of workload 'w' must not be negative"),
    ],
)
def test_a_workload_that_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    fields = {"operation": "attention", "name": "w", "group": "g", "x": 1, "x_unit": "tokens", "shape": {}}
    with pytest.raises(ValueError, match=message):
        Workload(**{**fields, "cost": Cost(flops=1, min_flops=1, min_bytes=1), **changes})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tokens": 4608}, "4,608 tokens (5 of them text), 4 heads of 64, bfloat16"),
        ({"batch": 2, "causal": True}, "batch 2, 123 tokens (5 of them text), 4 heads of 64, bfloat16, causal"),
        ({"kv_heads": 2}, "123 tokens (5 of them text), 4 heads of 64 on 2 of keys and values, bfloat16"),
        ({"heads": 1, "kv_heads": 1}, "123 tokens (5 of them text), 1 head of 64, bfloat16"),
        ({"seq_len_q": 1, "head_dim_v": 32}, "one query on 123 keys, 4 heads of 64 (values 32), bfloat16"),
    ],
)
def test_a_workload_is_described_in_words(changes: dict[str, Any], words: str) -> None:
    assert describe(make(**{"batch": 1, **changes})) == words


def test_one_layer_of_a_model_is_described_as_one() -> None:
    one = sets.by_name()["llama2-70b-b4-2048-training"]
    assert describe(one) == (
        "Llama architecture, 1 layer of width 8,192, 64/8 heads of 128, 4 x 2,048 tokens, bfloat16"
    )


# The sets.


def tokens(name: str) -> list[int]:
    return [int(each.shape["seq_len_k"]) for each in sets.named([name])]


@pytest.mark.parametrize(
    ("pixels", "image"), [(128, 64), (256, 256), (512, 1024), (768, 2304), (1024, 4096), (1536, 9216), (2048, 16384)]
)
def test_flux1_is_six_text_lengths_beside_a_token_for_16_by_16_pixels(pixels: int, image: int) -> None:
    for operation, suffix in PASSES.items():
        name = f"flux1-{pixels}px"
        found = sets.named([f"{name}{suffix}"])
        for each, text in zip(found, TEXT, strict=True):
            assert (each.name, each.group) == (f"{name}-t{text}{suffix}", f"{name}{suffix}")
            assert (each.x, each.x_unit, each.operation) == (text, "text tokens", operation)
            assert dict(each.shape) == shape(batch=1, tokens=image + text, heads=24, dim=128)


def test_the_other_sets_are_of_their_models() -> None:
    assert [tokens(f"flux2-{pixels}px") for pixels in (512, 1024, 2048)] == [[1536], [4608], [16896]]
    assert tokens("qwen-image-1024px") == [4096 + text for text in (33, 77, 123, 213, 319, 511)]
    assert (tokens("wan-480p"), tokens("wan-720p")) == ([32_760], [75_600])
    heads = {name: sets.named([name])[0].shape["heads"] for name in ("flux2-512px", "wan-480p", "qwen-image-1024px")}
    assert heads == {"flux2-512px": 48, "wan-480p": 40, "qwen-image-1024px": 24}


def test_llama_is_causal_with_four_queries_to_a_key_and_decodes_with_one_query() -> None:
    for operation, suffix in PASSES.items():
        for name, dim, lengths in (
            ("llama3-8b", 128, [4096, 16384]), ("llama3.2-1b", 64, [4096, 16384]), ("llama3.2-1b-256", 64, [256])
        ):  # fmt: skip
            found = sets.named([f"{name}{suffix}"])
            assert {each.operation for each in found} == {operation}
            assert [dict(each.shape) for each in found] == [
                shape(batch=1, tokens=length, heads=32, kv_heads=8, dim=dim, causal=True) for length in lengths
            ]
    decode = sets.named(["llama3-8b-decode"])
    assert {each.operation for each in decode} == {"decode"}
    assert [(each.shape["seq_len_q"], each.shape["seq_len_k"], each.x) for each in decode] == [
        (1, length, length) for length in (512, 4096, 32768, 131072)
    ]


def test_every_name_is_of_one_workload_and_no_set_is_named_as_one() -> None:
    names = [each.name for group in sets.sets().values() for each in group]
    assert len(set(names)) == len(names) == len(sets.by_name())
    for name in set(names) & sets.sets().keys():
        assert [each.name for each in sets.sets()[name]] == [name]


def test_what_is_named_twice_is_measured_once_in_the_order_of_the_names() -> None:
    found = sets.named(["flux1-512px-t256", "flux1-512px"])
    assert [each.x for each in found] == [256, 128, 320, 384, 448, 512]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("flux1-512x-t128", "did you mean 'flux1-512px-t128'?"),
        ("flux1-512px-t129", "did you mean 'flux1-512px-t128'?"),  # by letters t512 is as near
        ("flux1-512px-t300", "did you mean 'flux1-512px-t320'?"),
        ("wan-48O", "did you mean 'wan-480p'?"),
        ("wan-480", "did you mean 'wan-480p'? docs/usage.md lists the sets"),
        (
            "flux1-1024",
            "did you mean 'flux1-1024px' or 'flux1-1024px-backward' or 'flux1-1024px-training'? "
            "docs/usage.md lists the sets",
        ),
        (
            "flux",
            "did you mean 'flux1-128px' or 'flux1-256px' or 'flux1-512px' or 'flux1-768px'? "
            "docs/usage.md lists the sets",
        ),
        ("???", "docs/usage.md lists the sets"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_names(name: str, hint: str) -> None:
    with pytest.raises(ValueError, match="workload must be a known name") as caught:
        sets.named([name])
    assert str(caught.value) == f"workload must be a known name, got {name!r}; {hint}"
