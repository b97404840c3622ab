"""The latency figure: sustained time per call against the workload's length.

Above, one line per kernel in one form, on a logarithmic axis, so that a slow kernel does not flatten the rest. Below,
one small plot per kernel with all its forms, each on an axis of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import ScaledTranslation

from fluxbench.analysis.ranking import Group, base, form, launch_bound, overlap, reference_variant, timing_of
from fluxbench.core.formatting import interval, number
from fluxbench.records.schema import Record
from fluxbench.report.figures.style import look
from fluxbench.report.figures.svg import CHARACTER_PT, FONT_PT, SMALL_PT, WIDTH_PT, Block, axes, prose, tell, write_at
from fluxbench.report.legend import late_note, named
from fluxbench.report.sentences import conditions

HEADER = (
    *("workload", "axis", "length", "variant", "regime", "median_ms", "ci95_low_ms", "ci95_high_ms"),
    "launch_bound",
)

_LABEL_GAP_PT = 12.5
_LABELLED_PT = 270.0  # height of a plot whose curves are labelled at their ends, where that is enough for all
_CROWD, _NEAR = (
    12,
    2.0,
)  # more curves than these are drawn again on a closer scale, those up to so many times the lowest
_PANEL_PT = 100.0
_PANEL_ROW_PT = _PANEL_PT + 50.0
_COLUMN_PT = 372.0  # from one column of panels to the next
_AXIS_PT = 40.0  # room for the numbers of a y-axis

Curve = list[Record]  # PASSED records of one variant, shortest workload first


def rows(group: Group) -> list[Sequence[object]]:
    """Return what the figure plots, in the columns of `HEADER`."""
    return [
        (
            *(r.workload.name, group.axis, group.length(r.workload), r.variant),
            *(t.regime, t.median_ms, *t.ci95_ms, int(launch_bound(r))),
        )
        for variant in group.variants
        for r in group.curve(variant)
        for t in (timing_of(r),)
    ]


def blocks(group: Group) -> list[Block]:
    """Return the parts of the figure, none where nothing passed."""
    families: dict[str, list[Curve]] = {}
    for variant in group.variants:
        curve = group.curve(variant)
        if curve:
            families.setdefault(base(variant), []).append(curve)
    if not families:
        return []
    reference = reference_variant(group.records)
    shown = [_shown(curves, reference) for curves in families.values()]
    several = {name: curves for name, curves in families.items() if len(curves) > 1}
    passed = [record for curves in families.values() for curve in curves for record in curve]
    note = (
        f"Sustained: medians and 95% intervals; {conditions(passed)}. Numbers are ms at the last point. One line per "
        "kernel: the reference itself, of the others the simplest form that none of their other forms beats."
    )
    if late := late_note(passed):
        note += f" {late} Such times have no interval here, and a kernel's line ends in one only if all its forms do."
    parts: list[Block] = [
        prose(note, heading=f"Sustained latency (ms, logarithmic): {group.name}, against {group.axis}"),
        (plot_height(len(shown)) + 40, partial(_overview, group, shown, reference)),
    ]
    near = _near(group, shown)
    if len(shown) > _CROWD and 1 < len(near) < len(shown):
        parts.append(prose(f"Of these the fastest alone, up to {_NEAR:g} times the shortest time.", gap=14))
        parts.append((plot_height(len(near)) + 40, partial(_overview, group, near, reference)))
    if several:
        parts.append(prose("The same kernels in all their forms (sustained, ms), each on its own scale.", gap=14))
    pairs = list(several.items())
    for index in range(0, len(pairs), 2):
        parts.append((_PANEL_ROW_PT, partial(_panels, group, pairs[index : index + 2])))
    return parts


def _near(group: Group, shown: list[Curve]) -> list[Curve]:
    """Return the curves that at the longest workload are not far above the lowest."""
    ends = [(timing_of(curve[-1]).median_ms, curve) for curve in shown if curve[-1].workload == group.longest]
    lowest = min((ms for ms, _ in ends), default=0.0)
    return [curve for ms, curve in ends if ms <= _NEAR * lowest]


def _shown(curves: list[Curve], reference: str | None) -> Curve:
    """Return a family's curve for the overview: the reference itself, or else the simplest form that is not beaten.

    Times of launching count only where all forms have them.
    """
    for curve in curves:
        if curve[0].variant == reference:
            return curve
    reach = max(curve[-1].workload.seq_len for curve in curves)
    longest = [curve for curve in curves if curve[-1].workload.seq_len == reach]
    longest = [curve for curve in longest if not launch_bound(curve[-1])] or longest
    best = min(longest, key=lambda curve: timing_of(curve[-1]).ratio)
    return min((c for c in longest if overlap(c[-1], best[-1])), key=lambda curve: len(form(curve[-1].variant)))


def _draw(plot: Any, group: Group, curve: Curve, shift_pt: float, size_pt: float) -> None:
    """Draw one curve with its intervals, moved sideways by some points so that equal ones do not hide each other."""
    style = look(curve[0].variant)
    moved = plot.transData + ScaledTranslation(shift_pt / 72, 0, plot.figure.dpi_scale_trans)
    x = [group.length(record.workload) for record in curve]
    y = [timing_of(record).median_ms for record in curve]
    dashes = {"dashes": style.dashes} if style.dashes else {}
    common = {"color": style.colour, "transform": moved}
    plot.plot(x, y, linewidth=1.5, **dashes, **common)
    timed = [record for record in curve if not launch_bound(record)]
    ends = [timing_of(record).ci95_ms for record in timed]
    intervals(plot, [group.length(record.workload) for record in timed], ends, **common)
    look_of_mark = {"fillstyle": style.filling, "markersize": size_pt, "clip_on": False, **common}
    for at, median, record in zip(x, y, curve, strict=True):
        (mark,) = plot.plot([at], [median], style.marker, **look_of_mark)
        told = interval(median, timing_of(record).ci95_ms, unit=" ms")
        tell(mark, f"{named(record)} at {at:,} {group.axis}: {told}, sustained")


def intervals(plot: Any, x: Sequence[float], ends: Sequence[tuple[float, float]], **style: Any) -> None:
    """Draw upright intervals, all as one line with gaps."""
    xs = [at for place in x for at in (place, place, math.nan)]
    plot.plot(xs, [end for low, high in ends for end in (low, high, math.nan)], linewidth=1.5, clip_on=False, **style)


def _scale_x(plot: Any, group: Group, width_pt: float) -> None:
    """Set the x-axis to the lengths of the group, and label those for which there is room."""
    lengths = [group.length(workload) for workload in group.workloads]
    low, high = min(lengths), max(lengths)
    if group.by_text or low == high:
        pad = 0.04 * (high - low) or 1
        plot.set_xlim(low - pad, high + pad)
        places = [(length - low + pad) / (high - low + 2 * pad) * width_pt for length in lengths]
    else:
        pad = (high / low) ** 0.04
        plot.set_xscale("log")
        plot.set_xlim(low / pad, high * pad)
        span = math.log(high * pad) - math.log(low / pad)
        places = [(math.log(length) - math.log(low / pad)) / span * width_pt for length in lengths]
    labels = [f"{length:,}" for length in lengths]
    kept: list[int] = []
    for index in reversed(range(len(lengths))):  # the longest, where variants are ranked, always has its label
        room = (len(labels[index]) + 1.5) * CHARACTER_PT
        if not kept or places[kept[-1]] - places[index] >= room:
            kept.append(index)
    plot.xaxis.set_major_locator(FixedLocator([lengths[index] for index in kept]))
    plot.xaxis.set_minor_locator(NullLocator())
    plot.xaxis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:,.0f}"))


def log_y(plot: Any, low: float, high: float, subs: Sequence[float]) -> None:
    """Make the y-axis logarithmic, with labels at these multiples of the powers of ten."""
    plot.set_yscale("log")
    plot.set_ylim(low / 1.15, high * 1.15)
    plot.yaxis.set_major_locator(LogLocator(subs=subs))
    plot.yaxis.set_minor_locator(NullLocator())
    plot.yaxis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:g}"))


def _limits(curves: list[Curve]) -> tuple[float, float]:
    """Return the least and the largest of what is drawn, which of a time of launching is the median only."""
    records = [record for curve in curves for record in curve]
    ends = [timing_of(record).median_ms for record in records]
    ends += [end for record in records if not launch_bound(record) for end in timing_of(record).ci95_ms]
    return min(ends), max(ends)


def plot_height(curves: int) -> float:
    """Return the height in points of a plot with so many curves that are labelled at their ends."""
    return max(_LABELLED_PT, (curves + 1) * _LABEL_GAP_PT)


def _spread(wanted_pt: Sequence[float], gap_pt: float, height_pt: float) -> list[float]:
    """Return heights in points near the wanted ones, in the same order, at least a gap apart, inside 0 to the height.

    The nearest such heights in the sense of least squares: pools of neighbours that would overlap share their mean.
    """
    order = np.argsort(wanted_pt, kind="stable")
    pools: list[list[float]] = []
    for place, index in enumerate(order):
        pools.append([wanted_pt[index] - place * gap_pt, 1])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            mean, count = pools.pop()
            pools[-1] = [(pools[-1][0] * pools[-1][1] + mean * count) / (pools[-1][1] + count), pools[-1][1] + count]
    means = [mean for mean, count in pools for _ in range(int(count))]
    top = height_pt - (len(order) - 1) * gap_pt
    found = [0.0] * len(order)
    for place, index in enumerate(order):
        found[index] = max(min(means[place], top), 0.0) + place * gap_pt
    return found


def label_ends(plot: Any, width_pt: float, height_pt: float, ends: list[tuple[Record, str]], size_pt: float) -> None:
    """Write each curve's text beside its last point, moved apart where they would overlap."""
    to_axes = plot.transScale + plot.transLimits
    starts = [to_axes.transform((x, timing_of(record).median_ms)) for record, _ in ends for x in (plot.get_xlim()[1],)]
    wanted = [float(start[1]) * height_pt for start in starts]
    for (record, text), y_from, y_to in zip(ends, wanted, _spread(wanted, _LABEL_GAP_PT, height_pt), strict=True):
        style = look(record.variant)
        x = [1.0, 1 + 10 / width_pt]
        y = [y_from / height_pt, y_to / height_pt]
        plot.plot(x, y, color=style.colour, linewidth=0.8, transform=plot.transAxes, clip_on=False)
        mark = {"color": style.colour, "fillstyle": style.filling, "markersize": 6, "clip_on": False}
        plot.plot([1 + 15 / width_pt], y[1:], style.marker, transform=plot.transAxes, **mark)
        place = (1 + 22 / width_pt, y[1] - 0.34 * size_pt / height_pt)
        plot.text(*place, text, transform=plot.transAxes, fontsize=size_pt)


