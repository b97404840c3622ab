"""Under a causal mask rows differ: right kernels pass whatever order they add up in, and wrong ones do not."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

import pytest
import torch
from fakes import tokens
from judged import judge_rows, verdict
from wrong.causal import IN_FLOAT32, RIGHT, TF32, WRONG, WRONG_GRADIENT, WRONG_IN_FLOAT32, Kernel

from fluxbench import operations
from fluxbench.correctness import allowance
from fluxbench.correctness.case import Case
from fluxbench.correctness.content import POSITIONS, Content
from fluxbench.correctness.contents import Contents
from fluxbench.correctness.deviation import Deviation
from fluxbench.correctness.judging import judge
from fluxbench.correctness.sampling import Sampled
from fluxbench.operations import error_scales
from fluxbench.operations.attention_training import AttentionTraining
from fluxbench.operations.protocol import Operation, Tensors
from fluxbench.operations.workload import Shape, Workload

CPU, TRAINING = torch.device("cpu"), "attention_training"
# Lengths, head_dim, dtype, and whether the call is taken for one too long for a whole reference.
CALLS = [(128, 16, "float32", False), (512, 64, "float32", False), (512, 64, "bfloat16", False)]
LONG = [(1024, 64, "float32", True), (1024, 32, "bfloat16", True)]
EXACT = "exact"


def workload_of(seq_len: int, head_dim: int, dtype: str, operation: str = TRAINING) -> Workload:
    sizes = {"head_dim_qk": head_dim, "head_dim_v": head_dim, "heads": 2}
    return tokens("causal", seq_len, operation, causal=True, dtype=dtype, **sizes)


@functools.cache
def case_of(seq_len: int, head_dim: int, dtype: str, by_rows: bool, kind: str = "normal", seed: int = 0) -> Case:
    workload = workload_of(seq_len, head_dim, dtype)
    case = Case.by_rows(workload, kind, seed, CPU) if by_rows else Case.make(workload, kind, seed, CPU)
    assert case
    return case


def refused(kernels: Mapping[str, Kernel], case: Case, precision: str = EXACT) -> dict[str, str]:
    verdicts = {name: judge(kernel(case.inputs), case, precision=precision)[1] for name, kernel in kernels.items()}
    return {name: wrong for name, wrong in verdicts.items() if wrong}


def wrong_of(dtype: str) -> dict[str, Kernel]:
    return {**WRONG, **WRONG_GRADIENT, **(WRONG_IN_FLOAT32 if dtype == "float32" else {})}


@pytest.mark.parametrize(("seq_len", "head_dim", "dtype", "by_rows"), [*CALLS, *LONG])
def test_right_kernels_pass_in_every_order_and_wrong_ones_do_not(
    seq_len: int, head_dim: int, dtype: str, by_rows: bool
) -> None:
    case = case_of(seq_len, head_dim, dtype, by_rows)
    right = {**RIGHT, **(IN_FLOAT32 if dtype == "float32" else {})}
    if by_rows:  # which take seconds at such lengths
        right = {name: right[name] for name in ("blocks of 64", "unfused")}
    assert refused(right, case) == {}
    wrong = wrong_of(dtype)
    assert refused(wrong, case).keys() == wrong.keys()
    if dtype == "float32":
        assert refused(TF32, case, "tf32") == {}


@pytest.mark.parametrize("kind", ["flux", "peaked"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_right_kernels_pass_on_other_kinds_of_inputs(kind: str, dtype: str) -> None:
    for seed in range(2):
        case = case_of(192, 32, dtype, False, kind, seed)
        assert refused({**RIGHT, **(IN_FLOAT32 if dtype == "float32" else {})}, case) == {}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_no_seed_makes_a_right_kernel_wrong(dtype: str) -> None:
    """A quotient of two draws of one row's error exceeds 2 sqrt(6) in one of eight, so 24 seeds would show it."""
    kernels = {"blocks of 64": RIGHT["blocks of 64"], "unfused": RIGHT["unfused"]}
    assert [refused(kernels, case_of(64, 16, dtype, False, "normal", seed)) for seed in range(24)] == [{}] * 24


