"""Single questions of `correctness`, asked alone: a worker asks many together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fluxbench.correctness.case import Case
from fluxbench.correctness.judging import verdict_on
from fluxbench.correctness.questions import answers
from fluxbench.correctness.sampling import Sampled, verdict_on_rows
from fluxbench.operations.precision import EXACT


def verdict(
    outputs: Mapping[str, object], case: Case, quantized_budget: float | None = None, precision: str = EXACT
) -> str | None:
    """Return why outputs are wrong, or None."""
    return answers([verdict_on(outputs, case, quantized_budget, precision)])[0]


def judge_rows(
    sampled: Sequence[Sampled], case: Case, quantized_budget: float | None = None, precision: str = EXACT
) -> str | None:
    """Return why some of these calls are wrong, or None."""
    return answers([verdict_on_rows(sampled, case, quantized_budget, precision)])[0]
