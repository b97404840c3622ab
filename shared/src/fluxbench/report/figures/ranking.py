"""The ranking figure: each variant's time over the reference's at the longest workload, fastest first; burst beside it.

Sustained ranks where it was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluxbench.analysis.groups import Group, ranking_regime, reference_variant, timing_of
from fluxbench.analysis.ranking import Ranked
from fluxbench.core.formatting import interval, number
from fluxbench.records.schema import BURST, Record, Timing
from fluxbench.report.figures import Drawing, Rows
from fluxbench.report.figures.layout import (
    by_class,
    draw_groups,
    place,
    prose,
    ranked_records,
    write_at,
)
from fluxbench.report.figures.rows import ROW_PT, TEXT_PT, baseline_of, mark_row, row_axes, scale_x, write_name
from fluxbench.report.figures.style import INK
from fluxbench.report.figures.svg import WIDTH_PT, Strip, tooltip
from fluxbench.report.legend import everywhere, notes, of_place
from fluxbench.report.results import Results
from fluxbench.report.sentences import capitalized, conditions

HEADER = (
    *("workload", "precision_class", "rank", "variant", "regime", "ratio", "ratio_low", "ratio_high", "median_ms"),
    *("burst_ratio", "burst_ratio_low", "burst_ratio_high", "burst_median_ms"),
)
_CLASSES = {
    "exact": "exact kernels",
    "rounded": "kernels that round scores to 16 bits: looser error budgets, so ranked apart",
    "tf32": "kernels that take TF32: looser error budgets, so ranked apart",
    "quantized": "quantized kernels: looser error budgets, each its own, so ranked apart",
}
_BURST_MARK = {"color": INK, "fillstyle": "none", "markersize": 4.5, "clip_on": False}


def draw(results: Results) -> Drawing | None:
    """Draw the ratio to the reference with its 95% interval, a part for each group."""
    title = f"{capitalized(ranking_regime(results.records))} time of each variant over the reference's"
    return draw_groups(results, name="ranking", title=title, header=HEADER, strips_of=_strips, rows_of=_rows)


def _rows(group: Group) -> Rows:
    rows: Rows = []
    for kind, entries in by_class(group).items():
        for entry in entries:
            record, timing, burst = entry.record, timing_of(entry.record), entry.record.burst
            of_burst = (burst.ratio, *burst.ratio_ci95, burst.median_ms) if burst else ("",) * 4
            who = (group.longest.name, kind, entry.rank, record.variant, ranking_regime([record]))
            rows.append((*who, timing.ratio, *timing.ratio_ci95, timing.median_ms, *of_burst))
    return rows


def _strips(group: Group) -> list[Strip]:
    classes = by_class(group)
    records = ranked_records(group)
    if not records:
        return []
    reference = reference_variant(group.records)
    regime = ranking_regime(records)
    beside = any(_burst_beside(record) for record in records)
    note = [
        f"Left of the line is faster. Bars and their marks are {regime}, which ranks: "
        f"95% intervals; {conditions(records, regime)}. = says that there is no measurable difference to another.",
    ]
    if beside:
        note.append(f"Small hollow diamonds are burst, from a device at rest: {conditions(records, BURST)}.")
    note += notes(records, (regime,))
    ends = [end for record in records for timing in record.timings.values() for end in timing.ratio_ci95]
    strips = [prose(" ".join(note), heading=f"{capitalized(regime)} time over {reference}'s: {place(group)}")]
    omitted = everywhere(records)
    label = f"time per call over {reference}'s ({regime}{'; diamonds: burst' if beside else ''})"
    for index, (kind, entries) in enumerate(classes.items(), start=1):
        if len(classes) > 1:
            strips.append(prose(_CLASSES[kind], gap=4))
        symbols = [of_place(entry, omitted) for entry in entries]
        last = index == len(classes)
        strips.append(_ratios(entries, symbols, (min(ends), max(ends)), reference, label if last else ""))
    return strips


def _burst_beside(record: Record) -> Timing | None:
    """Return a record's burst timing where it stands beside a sustained one."""
    return record.burst if record.sustained else None


def _ratios(
    entries: Sequence[Ranked], symbols: Sequence[str], ends: tuple[float, float], reference: str | None, label: str
) -> Strip:
    def draw(figure: Any, top: float) -> None:
        plot = row_axes(figure, top, len(entries), label)
        scale_x(plot, min(ends[0], 1), max(ends[1], 1), "×")
        plot.axvline(1, color=INK, linewidth=1.2)
        for index, (entry, symbol) in enumerate(zip(entries, symbols, strict=True)):
            record, timing = entry.record, timing_of(entry.record)
            ratio = interval(timing.ratio, timing.ratio_ci95)
            words = f"{ratio} of {reference}'s time, {ranking_regime([record])}"
            mark_row(plot, index, record, timing.ratio, timing.ratio_ci95, words)
            if burst := _burst_beside(record):
                (mark,) = plot.plot([burst.ratio], [index], "d", **_BURST_MARK)
                tooltip(mark, f"{record.variant}: {interval(burst.ratio, burst.ratio_ci95)}, burst")
            baseline = baseline_of(top, index)
            write_at(figure, 30, baseline, f"{entry.rank}{symbol}", ha="right")
            write_name(figure, baseline, record.variant)
            write_at(figure, TEXT_PT, baseline, "reference" if record.variant == reference else ratio)
            write_at(figure, WIDTH_PT - 2, baseline, f"{number(timing.median_ms)} ms", ha="right")

    return Strip(len(entries) * ROW_PT + (34 if label else 6), draw)
