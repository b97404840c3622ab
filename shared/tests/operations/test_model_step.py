"""A step of diffusers' own models: right kernels pass, wrong ones are refused, and forms compile what they name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from models import FLUX1, SHAPES, step
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fluxbench import operations, variants
from fluxbench.correctness.case import Case
from fluxbench.correctness.judging import judge
from fluxbench.operations.protocol import Attention, Tensors
from fluxbench.operations.shapes import AttentionCall
from fluxbench.records.status import Status
from fluxbench.timing.profiler import compile_counters
from fluxbench.variants.forms import COMPILE_BLOCKS, EAGER, Form, FormedVariant
from fluxbench.worker.failures import classify

pytest.importorskip("diffusers")
STEP = operations.find("model_step")
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _without_gradients() -> Any:
    with torch.inference_mode():
        yield


@functools.cache
def case_of(family: str, seed: int = 0) -> Case:
    with torch.inference_mode():
        return Case.make(step(SHAPES[family]), "normal", seed, CPU)


def registered(attend: Attention, form: Form = EAGER) -> FormedVariant:
    """Return a kernel that diffusers has no backend for."""
    of = variants.find("torch_native").variant
    return FormedVariant(replace(of, name="mine", load=lambda call: attend, diffusers="", fullgraph=True), form)


def weights_of(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return (torch.einsum("bqhd,bkhd->bhqk", q.float(), k.float()) * q.shape[-1] ** -0.5).softmax(-1)


def out_of(weights: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.einsum("bhqk,bkhd->bqhd", weights, v.float()).to(v.dtype).contiguous()


def right(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return out_of(weights_of(q, k), v)


def float8(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.float8_e4m3fn).to(x.dtype)


WRONG: dict[str, Callable[..., torch.Tensor]] = {
    "drops the last key": lambda q, k, v: right(q, k[:, :-1], v[:, :-1]),
    "float8 operands": lambda q, k, v: right(float8(q), float8(k), float8(v)),
    "two heads swapped": lambda q, k, v: right(q, k, v)[:, :, [1, 0, *range(2, q.shape[2])]].contiguous(),
    "no scale": lambda q, k, v: right(q * q.shape[-1] ** 0.5, k, v),
    "scores rounded to halves": lambda q, k, v: out_of(
        ((weights_of(q, k).log() * 2).round() / 2).softmax(-1), v
    ),
    "the last row not written": lambda q, k, v: torch.cat([right(q, k, v)[:, :-1], torch.zeros_like(q[:, :1])], 1),
    "nothing": lambda q, k, v: torch.zeros_like(q),
}  # fmt: skip


def judged(kernel: FormedVariant, family: str = "flux1", seed: int = 0) -> tuple[float, str | None]:
    """Return the share of its budget that a step's output takes, and why it is refused."""
    case = case_of(family, seed)
    errors, wrong = judge(STEP.bind(kernel, SHAPES[family])(case.inputs), case)
    return max(error.budget_share for error in errors.values()), wrong


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("flex_eager", "flux1"),
        *((name, family) for name in ("torch_native", "torch_flash", "torch_math") for family in SHAPES),
    ],
)
def test_each_backend_of_diffusers_that_a_cpu_has_is_right(name: str, family: str) -> None:
    share, wrong = judged(variants.find(name), family)
    assert wrong is None
    assert 0.4 < share < 0.95  # it rounds as the yardstick does, and differs from it by less than the one rounding


@pytest.mark.parametrize("family", SHAPES)
def test_a_registered_kernel_gets_every_attention_of_the_model(family: str) -> None:
    asked: list[tuple[int, int]] = []

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        asked.append((q.shape[1], k.shape[1]))
        return right(q, k, v)

    assert judged(registered(attend), family)[1] is None
    shape = SHAPES[family]
    tokens = STEP.attention(shape).seq_len_q
    to_text = [(tokens, shape["text_tokens"])] if family == "wan" else []
    assert asked == [(tokens, tokens), *to_text] * (shape["layers"] + shape.get("single_layers", 0))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_kernel_is_refused_by_the_output_of_the_whole_model(what: str, seed: int) -> None:
    assert "is over the budget" in (judged(registered(WRONG[what]), seed=seed)[1] or "accepted")


def test_weights_and_inputs_are_the_same_bits_in_every_process_and_follow_their_seed() -> None:
    one, again = (STEP.inputs(FLUX1, "normal", 3, CPU) for _ in range(2))
    other = STEP.inputs(FLUX1, "normal", 4, CPU)
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert [name for name in one if not torch.equal(one[name], other[name])] == [
        "hidden_states", "encoder_hidden_states", "pooled_projections",
    ]  # fmt: skip
    from fluxbench.operations.model_shape import ModelShape
    from fluxbench.operations.models import build

    of = ModelShape.of(FLUX1).weights
    held, anew = build.weights(of, CPU), build.weights.__wrapped__(of, CPU)
    assert all(torch.equal(held[name], anew[name]) for name in held)  # of other processes: test_ranks.py
    bits = build.bits(held)
    for last in (*list(held)[:1], *list(held)[-1:]):
        changed = {**held, last: held[last].clone()}
        changed[last].view(torch.int16 if changed[last].element_size() == 2 else torch.int32).flatten()[0] ^= 1
        assert not torch.equal(build.bits(changed), bits)


