"""Outputs of timed calls, judged by a few rows each, so that every call can be judged: all of a trial together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from fluxbench.correctness.allowance import together
from fluxbench.correctness.case import Case
from fluxbench.correctness.content import Content
from fluxbench.correctness.deviation import Worst
from fluxbench.correctness.judging import wrong_kind
from fluxbench.correctness.questions import Question, known
from fluxbench.operations import host_numbers
from fluxbench.operations.precision import EXACT

# By how much more the few rows of timed calls may err together where each has its own scale: their error is that of one
# or two rows, and differs from seed to seed. What is asked is whether they are of the kernel that was checked: one of
# the next lower precision errs eight times as much or more.
_OF_FEW_ROWS = 2.0


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


def verdict_on_rows(
    sampled: Sequence[Sampled], case: Case, quantized_budget: float | None = None, precision: str = EXACT
) -> Question[str | None]:
    """Ask why some of these calls are wrong, if they are.

    The relative L2 error of each call over all heads, and of each head over all calls, must be within the budget of a
    head, and that of each row within the budget of a row (`Case.budgets`). A head that is wrong in one call shows in
    all three. A row may have a large share s of the squares and errs as a row may: the square of the budget is that of
    a row by s, and that of a head by the rest. Where rows differ, under a causal mask, each has an allowance of its own
    instead (`correctness.allowance`), of which the rows of a call or head may err twice as much together.
    """
    if wrong := next((each.wrong for each in sampled if each.wrong), None):
        return known(wrong)
    judged: list[_Judged] = []
    for name in case.expected if sampled else ():
        expected = torch.stack([each.content.rows[name] for each in sampled])
        error = (torch.stack([each.rows[name] for each in sampled]).double() - expected).square()
        squares = torch.stack([_by_call_head_and_row(error), _by_call_head_and_row(expected.square())])
        usual = squares[1].mean(dim=1, keepdim=True)  # of its head: a row of tiny norm has the errors of usual ones
        units = torch.maximum(squares[1], usual.expand_as(squares[1]))
        if quantized_budget is None and sampled[0].content.scales(case, whole=False):
            judged += _by_row(name, sampled, squares, units, case, precision)
        else:
            judged += _by_budget(squares, units, case.budgets(name, quantized_budget, precision))
    if not judged:
        return known(None)

    def answer(counts: Sequence[float]) -> str | None:
        for (what, errors, allowed), over in zip(judged, counts, strict=True):
            if over:
                worst = int((errors / allowed).argmax())
                found = _worst(float(errors[worst]), float(allowed[worst]))
                return f"{found} in {over:.0f} of {errors.numel()} {what}"
        return None

    # Not within it is also what is not a number.
    return Question(torch.stack([(~(errors <= allowed)).sum() for _, errors, allowed in judged]).double(), answer)


_Judged = tuple[str, torch.Tensor, torch.Tensor]  # of what, relative L2 errors, and how large they may be


def _by_budget(squares: torch.Tensor, units: torch.Tensor, budgets: Worst) -> Iterator[_Judged]:
    """Yield what is judged where rows are alike; `squares`: `[2, calls, rows, heads]`, `units`: those of a row's."""
    yield "calls", *_share(squares, (2, 3), budgets)
    yield "heads", *_share(squares, (1, 2), budgets)
    yield "rows", (squares[0] / units).sqrt().flatten(), torch.full_like(units, budgets.row).flatten()


def _by_row(
    name: str, sampled: Sequence[Sampled], squares: torch.Tensor, units: torch.Tensor, case: Case, precision: str
) -> Iterator[_Judged]:
    """Yield what is judged where each row may err by its own scale."""
    pool = list({id(each.content): each.content for each in sampled}.values())
    place = [next(index for index, content in enumerate(pool) if content is each.content) for each in sampled]
    numbers = torch.tensor([place, [place.count(index) for index in place]])
    places, repeats = host_numbers.moved(numbers, squares.device)
    rms, most = (each.index_select(0, places) for each in _allowed(name, pool, case, precision))
    for what, over, times in (("calls", (1, 2), None), ("heads", (0, 1), repeats[:, None, None])):
        error, norm = squares.sum(dim=tuple(dim + 1 for dim in over))
        yield what, (error / norm).sqrt(), _OF_FEW_ROWS * (together(rms.square(), over, times) / norm).sqrt()
    yield "rows", (squares[0] / units).sqrt().flatten(), (most / units.sqrt()).flatten()


def _allowed(name: str, pool: Sequence[Content], case: Case, precision: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what the rows of contents may err, by root mean square and at most, `[contents, batch * count, heads]`."""
    scales = [known[name] for content in pool if (known := content.scales(case, whole=False)) is not None]
    rows, tokens = (torch.stack([getattr(each, what)[name] for each in pool]) for what in ("rows", "positions"))
    of = case.allowed(name, torch.stack(scales), torch.linalg.vector_norm(rows, dim=-1), tokens, precision)
    return of.rms.flatten(1, 2), of.most.flatten(1, 2)


def _share(squares: torch.Tensor, over: tuple[int, int], budgets: Worst) -> tuple[torch.Tensor, torch.Tensor]:
    """Return relative L2 errors from squares, of the error and of what is expected, and how large they may be.

    `squares`: `[2, calls, rows, heads]`; sums are over two of these.
    """
    error, expected = squares.sum(dim=over)
    of_largest = squares[1].amax(dim=tuple(dim - 1 for dim in over)) / expected
    allowed = budgets.head**2 * (1 - of_largest) + budgets.row**2 * of_largest
    return (error / expected).sqrt(), allowed.sqrt()


def _by_call_head_and_row(squares: torch.Tensor) -> torch.Tensor:
    """Return the sums over rows of `[calls, batch, count, heads, head_dim]`, as `[calls, batch * count, heads]`.

    An output of other dimensions has no heads, see `Deviation`: one for all.
    """
    calls, batch, count, *rest = squares.shape
    return squares.reshape(calls, batch * count, rest[0] if len(rest) == 2 else 1, -1).sum(dim=-1)


def _worst(rel_l2: float, budget: float) -> str:
    if not math.isfinite(rel_l2):
        return "rows of the output are NaN or infinite"
    return f"relative L2 error {rel_l2:.2e} of sampled rows is over the budget {budget:.2e}"
