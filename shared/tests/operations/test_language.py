"""Language models: right attentions pass in all passes, wrong ones are refused, weights stay, and costs are right."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from fluxbench import operations, variants
from fluxbench.correctness.case import Case
from fluxbench.correctness.judging import judge
from fluxbench.operations import sets
from fluxbench.operations.language_sets import MODELS
from fluxbench.operations.language_shape import LanguageShape
from fluxbench.operations.layers.language import rotation
from fluxbench.operations.layers.parts import rotate
from fluxbench.operations.models import language
from fluxbench.operations.protocol import Attention
from fluxbench.variants.forms import EAGER, FormedVariant

SIZES: dict[str, Any] = {"batch": 2, "seq_len": 48, "layers": 2, "width": 64, "heads": 4, "kv_heads": 4, "head_dim": 16}
SIZES |= {"mlp": 128, "vocabulary": 96}
SHAPES: dict[str, dict[str, Any]] = {name: {**SIZES, "family": name} for name in ("gpt2", "gpt-j", "gpt-neox", "llama")}
SHAPES["llama"]["kv_heads"] = 2
PASSES = {"language": {"logits"}, "language_backward": {"dx"}, "language_training": {"logits", "dx"}}
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _without_gradients() -> Any:
    with torch.set_grad_enabled(False):
        yield


@functools.cache
def case_of(family: str, operation: str, seed: int = 0) -> Case:
    shape = SHAPES[family]
    of = operations.workload(operation, "small", shape, group="small", x=48, x_unit="tokens")
    return Case.make(of, "normal", seed, CPU)


def judged(kernel: FormedVariant, family: str, operation: str) -> tuple[dict[str, float], str | None]:
    """Return the share of its budget that each output takes, and why the outputs are refused."""
    case = case_of(family, operation)
    bound = operations.find(operation).bind(kernel, SHAPES[family])
    bound(case.inputs)
    errors, wrong = judge(bound(case.inputs), case, None, kernel.variant.precision_class)
    return {name: error.budget_share for name, error in errors.items()}, wrong


@pytest.mark.parametrize("operation", PASSES)
@pytest.mark.parametrize(
    ("family", "name"),
    [("gpt2", "torch_flash"), ("gpt-j", "torch_math"), ("gpt-neox", "torch_native"), ("llama", "torch_flash"),
     ("llama", "torch_eager")],
)  # fmt: skip
def test_a_right_attention_passes_in_each_family_and_pass(family: str, name: str, operation: str) -> None:
    shares, wrong = judged(variants.find(name), family, operation)
    assert (wrong, set(shares)) == (None, PASSES[operation])
    assert all(0.3 < share < 0.7 for share in shares.values())


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float = 1.0, offset: int = 1) -> torch.Tensor:
    """Return causal attention in float32; `offset`: the first key after a query that it does not see."""
    k, v = (x.float().repeat_interleave(q.shape[2] // k.shape[2], dim=2) for x in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q.float(), k) * scale * q.shape[-1] ** -0.5
    scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(offset).bool(), float("-inf"))
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v).to(q.dtype)


def grown(x: torch.Tensor, by: float) -> torch.Tensor:
    """Return x, whose gradient is so many times as large as it must be."""
    return x.detach() * (1 - by) + x * by


WRONG: dict[str, Callable[..., torch.Tensor]] = {
    "nothing": lambda q, k, v: attention(q, k, v) * 0,
    "sees the next key": lambda q, k, v: attention(q, k, v, offset=2),
    "scores 10% too large": lambda q, k, v: attention(q, k, v, scale=1.1),
    "two heads swapped": lambda q, k, v: attention(q, k, v)[:, :, [1, 0, 2, 3]],
    "the last row not written": lambda q, k, v: torch.cat([attention(q, k, v)[:, :-1], torch.zeros_like(q[:, :1])], 1),
}  # fmt: skip
WRONG_GRADIENTS: dict[str, Callable[..., torch.Tensor]] = {
    "dq twice": lambda q, k, v: attention(grown(q, 2.0), k, v),
    "no dk": lambda q, k, v: attention(q, grown(k, 0.0), v),
    "dv of 0.8": lambda q, k, v: attention(q, k, grown(v, 0.8)),
}


def mine(attend: Attention) -> FormedVariant:
    of = variants.find("torch_native").variant
    return FormedVariant(replace(of, name="mine", load=lambda call: lambda *qkv: attend(*qkv).contiguous()), EAGER)


@pytest.mark.parametrize("what", ["nothing of it wrong", *WRONG, *WRONG_GRADIENTS])
def test_a_wrong_attention_is_refused_by_what_the_whole_model_gives(what: str) -> None:
    attend = {**WRONG, **WRONG_GRADIENTS}.get(what, attention)
    shares, wrong = judged(mine(attend), "llama", "language_training")
    assert (shares["logits"] > 1, max(shares.values()) > 1) == (what in WRONG, what in {**WRONG, **WRONG_GRADIENTS})
    assert ("over the budget" in (wrong or "")) == (what != "nothing of it wrong")


def test_an_attention_without_a_gradient_is_refused_by_the_library_s_fault() -> None:
    with pytest.raises(NotImplementedError, match="no gradient with respect to q, k and v"):
        judged(mine(lambda q, k, v: attention(*(x.detach() for x in (q, k, v)))), "gpt2", "language_training")


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_weights_are_the_same_bits_in_every_process_and_after_every_step(family: str) -> None:
    of = LanguageShape.of(SHAPES[family])
    judged(variants.find("torch_flash"), family, "language_training")
    held, anew = language.weights(of.weights, CPU), language.weights.__wrapped__(of.weights, CPU)
    parameters, (moments, _, steps) = language.trained(of.weights, CPU), language.moments(of.weights, CPU)
    assert list(parameters) == list(held)
    for name, weight in anew.items():
        assert torch.equal(weight, held[name]), name
        assert torch.equal(weight, parameters[name]), name
    assert all(int(step) >= 2 and moment.abs().max() > 0 for step, moment in zip(steps, moments, strict=True))
    assert sum(weight.numel() for weight in anew.values()) == of.parameters
    operation = operations.find("language")
    one, again, other = (operation.inputs(SHAPES[family], "normal", seed, CPU) for seed in (3, 3, 4))
    assert all(one[name].equal(again[name]) for name in one)
    assert [name for name in one if not one[name].equal(other[name])] == ["tokens", "targets"]
    assert one["tokens"][:, 1:].equal(one["targets"][:, :-1])


@pytest.mark.parametrize("family", SHAPES)
def test_the_reference_is_the_model_in_float64(family: str) -> None:
    of, case = LanguageShape.of(SHAPES[family]), case_of(family, "language_training")
    attend: Attention = variants.find("torch_math").eager(of.call(backward=True))
    model = language.instance(of, attend, CPU).double()
    outputs = operations.find("language_training").outputs(model, case.inputs)  # type: ignore[attr-defined]
    for name, expected in case.expected.items():
        assert float((outputs[name] - expected).norm() / expected.norm()) < 1e-5, name


@pytest.mark.parametrize("family", SHAPES)
@pytest.mark.parametrize("operation", ["language", "language_training"])
def test_the_cost_is_what_torch_counts(operation: str, family: str) -> None:
    def summed(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return q + (k + v).repeat_interleave(q.shape[2] // k.shape[2], dim=2)  # no product of an attention

    found, of = operations.find(operation), LanguageShape.of(SHAPES[family])
    bound = found.bind(mine(summed), SHAPES[family])
    with FlopCounterMode(display=False) as counted:
        bound(case_of(family, operation).inputs)
    passes = 3.5 if operation == "language_training" else 1
    of_attention = passes * of.layers * of.call().forward_cost.flops
    assert found.cost(SHAPES[family]).flops - of_attention == counted.get_total_flops()


def test_models_have_as_many_weights_as_published() -> None:
    published = {  # by the models' cards; those of GPT have biases, which are left out here
        "llama2-7b": 6_738_415_616, "llama2-13b": 13_015_864_320, "llama2-70b": 68_976_648_192,
        "llama3-8b": 8_030_261_248, "gpt2-124m": 124_439_808, "gpt-j-6b": 6_050_882_784, "gpt-neox-20b": 20_554_567_680,
    }  # fmt: skip
    found = {name: LanguageShape.of({**MODELS[name], "batch": 1, "seq_len": 8}).parameters for name in published}
    assert {name: found[name] for name in found if "llama" in name} == {
        name: count for name, count in published.items() if "llama" in name
    }
    assert all(0.998 < found[name] / count <= 1 for name, count in published.items())


def test_channels_that_are_not_rotated_stay() -> None:
    of = LanguageShape.of(SHAPES["gpt-j"])
    x = torch.randn(1, of.seq_len, 2, of.head_dim, generator=torch.Generator().manual_seed(0))
    turned = rotate(x, rotation(of, CPU))
    assert of.rotated_dim == 4
    assert turned[..., 4:].equal(x[..., 4:])
    assert not torch.isclose(turned[:, 1:, :, :4], x[:, 1:, :, :4]).any()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"family": "bert"}, "family of a language model must be one of gpt2, gpt-j, gpt-neox, llama, got 'bert'"),
        ({"family": "gpt2", "seq_len": 1025}, "seq_len of a gpt2 model must be at most 1024, got 1025"),
        ({"mlp": 0}, "mlp of a language model must be a positive integer, got 0"),
        ({"heads": 3}, "heads of an attention must be a multiple of kv_heads, got 3 and 2"),
        ({"experts": 8}, "a language model has no experts; its shape is batch, dtype, family"),
    ],
)
def test_a_shape_that_does_not_exist_is_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        operations.find("language").cost({**SHAPES["llama"], **changes})
    with pytest.raises(ValueError, match="the shape of a language model is incomplete"):
        LanguageShape.of({"family": "llama"})


def test_a_set_of_one_name_has_not_replaced_another() -> None:
    assert {one.operation for one in sets.sets()["llama3-8b-training"]} == {"attention_training"}
    assert len(sets.sets()["llama3-8b-model-training"]) == len(sets.sets()["llama2-7b-model-training"]) == 5
