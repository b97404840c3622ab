"""How far the implementations of a grid err: the largest errors over all shapes, by pass and dtype."""

from __future__ import annotations

from fluxbench.analysis.grid import Grid, grids
from fluxbench.core.formatting import percent
from fluxbench.records.schema import Errors
from fluxbench.report import legend
from fluxbench.report.blocks import Block, Column, Heading, Paragraph, Row, Table
from fluxbench.report.results import Results
from fluxbench.report.sentences import capitalized
from fluxbench.report.tables import Rows
from fluxbench.report.tables.grid import SIZES

_NORMAL = "normal"
_NOTE = (
    "Errors are relative L2, the largest over shapes and outputs. The budget of a shape and output is that of its "
    "precision class; an error over it is INCORRECT and has no time."
)


def blocks(results: Results) -> list[Block]:
    """Return a table with a row for each implementation in each pass and dtype."""
    found = grids(results.records)
    if not found:
        return [Paragraph(f"There are no {'grids among the records' if results.records else 'records'}.")]
    heads = ["shapes", "of them on\nall kinds"]
    heads += [f"largest error,\n{inputs}" for inputs in ("normal noise", "other kinds")] + ["error /\nbudget"]
    body: list[Row | Heading] = []
    for grid in found:
        body.append(Heading(f"{capitalized(grid.name)}, {len(grid.points)} shapes"))
        body += [row for variant in grid.variants if (row := _row(grid, variant))]
    columns = [Column("implementation", left=True), Column("precision\nclass", left=True), *map(Column, heads)]
    return [Table(columns, body, "Errors against float64.", [_NOTE])]


def rows(results: Results) -> Rows:
    """Return one row per shape, pass, dtype, variant and output: errors and budget, 1."""
    header = ("pass", "dtype", *SIZES, "variant", "status", "output", "rel_l2", "budget_rel_l2", "kinds")
    csv: Rows = [header]
    for grid in grids(results.records):
        for point in grid.points:
            for record in (each for variant in grid.variants if (each := point.record(variant))):
                for output, errors in record.errors.items():
                    who = (grid.which, grid.dtype, *point.sizes, record.variant, record.status.value, output)
                    csv.append((*who, errors.rel_l2, errors.budget_rel_l2, " ".join(errors.rel_l2_by_inputs)))
    return csv


def _row(grid: Grid, variant: str) -> Row | None:
    records = [record for point in grid.points if (record := point.record(variant)) and record.errors]
    if not records:
        return None
    every = [errors for record in records for errors in record.errors.values()]
    fully = sum(any(len(errors.rel_l2_by_inputs) > 1 for errors in record.errors.values()) for record in records)
    normal = [errors.rel_l2_by_inputs.get(_NORMAL) for errors in every]
    others = [value for errors in every for kind, value in errors.rel_l2_by_inputs.items() if kind != _NORMAL]
    share = max(map(_share, every))
    cells = (
        records[0].precision_class,
        f"{len(records)}",
        f"{fully}",
        _largest(normal),
        _largest(others),
        percent(share, 0),
    )
    return Row((legend.name(variant), *cells), failed=share > 1)


def _share(errors: Errors) -> float:
    return errors.rel_l2 / errors.budget_rel_l2 if errors.rel_l2 is not None and errors.budget_rel_l2 else float("inf")


def _largest(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return "not finite"
    return f"{max(known):.1e}" if known else "-"
