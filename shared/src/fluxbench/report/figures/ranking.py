"""The ranking figure: each variant's time over the reference's at the longest workload, fastest first; burst beside it.

Sustained ranks where it was measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fluxbench.analysis.groups import Group, is_launch_bound, ranking_regime, reference_variant, timing_of
from fluxbench.analysis.ranking import Ranked
from fluxbench.core.formatting import interval, number
from fluxbench.records.schema import BURST, Record, Timing
from fluxbench.report.best_forms import best_forms
from fluxbench.report.figures import Drawing, Rows
from fluxbench.report.figures.layout import Part, by_class, draw_groups, place, prose, ranked_records
from fluxbench.report.figures.rows import (
    SCALE_PT,
    far_words,
    mark_row,
    near,
    row_axes,
    row_layout,
    scale_x,
    upright,
    write_row,
)
from fluxbench.report.figures.style import INK
from fluxbench.report.figures.svg import NARROW, Layout, Strip, tooltip
from fluxbench.report.legend import everywhere, of_place
from fluxbench.report.results import Results
from fluxbench.report.sentences import capitalized, conditions

HEADER = (
    *("workload", "precision_class", "rank", "variant", "regime", "ratio", "ratio_low", "ratio_high", "median_ms"),
    *("burst_ratio", "burst_ratio_low", "burst_ratio_high", "burst_median_ms"),
)
_CLASSES = {
    "exact": "exact kernels",
    "rounded": "kernels that round scores to 16 bits",
    "tf32": "kernels that take TF32",
    "quantized": "quantized kernels",
}
_BURST_MARK = {"color": INK, "fillstyle": "none", "markersize": 4.5, "clip_on": False}


def draw(results: Results) -> Drawing | None:
    """Draw the ratio to the reference with its 95% interval, a part for each group."""
    regime = ranking_regime(results.records)
    return draw_groups(
        results,
        name="ranking",
        title=f"{capitalized(regime)} time of each variant over the reference's",
        header=HEADER,
        caption="Left of the line is faster than the reference.",
        part_of=_part,
        rows_of=_rows,
        more="All forms",
    )


def _rows(group: Group) -> Rows:
    rows: Rows = []
    for kind, entries in by_class(group).items():
        for entry in entries:
            record, timing, burst = entry.record, timing_of(entry.record), entry.record.burst
            of_burst = (burst.ratio, *burst.ratio_ci95, burst.median_ms) if burst else ("",) * 4
            who = (group.longest.name, kind, entry.rank, record.variant, ranking_regime([record]))
            rows.append((*who, timing.ratio, *timing.ratio_ci95, timing.median_ms, *of_burst))
    return rows


def _part(group: Group) -> Part | None:
    classes, records = by_class(group), ranked_records(group)
    if not records:
        return None
    reference, regime = reference_variant(group.records), ranking_regime(records)
    notes = [
        f"Marks and bars are {regime}, which ranks, with 95% intervals: {conditions(records, regime)}. "
        "= says that there is no measurable difference to another variant. One row per kernel, in its best form; ranks "
        "count all forms."
    ]
    if any(_burst_beside(record) for record in records):
        notes.append(f"Small hollow diamonds are burst, in rounds after a rest: {conditions(records, BURST)}.")
    if len(classes) > 1:
        notes.append("Kernels that are not exact have looser error budgets, so they are ranked apart.")
    best = best_forms(group, records)
    some = near(best, _ratio)
    few = {kind: [entry for entry in entries if entry.record in some] for kind, entries in classes.items()}
    faster = [record for record in best if timing_of(record).ratio_ci95[1] < 1 and not is_launch_bound(record)]
    count = f"{len(faster)} of {len(best)} kernels are."
    return Part(
        heading=place(group),
        strips=lambda layout: _by_class(layout, {kind: entries for kind, entries in few.items() if entries}, reference),
        finding=" ".join(filter(None, (count, far_words(len(best) - len(some))))),
        notes=notes,
        more=_by_class(NARROW, classes, reference) if len(some) < len(records) else (),
    )


def _ratio(record: Record) -> float:
    return timing_of(record).ratio


def _by_class(layout: Layout, classes: Mapping[str, Sequence[Ranked]], reference: str | None) -> list[Strip]:
    """Return the rows of each class, all on one scale, which stands below the last."""
    records = [entry.record for entries in classes.values() for entry in entries]
    regime, omitted = ranking_regime(records), everywhere(records)
    ends = [end for record in records for timing in record.timings.values() for end in timing.ratio_ci95]
    beside = any(_burst_beside(record) for record in records)
    scale = f"{regime} time / the reference's{' (diamonds: burst)' if beside else ''}"
    strips = []
    for index, (kind, entries) in enumerate(classes.items(), start=1):
        if len(classes) > 1:
            strips.append(prose(layout, _CLASSES[kind], gap=4))
        symbols = [of_place(entry, omitted) for entry in entries]
        last = index == len(classes)
        strips.append(_ratios(layout, entries, symbols, (min(ends), max(ends)), reference, scale if last else ""))
    return strips


def _burst_beside(record: Record) -> Timing | None:
    """Return a record's burst timing where it stands beside a sustained one."""
    return record.burst if record.sustained else None


def _ratios(
    layout: Layout,
    entries: Sequence[Ranked],
    symbols: Sequence[str],
    ends: tuple[float, float],
    reference: str | None,
    scale: str,
) -> Strip:
    at = row_layout(layout)

    def draw(figure: Any, top: float) -> None:
        plot = row_axes(figure, at, top, len(entries), scale)
        scale_x(plot, min(ends[0], 1), max(ends[1], 1), "×")
        upright(plot, at, len(entries), 1, color=INK, linewidth=1.2)
        for index, (entry, symbol) in enumerate(zip(entries, symbols, strict=True)):
            record, timing = entry.record, timing_of(entry.record)
            ratio = interval(timing.ratio, timing.ratio_ci95)
            words = f"{ratio} of {reference}'s time, {ranking_regime([record])}"
            mark_row(plot, index, record, timing.ratio, timing.ratio_ci95, words)
            if burst := _burst_beside(record):
                (mark,) = plot.plot([burst.ratio], [index], "d", **_BURST_MARK)
                tooltip(mark, f"{record.variant}: {interval(burst.ratio, burst.ratio_ci95)}, burst")
            is_reference = record.variant == reference
            numbers = ("reference" if is_reference else ratio, f"{number(timing.median_ms)} ms")
            narrow = "reference" if is_reference else f"{number(timing.ratio)}×"
            write_row(figure, at, at.baseline(top, index), record, numbers, narrow, f"{entry.rank}{symbol}")

    return Strip(len(entries) * at.row_pt + (SCALE_PT if scale else 8), draw)