def test_blocks_beyond_the_sets_of_weights_share_those_of_earlier_ones_and_each_computes_by_itself() -> None:
    from fluxbench.operations.model_shape import ModelShape
    from fluxbench.operations.models import build

    doubles, singles = build.SETS["transformer_blocks"], build.SETS["single_transformer_blocks"]
    deep = ModelShape.of({**FLUX1, "layers": doubles + 1, "single_layers": singles + 2})
    model = build.instance(deep, CPU)
    owners = {module.weight.data_ptr() for name, module in model.named_modules() if name.endswith("attn.to_q")}
    assert len(owners) == doubles + singles
    few = build.instance(ModelShape.of({**FLUX1, "layers": 1, "single_layers": 1}), CPU)
    assert len({x.data_ptr() for x in few.state_dict().values()}) == len(few.state_dict())


def test_making_a_reference_leaves_the_precision_of_products_by_which_compilers_keep_what_they_made() -> None:
    def precisions() -> tuple[str, str, bool]:
        matmul = torch.backends.cuda.matmul
        return matmul.fp32_precision, torch.get_float32_matmul_precision(), matmul.allow_tf32

    before = precisions()
    STEP.reference(FLUX1, case_of("flux1").inputs, torch.float64)
    assert precisions() == before


def test_the_reference_is_the_model_of_diffusers_in_float64() -> None:
    from fluxbench.operations.model_shape import ModelShape
    from fluxbench.operations.models import build

    model = build.instance(ModelShape.of(FLUX1), CPU).double()
    model.set_attention_backend("_native_math")
    inputs = case_of("flux1").inputs
    wide: Tensors = {name: x.double() if x.is_floating_point() else x for name, x in inputs.items()}
    torch.testing.assert_close(
        case_of("flux1").expected["out"].double(), model(**wide, return_dict=False)[0], rtol=0, atol=2e-5
    )


@pytest.mark.parametrize("family", SHAPES)
def test_the_cost_is_what_torch_counts_but_for_what_multiplies_one_vector(family: str) -> None:
    bound = STEP.bind(variants.find("torch_math"), SHAPES[family])
    assert (bound.can_be_captured, bound.idle) == (True, True)
    inputs = case_of(family).inputs
    bound(inputs)
    with FlopCounterMode(display=False) as counted:
        bound(inputs)
    assert 0.95 < STEP.cost(SHAPES[family]).flops / counted.get_total_flops() <= 1


@dataclass
class Compiled:
    """What was compiled, by torch's tracing alone, without a compiler behind it."""

    names: list[str]


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Compiled:
    seen = Compiled([])
    compile_module = nn.Module.compile

    def traced(self: Any, **options: Any) -> None:
        seen.names.append(type(self).__name__)
        compile_module(self, backend="eager", **options)

    monkeypatch.setattr(nn.Module, "compile", traced)
    return seen


def test_compiled_blocks_are_those_of_diffusers_and_hold_a_registered_kernel_as_one_operator(
    compiled: Compiled,
) -> None:
    calls: list[torch.Tensor] = []

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        calls.append(q)  # torch.compile cannot see this: it does not look into the kernel
        return right(q, k, v)

    wrong = judged(registered(attend, COMPILE_BLOCKS))[1]
    assert (wrong, len(calls)) == (None, 2)
    assert compiled.names == ["FluxTransformerBlock", "FluxSingleTransformerBlock"]


def test_an_operator_is_named_after_its_kernel_whatever_was_registered_before() -> None:
    from fluxbench.operations.model_shape import ModelShape
    from fluxbench.operations.models import build, dispatch

    names = []
    for references in (0, 2):  # which a process computes or loads
        for _ in range(references):
            STEP.reference(FLUX1, case_of("flux1").inputs, torch.bfloat16)
        dispatch.use(
            build.instance(ModelShape.of(FLUX1), CPU), registered(right, COMPILE_BLOCKS), STEP.attention(FLUX1)
        )
        names.append(dispatch._operators["mine_blocks"] - 1)
    assert names[1] == names[0] + 1
    assert all(hasattr(torch.ops.fluxbench, f"mine_blocks_{number}") for number in names)


def test_what_is_compiled_stays_valid_when_other_kernels_are_registered(compiled: Compiled) -> None:
    first = STEP.bind(registered(right, COMPILE_BLOCKS), FLUX1)
    first(case_of("flux1").inputs)
    STEP.reference(FLUX1, case_of("flux1").inputs, torch.bfloat16)
    before = compile_counters()
    first(case_of("flux1").inputs)
    assert compile_counters() == before


@pytest.mark.parametrize(
    ("name", "words"),
    [("flash_attn_2", "flash-attn>="), ("sage_int8_fp16_triton", "sageattention>="), ("xformers", "xformers>=")],
)
def test_a_backend_whose_library_is_missing_is_unavailable_with_what_diffusers_says(name: str, words: str) -> None:
    with pytest.raises(ImportError) as raised:
        STEP.bind(variants.find(name), FLUX1)(case_of("flux1").inputs)
    status, sentence = classify(raised.value)
    assert status is Status.UNAVAILABLE
    assert "missing package" in sentence
    assert words in str(raised.value)


def test_a_kernel_that_compiles_itself_is_registered_in_a_model_that_is_not_compiled() -> None:
    flex = variants.find("flex").variant
    loaded: list[AttentionCall] = []

    def load(call: AttentionCall) -> Attention:
        loaded.append(call)
        return right

    assert judged(FormedVariant(replace(flex, load=load), EAGER))[1] is None
    assert len(loaded) == 1