def _last(group: Group, curve: Curve) -> str:
    """Return the last point's median in ms, its sign, and its place where it is not at the group's longest workload."""
    workload = curve[-1].workload
    place = "" if workload == group.longest else f" at {group.length(workload):,}"
    return number(timing_of(curve[-1]).median_ms) + " h" * launch_bound(curve[-1]) + place


def _overview(group: Group, curves: list[Curve], reference: str | None, figure: Any, top: float) -> None:
    texts = [
        f"{curve[-1].variant} {_last(group, curve)}" + (" (reference)" if curve[-1].variant == reference else "")
        for curve in curves
    ]
    width = WIDTH_PT - _AXIS_PT - 26 - max(len(text) for text in texts) * 0.602 * FONT_PT
    height = plot_height(len(curves)) - 4
    plot = axes(figure, _AXIS_PT, top + 4, width, height)
    low, high = _limits(curves)
    log_y(plot, low, high, (1, 2, 5) if high / low > 6 else (1, 1.5, 2, 3, 4, 5, 6, 8))
    _scale_x(plot, group, width)
    plot.set_xlabel(group.axis, fontsize=SMALL_PT)
    for curve in curves:
        _draw(plot, group, curve, 0, 6)
    label_ends(plot, width, height, [(c[-1], t) for c, t in zip(curves, texts, strict=True)], FONT_PT)


