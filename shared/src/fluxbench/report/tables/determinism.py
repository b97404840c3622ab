"""What a deterministic backward pass costs: its time over that of the library's default."""

from __future__ import annotations

from collections.abc import Iterator

from fluxbench import variants
from fluxbench.analysis.groups import Group, groups, ranking_regime, timing_of
from fluxbench.analysis.ranking import order
from fluxbench.core.formatting import plus_minus
from fluxbench.operations.workload import Workload
from fluxbench.records.schema import Record
from fluxbench.report import legend
from fluxbench.report.blocks import Block, Column, Paragraph, Row, Table
from fluxbench.report.results import Results
from fluxbench.report.sentences import INTERVALS, factor, shape
from fluxbench.report.tables import Rows, estimate_cells
from fluxbench.stats.intervals import Estimate

_LINE = f"Cost: the time of the deterministic form over that of the default; 1 is free. {INTERVALS}."
_WORDS = (
    "A deterministic backward pass adds up gradients in a fixed order, so that equal inputs give equal bits. What is "
    "not listed here has no such choice, or one of the two forms did not pass; the table of what did not pass says "
    "which."
)


def blocks(results: Results) -> list[Block]:
    """Return a table for each group in which both forms of a library passed, at its longest workload."""
    if not results.records:
        return [Paragraph("There are no records.")]
    tables = (_table(group) for group in groups(results.records))
    return [table for table in tables if table] or [Paragraph("No deterministic form of a library passed here.")]


def rows(results: Results) -> Rows:
    """Return every workload: times in ms, the cost with its 95% interval."""
    found: Rows = [("variant", "default", "workload", "ms", "default_ms", "cost", "cost_ci95_low", "cost_ci95_high")]
    for group in groups(results.records):
        for workload in group.workloads:
            for record, default, cost in _costs(group, workload):
                times = timing_of(record).median_ms, timing_of(default).median_ms
                names = record.variant, default.variant, workload.name
                found.append((*names, *times, *estimate_cells(cost)))
    return found


def _table(group: Group) -> Table | None:
    costs = list(_costs(group, group.longest))
    if not costs:
        return None
    regime = ranking_regime(record for pair in costs for record in pair[:2])
    heads = (f"default\n{regime} ms", f"deterministic\n{regime} ms", "cost")
    return Table(
        columns=[Column("kernel", left=True), *map(Column, heads)],
        rows=[
            Row((
                legend.name(default.variant),
                plus_minus(timing_of(default).median_ms, timing_of(default).ci95_ms),
                plus_minus(timing_of(record).median_ms, timing_of(record).ci95_ms),
                factor(cost),
            ))
            for record, default, cost in costs
        ],
        caption=f"What determinism costs at {shape(group)}",
        notes=[_LINE, _WORDS],
    )  # fmt: skip


def _costs(group: Group, workload: Workload) -> Iterator[tuple[Record, Record, Estimate]]:
    """Yield the deterministic form, the default, and the cost of each library whose two forms passed, least first."""
    ordering = order(group, workload)
    costs = []
    for variant in variants.REGISTRY:
        names = variant.name, variant.deterministic_of or ""
        record, default = (group.trusted(name, workload) for name in names)
        if record and default:
            costs.append((record, default, ordering.speedup(default, record)))
    yield from sorted(costs, key=lambda each: each[2].value)
