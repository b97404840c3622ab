"""Times in each regime and ratios over the workloads of a group, and what really ran at the longest of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fluxbench.analysis.groups import (
    Group,
    groups,
    has_time,
    is_partly_replayed,
    ranking_regime,
    reference_variant,
    timing_of,
)
from fluxbench.core.formatting import plus_minus
from fluxbench.records.schema import BURST, SUSTAINED, Record
from fluxbench.report import legend
from fluxbench.report.blocks import Block, Column, Fold, Paragraph, Row, Table
from fluxbench.report.kernel_names import short_name
from fluxbench.report.results import Results
from fluxbench.report.sentences import INTERVALS, capitalized, conditions, statistic, title
from fluxbench.report.tables.not_passed import not_passed

_WORDS = {SUSTAINED: "sustained", BURST: "burst, in rounds after a rest"}


def blocks(results: Results) -> list[Block]:
    """Return the times of each group, and what did not pass."""
    if not results.records:
        return [Paragraph("There are no records.")]
    every_group = groups(results.records)
    times = [Fold(*of_group) for group in every_group if (of_group := _of_group(group))]
    symbols = "".join(map(_symbols, every_group))
    return [*times, *legend.explained(symbols), *not_passed(results.records)]


def _symbols(group: Group) -> str:
    """Return the symbols behind the times of a group."""
    timed = [record for record in group.records if record.timing]
    omitted = legend.everywhere(timed)
    return "".join(legend.of_time(record, regime, omitted) for record in timed for regime in record.timings)


def _of_group(group: Group) -> tuple[str, list[Table]] | None:
    """Return a title and the tables of a group; None where nothing passed."""
    name, timed = title(group), [record for record in group.records if record.timing]
    if not timed:
        return None
    ranks, omitted = ranking_regime(timed), legend.everywhere(timed)

    def time_in(regime: str) -> Callable[[Record], str]:
        def cell(record: Record) -> str:
            timing = record.timings.get(regime)
            if timing is None:
                return "-"
            return plus_minus(timing.median_ms, timing.ci95_ms) + legend.of_time(record, regime, omitted)

        return cell

    def ratio(record: Record) -> str:
        timing = timing_of(record)
        if record.variant == timing.reference_variant:
            return "reference"
        return plus_minus(timing.ratio, timing.ratio_ci95) + legend.of_time(record, ranks, omitted)

    tables = []
    for regime in (SUSTAINED, BURST):
        if taken := conditions(timed, regime):
            words = _WORDS[regime] + (", which ranks" if regime == ranks else "")
            caption = f"{name}: {statistic(timed, regime)} time per call in ms by {group.axis}; {words}"
            tables.append(_by_workload(group, caption, time_in(regime), [f"{capitalized(INTERVALS)}; {taken}."]))
    over = f"{name}: {ranks} time over {reference_variant(timed)}'s (under 1 is faster) by {group.axis}"
    count = len({record.variant for record in timed})
    variants = f"{count} variant{'s' * (count > 1)}"
    workloads = f"{len(group.workloads)} workload{'s' * (len(group.workloads) > 1)}"
    return (
        f"Times of {variants} at {workloads} of {name}",
        [*tables, _by_workload(group, over, ratio), _what_ran(group)],
    )


def _by_workload(group: Group, caption: str, cell: Callable[[Record], str], notes: Sequence[str] = ()) -> Table:
    """Return a row per variant and a column per workload; what did not pass has its status there."""

    def text(record: Record | None) -> str:
        return cell(record) if record and has_time(record) else legend.status(record)

    heads = [f"{workload.x:,}" for workload in group.workloads]
    if len(set(heads)) < len(heads):
        heads = [workload.name for workload in group.workloads]
    rows = []
    for variant in filter(group.curve, group.variants):  # what passed nowhere is in the fold
        records = [group.find(variant, workload) for workload in group.workloads]
        failed = any(record is None or not has_time(record) for record in records)
        rows.append(Row((legend.name(variant), *map(text, records)), failed))
    untimed = [legend.NO_TIME] if any(map(is_partly_replayed, group.records)) else []
    return Table([Column(group.axis, left=True), *map(Column, heads)], rows, caption, [*notes, *untimed])


def _what_ran(group: Group) -> Table:
    columns = [Column("variant", left=True), *map(Column, ("compile s", "graph breaks", "share"))]
    return Table(
        columns=[*columns, Column("dominant kernel", left=True)],
        rows=[
            Row((legend.name(variant), *_ran(curve))) for variant in group.variants if (curve := group.curve(variant))
        ],
        caption=(f"{title(group)}: what ran; share is of the call's device time at the longest workload that passed"),
    )


def _ran(curve: Sequence[Record]) -> tuple[str, str, str, str]:
    """Return compile seconds, graph breaks, share and name of the dominant kernel of a variant's longest workload."""
    last = curve[-1]
    compiled = [record.compile_s for record in curve if record.compile_s is not None]
    seconds = f"{max(compiled):.1f}" if compiled else "-"
    breaks = "-" if last.graph_breaks is None else f"{last.graph_breaks}"
    if not last.kernels:
        return seconds, breaks, "-", "not profiled"
    dominant = [max(record.kernels, key=lambda kernel: kernel.share) for record in curve if record.kernels]
    others = len({kernel.name for kernel in dominant} - {dominant[-1].name})
    more = f" (and {others} other{'s' * (others > 1)} at other workloads)" if others else ""
    return seconds, breaks, f"{dominant[-1].share:.0%}", short_name(dominant[-1].name) + more