def _panels(group: Group, families: list[tuple[str, list[Curve]]], figure: Any, top: float) -> None:
    for column, (name, curves) in enumerate(families):
        left = column * _COLUMN_PT
        texts = [f"{form(curve[-1].variant)[1:] or 'eager'} {_last(group, curve)}" for curve in curves]
        characters = max(16, *(len(text) for text in texts))
        width = WIDTH_PT - _COLUMN_PT - _AXIS_PT - 24 - characters * CHARACTER_PT
        write_at(figure, left + _AXIS_PT, top + 8, name, fontweight="bold", fontsize=FONT_PT)
        plot = axes(figure, left + _AXIS_PT, top + 16, width, _PANEL_PT)
        low, high = _limits(curves)
        if high / low > 6:
            log_y(plot, low, high, (1, 3) if high / low < 100 else (1,))
        else:
            pad = 0.08 * (high - low) or 0.1 * high
            plot.set_ylim(low - pad, high + pad)
            plot.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
            plot.yaxis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:g}"))
        _scale_x(plot, group, width)
        for index, curve in enumerate(curves):
            _draw(plot, group, curve, 3 * (index - (len(curves) - 1) / 2), 4.5)
        label_ends(plot, width, _PANEL_PT, [(c[-1], t) for c, t in zip(curves, texts, strict=True)], SMALL_PT)
