"""Attention layers: the right outputs and gradients, costs, and wrong layers that are refused.

Past 300 lines because all of these tests are against one formula of each layer, which stands here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fluxbench import operations, variants
from fluxbench.correctness.case import Case
from fluxbench.correctness.judging import judge
from fluxbench.operations.layer import split
from fluxbench.operations.layer_shape import LayerShape
from fluxbench.operations.layers.build import MODULES, build
from fluxbench.operations.protocol import Attention, Tensors
from fluxbench.operations.shapes import AttentionCall

BASE = {"batch": 2, "seq_len": 33, "width": 48, "heads": 4, "kv_heads": 4, "head_dim": 16}
ROTARY = {"latent_dim": 24, "rotary_dim": 8, "value_dim": 16}
SHAPES: dict[str, dict[str, Any]] = {
    "fused": {**BASE, "kind": "fused"},
    "separate": {**BASE, "kind": "separate", "causal": True},
    "grouped": {**BASE, "kind": "grouped", "kv_heads": 2},
    "Qwen3": {**BASE, "kind": "grouped", "kv_heads": 2, "rotary": True, "qk_norm": True, "causal": True},
    "multi-query": {**BASE, "kind": "multi_query", "kv_heads": 1},
    "latent": {**BASE, "kind": "latent", "latent_dim": 24},
    "DeepSeek-V3": {**BASE, "kind": "latent_rotary", **ROTARY, "q_latent_dim": 40, "causal": True},
    "DeepSeek-V2-Lite": {**BASE, "kind": "latent_rotary", **ROTARY},
}
PASSES = {"layer": (True, False), "layer_backward": (False, True), "layer_training": (True, True)}
each_shape = pytest.mark.parametrize("of", SHAPES.values(), ids=SHAPES)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
    """Return attention by einsum: query head i attends to head i // group of k and v."""
    k, v = (x.repeat_interleave(q.shape[2] // k.shape[2], dim=2) for x in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), float("-inf"))
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)


def precise(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> torch.Tensor:
    """Return attention in float32, rounded to the dtype of q."""
    return attention(q.float(), k.float(), v.float(), causal=causal).to(q.dtype)


def normed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def turned(x: torch.Tensor) -> torch.Tensor:
    """Return each pair of channels as a complex number times exp(i position / 10000**(2 j / dim))."""
    tokens, dim = x.shape[1], x.shape[-1]
    angles = torch.outer(torch.arange(tokens).double(), 1e4 ** (-torch.arange(0, dim, 2).double() / dim))
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)[:, None]).flatten(-2)


def naive(x: torch.Tensor, w: Mapping[str, torch.Tensor], of: Mapping[str, Any]) -> torch.Tensor:
    """Return y by the formulas of the papers, in the dtype of x."""
    heads, dim = of["heads"], of["head_dim"]

    def through(x: torch.Tensor, name: str) -> torch.Tensor:
        return torch.einsum("bti,oi->bto", x, w[name])

    def by_head(x: torch.Tensor, name: str, count: int = heads) -> torch.Tensor:
        return through(x, name).reshape(*x.shape[:2], count, -1)

    if of["kind"] == "fused":
        q, k, v = (through(x, "qkv")[..., i * heads * dim : (i + 1) * heads * dim] for i in range(3))
        q, k, v = (each.reshape(*x.shape[:2], heads, dim) for each in (q, k, v))
    elif of["kind"] == "latent":
        latent = through(x, "down")
        q, k, v = by_head(x, "q"), by_head(latent, "k"), by_head(latent, "v")
    elif of["kind"] == "latent_rotary":
        q = by_head(normed(through(x, "q_down"), w["q_norm"]) if "q_down" in w else x, "q")
        q = torch.cat([q[..., :dim], turned(q[..., dim:])], -1)
        down = through(x, "kv_down")
        latent, shared = down[..., : of["latent_dim"]], turned(down[..., of["latent_dim"] :].unsqueeze(2))
        kv = by_head(normed(latent, w["kv_norm"]), "kv")
        k, v = torch.cat([kv[..., :dim], shared.repeat(1, 1, heads, 1)], -1), kv[..., dim:]
    else:
        q, k, v = by_head(x, "q"), by_head(x, "k", of["kv_heads"]), by_head(x, "v", of["kv_heads"])
    if of.get("qk_norm"):
        q, k = normed(q, w["q_norm"]), normed(k, w["k_norm"])
    if of.get("rotary"):
        q, k = turned(q), turned(k)
    return through(attention(q, k, v, causal=of.get("causal", False)).flatten(2), "o")


