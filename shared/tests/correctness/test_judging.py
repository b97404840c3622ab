"""Outputs to errors and a verdict."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from fluxbench.correctness.case import Case
from fluxbench.correctness.judging import judge, verdict

# Two outputs; that of `out` may be off by 2 * 0.01 + 2**-8 / sqrt(6), about 2.16%.
EXPECTED = {
    "out": torch.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=torch.float64),
    "norms": torch.tensor([3.0], dtype=torch.float64),
}
CASE = Case({}, EXPECTED, {"out": 0.01, "norms": 0.0}, torch.bfloat16)
NORM = 5.0  # of `out`
RIGHT = {name: x.bfloat16() for name, x in EXPECTED.items()}


def both(outputs: dict[str, Any], **options: float) -> str | None:
    """Return the verdict on outputs, which `judge` and `verdict` share."""
    reason = judge(outputs, CASE, **options)[1]
    assert verdict(outputs, CASE, **options) == reason
    return reason


def test_right_outputs_have_errors_of_zero_and_others_of_each_element() -> None:
    errors, wrong = judge(RIGHT, CASE)
    assert wrong is None
    assert verdict(RIGHT, CASE) is None
    assert list(errors) == ["out", "norms"]
    out = errors["out"]
    assert (out.rel_l2, out.max_abs, out.mean_abs, out.mse, out.nan_count, out.budget_share) == (0, 0, 0, 0, 0, 0)
    assert out.cosine == pytest.approx(1)
    assert out.budget_rel_l2 == pytest.approx(0.02 + 2**-8 / math.sqrt(6))
    outputs = {**RIGHT, "out": RIGHT["out"] + torch.tensor([[0.5, 0.0], [-0.25, 0.0]]).bfloat16()}
    off_by = judge(outputs, CASE)[0]["out"]
    off = math.hypot(0.5, 0.25)
    assert off_by.rel_l2 == pytest.approx(off / NORM)
    assert (off_by.max_abs, off_by.mean_abs) == (0.5, 0.75 / 4)
    assert off_by.mse == pytest.approx(off**2 / 4)
    dot, norm = 1.5 + 4 + 3.5 + 16, math.sqrt(1.5**2 + 4 + 1.75**2 + 16)
    assert off_by.cosine == pytest.approx(dot / norm / NORM)
    assert off_by.budget_share == pytest.approx(off / NORM / off_by.budget_rel_l2)


@pytest.mark.parametrize(("off", "wrong"), [(2 / 128, False), (3 / 128, True), (-3 / 128, True)])
def test_an_output_over_its_budget_is_wrong(off: float, wrong: bool) -> None:
    reason = both({**RIGHT, "out": RIGHT["out"] * (1 + off)})
    assert reason == ("relative L2 error 2.34e-02 is over the budget 2.16e-02" if wrong else None)


def test_each_output_has_its_own_budget_and_is_named() -> None:
    reason = both({**RIGHT, "norms": RIGHT["norms"] * 1.02})
    assert reason is not None
    assert reason.startswith("norms: relative L2 error 2.08e-02 is over the budget 1.59e-03")
    assert both({**RIGHT, "norms": RIGHT["norms"] * 1.02}, quantized_budget=0.03) is None
    assert both({**RIGHT, "out": RIGHT["out"] * 1.02}, quantized_budget=0.01) is not None


@pytest.mark.parametrize("values", [[math.nan], [math.inf, -math.inf]])
def test_what_is_not_finite_is_counted_and_has_no_errors(values: list[float]) -> None:
    out = RIGHT["out"].clone()
    out.view(-1)[: len(values)] = torch.tensor(values)
    errors, wrong = judge({**RIGHT, "out": out}, CASE)
    assert wrong == f"{len(values)} of 4 output elements are NaN or infinite"
    assert verdict({**RIGHT, "out": out}, CASE) == "elements of the output are NaN or infinite"
    found = errors["out"]
    assert (found.rel_l2, found.max_abs, found.cosine, found.nan_count) == (None, None, None, len(values))
    assert found.budget_share == math.inf
    assert errors["norms"].nan_count == 0


class Lazy(torch.Tensor):  # type: ignore[misc]
    """A tensor that may compute its values when they are first asked for."""


OUT = RIGHT["out"]


@pytest.mark.parametrize(
    ("outputs", "reason"),
    [
        ({}, "the outputs must be out, norms, got none"),
        ({"out": OUT}, "the outputs must be out, norms, got out"),
        ({**RIGHT, "more": OUT}, "the outputs must be out, norms, got out, norms, more"),
        ({**RIGHT, "out": (OUT, OUT)}, "the output must be one tensor, got tuple"),
        ({**RIGHT, "out": OUT.as_subclass(Lazy)}, "the output must be a plain torch.Tensor, got Lazy"),
        ({**RIGHT, "out": OUT[None]}, "the output must have shape [2, 2], got [1, 2, 2]"),
        ({**RIGHT, "out": OUT.float()}, "the output must be torch.bfloat16, got torch.float32"),
        ({**RIGHT, "out": OUT.to("meta")}, "the output must be on cpu, got meta"),
        ({**RIGHT, "out": OUT.T}, "the output must be contiguous, got strides [1, 2] of shape [2, 2]"),
        ({**RIGHT, "norms": OUT}, "norms: the output must have shape [1], got [2, 2]"),
    ],
)
def test_an_output_of_another_kind_is_refused_without_errors(outputs: dict[str, Any], reason: str) -> None:
    assert both(outputs) == reason
    assert judge(outputs, CASE)[0] == {}
