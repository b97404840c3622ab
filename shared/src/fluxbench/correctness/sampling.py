"""Outputs of timed calls, judged by a few rows each, so that every call can be judged: all of a trial together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from fluxbench.correctness.case import Case
from fluxbench.correctness.contents import Content
from fluxbench.correctness.judging import wrong_kind


@dataclass(frozen=True)
class Sampled:
    """Rows of what a call returned for a content, `[batch, count, ...]` by output, or what is wrong with its kind."""

    content: Content
    rows: Mapping[str, torch.Tensor]
    wrong: str | None = None

    @classmethod
    def of(cls, outputs: Mapping[str, object], content: Content, case: Case) -> Sampled:
        """Copy the rows, in the order of the stream."""
        if wrong := wrong_kind(outputs, case):
            return cls(content, {}, wrong)
        rows = {
            name: out.index_select(1, content.positions[name])
            for name, out in outputs.items()
            if isinstance(out, torch.Tensor)
        }
        return cls(content, rows)


def judge_rows(sampled: Sequence[Sampled], case: Case, quantized_budget: float | None = None) -> str | None:
    """Return why some of these calls are wrong, or None.

    The relative L2 error of each call over all heads, and of each head over all calls, must be within the budget of
    whole outputs. A head that is wrong in one call shows in both.
    """
    if wrong := next((each.wrong for each in sampled if each.wrong), None):
        return wrong
    for name in case.expected if sampled else ():
        expected = torch.stack([each.content.rows[name] for each in sampled])
        error = (torch.stack([each.rows[name] for each in sampled]).double() - expected).square()
        squares = torch.stack([_by_call_and_head(error), _by_call_and_head(expected.square())])
        squares /= squares[1].sum(dim=1)[:, None]  # each call counts alike, whatever its magnitude
        budget = case.budget(name, quantized_budget)
        for what, dim in (("calls", 2), ("heads", 1)):
            of_error, of_expected = squares.sum(dim).cpu()
            rel_l2 = (of_error / of_expected).sqrt()
            if over := int((~(rel_l2 <= budget)).sum()):  # also where it is not a number
                return f"{_worst(float(rel_l2.max()), budget)} in {over} of {len(rel_l2)} {what}"
    return None


def _by_call_and_head(squares: torch.Tensor) -> torch.Tensor:
    """Return sums `[calls, heads]` of `[calls, batch, count, heads, ...]`."""
    by_head = squares.reshape(*squares.shape[:3], squares.shape[3] if squares.ndim > 3 else 1, -1)
    return by_head.sum(dim=(1, 2, 4))


def _worst(rel_l2: float, budget: float) -> str:
    if not math.isfinite(rel_l2):
        return "rows of the output are NaN or infinite"
    return f"relative L2 error {rel_l2:.2e} of sampled rows is over the budget {budget:.2e}"
