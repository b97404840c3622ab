"""The energy figure: what one sustained call of each variant takes at the longest workload, the least first."""

from __future__ import annotations

from typing import Any

from fluxbench.analysis.groups import Group, is_launch_bound
from fluxbench.core.formatting import interval, plus_minus
from fluxbench.records.schema import SUSTAINED, Record
from fluxbench.report.figures import Drawing, Rows
from fluxbench.report.figures.layout import draw_groups, place, prose, ranked_records, write_at
from fluxbench.report.figures.rows import (
    ROW_PT,
    SCALE_PT,
    TEXT_PT,
    baseline_of,
    mark_row,
    row_axes,
    scale_x,
    write_name,
)
from fluxbench.report.figures.svg import WIDTH_PT, Strip
from fluxbench.report.legend import launch_bound_note, named
from fluxbench.report.results import Results
from fluxbench.report.sentences import capitalized, conditions

HEADER = (
    *("workload", "variant", "regime", "energy_mj", "energy_low_mj", "energy_high_mj", "power_w"),
    "launch_bound",
)


def draw(results: Results) -> Drawing | None:
    """Draw the energy in mJ of one sustained call of every variant, a part for each group."""
    title = "Energy of a sustained call of each variant"
    return draw_groups(results, name="energy", title=title, header=HEADER, strips_of=_strips, rows_of=_rows)


def _rows(group: Group) -> Rows:
    rows: Rows = []
    for record in ranked_records(group):
        numbers = (record.energy_mj, *(record.energy_ci95_mj or (None, None)), _power_w(record))
        cells = ("" if value is None else value for value in numbers)
        rows.append((group.longest.name, record.variant, SUSTAINED, *cells, int(is_launch_bound(record))))
    return rows


def _strips(group: Group) -> list[Strip]:
    records = ranked_records(group)
    if not records:
        return []
    heading = f"Energy of a call, sustained: {place(group)}"
    known = sorted(
        (record for record in records if record.energy_mj),
        key=lambda record: (is_launch_bound(record), record.energy_mj or 0.0),
    )
    if not known:
        return [prose("Not known: this device has no energy counter, or it was not asked.", heading=heading)]
    note = (
        "Left is less. Energy by the device's own counter over sustained blocks of this kernel alone, divided by their "
        "calls, with 95% intervals; the second number is the mean power meanwhile. "
        f"{capitalized(conditions(known, SUSTAINED))}."
    )
    if explained := launch_bound_note(known):
        note += f" {explained} Such rows come last: the energy of a device that waited in part compares with nothing."
    unknown = [record.variant for record in records if not record.energy_mj]
    rest = [prose(f"Unknown for {', '.join(unknown)}.")] if unknown else []
    return [prose(note, heading=heading), _energies(known), *rest]


def _energies(known: list[Record]) -> Strip:
    def draw(figure: Any, top: float) -> None:
        plot = row_axes(figure, top, len(known), "energy of a call (mJ, sustained)")
        intervals = [_interval(record) for record in known]
        scale_x(plot, min(low for low, _ in intervals), max(high for _, high in intervals))
        for index, (record, ends) in enumerate(zip(known, intervals, strict=True)):
            energy, watts = record.energy_mj or 0.0, _power_w(record)
            power = "" if watts is None else f"{watts:,.0f} W"
            words = f"{interval(energy, ends, unit=' mJ')} a call, sustained"
            mark_row(plot, index, record, energy, ends, ", ".join(filter(None, (words, power))))
            baseline = baseline_of(top, index)
            write_name(figure, baseline, named(record))
            write_at(figure, TEXT_PT, baseline, f"{plus_minus(energy, ends)} mJ")
            write_at(figure, WIDTH_PT - 2, baseline, power, ha="right")

    return Strip(len(known) * ROW_PT + SCALE_PT, draw)


def _interval(record: Record) -> tuple[float, float]:
    """Return the ends of the interval of a known energy, in mJ; the energy itself twice where there is none."""
    energy = record.energy_mj or 0.0
    return record.energy_ci95_mj or (energy, energy)


def _power_w(record: Record) -> float | None:
    telemetry = record.telemetry.get(SUSTAINED)
    return telemetry.power_w if telemetry else None
