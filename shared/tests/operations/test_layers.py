"""Attention layers: the right outputs and gradients, costs, weights, and how they are compiled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from naive_layers import BASE, SHAPES, Given, attention, case_of, inputs_of, of_naive, precise
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fluxbench import operations, variants
from fluxbench.correctness.judging import judge
from fluxbench.operations import sets
from fluxbench.operations.layer import split
from fluxbench.operations.layer_shape import LayerShape
from fluxbench.operations.layers.build import MODULES, build
from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall

PASSES = {"layer": (True, False), "layer_backward": (False, True), "layer_training": (True, True)}
each_shape = pytest.mark.parametrize("of", SHAPES.values(), ids=SHAPES)


@each_shape
def test_the_reference_is_the_formula_of_the_layer_in_float64(of: dict[str, Any]) -> None:
    inputs = inputs_of(of)
    expected = of_naive(inputs, of)
    for name in PASSES:
        outputs = operations.find(name).reference(of, inputs, torch.float64)
        forward, backward = PASSES[name]
        assert outputs.keys() == {out for out in expected if (forward if out == "y" else backward)}
        for out, found in outputs.items():
            assert found.shape == expected[out].shape
            assert float((found - expected[out]).norm() / expected[out].norm()) < 1e-6, out


@pytest.mark.parametrize("kind", ["fused", "separate"])
def test_multi_head_layers_are_those_of_torch(kind: str) -> None:
    of: dict[str, Any] = {**BASE, "kind": kind, "width": 64, "dtype": "float32"}
    inputs = inputs_of(of)
    weights, x, _ = split(inputs)
    whole = weights["qkv"] if kind == "fused" else torch.cat([weights[name] for name in "qkv"])
    theirs = nn.MultiheadAttention(64, 4, bias=False, batch_first=True).double()
    theirs.in_proj_weight.data, theirs.out_proj.weight.data = whole.double(), weights["o"].double()
    y = operations.find("layer").reference(of, inputs, torch.float64)["y"]
    assert torch.allclose(y, theirs(*(x.double(),) * 3)[0])


@each_shape
def test_the_weights_of_a_shape_are_those_of_its_module(of: dict[str, Any]) -> None:
    module = MODULES[of["kind"]](LayerShape.of(of), attention)
    found = {name.removesuffix(".weight"): tuple(each.shape) for name, each in module.named_parameters()}
    assert found == dict(LayerShape.of(of).weights)


@each_shape
def test_the_fewest_operations_are_those_that_torch_counts_of_products(of: dict[str, Any]) -> None:
    of = {**of, "causal": False, "dtype": "float32"}  # a masked einsum computes all pairs
    costs = {}
    for name in ("layer", "layer_backward"):
        operation = operations.find(name)
        bound = operation.bind(Given(attention), of)
        prepared = bound.prepared(inputs_of(of))
        with FlopCounterMode(display=False) as counted:
            bound.call(prepared)
        costs[name] = operation.cost(of)
        assert counted.get_total_flops() == costs[name].min_flops
    forward, backward = costs.values()
    both, of_attention = operations.find("layer_training").cost(of), LayerShape.of(of).call().forward_cost.flops
    assert both.min_flops == forward.min_flops + backward.min_flops
    assert both.flops == forward.flops + backward.flops
    assert (forward.flops, backward.flops) == (forward.min_flops, backward.min_flops + of_attention // 2)


def test_the_fewest_bytes_are_those_of_all_inputs_and_outputs() -> None:
    for of in SHAPES.values():
        for name in PASSES:
            operation, inputs = operations.find(name), inputs_of(of, operation=name)
            outputs = operation.reference(of, inputs, torch.bfloat16)
            moved = sum(x.nbytes for tensors in (inputs, outputs) for x in tensors.values())
            assert operation.cost(of).min_bytes == moved


@each_shape
def test_right_layers_are_within_the_budget(of: dict[str, Any]) -> None:
    for name in PASSES:
        operation = operations.find(name)
        for seed in range(2):
            case = case_of(of, name, seed)
            for variant in ("torch_math", "torch_native", "torch_flash"):
                outputs = operation.bind(variants.find(variant), of)(case.inputs)
                assert judge(outputs, case)[1] is None, (name, variant)


@pytest.mark.parametrize("name", ["layer_backward", "layer_training"])
def test_an_attention_without_gradients_is_not_supported(name: str) -> None:
    of = SHAPES["separate"]
    bound = operations.find(name).bind(Given(lambda *qkv, causal: precise(*qkv, causal=causal).detach()), of)
    with pytest.raises(NotImplementedError, match="no gradient with respect to q, k and v"):
        bound(inputs_of(of))


def test_weights_are_the_same_for_every_seed_and_x_is_not() -> None:
    one, other = inputs_of(SHAPES["fused"], 1), inputs_of(SHAPES["fused"], 2)
    assert {name for name in one if one[name].equal(other[name])} == {"w_qkv", "w_o"}


def test_values_are_padded_for_a_kernel_of_one_head_dim() -> None:
    of = SHAPES["DeepSeek-V3"]
    seen: list[tuple[int, ...]] = []

    def one_head_dim(call: AttentionCall) -> Attention:
        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            seen.append((call.head_dim_v, q.shape[-1], v.shape[-1]))
            return precise(q, k, v, causal=call.causal)

        return attend

    native = variants.find("torch_native")
    capabilities = replace(native.variant.capabilities, separate_head_dims=False)
    formed = replace(native, variant=replace(native.variant, capabilities=capabilities, load=one_head_dim))
    case = case_of(of, "layer_training")
    assert judge(operations.find("layer_training").bind(formed, of)(case.inputs), case)[1] is None
    assert seen == [(24, 24, 24)]
    operations.find("layer").bind(replace(formed, variant=replace(native.variant, load=one_head_dim)), of)(case.inputs)
    assert seen[1:] == [(16, 24, 16)]


@pytest.mark.parametrize(
    ("name", "channels"),
    [
        ("flash_attn_3", 128), ("flash_attn_4", 128), ("flex", 128), ("torch_cudnn", 128), ("torch_native", 128),
        ("flash_attn_2", 192), ("torch_flash", 192),
    ],
)  # fmt: skip
def test_a_library_gets_the_values_of_deepseek_v3_unpadded_where_it_takes_them(name: str, channels: int) -> None:
    [layer] = [one for one in sets.sets()["layers-models"] if one.name == "deepseek-v3-layer"]
    asked = operations.find("layer").attention(layer.shape)
    assert (asked.head_dim_qk, asked.head_dim_v) == (192, 128)
    assert variants.find(name).variant.given(asked).head_dim_v == channels


def test_a_compiled_form_compiles_the_layer_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    traced: list[Any] = []

    def compile_nothing(function: Any, **options: Any) -> Any:
        traced.append((function, options["fullgraph"]))
        return function

    monkeypatch.setattr(torch, "compile", compile_nothing)
    of = SHAPES["Qwen3"]
    case = case_of(of, "layer")
    operation = operations.find("layer")
    y = operation.bind(variants.find("torch_native_compile_d"), of)(case.inputs)["y"]
    [(function, whole)] = traced
    assert whole
    assert function(*split(case.inputs)).equal(y)


def test_a_layer_is_one_graph() -> None:
    torch.compiler.reset()
    for of in SHAPES.values():
        forward = build(LayerShape.of(of), variants.find("torch_native").eager(LayerShape.of(of).call()))
        arguments = split(inputs_of(of))
        compiled = torch.compile(forward, fullgraph=True, dynamic=False, backend="eager")
        assert torch.allclose(compiled(*arguments), forward(*arguments))
