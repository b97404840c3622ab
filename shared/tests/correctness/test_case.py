"""Inputs with their reference, and how far an output may be off."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from fakes import TINIER, tokens

from fluxbench import operations
from fluxbench.correctness.case import Case
from fluxbench.correctness.deviation import Deviation
from fluxbench.operations.protocol import Tensors
from fluxbench.operations.workload import Shape

CPU = torch.device("cpu")


@pytest.mark.parametrize("operation", ["attention", "attention_backward", "attention_training"])
def test_a_case_holds_the_answer_and_what_its_precision_costs(operation: str) -> None:
    workload = tokens("small", 40, operation)
    case = Case.make(workload, "flux", 3, CPU)
    known = operations.find(operation)
    inputs = known.inputs(workload.shape, "flux", 3, CPU)
    assert all(torch.equal(case.inputs[name], inputs[name]) for name in inputs)
    answer = known.reference(workload.shape, inputs, torch.float64)
    unfused = known.reference(workload.shape, inputs, torch.bfloat16)
    assert case.expected.keys() == answer.keys() == case.yardstick("exact").keys()
    for name, want in answer.items():
        dtype = torch.float32 if known.differentiates else torch.float64
        assert (case.expected[name].dtype, torch.equal(case.expected[name], want.to(dtype))) == (dtype, True)
        error = unfused[name].double() - want  # [batch, tokens, heads, head_dim]
        worst = case.yardstick("exact")[name]
        assert worst.rel_l2 == pytest.approx(float(error.norm() / want.norm()))
        heads = error.norm(dim=(1, 3)) / want.norm(dim=(1, 3))
        assert worst.head == pytest.approx(float(heads.max()))
        usual = want.norm(dim=-1).square().mean(1, keepdim=True).sqrt()
        rows = error.norm(dim=-1) / torch.maximum(want.norm(dim=-1), usual)
        assert worst.row == pytest.approx(float(rows.max()))
    assert case.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("operation", "dtype", "precision", "times", "digits"),
    [
        ("attention", "bfloat16", "exact", 1, 8),
        ("attention", "float16", "exact", 1, 11),
        ("attention", "float32", "exact", 2, 24),
        ("attention", "float32", "tf32", 2, 11),
        ("attention", "float16", "rounded", 2, 11),
        ("attention_backward", "bfloat16", "exact", 2, 8),
        ("attention_training", "bfloat16", "exact", 1, 8),  # of its output, which comes first
    ],
)
def test_budgets_are_the_errors_of_the_yardstick_and_one_rounding(
    operation: str, dtype: str, precision: str, times: int, digits: int
) -> None:
    case = Case.make(tokens("small", 40, operation, dtype=dtype), "normal", 0, CPU)
    output = next(iter(case.expected))
    of, rounding = case.yardstick(precision)[output], 2**-digits / math.sqrt(6)
    budgets = case.budgets(output, precision=precision)
    assert case.budget(output, precision=precision) == budgets.rel_l2 == pytest.approx(times * of.rel_l2 + rounding)
    few = math.sqrt(1 + 5 / case.expected[output].shape[1])  # rows of a head
    assert budgets.head == pytest.approx(few * (times * of.head + rounding))
    assert budgets.row == pytest.approx(math.sqrt(6) * (times * of.row + rounding))


def test_each_class_may_err_as_its_arithmetic_does() -> None:
    """bfloat16, about 1e-3: a rounding is 2**-8 / sqrt(6); scores near 60 that are rounded to 8 bits are off by 0.1."""
    by_kind = {kind: Case.make(tokens("small", 123), kind, 0, CPU) for kind in ("normal", "peaked")}
    budgets = {
        (kind, precision): case.budget("out", precision=precision)
        for kind, case in by_kind.items()
        for precision in ("exact", "rounded")
    }
    assert 0.004 < budgets["normal", "exact"] < 0.005
    assert 0.01 < budgets["normal", "rounded"] < 0.015
    assert budgets["peaked", "exact"] < 0.006
    assert budgets["peaked", "rounded"] > 0.05
    single = Case.make(tokens("small", 123, dtype="float32"), "normal", 0, CPU)
    assert single.budget("out") < 2e-6
    assert 5e-4 < single.budget("out", precision="tf32") < 5e-3


def test_a_declared_budget_may_be_uneven_as_the_yardstick_is() -> None:
    case = Case.make(tokens("small", 40), "normal", 0, CPU)
    of, budgets = case.yardstick("exact")["out"], case.budgets("out", 0.06, "quantized")
    assert case.budget("out", 0.06) == budgets.rel_l2 == 0.06
    few = math.sqrt(1 + 5 / case.expected["out"].shape[1])
    assert budgets.head == pytest.approx(few * 0.06 * of.head / of.rel_l2)
    assert budgets.row == pytest.approx(0.06 * math.sqrt(6) * of.row / of.rel_l2)


def test_a_case_comes_back_from_its_file_and_errors_are_relative_to_its_answer(tmp_path: Path) -> None:
    case = Case.make(TINIER, "normal", 0, CPU)
    again = Case.from_content(case.content, TINIER)
    assert (again.yardsticks, again.dtype, again.shape) == (case.yardsticks, case.dtype, TINIER.shape)
    assert torch.equal(again.inputs["k"], case.inputs["k"])
    assert torch.equal(again.expected["out"], case.expected["out"])
    assert again.expecting({"out": case.expected["out"] * 2}).expected["out"].equal(2 * case.expected["out"])
    rows = Deviation(torch.tensor([3.0, 8.0]), torch.tensor([3.0, 4.0], dtype=torch.float64))
    assert (rows.rel_l2, rows.heads) == (0.8, None)


class NoAnswer(type(operations.find("attention"))):  # type: ignore[misc]
    """An operation whose reference is missing in some dtype."""

    def __init__(self, *dtypes: torch.dtype) -> None:
        self.dtypes = dtypes

    def reference(self, shape: Shape, inputs: Tensors, dtype: torch.dtype, precision: str = "exact") -> Tensors:
        return super().reference(shape, inputs, dtype) if dtype in self.dtypes else {}


@pytest.mark.parametrize("dtypes", [(), (torch.float64,), (torch.bfloat16,)])
def test_an_operation_without_a_reference_is_refused(dtypes: tuple[torch.dtype, ...]) -> None:
    inputs = operations.find("attention").inputs(TINIER.shape, "normal", 0, CPU)
    with pytest.raises(ValueError, match="'attention' must have a reference with the same outputs in each dtype"):
        Case.of(NoAnswer(*dtypes), TINIER, inputs)


def test_gradients_of_float32_are_judged_by_float64_ones() -> None:
    workload = tokens("small", 24, "attention_training", dtype="float32")
    case = Case.make(workload, "normal", 0, CPU)
    assert {x.dtype for x in case.expected.values()} == {torch.float64}
    assert 0 < case.yardstick("exact")["dq"].rel_l2 < 1e-6
