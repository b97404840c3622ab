"""The energy figure: what one sustained call of each variant takes at the longest workload, the least first."""

from __future__ import annotations

from typing import Any

from fluxbench.analysis.groups import Group, is_launch_bound
from fluxbench.core.formatting import interval, plus_minus
from fluxbench.records.schema import SUSTAINED, Record
from fluxbench.report.best_forms import best_of_kernels
from fluxbench.report.figures import Drawing, Rows
from fluxbench.report.figures.layout import Part, draw_groups, place, prose, ranked_records
from fluxbench.report.figures.rows import SCALE_PT, far_words, mark_row, near, row_axes, row_layout, scale_x, write_row
from fluxbench.report.figures.svg import NARROW, Layout, Strip
from fluxbench.report.legend import label
from fluxbench.report.results import Results
from fluxbench.report.sentences import capitalized, conditions

HEADER = (
    *("workload", "variant", "regime", "energy_mj", "energy_low_mj", "energy_high_mj", "power_w"),
    "launch_bound",
)


def draw(results: Results) -> Drawing | None:
    """Draw the energy in mJ of one sustained call of every variant, a part for each group."""
    is_known = any(record.energy_mj for record in results.records)
    return draw_groups(
        results,
        name="energy",
        title="Energy of a sustained call of each variant",
        header=HEADER,
        caption="Further left takes less energy." if is_known else "The energy of a call is not known here.",
        part_of=_part,
        rows_of=_rows,
        more="All forms",
    )


def _rows(group: Group) -> Rows:
    rows: Rows = []
    for record in ranked_records(group):
        numbers = (record.energy_mj, *(record.energy_ci95_mj or (None, None)), _power_w(record))
        cells = ("" if value is None else value for value in numbers)
        rows.append((group.longest.name, record.variant, SUSTAINED, *cells, int(is_launch_bound(record))))
    return rows


def _part(group: Group) -> Part | None:
    records = ranked_records(group)
    if not records:
        return None
    known = sorted(
        (record for record in records if record.energy_mj),
        key=lambda record: (is_launch_bound(record), record.energy_mj or 0.0),
    )
    if not known:
        unknown = "Not known: this device has no energy counter, or it was not asked."
        return Part(heading=place(group), strips=lambda layout: [prose(layout, unknown)], notes=[])
    best = best_of_kernels(group, known)
    shown = near(best, lambda record: record.energy_mj or 0.0)
    notes = [
        "Energy by the device's own counter over sustained blocks of this kernel alone, divided by their calls, with "
        "95% intervals; the second number is the mean power meanwhile. One row per kernel, in its best form. "
        f"{capitalized(conditions(known, SUSTAINED))}.",
    ]
    if any(map(is_launch_bound, known)):
        notes.append("Rows with h come last: the energy of a device that waited in part compares with nothing.")
    if unknown_of := [record.variant for record in records if not record.energy_mj]:
        notes.append(f"Unknown for {', '.join(unknown_of)}.")
    least = min(shown, key=lambda record: record.energy_mj or 0.0)
    words = f"{label(least)} takes the least, {plus_minus(least.energy_mj or 0.0, _interval(least))} mJ a call."
    return Part(
        heading=place(group),
        strips=lambda layout: [_energies(layout, shown)],
        finding=" ".join(filter(None, (words, far_words(len(best) - len(shown))))),
        notes=notes,
        more=[_energies(NARROW, known)] if len(shown) < len(known) else (),
    )


def _energies(layout: Layout, known: list[Record]) -> Strip:
    at = row_layout(layout)

    def draw(figure: Any, top: float) -> None:
        plot = row_axes(figure, at, top, len(known), "energy of a call (mJ, sustained)")
        intervals = [_interval(record) for record in known]
        scale_x(plot, min(low for low, _ in intervals), max(high for _, high in intervals))
        for index, (record, ends) in enumerate(zip(known, intervals, strict=True)):
            energy, watts = record.energy_mj or 0.0, _power_w(record)
            power = "" if watts is None else f"{watts:,.0f} W"
            words = f"{interval(energy, ends, unit=' mJ')} a call, sustained"
            mark_row(plot, index, record, energy, ends, ", ".join(filter(None, (words, power))))
            mj = f"{plus_minus(energy, ends)} mJ"
            write_row(figure, at, at.baseline(top, index), record, (mj, power), mj)

    return Strip(len(known) * at.row_pt + SCALE_PT, draw)


def _interval(record: Record) -> tuple[float, float]:
    """Return the ends of the interval of a known energy, in mJ; the energy itself twice where there is none."""
    energy = record.energy_mj or 0.0
    return record.energy_ci95_mj or (energy, energy)


def _power_w(record: Record) -> float | None:
    telemetry = record.telemetry.get(SUSTAINED)
    return telemetry.power_w if telemetry else None