def test_a_fused_kernel_in_tf32_is_right_where_the_errors_of_the_yardstick_cancel() -> None:
    """The first 64 of 4,097 peaked tokens: no row has two keys of weight, so all gradients of q are nearly zero."""
    operation = operations.find(TRAINING)
    inputs = operation.inputs(workload_of(4097, 32, "float32").shape, "peaked", 0, CPU)
    few = {name: x[:, :64].contiguous() for name, x in inputs.items()}
    case = Case.of(operation, workload_of(64, 32, "float32"), few)
    assert refused(TF32, case, "tf32") == {}
    assert case._of_class("tf32").bins["dq"][0].rms == 2**-11
    assert refused({"1% off": dataclasses.replace(TF32["tf32"], probabilities=lambda x: 1.01 * x)}, case, "tf32")


def sampled(kernel: Callable[[Tensors], Tensors], contents: Contents, case: Case) -> list[Sampled]:
    """Return rows of three calls on each content, whose errors are the same each time."""
    rows = [Sampled.of(kernel(content.inputs), content, case) for content in contents.pool]
    return [each for each in rows for _ in range(3)]


@pytest.mark.parametrize(("seq_len", "head_dim", "dtype", "by_rows"), [*CALLS[:2], LONG[1]])
def test_rows_of_timed_calls_pass_where_kernels_are_right(
    seq_len: int, head_dim: int, dtype: str, by_rows: bool
) -> None:
    case = case_of(seq_len, head_dim, dtype, by_rows)
    made = Contents.make(workload_of(seq_len, head_dim, dtype), case, CPU, rotation=2, most=4, share=1.0)
    right = RIGHT["blocks of 64"] if dtype == "bfloat16" else IN_FLOAT32["three products of TF32"]
    assert judge_rows(sampled(right, made, case), case) is None
    assert all(verdict(right(each.inputs), each.as_case(case)) is None for each in made.pool if each.expected)
    for name, kernel in wrong_of(dtype).items():
        is_of_few_rows = "first row" in name or "last" in name  # that a sample need not hold
        assert is_of_few_rows or judge_rows(sampled(kernel, made, case), case), name
    stale = [Sampled.of(right(made.pool[0].inputs), each, case) for each in made.pool]
    assert judge_rows(stale, case)
    assert judge_rows([Sampled(each, stale[0].rows) for each in made.pool[1:]], case)


def test_a_kernel_that_is_just_right_when_it_is_checked_is_right_on_other_contents_too() -> None:
    """Its errors are twice those of a right one, and take 0.7 to 1.2 of a head's budget."""
    workload = workload_of(128, 16, "float32")
    operation, right = operations.find(workload.operation), IN_FLOAT32["three products of TF32"]

    def twice(inputs: Tensors) -> Tensors:
        exact = operation.reference(workload.shape, inputs, torch.float64)
        return {name: (2 * x.double() - exact[name]).float() for name, x in right(inputs).items()}

    passed = 0
    for seed in range(20):
        case = Case.make(workload, "normal", seed, CPU)
        if verdict(twice(case.inputs), case) is None:
            passed += 1
            made = Contents.make(workload, case, CPU, rotation=2, most=2, share=1.0, derived=True)
            assert judge_rows(sampled(twice, made, case), case) is None
    assert 10 < passed < 20


@pytest.mark.parametrize(("seq_len", "head_dim", "dtype", "by_rows"), [CALLS[2], *LONG])
def test_other_inputs_are_judged_by_a_known_yardstick_which_is_not_computed_again(
    monkeypatch: pytest.MonkeyPatch, seq_len: int, head_dim: int, dtype: str, by_rows: bool
) -> None:
    first, workload = case_of(seq_len, head_dim, dtype, by_rows), workload_of(seq_len, head_dim, dtype)
    first.yardstick(EXACT)
    given = workload, "normal", 1, CPU, first.yardsticks
    case = Case.by_rows(*given) if by_rows else Case.make(*given)
    assert case
    unfused, computed = Case._unfused, []

    def noted(self: Case, precision: str) -> Tensors:
        computed.append(precision)
        return unfused(self, precision)

    monkeypatch.setattr(Case, "_unfused", noted)
    assert refused(RIGHT, case) == {}
    assert computed == []
    assert refused(wrong_of(dtype), case).keys() == wrong_of(dtype).keys()


