"""Outputs and a case to errors and a verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from fluxbench.correctness.case import Case, class_of_yardstick
from fluxbench.correctness.deviation import Deviation, Limits, Worst, place_of_worst, share
from fluxbench.correctness.questions import Question, answers, known, together
from fluxbench.operations.precision import CLASSES, EXACT, TF32


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Errors of one output, with the fields of a record's (`records.schema.Errors`)."""

    rel_l2: float | None  # None where the output is not finite
    max_abs: float | None
    mean_abs: float | None
    mse: float | None
    cosine: float | None
    nan_count: int
    budget_rel_l2: float
    head_budget_share: float | None = None  # of the worst head, over the budget of a head
    row_budget_share: float | None = None
    rel_l2_by_inputs: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def budget_share(self) -> float:
        """The share of its budget that the output takes; infinite where it is not finite."""
        return math.inf if self.rel_l2 is None else self.rel_l2 / self.budget_rel_l2


def worse(one: Errors, other: Errors) -> Errors:
    """Return the errors that take more of their budget, with the larger shares that heads and rows take of theirs."""
    worst = max(one, other, key=lambda each: each.budget_share)
    return replace(
        worst,
        head_budget_share=_larger(one.head_budget_share, other.head_budget_share),
        row_budget_share=_larger(one.row_budget_share, other.row_budget_share),
    )


def _larger(one: float | None, other: float | None) -> float | None:
    return max((share for share in (one, other) if share is not None), default=None)


Judged = tuple[dict[str, Errors], str | None]  # by output, and why the outputs are wrong


def judge(
    outputs: Mapping[str, object], case: Case, quantized_budget: float | None = None, precision: str = EXACT
) -> Judged:
    """Return the errors of each output and why the outputs are wrong, or None where they are right.

    There are no errors where an output is missing or not of the right kind, shape, dtype, device or layout. Where a
    kernel of float32 inputs is wrong because it uses TF32, the reason names that class.
    """
    return answers([judgement_on(outputs, case, quantized_budget, precision)])[0]


def judgement_on(
    outputs: Mapping[str, object], case: Case, quantized_budget: float | None = None, precision: str = EXACT
) -> Question[Judged]:
    """Ask for what `judge` returns."""
    if wrong := wrong_kind(outputs, case):
        return known(({}, wrong))
    judged = _judged(outputs, case)
    deviations = {name: Deviation(rows, case.expected[name]) for name, rows in judged.items()}
    asked = [
        part
        for name, deviation in deviations.items()
        for part in (deviation.question(), Question(_sums(judged[name], case.expected[name]), tuple))
    ]

    def found(told: list[tuple[float, ...]]) -> Judged:
        errors: dict[str, Errors] = {}
        wrong = None
        for (name, deviation), sums in zip(deviations.items(), told[1::2], strict=True):
            out, budgets = outputs[name], case.limits(name, deviation, quantized_budget, precision)
            assert isinstance(out, torch.Tensor)
            nan_count = 0
            if case.positions is not None or not math.isfinite(deviation.rel_l2):
                nan_count = int((~torch.isfinite(out)).sum())
            errors[name] = _errors(case.expected[name].numel(), sums, deviation, budgets, nan_count)
            reason = _over(deviation, budgets)
            if errors[name].nan_count:
                reason = f"{errors[name].nan_count} of {out.numel()} output elements are NaN or infinite"
            elif reason and quantized_budget is None and precision == EXACT:
                reason += _right_for_tf32(name, deviation, case)
            wrong = wrong or (reason and _named(name, reason))
        return errors, wrong

    return together(asked, found)


def verdict_on(
    outputs: Mapping[str, object], case: Case, quantized_budget: float | None = None, precision: str = EXACT
) -> Question[str | None]:
    """Ask why outputs are wrong, if they are: as `judge`, in a fraction of its time.

    The question holds neither the outputs nor what they must be.
    """
    if wrong := wrong_kind(outputs, case):
        return known(wrong)
    case.yardstick(class_of_yardstick(precision, quantized_budget))  # of which whole outputs may be needed
    deviations = {name: Deviation(rows, case.expected[name]) for name, rows in _judged(outputs, case).items()}
    of_empty = case.expecting({name: x.new_empty((*x.shape[:-1], 0)) for name, x in case.expected.items()})

    def found(_: list[tuple[float, ...]]) -> str | None:
        for name, deviation in deviations.items():
            if wrong := _over(deviation, of_empty.limits(name, deviation, quantized_budget, precision)):
                return _named(name, wrong)
        return None

    return together([deviation.question() for deviation in deviations.values()], found)


def _judged(outputs: Mapping[str, object], case: Case) -> dict[str, torch.Tensor]:
    """Return what is judged of each output, all of which are tensors, in the order of the case."""
    tensors = {name: outputs[name] for name in case.expected}
    return {name: case.judged(name, out) for name, out in tensors.items() if isinstance(out, torch.Tensor)}


