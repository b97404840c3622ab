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
    """Return how many rows are within their budgets, where some have none, and which is the nearest to one."""
    checked = [record for record in records if record.errors]
    within = [record for record in checked if record.status is not Status.INCORRECT]
    words = f"{len(within):,} of {len(checked):,} checked rows are within their error budgets."
    words = " ".join([words, *_without_budget(within)])
    shares = [(share, of, record) for record in within for of, share in _shares(record)]
    nearest = max(shares, key=lambda each: each[0], default=None)
    if nearest is None or not nearest[0]:
        return words
    share, of, record = nearest
    who = f"{variants.label(record.variant)} at {record.workload.name}"
    return f"{words} The nearest to a budget is {who}, with {share:.0%} of {of}."


def _without_budget(within: Sequence[Record]) -> Iterator[str]:
    """Yield on which inputs kernels of a class have no budget, and the largest error of each kernel there."""
    for name, of_class in CLASSES.items():
        found: dict[str, list[tuple[float, str]]] = {}
        of_class_rows = [record for record in within if record.precision_class == name]
        for record in of_class_rows:
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
                f"Of these, {count(len(of_class_rows), 'row')} {'are' if len(of_class_rows) > 1 else 'is'} of {name} "
                f"kernels, which have no budget on {kinds} inputs. Their largest relative L2 errors there: "
                f"{', '.join(errors_there)}."
            )


def _percent(error: float) -> str:
    return percent(error, 0 if error >= 0.0995 else 1) if math.isfinite(error) else "not finite"


def _shares(record: Record) -> Iterator[tuple[str, float]]:
    """Yield the known shares of its budgets that a record takes, each with whose budget it is."""
    for errors in record.errors.values():
        parts = {
            "the whole output's": _of_budget(errors),
            "a head's": errors.head_budget_share,
            "a row's": errors.row_budget_share,
        }
        yield from ((of, share) for of, share in parts.items() if share is not None)


def _of_budget(errors: Errors) -> float | None:
    """Return an output's error over its budget; None where one of them is not known."""
    return errors.rel_l2 / errors.budget_rel_l2 if errors.rel_l2 is not None and errors.budget_rel_l2 else None


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
    shares = (_of_budget(errors), errors.head_budget_share, errors.row_budget_share)
    return (
        *(_rel_l2_on(kind, errors) for kind in kinds),
        *[_largest(errors)] * (len(kinds) > 1),
        *(_error(errors.rel_l2), _error(errors.budget_rel_l2)),
        *("-" if share is None else f"{share:.0%}" for share in shares),
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
