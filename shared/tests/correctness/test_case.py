"""Inputs with their reference, and how far an output may be off."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from fakes import TINIER, tokens

from fluxbench import operations
from fluxbench.correctness.case import Case, relative_l2
from fluxbench.operations.protocol import Tensors
from fluxbench.operations.workload import Shape

CPU = torch.device("cpu")


@pytest.mark.parametrize("operation", ["attention", "attention_backward"])
def test_a_case_holds_the_answer_and_what_its_precision_costs(operation: str) -> None:
    workload = tokens("small", 40, operation)
    case = Case.make(workload, "flux", 3, CPU)
    known = operations.find(operation)
    inputs = known.inputs(workload.shape, "flux", 3, CPU)
    assert all(torch.equal(case.inputs[name], inputs[name]) for name in inputs)
    answer = known.reference(workload.shape, inputs, torch.float64)
    unfused = known.reference(workload.shape, inputs, torch.bfloat16)
    assert case.expected.keys() == answer.keys() == case.unfused_rel_l2.keys()
    for name, want in answer.items():
        assert torch.equal(case.expected[name], want)
        assert case.unfused_rel_l2[name] == pytest.approx(float((unfused[name].double() - want).norm() / want.norm()))
    assert (case.dtype, case.expected[next(iter(answer))].dtype) == (torch.bfloat16, torch.float64)


def test_a_budget_is_twice_the_error_of_unfused_operations_and_one_rounding() -> None:
    for dtype, digits in (("bfloat16", 8), ("float16", 11), ("float32", 24)):  # of a significand
        case = Case.make(tokens("small", 40, dtype=dtype), "normal", 0, CPU)
        expected = 2 * case.unfused_rel_l2["out"] + 2**-digits / math.sqrt(6)
        assert case.budget("out") == pytest.approx(expected)
        assert case.budget("out", 0.06) == 0.06


def test_a_case_comes_back_from_its_file_and_errors_are_relative_to_its_answer(tmp_path: Path) -> None:
    case = Case.make(TINIER, "normal", 0, CPU)
    case.save(tmp_path / "case.pt")
    again = Case.load(tmp_path / "case.pt")
    assert (again.unfused_rel_l2, again.dtype) == (case.unfused_rel_l2, case.dtype)
    assert torch.equal(again.inputs["k"], case.inputs["k"])
    assert torch.equal(again.expected["out"], case.expected["out"])
    assert again.expecting({"out": case.expected["out"] * 2}).expected["out"].equal(2 * case.expected["out"])
    assert relative_l2(torch.tensor([3.0, 8.0]), torch.tensor([3.0, 4.0], dtype=torch.float64)) == 0.8


class NoAnswer(type(operations.find("attention"))):  # type: ignore[misc]
    """An operation whose reference is missing in some dtype."""

    def __init__(self, *dtypes: torch.dtype) -> None:
        self.dtypes = dtypes

    def reference(self, shape: Shape, inputs: Tensors, dtype: torch.dtype) -> Tensors:
        return super().reference(shape, inputs, dtype) if dtype in self.dtypes else {}


@pytest.mark.parametrize("dtypes", [(), (torch.float64,), (torch.bfloat16,)])
def test_an_operation_without_a_reference_is_refused(dtypes: tuple[torch.dtype, ...]) -> None:
    inputs = operations.find("attention").inputs(TINIER.shape, "normal", 0, CPU)
    with pytest.raises(ValueError, match="'attention' must have a reference with the same outputs in each dtype"):
        Case.of(NoAnswer(*dtypes), TINIER, inputs)