def _sums(out: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Return what `_errors` takes, `[5]`, float64: three sums of products, the largest and the mean difference."""
    precise, answer = out.to(expected.dtype).flatten(), expected.flatten()
    sums = [
        (one * other).sum(dtype=torch.float64)  # float32 sums err by as much as the angle of a right output
        for one, other in ((precise, answer), (precise, precise), (answer, answer))
    ]
    difference = precise.sub_(answer).abs_()
    return torch.stack([*sums, difference.max().double(), difference.mean().double()])


def _errors(
    numbers: int, sums: Sequence[float], deviation: Deviation, budgets: Worst | Limits, nan_count: int
) -> Errors:
    """Return the errors of an output of so many `numbers`, with its `_sums`."""
    budget = budgets.rel_l2
    if nan_count:
        return Errors(
            rel_l2=None, max_abs=None, mean_abs=None, mse=None, cosine=None, nan_count=nan_count, budget_rel_l2=budget
        )
    dot, own, right, largest, mean = sums
    cosine = dot / math.sqrt(own * right) if own and right else None
    worst = deviation.worst
    return Errors(
        rel_l2=worst.rel_l2,
        max_abs=largest,
        mean_abs=mean,
        mse=deviation.error**2 / numbers,
        cosine=cosine,
        nan_count=0,
        budget_rel_l2=budget,
        head_budget_share=None if deviation.heads is None else _of_budget(deviation.heads, worst.head, budgets.head),
        row_budget_share=_of_budget(deviation.rows, worst.row, budgets.row),
    )


def _of_budget(errors: torch.Tensor, worst: float, budget: float | torch.Tensor) -> float:
    """Return the largest share of a budget that errors take, `worst` the largest of them."""
    return float(share(errors, budget).max()) if isinstance(budget, torch.Tensor) else worst / budget


def _over(deviation: Deviation, budgets: Worst | Limits) -> str | None:
    """Return which budget errors are over, that of the whole output first."""
    if not math.isfinite(deviation.rel_l2):
        return "elements of the output are NaN or infinite"
    if deviation.rel_l2 > budgets.rel_l2:
        return f"relative L2 error {deviation.rel_l2:.2e} is over the budget {budgets.rel_l2:.2e}"
    of_heads, of_rows = (deviation.worst.head, budgets.head), (deviation.worst.row, budgets.row)
    for what, errors, (worst, budget) in (("head", deviation.heads, of_heads), ("row", deviation.rows, of_rows)):
        if errors is None or _of_budget(errors, worst, budget) <= 1:  # which what is not a number is not
            continue
        place = place_of_worst(share(errors, budget))
        worst, most = (float(x[tuple(place)] if isinstance(x, torch.Tensor) else x) for x in (errors, budget))
        return f"relative L2 error {worst:.2e} of {what} {place} is over the budget {most:.2e} of a {what}"
    return None


def _right_for_tf32(name: str, deviation: Deviation, case: Case) -> str:
    """Return that an output would be right in the class `tf32`, as the end of a sentence; empty where it would not."""
    if case.dtype != torch.float32 or _over(deviation, case.limits(name, deviation, precision=TF32)):
        return ""
    return f"; it is within that of class {TF32}, which may round {CLASSES[TF32].rounds}"


def _named(output: str, reason: str) -> str:
    """Return a sentence with the output's name before it, unless it is the only one there ever is."""
    return reason if output == "out" else f"{output}: {reason}"


def wrong_kind(outputs: Mapping[str, object], case: Case) -> str | None:
    """Return why outputs are not of the names, kind, shape, dtype, device and layout that they must be, or None."""
    if outputs.keys() != case.expected.keys():
        return f"the outputs must be {', '.join(case.expected)}, got {', '.join(outputs) or 'none'}"
    sizes = case.sizes
    for name, expected in case.expected.items():
        if wrong := _wrong_tensor(outputs[name], sizes[name], expected.device, case.dtype):
            return _named(name, wrong)
    return None


def _wrong_tensor(out: object, size: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> str | None:
    if not isinstance(out, torch.Tensor):
        return f"the output must be one tensor, got {type(out).__name__}"
    if type(out) is not torch.Tensor:  # whose values a subclass may compute when they are first asked for
        return f"the output must be a plain torch.Tensor, got {type(out).__name__}"
    if tuple(out.shape) != size:
        return f"the output must have shape {list(size)}, got {list(out.shape)}"
    if out.dtype != dtype:
        return f"the output must be {dtype}, got {out.dtype}"
    if out.device != device:
        return f"the output must be on {device}, got {out.device}"
    if not out.is_contiguous():
        return f"the output must be contiguous, got strides {list(out.stride())} of shape {list(out.shape)}"
    return None
