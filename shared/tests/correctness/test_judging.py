"""Outputs to errors and a verdict."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch
from fakes import tokens
from judged import verdict
from wrong import odd

from fluxbench import operations
from fluxbench.correctness.case import Case, Yardstick
from fluxbench.correctness.deviation import Worst
from fluxbench.correctness.judging import judge

# Two outputs; that of `out` may be off by 0.02 + 2**-8 / sqrt(6), about 2.16%, and a row of it by 5.3%.
EXPECTED = {
    "out": torch.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=torch.float64),
    "norms": torch.tensor([3.0], dtype=torch.float64),
}
OPERATION = operations.find("attention")
EXACT = Yardstick({"out": Worst(0.02, 0.02, 0.02), "norms": Worst(0.0, 0.0, 0.0)}, {})
CASE = Case(OPERATION, {}, {}, EXPECTED, torch.bfloat16, {"exact": EXACT})
NORM = 5.0  # of `out`
RIGHT = {name: x.bfloat16() for name, x in EXPECTED.items()}


def both(outputs: dict[str, Any], **options: Any) -> str | None:
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
    assert (out.head_budget_share, out.row_budget_share) == (None, 0)
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


def test_the_angle_of_a_large_output_is_known_to_nine_digits_where_the_answer_is_in_float32() -> None:
    rng = torch.Generator().manual_seed(0)
    expected = torch.randn(1, 1 << 21, generator=rng)
    case = Case(OPERATION, {}, {}, {"out": expected}, torch.bfloat16, {"exact": EXACT})
    out = expected.bfloat16()
    one, other = out.double().flatten(), expected.double().flatten()
    cosine = float(one.dot(other) / one.norm() / other.norm())
    assert judge({"out": out}, case)[0]["out"].cosine == pytest.approx(cosine, rel=1e-9)


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


# [batch, tokens, heads, head_dim], about as large as an output of 24 heads: what is wrong of it is little of the whole.
MANY = torch.randn(2, 4096, 24, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
ROUNDED = MANY.bfloat16()  # by 0.0017 of each row
OF_MANY = Case(
    OPERATION, {}, {}, {"out": MANY}, torch.bfloat16, {"exact": Yardstick({"out": Worst(0.0029, 0.003, 0.0045)}, {})}
)  # as measured on normal inputs


def noisy(out: torch.Tensor) -> None:
    """Add an error of 1.1% to three heads, as int8 products have it."""
    out[:, :, ::8] += 0.011 * torch.randn(out[:, :, ::8].shape, generator=torch.Generator().manual_seed(1)).bfloat16()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda out: out[-1, -1, -1].zero_(),
            r"error 1.64e-02 of head \[1, 23\] is over the budget 4.60e-03 of a head",
        ),
        (lambda out: out[0, 7, 1].copy_(out[0, 9, 0]), r"of head \[0, 1\] is over"),
        (lambda out: out[1, 5, 3, 9].mul_(10), r"of head \[1, 3\] is over"),
        (lambda out: out[1, 5, 3, 9].mul_(4), r"of row \[1, 5, 3\] is over the budget 1.49e-02 of a row"),
        (noisy, r"error 1.13e-02 of head \[[01], (0|8|16)\] is over the budget 4.60e-03 of a head"),
    ],
)
def test_what_hides_in_the_error_of_the_whole_shows_by_head_or_row(change: Any, reason: str) -> None:
    out = ROUNDED.clone()
    assert judge({"out": out}, OF_MANY)[1] is None
    change(out)
    errors, wrong = judge({"out": out}, OF_MANY)
    assert errors["out"].budget_share < 1
    assert re.search(reason, str(wrong)), wrong
    assert verdict({"out": out}, OF_MANY) == wrong
    assert max(errors["out"].head_budget_share or 0, errors["out"].row_budget_share or 0) > 1


def test_a_row_that_cancels_may_err_as_its_head_does() -> None:
    expected = torch.ones(1, 400, 1, 8, dtype=torch.float64)
    expected[0, 0] = 1e-6
    case = Case(OPERATION, {}, {}, {"out": expected}, torch.bfloat16, OF_MANY.yardsticks)
    out = expected.clone()
    out[0, 0] += 1e-3
    assert judge({"out": out.bfloat16()}, case)[1] is None
    out[0, 0] += 4e-2
    assert "of row [0, 0, 0] is over" in str(judge({"out": out.bfloat16()}, case, None)[1])


def test_a_kernel_that_takes_tf32_is_refused_as_exact_with_the_class_it_is_of() -> None:
    case = Case.make(tokens("single", 77, dtype="float32"), "normal", 0, torch.device("cpu"))
    for load in odd.TF32.values():
        out = load(OPERATION.attention(case.shape))(*case.inputs.values())
        assert "; it is within that of class tf32" in str(judge({"out": out}, case)[1])
        assert judge({"out": out}, case, None, "tf32")[1] is None
    assert "tf32" not in str(judge({"out": 1.1 * case.expected["out"].float()}, case)[1])
