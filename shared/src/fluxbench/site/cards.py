"""The small figure of a card: the fastest kernels of a group at its longest workload, each with its time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from fluxbench.analysis.groups import (
    Group,
    is_launch_bound,
    not_launch_bound,
    ranking_regime,
    reference_variant,
    timing_of,
)
from fluxbench.analysis.ranking import CLASSES, Ordering, order, ranked
from fluxbench.core.formatting import number, plus_minus
from fluxbench.records.schema import Record
from fluxbench.report.figures.layout import axes, write_at
from fluxbench.report.figures.style import INK, look_of
from fluxbench.report.figures.svg import ADVANCE, Strip, render, tooltip
from fluxbench.variants.forms import simplicity

_KERNELS = 6  # fastest kernels of a figure
_WIDTH_PT = 350.0  # as wide as a phone, so that its text is read there too
_ROW_PT, _SCALE_PT = 32.0, 34.0
_MARGIN_PT = 16.0  # beside the axis, for its outer labels
_NAME_PT, _TEXT_PT = 10.5, 9.5  # sizes of text
_CHARACTERS = int(_WIDTH_PT / (ADVANCE * _NAME_PT))  # of a name and a time beside each other
_ONE_SCALE = 8.0  # largest quotient of two times that are drawn on a linear axis from zero
_TICKS = 6  # at most
_STEPS = (1, 2, 5)


def fastest(group: Group) -> list[Record]:
    """Return what the figure shows of `in_order`: the fastest kernels, the reference, and of the quantized kernels
    those that no other beats."""
    reference = reference_variant(group.records)
    quantized = {place.record.kernel for place in ranked(group, group.longest, "quantized") if place.rank == 1}
    return [
        record
        for index, record in enumerate(in_order(group))
        if index < _KERNELS or record.variant == reference or record.kernel in quantized
    ]


def in_order(group: Group) -> list[Record]:
    """Return a record of each ranked kernel, shortest time first; those that are launch-bound in all forms come last.

    Each is in the simplest form that none of its other ranked forms beats, the reference in its own.
    """
    reference = reference_variant(group.records)
    kernels: dict[str, list[Record]] = {}
    for kind in CLASSES:
        for place in ranked(group, group.longest, kind):
            kernels.setdefault(place.record.kernel, []).append(place.record)
    shown = (_shown(forms, reference, order(group, group.longest)) for forms in kernels.values())
    return sorted(shown, key=lambda record: (is_launch_bound(record), timing_of(record).median_ms))


def _shown(forms: Sequence[Record], reference: str | None, ordering: Ordering) -> Record:
    known = not_launch_bound(forms)
    best = known[0]  # they come as they are ranked
    level = (record for record in known if not ordering.faster(best, record))
    unbeaten = min(level, key=lambda record: simplicity(record.form))
    return next((record for record in forms if record.variant == reference), unbeaten)


def chart(group: Group, name: str) -> str:
    """Return the figure as an inline SVG, empty where nothing is ranked; `name` tells the figures of a page apart."""
    shown = fastest(group)
    if not shown:
        return ""
    regime = ranking_regime(shown)
    times = "; ".join(
        f"{record.variant} {_time(record)}{' (launch-bound)' * is_launch_bound(record)}" for record in shown
    )
    title = f"ms a call, {regime}, with 95% intervals"
    return render([_rows(shown, reference_variant(group.records), regime)], title, times, name=name, width_pt=_WIDTH_PT)


def _time(record: Record) -> str:
    timing = timing_of(record)
    return plus_minus(timing.median_ms, timing.ci95_ms)


def _note(record: Record, reference: str | None) -> str:
    notes = [
        "the reference" if record.variant == reference else "",
        "quantized" if record.precision_class == "quantized" else "",
        "h" if is_launch_bound(record) else "",
    ]
    return f" ({', '.join(filter(None, notes))})" if any(notes) else ""


def _rows(shown: Sequence[Record], reference: str | None, regime: str) -> Strip:
    known = not_launch_bound(shown)  # their intervals are drawn, and set the axis
    ends = [end for record in known for end in timing_of(record).ci95_ms]
    ticks, logarithmic = _ticks(min(ends), max(ends))
    height = _ROW_PT * len(shown)

    def draw(figure: Any, top: float) -> None:
        plot = axes(figure, _MARGIN_PT, top, _WIDTH_PT - 2 * _MARGIN_PT, height)
        plot.set_ylim(height, 0)
        if logarithmic:
            plot.set_xscale("log")
        plot.set_xlim(ticks[0], ticks[-1])
        plot.xaxis.set_major_locator(FixedLocator(ticks))
        plot.xaxis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:,.6g}"))
        plot.xaxis.set_minor_locator(NullLocator())
        plot.yaxis.set_major_locator(NullLocator())
        plot.grid(visible=False)
        plot.set_xlabel(f"ms a call, {regime}{' (logarithmic)' * logarithmic}; 95% interval", fontsize=_TEXT_PT)
        for index, record in enumerate(shown):
            _draw_record(plot, record, _ROW_PT * index + 21, ticks, interval=record in known)
            baseline = top + _ROW_PT * index + 12
            name, time = record.variant + _note(record, reference), _time(record)
            if len(name) + len(time) >= _CHARACTERS:
                time = number(timing_of(record).median_ms)
            write_at(figure, 0, baseline, name, fontsize=_NAME_PT)
            write_at(figure, _WIDTH_PT, baseline, time, fontsize=_NAME_PT, ha="right")

    return Strip(height + _SCALE_PT, draw)


def _draw_record(plot: Any, record: Record, y: float, ticks: Sequence[float], *, interval: bool) -> None:
    style, timing = look_of(record), timing_of(record)
    plot.plot(ticks, [y] * len(ticks), "|-", color=INK, alpha=0.25, linewidth=0.8, markersize=5)
    if interval:
        plot.plot(timing.ci95_ms, [y, y], color=style.colour, linewidth=2.5)
    low, high = plot.get_xlim()
    if low <= timing.median_ms <= high:
        (mark,) = plot.plot([timing.median_ms], [y], style.marker, **style.mark_options(8))
        tooltip(mark, f"{record.variant}: {_time(record)} ms, {ranking_regime([record])}")


def _ticks(low: float, high: float) -> tuple[list[float], bool]:
    """Return the labels of an axis in ms, its ends among them: from zero where that shows all, else logarithmic."""
    if high / low <= _ONE_SCALE:
        power = 10.0 ** math.floor(math.log10(high))
        step = next(power * count / 10 for count in (1, 2, 5, 10, 20) if high / (power * count / 10) <= 5)
        return [step * count for count in range(math.ceil(high / step) + 1)], False
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**power for power in powers for step in _STEPS]
    first = max(tick for tick in ticks if tick <= low)
    last = min((tick for tick in ticks if tick >= high), default=high)
    inside = [tick for tick in ticks if first <= tick <= last]
    while len(inside) > _TICKS:
        inside = [*inside[:-1:2], inside[-1]]
    return inside, True