def test_of_one_content_that_comes_again_the_error_counts_once() -> None:
    squares = torch.tensor([[1.0], [4.0]])
    once = allowance.together(squares, 0)
    assert once.tolist() == pytest.approx([5 * (1 + 5 * 17 / 25)])
    again = allowance.together(squares.repeat(3, 1), 0, torch.full((6, 1), 3))
    assert again.tolist() == pytest.approx([3 * once.item()])
    assert allowance.together(torch.ones(10), 0).item() == pytest.approx(10 * (1 + 5 / 10))
    assert allowance.together(torch.zeros(3), 0).item() == 0


def test_scales_of_some_rows_are_those_of_all_and_follow_the_inputs() -> None:
    workload = workload_of(96, 16, "float32")
    operation = operations.find(TRAINING)
    call = operation.attention(workload.shape)
    inputs = operation.inputs(workload.shape, "normal", 0, CPU)
    names = ("out", "dq", "dk", "dv")
    whole = error_scales.of(call, inputs, names)
    at = {name: torch.tensor([0, 7, 95]) for name in names}
    some = error_scales.of(call, inputs, names, at)
    assert {name: tuple(x.shape) for name, x in whole.items()} == dict.fromkeys(names, (1, 96, 2))
    for name in names:
        torch.testing.assert_close(some[name], whole[name][:, at[name]])
    forward = error_scales.of(call, {name: inputs[name] for name in "qkv"}, ("out",), {"out": at["out"]})
    torch.testing.assert_close(forward["out"], some["out"])
    twice = error_scales.of(call, {**inputs, "v": 2 * inputs["v"]}, names)
    for name, factor in (("out", 2), ("dq", 2), ("dk", 2), ("dv", 1)):
        torch.testing.assert_close(twice[name], factor * whole[name])


def test_a_first_row_that_cancels_may_err_as_what_it_is_made_of_does() -> None:
    """Its dq is zero, as it sees one key: P (dP - D) k is rounding, which no norm bounds."""
    case = case_of(*CALLS[1])
    found = RIGHT["blocks of 64"](case.inputs)
    deviation = Deviation(found["dq"], case.expected["dq"])
    assert float(deviation.norms[0, 0].max()) < 1e-12
    limits = case.limits("dq", deviation)
    allowed = limits.row[0, 0] * deviation.units[0, 0]  # type: ignore[index]
    product = (case.inputs["dout"] * case.inputs["v"])[0, 0].norm(dim=-1) * case.inputs["k"][0, 0].norm(dim=-1) / 8
    assert (1e-6 * product < allowed).all()
    assert (allowed < 1e-4 * product).all()


@pytest.mark.parametrize("known", ["apart", "derived", "unseen"])
@pytest.mark.parametrize("operation", [TRAINING, "attention"])
def test_contents_know_the_scales_of_their_own_inputs(
    monkeypatch: pytest.MonkeyPatch, operation: str, known: str
) -> None:
    workload = tokens("causal", 96, operation, causal=True, heads=6, kv_heads=2, batch=2, head_dim_qk=16, head_dim_v=32)
    case = Case.make(workload, "normal", 0, CPU)
    derived, unseen = known == "derived", known == "unseen"
    made = Contents.make(workload, case, CPU, rotation=2, most=3, share=1.0, derived=derived, unseen=unseen)
    passes, of = [], error_scales.of

    def counted(*given: Any) -> Tensors:
        passes.append(given)
        return of(*given)

    monkeypatch.setattr(error_scales, "of", counted)
    assert case.scales
    for content in made.pool:
        scales = content.scales(case, whole=False)
        assert scales
        again = content.scales(case, whole=False)
        assert again
        assert all(again[name] is scales[name] for name in scales)
        call = case.operation.attention(case.shape)
        fresh = {False: of(call, content.inputs, scales, content.positions), True: of(call, content.inputs, scales)}
        for whole in {False, content.expected is not None}:
            found = content.scales(case, whole=whole)
            assert found
            assert found.keys() == content.rows.keys()
            for name, x in found.items():
                torch.testing.assert_close(x, fresh[whole][name])
    follow = [content for content in made.pool if content.origin]
    assert bool(follow) == (operation == TRAINING or known == "derived")
    assert not any(content.inputs is inputs for content in follow for _, inputs, *_ in passes)


