"""The throughput figure: each variant's rate at the longest workload, in TFLOP/s, or in GB/s for what moves bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from matplotlib.ticker import MaxNLocator

from fluxbench.analysis.groups import Group, is_launch_bound, ranking_regime, throughput, timing_of
from fluxbench.core.formatting import interval, number
from fluxbench.operations.precision import EXACT, QUANTIZED
from fluxbench.records.schema import Record
from fluxbench.report.best_forms import best_of_kernels
from fluxbench.report.figures import Drawing, Rows, rows
from fluxbench.report.figures.layout import Part, draw_groups, place, ranked_records, write_at
from fluxbench.report.figures.style import INK
from fluxbench.report.figures.svg import NARROW, Layout, Strip
from fluxbench.report.legend import label
from fluxbench.report.results import Results
from fluxbench.report.sentences import capitalized, conditions, statistic

_LINE_PT = 14.0  # height of a device rate's name above the rows
_COUNTED = {
    "TFLOP/s": "Matrix products are counted, the softmax is not.",
    "GB/s": "Each input counts as read once, each output as written once.",
}
_COLUMNS = {"TFLOP/s": "tflops", "GB/s": "gb_s"}  # of the CSV


def draw(results: Results) -> Drawing | None:
    """Draw the rate of every variant against what the device can do, a part for each group."""
    column, device = _COLUMNS[results.rate], _DeviceRates.of(results)
    return draw_groups(
        results,
        name="throughput",
        title=f"{capitalized(ranking_regime(results.records))} throughput of each variant in {results.rate}",
        header=(
            "workload",
            "variant",
            "regime",
            column,
            f"{column}_low",
            f"{column}_high",
            "share_of_peak",
            "launch_bound",
        ),
        caption="Longer is faster.",
        part_of=lambda group: _part(group, results, device),
        rows_of=partial(_rows, results=results),
        first_rows=[
            ("", "data-sheet peak", "", device.peak or "", "", "", "", ""),
            ("", f"{device.measured_name} measured", "", device.measured or "", "", "", "", ""),
        ],
        more="All forms",
    )


@dataclass(frozen=True, kw_only=True)
class _DeviceRates:
    """What the device can do, in the unit of the results' rate; None where it is not known."""

    peak_name: str
    peak: float | None  # by data sheet
    measured_name: str
    measured: float | None  # of this very device

    @classmethod
    def of(cls, results: Results) -> _DeviceRates:
        sheet, measured = results.peak, results.rates
        if results.rate == "GB/s":
            peak = sheet.memory_gb_s if sheet else None
            return cls(peak_name="memory peak", peak=peak, measured_name="copy", measured=measured.get("copy_gb_s"))
        peak = sheet.bf16_tflops if sheet else None
        return cls(peak_name="bfloat16 peak", peak=peak, measured_name="matmul", measured=measured.get("matmul_tflops"))

    def lines(self) -> Iterator[tuple[float, str, tuple[int, int]]]:
        """Yield those that are known with their names and the dashes of their lines, the least first."""
        rates = ((self.peak, self.peak_name, (1, 0)), (self.measured, f"{self.measured_name} measured", (4, 2)))
        yield from sorted((rate, name, dashes) for rate, name, dashes in rates if rate)

    def words(self, unit: str) -> str:
        """Return both in a clause."""
        peak = f"{number(self.peak)} {unit}" if self.peak else "unknown: no data-sheet rate"
        measured = f"measured {number(self.measured)} {unit}" if self.measured else "rate not measured"
        return f"{self.peak_name} {peak}; {self.measured_name} {measured}"


def _fastest_first(group: Group) -> list[Record]:
    return sorted(ranked_records(group), key=lambda record: timing_of(record).median_ms)


def _rates(record: Record, unit: str) -> tuple[float, float, float]:
    """Return the rate at the time, and its least and its largest at the ends of that time's interval."""
    timing, rate = timing_of(record), throughput(record, unit)
    shortest_ms, longest_ms = timing.ci95_ms
    return rate, rate * timing.median_ms / longest_ms, rate * timing.median_ms / shortest_ms


def _share_of_peak(record: Record, results: Results) -> float | None:
    """Return the share of the peak; None where it is unknown, or of another precision than the kernel's."""
    peak = results.peak_rate(record.workload)
    if not peak or (record.precision_class == QUANTIZED and results.rate != "GB/s"):
        return None
    return throughput(record, results.rate) / peak


def _rows(group: Group, results: Results) -> Rows:
    cells: Rows = []
    for record in _fastest_first(group):
        share = _share_of_peak(record, results)
        who = (group.longest.name, record.variant, ranking_regime([record]))
        rates = _rates(record, results.rate)
        cells.append((*who, *rates, "" if share is None else share, int(is_launch_bound(record))))
    return cells


def _part(group: Group, results: Results, device: _DeviceRates) -> Part | None:
    records = _fastest_first(group)
    if not records:
        return None
    regime = ranking_regime(records)
    notes = [
        f"{capitalized(regime)}: {statistic(records, regime)}s and 95% intervals; {conditions(records, regime)}. "
        f"{_COUNTED[results.rate]} One row per kernel, in its best form.",
        f"On this device: {device.words(results.rate)}.",
    ]
    if any(map(is_launch_bound, records)):
        notes.append("Rows with h have no interval.")
    shown = best_of_kernels(group, records)
    exact = next((record for record in shown if _share_of_peak(record, results) and not is_launch_bound(record)), None)
    share = _share_of_peak(exact, results) if exact else None
    return Part(
        heading=place(group),
        strips=lambda layout: [_plot(layout, shown, results, device)],
        finding=f"{label(exact)} reaches {share:.0%} of the data sheet's peak." if exact and share else "",
        notes=notes,
        more=[_plot(NARROW, records, results, device)] if len(shown) < len(records) else (),
    )


def _plot(layout: Layout, records: list[Record], results: Results, device: _DeviceRates) -> Strip:
    at, lines, unit = rows.row_layout(layout), list(device.lines()), results.rate
    above = _LINE_PT * len(lines)

    def draw(figure: Any, top: float) -> None:
        plot = rows.row_axes(figure, at, top + above, len(records), f"{ranking_regime(records)} {unit}")
        right = 1.03 * max([_drawn(record, unit) for record in records] + [rate for rate, _, _ in lines])
        plot.set_xlim(0, right)
        plot.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
        for index, (rate, name, dashes) in enumerate(lines):
            rows.upright(plot, at, len(records), rate, color=INK, linewidth=1.2, dashes=dashes)
            x = at.left_pt + (at.right_pt - at.left_pt) * rate / right
            write_at(figure, x, top + _LINE_PT * index + 8, f"{name} {number(rate)}", ha="right")
        for index, record in enumerate(records):
            rate, low, high = _rates(record, unit)
            words = f"{interval(rate, (low, high))} {unit}, {ranking_regime([record])}"
            rows.mark_row(plot, index, record, rate, (0, _drawn(record, unit)), words)
            share = _share_of_peak(record, results)
            of_peak = "" if share is None else f"{share:.1%} of peak"
            other_class = "" if record.precision_class == EXACT else record.precision_class
            baseline = at.baseline(top + above, index)
            rows.write_row(figure, at, baseline, record, (number(rate), of_peak or other_class), number(rate))

    return Strip(above + len(records) * at.row_pt + rows.SCALE_PT, draw)


def _drawn(record: Record, unit: str) -> float:
    """Return up to where a record's line reaches: the interval's end, or the rate itself of a launch-bound time."""
    rate, _, high = _rates(record, unit)
    return rate if is_launch_bound(record) else high
