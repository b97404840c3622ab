"""Every variant's errors against the float64 reference, with its budgets and verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fluxbench.analysis.groups import Group, groups
from fluxbench.core.formatting import reason
from fluxbench.records.schema import Errors, Record
from fluxbench.records.status import Status
from fluxbench.report.blocks import Block, Column, Heading, Paragraph, Row, Table
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
_WORDS = (
    "Errors against the float64 reference (no unit). rel L2 stands for each kind of inputs: normal noise, and others "
    "that make low precision hard (docs/methodology.md); worse: the one of the kind on which it takes more of its "
    "budget. All other numbers of a row are of that kind: the budget, error / budget, abs max, mean abs, MSE, cosine "
    "and NaN. Heads and rows have budgets of their own; their shares are the largest over all kinds. Quantized "
    "kernels have no budget on peaked and tailed inputs.",
    "So abs max, mean abs and MSE compare only between rows of the same kind; exact kernels with the same budget at "
    "the same workload are. A kind with - is not recorded; older records hold the worse one alone.",
)


def blocks(results: Results) -> list[Block]:
    """Return one table: a row per variant, workload and output."""
    if not results.records:
        return [Paragraph("There are no records.")]
    kinds = _kinds(results.records)
    several = any(record.errors.keys() - {"out"} for record in results.records)
    heads = [f"rel L2\n{_INPUTS.get(kind, kind)}" for kind in kinds]
    heads += [
        "rel L2\nworse",
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
        for variant in group.variants:
            rows.append(Heading(variant + _class_note(group, variant)))
            rows += [
                row
                for workload in group.workloads
                if (record := group.find(variant, workload))
                for row in _rows(record, kinds, several)
            ]
    first = [Column("workload", left=True), *([Column("output", left=True)] if several else [])]
    table = Table([*first, *map(Column, heads), Column("verdict", left=True)], rows)
    return [Paragraph(" ".join(_WORDS)), table]


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
        cells = _cells(errors, kinds) if errors else ("-",) * (len(kinds) + 10)
        yield Row((*first, *cells, verdict), failed)


def _cells(errors: Errors, kinds: Sequence[str]) -> Sequence[str]:
    of_budget = (
        f"{errors.rel_l2 / errors.budget_rel_l2:.0%}" if errors.rel_l2 is not None and errors.budget_rel_l2 else "-"
    )
    return (
        *(_rel_l2_on(kind, errors) for kind in kinds),
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


def _error(value: float | None) -> str:
    return "-" if value is None else f"{value:.2e}"