class Counted(AttentionTraining):
    """Attention in training that notes of which outputs scales are computed."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def error_scales(
        self, shape: Shape, inputs: Tensors, outputs: Collection[str], positions: Tensors | None = None
    ) -> Tensors:
        self.asked.append([*outputs])
        return super().error_scales(shape, inputs, outputs, positions)


@pytest.mark.parametrize("whole", [True, False])
def test_contents_that_differ_by_their_outputs_compute_scales_once(whole: bool) -> None:
    whole_case = case_of(*CALLS[0])
    for part_first in (False, True):
        counted = Counted()
        case = dataclasses.replace(whole_case, operation=cast(Operation, counted))
        content = Content.make(workload_of(*CALLS[0][:3]), case, CPU, whole=True)
        pair = [(content, case), (content.without(("out",)), case.without(("out",)))]
        found = [one.scales(of, whole=whole) for one, of in (pair[::-1] if part_first else pair)]
        of_part, of_all = found if part_first else found[::-1]
        assert of_part
        assert of_all
        gradients = ["dq", "dk", "dv"]
        assert counted.asked == ([gradients, ["out"]] if part_first else [["out", *gradients]])
        assert [*of_part] == gradients
        assert all(of_part[name] is of_all[name] for name in gradients)
        of_others = content.scales(case, whole=not whole)
        assert of_others
        assert (of_others["dq"].shape[1], of_all["dq"].shape[1]) == ((POSITIONS, 128) if whole else (128, POSITIONS))
        torch.testing.assert_close(of_all["out"], error_scales_at(content, case, whole)["out"])


def error_scales_at(content: Content, case: Case, whole: bool) -> Tensors:
    """Return the scales of a content's outputs, computed anew."""
    call = case.operation.attention(case.shape)
    return error_scales.of(call, content.inputs, content.rows, None if whole else content.positions)


@pytest.mark.parametrize("by_rows", [True, False])
def test_a_part_of_a_call_may_be_judged_before_the_whole(by_rows: bool) -> None:
    workload, lacks = workload_of(300, 16, "bfloat16"), ("out",)
    case = Case.by_rows(workload, "normal", 0, CPU) if by_rows else Case.make(workload, "normal", 0, CPU)
    assert case
    right = RIGHT["blocks of 64"](case.inputs)
    assert verdict({name: x for name, x in right.items() if name not in lacks}, case.without(lacks)) is None
    assert verdict(right, case) is None


def test_bins_hold_enough_rows_each() -> None:
    at = torch.tensor([*range(16), 100, 900, 1000])
    errors, scales = torch.ones(1, 19, 1), torch.full((1, 19, 1), 2.0)
    assert allowance.bins_of(errors, scales, at) == (allowance.Bin(0, 0.5, 0.5),)
    at = torch.arange(256)
    found = allowance.bins_of(torch.arange(256.0)[None, :, None], torch.ones(1, 256, 1), at)
    assert [(each.start, each.largest) for each in found] == [(0, 63), (64, 191), (192, 255)]
    of: Tensors = {"norms": torch.ones(1, 3, 1), "scales": torch.ones(1, 3, 1)}
    allowed = allowance.allowed(found, **of, tokens=torch.tensor([0, 64, 255]), times=2, rounding=0.5)
    assert allowed.most.flatten().tolist() == pytest.approx([6**0.5 * (2 * most + 0.5) for most in (63, 191, 255)])
