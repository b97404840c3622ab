"""Every variant's errors against the float64 reference, with its budgets and verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from fluxbench import variants
from fluxbench.analysis.groups import Group, groups
from fluxbench.core.formatting import count, listed, percent, reason
from fluxbench.operations.precision import CLASSES
from fluxbench.records.schema import Errors, Record
from fluxbench.records.status import Status
from fluxbench.report.blocks import Block, Column, Fold, Heading, Paragraph, Row, Table
from fluxbench.report.results import Results
from fluxbench.report.tables import Rows
from fluxbench.report.tables.all_fields import all_fields

_INPUTS = {
    "normal": "normal",
    "flux": "Flux-like",
    "peaked": "peaked",
    "tailed": "tailed",
}  # what kinds of inputs are called
_SHOWN = ("max_abs", "mean_abs", "mse")
_LINE = "Errors against the float64 reference, without a unit; a kernel is INCORRECT where error / budget exceeds 100%."
_WORDS = (
    "rel L2 stands for each kind of inputs: normal noise, and others that make low precision hard "
    "(docs/methodology.md); largest: over all kinds; judged: that of the kind which takes more of its budget. "
    "All other numbers of a row are of that kind, so abs max, mean abs and MSE compare only between rows of one kind. "
    "Heads and rows have budgets of their own; their shares are the largest over the kinds with a budget. Quantized "
    "kernels have none on peaked and tailed inputs: their errors there are in no verdict.",
    "A kind with - is not recorded; older records hold the worse one alone.",
)


def blocks(results: Results) -> list[Block]:
    """Return how many rows are within their budgets, and one table: a row per variant, workload and output."""
    if not results.records:
        return [Paragraph("There are no records.")]
    kinds = _kinds(results.records)
    several = any(record.errors.keys() - {"out"} for record in results.records)
    heads = [f"rel L2\n{_INPUTS.get(kind, kind)}" for kind in kinds]
    heads += [
        *["rel L2\nlargest"] * (len(kinds) > 1),
        "rel L2\njudged",
        "budget",
        "error /\nbudget",
        "worst head\n/ budget",
        "worst row\n/ budget",
        "abs max",
        "mean abs",
        "MSE",
        "cosine",
        "NaN",
    ]
    rows: list[Row | Heading] = []
    for group in groups(results.records):
        checked = {record.variant for record in group.records if record.errors}
        for variant in filter(checked.__contains__, group.variants):  # of the others there is nothing to show
            label = variants.label(variant)
            of_people = f"{label}, {variant}" if label != variant else variant
            rows.append(Heading(of_people + _class_note(group, variant)))
            rows += [
                row
                for workload in group.workloads
                if (record := group.find(variant, workload))
                for row in _rows(record, kinds, several)
            ]
    first = [Column("workload", left=True), *([Column("output", left=True)] if several else [])]
    if not rows:
        return [Paragraph("No output was checked.")]
    table = Table([*first, *map(Column, heads), Column("verdict", left=True)], rows, notes=[_LINE, *_WORDS])
    return [Paragraph(_summary(results.records)), Fold("Errors and budgets of every variant", [table])]


def _summary(records: Sequence[Record]) -> str:
    """Return how many rows are within their budgets, where some have none, and which is the nearest to its own."""
    checked = [record for record in records if record.errors]
    within = [record for record in checked if record.status is not Status.INCORRECT]
    words = f"{len(within):,} of {len(checked):,} checked rows are within their error budgets."
    words = " ".join([words, *_without_budget(records)])
    nearest = max(within, key=_share, default=None)
    if nearest is None or not _share(nearest):
        return words
    who = f"{variants.label(nearest.variant)} at {nearest.workload.name}"
    return f"{words} The nearest to its budget is {who}, with {_share(nearest):.0%} of it."


def _without_budget(records: Sequence[Record]) -> Iterator[str]:
    """Yield on which inputs kernels of a class have no budget, and the largest error of each kernel there."""
    for name, of_class in CLASSES.items():
        checked = [record for record in records if record.errors and record.precision_class == name]
        found: dict[str, list[tuple[float, str]]] = {}
        for record in checked:
            for errors in record.errors.values():
                for kind in filter(errors.rel_l2_by_inputs.__contains__, of_class.ungated):
                    error = errors.rel_l2_by_inputs[kind]
                    of_kernel = found.setdefault(variants.label(record.kernel), [])
                    of_kernel.append((math.inf if error is None else error, _INPUTS[kind]))
        if found:
            worst = sorted(((max(of_kernel), kernel) for kernel, of_kernel in found.items()), reverse=True)
            errors_there = [f"{kernel} {_percent(error)} ({kind})" for (error, kind), kernel in worst]
            kinds = listed([_INPUTS[kind] for kind in of_class.ungated])
            yield (
                f"Of these, {count(len(checked), 'row')} {'are' if len(checked) > 1 else 'is'} of {name} kernels, "
                f"which have no budget on {kinds} inputs. Their largest relative L2 errors there: "
                f"{', '.join(errors_there)}."
            )


def _percent(error: float) -> str:
    return percent(error, 0 if error >= 0.0995 else 1) if math.isfinite(error) else "not finite"


def _share(record: Record) -> float:
    """Return the largest share of a budget that an output of a record takes; 0 where none is known."""
    pairs = ((errors.rel_l2, errors.budget_rel_l2) for errors in record.errors.values())
    return max((error / budget for error, budget in pairs if error is not None and budget), default=0.0)


def rows(results: Results) -> Rows:
    """Return one row per record and output with everything that a record holds, samples left out."""
    return all_fields(results.records)


def _kinds(records: Sequence[Record]) -> list[str]:
    """Return the kinds of inputs on which errors are recorded, in the order of the records."""
    every = (kind for record in records for errors in record.errors.values() for kind in errors.rel_l2_by_inputs)
    return list(dict.fromkeys(every))


def _class_note(group: Group, variant: str) -> str:
    classes = {record.precision_class for record in group.records if record.variant == variant}
    return f"  ({', '.join(sorted(classes))})" if classes - {"exact"} else ""


def _rows(record: Record, kinds: Sequence[str], several: bool) -> Iterator[Row]:
    verdict = record.status.value + (f": {reason(record.reason)}" if record.reason else "")
    failed = record.status is not Status.PASSED
    for output, errors in record.errors.items() or [("-", None)]:
        first = (f"  {record.workload.name}", *([output] if several else []))
        cells = _cells(errors, kinds) if errors else ("-",) * (len(kinds) + 10 + (len(kinds) > 1))
        yield Row((*first, *cells, verdict), failed)


def _cells(errors: Errors, kinds: Sequence[str]) -> Sequence[str]:
    of_budget = (
        f"{errors.rel_l2 / errors.budget_rel_l2:.0%}" if errors.rel_l2 is not None and errors.budget_rel_l2 else "-"
    )
    return (
        *(_rel_l2_on(kind, errors) for kind in kinds),
        *[_largest(errors)] * (len(kinds) > 1),
        *(_error(errors.rel_l2), _error(errors.budget_rel_l2), of_budget),
        *("-" if share is None else f"{share:.0%}" for share in (errors.head_budget_share, errors.row_budget_share)),
        *(_error(getattr(errors, name)) for name in _SHOWN),
        "-" if errors.cosine is None else f"{errors.cosine:.7f}",
        f"{errors.nan_count}",
    )


def _rel_l2_on(kind: str, errors: Errors) -> str:
    if kind not in errors.rel_l2_by_inputs:
        return "-"
    value = errors.rel_l2_by_inputs[kind]
    return "not finite" if value is None else _error(value)


def _largest(errors: Errors) -> str:
    """Return the largest error over all kinds of inputs, with or without a budget."""
    found = [*errors.rel_l2_by_inputs.values()] or [errors.rel_l2]
    finite = [value for value in found if value is not None]
    return _error(max(finite)) if len(finite) == len(found) else "not finite"


def _error(value: float | None) -> str:
    return "-" if value is None else f"{value:.2e}"