def of_naive(inputs: Tensors, of: Mapping[str, Any]) -> Tensors:
    """Return y and all gradients of the formulas, in float64."""
    weights, x, _ = split({name: each.double().requires_grad_() for name, each in inputs.items()})
    y = naive(x, weights, of)
    found = torch.autograd.grad(y, (x, *weights.values()), inputs["dy"].double())
    names = ("dx", *(f"dw_{name}" for name in weights))
    shaped = (found[0], *(each.reshape(1, -1, each.shape[-1]) for each in found[1:]))
    return {"y": y.detach(), **dict(zip(names, shaped, strict=True))}


def inputs_of(of: Mapping[str, Any], seed: int = 0, operation: str = "layer_training") -> Tensors:
    return operations.find(operation).inputs(of, "normal", seed, "cpu")


def case_of(of: Mapping[str, Any], operation: str, seed: int = 0) -> Case:
    workload = operations.workload(operation, "layer", of, group="layer", x=1, x_unit="tokens")
    return Case.make(workload, "normal", seed, torch.device("cpu"))


@dataclass(frozen=True)
class Given:
    """A kernel that is an attention, whatever the call asks for."""

    attend: Callable[..., torch.Tensor]
    compiles = compiles_model = compiles_blocks = False
    diffusers = ""

    def attention(self, call: AttentionCall) -> Attention:
        raise AssertionError("a layer compiles itself whole, and so asks for the attention that is not compiled")

    def eager(self, call: AttentionCall) -> Attention:
        return lambda q, k, v: self.attend(q, k, v, causal=call.causal)

    def in_form(self, call: AttentionCall, function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        return function


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


def tiled(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> torch.Tensor:
    group = q.shape[2] // k.shape[2]
    return precise(q, k.repeat(1, 1, group, 1), v.repeat(1, 1, group, 1), causal=causal)


def swapped(inputs: Tensors) -> Tensors:
    return {**inputs, "w_k": inputs["w_v"], "w_v": inputs["w_k"]}


def without(*names: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {name: x for name, x in tensors.items() if name not in names}


def same(tensors: Tensors) -> Tensors:
    return tensors


def changed(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {**tensors, name: change(tensors[name])}


GROUPED = {**SHAPES["Qwen3"], "width": 64}  # square weights of q, whose transpose has their shape
Change = Callable[[Tensors], Tensors]
# The attention, what it changes of the inputs and of the outputs, and what the reason begins with.
WRONG: dict[str, tuple[Callable[..., torch.Tensor], Change, Change, str]] = {
    "k and v swapped": (precise, swapped, same, "dx: relative L2 error"),
    "no rotation": (precise, without("table"), same, "dx: relative L2 error"),
    "first token rotated like the last": (precise, changed("table", lambda x: x.roll(1, 0)), same, "dx: relative L2"),
    "kv heads tiled": (tiled, same, same, "dx: relative L2 error"),
    "a weight's gradient missing": (precise, same, without("dw_k_norm"), "the outputs must be dx, "),
    "transposed": (precise, same, changed("dw_q", lambda x: x.mT.contiguous()), "dw_q: relative L2 error"),
    "accumulated": (precise, same, changed("dw_o", lambda x: 2 * x), "dw_o: relative L2 error"),
    "one row is zero": (precise, same, changed("dw_v", lambda x: x.index_fill(1, torch.tensor(3), 0)), "dw_v: "),
    "one row is NaN": (precise, same, changed("dx", lambda x: x.index_fill(1, torch.tensor(3), torch.nan)), "dx: "),
    "of one batch entry": (precise, changed("dy", lambda x: x.index_fill(0, torch.tensor(0), 0)), same, "dx: "),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_layers_are_refused(name: str) -> None:
    attend, of_inputs, of_outputs, reason = WRONG[name]
    case = case_of(GROUPED, "layer_backward")
    bound = operations.find("layer_backward").bind(Given(attend), GROUPED)
    wrong = judge(of_outputs(dict(bound(of_inputs(case.inputs)))), case)[1]
    assert wrong
    assert wrong.startswith(reason)


def test_the_right_layer_of_these_is_not_refused() -> None:
    case = case_of(GROUPED, "layer_backward")
    assert judge(operations.find("layer_backward").bind(Given(precise), GROUPED)(case.inputs), case)[1] is None


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
