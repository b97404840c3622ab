"""The power of the length with which time and memory grow."""

from __future__ import annotations

from collections.abc import Iterator

from fluxbench.analysis.groups import Group, groups
from fluxbench.analysis.lengths import WINDOW, Exponent, of_memory, of_time
from fluxbench.core.formatting import plus_minus
from fluxbench.report import curves, legend
from fluxbench.report.blocks import Block, Column, Paragraph, Row, Table
from fluxbench.report.results import Results
from fluxbench.report.tables import Rows, estimate_cells

_NOTES = (
    f"p of time or memory in proportion to length**p, over the lengths from 1/{WINDOW} of the longest one on, with its "
    "95% interval. -: fewer than three lengths passed, or it is not known; a CPU reports no memory.",
    "Attention has operations in proportion to the square of the length. A time grows with a smaller power where a "
    "call does not fill the device yet, or where its launch is part of the time. Memory with the power 2 holds all "
    "scores, with the power 1 inputs and outputs alone. Memory is that of the inputs and the peak beside them. Times "
    "rise in steps, so the interval follows from how far the lengths differ from a straight line, or from the "
    "intervals of the times where those are wider. Least squares of logarithms, Student's t.",
)


def blocks(results: Results) -> list[Block]:
    """Return a table of the exponents, a heading for each group; long ones fold."""
    none = "No kernel passed at three lengths or more." if results.records else "There are no records."
    return curves.blocks(groups(results.records), _rows, _table) or [Paragraph(none)]


def rows(results: Results) -> Rows:
    """Return one row per curve: exponents with their intervals, and the lengths they are of."""
    header = ["workloads", "operation", "variant"]
    header += [f"{what}{end}" for what in ("time", "memory") for end in ("_exponent", "_low", "_high", "_lengths")]
    csv: Rows = [header]
    for group in groups(results.records):
        for variant in group.variants:
            found = (of_time(group, variant), of_memory(group, variant))
            if any(found):
                csv.append((group.name, group.operation, variant, *(cell for one in found for cell in _cells(one))))
    return csv


def _cells(found: Exponent | None) -> tuple[object, ...]:
    if found is None:
        return (None,) * 4
    return (*estimate_cells(found.power), " ".join(map(str, found.lengths)))


def _table(body: curves.Body) -> Table:
    heads = ("time's\nexponent", "memory's\nexponent", "over")
    columns = [Column("kernel", left=True), *map(Column, heads)]
    return Table(columns=columns, rows=body, caption="How time and memory grow with the length", notes=_NOTES)


def _rows(group: Group) -> Iterator[Row]:
    for variant in group.variants:
        time, memory = of_time(group, variant), of_memory(group, variant)
        if found := time or memory:
            over = f"{found.lengths[0]:,} to {found.lengths[-1]:,}"
            yield Row((legend.name(variant), _words(time), _words(memory), over))


def _words(found: Exponent | None) -> str:
    return plus_minus(found.power.value, (found.power.low, found.power.high)) if found else "-"
