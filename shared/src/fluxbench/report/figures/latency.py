"""The latency figure: time per call against the workload's x, in the regime that ranks.

One line per kernel in one form, on a logarithmic axis, so that a slow kernel does not flatten the rest. Of many kernels
the fastest alone. In the fold are all kernels, and a small plot per kernel with all its forms on an axis of its own.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from fluxbench import variants
from fluxbench.analysis.groups import Group, is_launch_bound, ranking_regime, reference_variant, timing_of
from fluxbench.analysis.unbeaten import once
from fluxbench.core.formatting import interval, number
from fluxbench.records.schema import Record
from fluxbench.report.best_forms import best_forms
from fluxbench.report.figures import Drawing, Rows, curves
from fluxbench.report.figures.layout import Part, axes, draw_groups, prose, write_at
from fluxbench.report.figures.style import look_of
from fluxbench.report.figures.svg import CHARACTER_PT, NARROW, SMALL_PT, WIDE, Layout, Strip, tooltip
from fluxbench.report.legend import named
from fluxbench.report.results import Results
from fluxbench.report.sentences import capitalized, conditions, statistic
from fluxbench.report.sentences import title as title_of
from fluxbench.report.tables import time_cells
from fluxbench.variants.forms import EVERY_FORM

HEADER = (
    *("workload", "axis", "length", "variant", "regime", "median_ms", "ci95_low_ms", "ci95_high_ms"),
    "launch_bound",
)
_LOG_FROM = 16.0  # quotient of the largest x and the smallest from which on the x-axis is logarithmic
_NARROW_PT = 240.0  # height of the plot on a phone
_CROWD = 12  # curves; of more the closest to the fastest are drawn
_CLOSE = 2.0  # those up to so many times the lowest
_SAME = 0.01  # curves that nowhere differ by more lie over each other, as of one kernel under two names
_ASIDE_PT = 5.0  # by how much these are moved apart
_PANEL_PT = 100.0
_PANEL_ROW_PT = _PANEL_PT + 50.0
_AXIS_PT = 40.0  # room for the numbers of a y-axis
_FORMS = {form.name: form.label.removeprefix(", ").removeprefix("with a ") or form.name for form in EVERY_FORM}

Curve = list[Record]  # PASSED records of one variant, smallest x first


def draw(results: Results) -> Drawing | None:
    """Draw the latency in ms of every variant against x, a part for each group."""
    return draw_groups(
        results,
        name="latency",
        title=f"{capitalized(ranking_regime(results.records))} latency of each variant",
        header=HEADER,
        caption="Lower is faster.",
        part_of=_part,
        rows_of=rows_of,
        more="All kernels and forms",
    )


def rows_of(group: Group) -> Rows:
    """Return the rows of a group, as `HEADER` names them."""
    return [
        (
            *(record.workload.name, group.axis, record.workload.x, record.variant, ranking_regime([record])),
            *(*time_cells(record.timing), int(is_launch_bound(record))),
        )
        for variant in group.variants
        for record in group.curve(variant)
    ]


def _part(group: Group) -> Part | None:
    kernels: dict[str, list[Curve]] = {}
    for variant in group.variants:
        if curve := group.curve(variant):
            kernels.setdefault(curve[0].kernel, []).append(curve)
    if not kernels:
        return None
    reference = reference_variant(group.records)
    every = _once([_curve_of_kernel(group, forms) for forms in kernels.values()])
    close = _close_to_fastest(group, every)
    is_crowd = len(every) > _CROWD and 1 < len(close) < len(every)
    shown = close if is_crowd else every
    passed = [record for forms in kernels.values() for curve in forms for record in curve]
    regime = ranking_regime(passed)
    notes = [
        f"{capitalized(regime)}: {statistic(passed, regime)}s and 95% intervals; {conditions(passed, regime)}. "
        "Numbers are ms at the last point. One line per kernel: the reference itself, of the others the simplest form "
        "that none of their other forms beats. A kernel that is loaded in another way has no line of its own.",
    ]
    if any(_shifts(shown)):
        notes.append(f"Lines that nowhere differ by more than {_SAME:.0%} are drawn side by side.")
    if any(map(is_launch_bound, passed)):
        notes.append("Times with h have no interval, and a kernel's line ends in one only if all its forms do.")
    more = [*_overview(NARROW, group, every, reference)] if is_crowd else []
    several = [(kernel, forms) for kernel, forms in kernels.items() if len(forms) > 1]
    if several:
        words = f"The same kernels in all their forms ({regime}, ms), each on its own scale."
        more.append(prose(NARROW, words, gap=14))
    more += [Strip(_PANEL_ROW_PT, partial(_draw_panel, group, *of_kernel)) for of_kernel in several]
    return Part(
        heading=f"{title_of(group)}, against {group.axis}",
        strips=lambda layout: _overview(layout, group, shown, reference),
        finding=(
            f"Shown are the {len(close)} of {len(every)} kernels within {_CLOSE:g} times the shortest time."
            if is_crowd
            else ""
        ),
        notes=notes,
        more=more,
    )


def _curve_of_kernel(group: Group, forms: list[Curve]) -> Curve:
    """Return a kernel's curve for the overview: that of its best form, among those that reach as far as any."""
    reach = max(curve[-1].workload.x for curve in forms)
    longest = {curve[-1].variant: curve for curve in forms if curve[-1].workload.x == reach}
    [best] = best_forms(group, [curve[-1] for curve in longest.values()])
    return longest[best.variant]


def _once(every: list[Curve]) -> list[Curve]:
    """Return the curves without those of another way to load the kernels of one of them."""
    kept = {record.variant for record in once([curve[-1] for curve in every])}
    return [curve for curve in every if curve[-1].variant in kept]


def _close_to_fastest(group: Group, shown: list[Curve]) -> list[Curve]:
    """Return the curves that at the longest workload are not far above the lowest."""
    ends = [(timing_of(curve[-1]).median_ms, curve) for curve in shown if curve[-1].workload == group.longest]
    lowest = min((ms for ms, _ in ends), default=0.0)
    return [curve for ms, curve in ends if ms <= _CLOSE * lowest]


def _shifts(shown: list[Curve]) -> list[float]:
    """Return by how many points each curve is moved aside, so that none is hidden below another."""
    sets: list[list[int]] = []
    for index, curve in enumerate(shown):
        of_same = next((members for members in sets if _lie_together(shown[members[0]], curve)), None)
        if of_same is None:
            sets.append([index])
        else:
            of_same.append(index)
    place = {index: rank - (len(members) - 1) / 2 for members in sets for rank, index in enumerate(members)}
    return [_ASIDE_PT * place[index] for index in range(len(shown))]


def _lie_together(one: Curve, other: Curve) -> bool:
    """Whether two curves have the same lengths and nowhere differ by more than `_SAME`."""
    times, others = ({each.workload.x: timing_of(each).median_ms for each in curve} for curve in (one, other))
    return times.keys() == others.keys() and all(abs(math.log(times[x] / others[x])) <= _SAME for x in times)


def _overview(layout: Layout, group: Group, shown: list[Curve], reference: str | None) -> list[Strip]:
    texts = [
        f"{variants.label(curve[-1].variant)} {_last(group, curve)}{', reference' * (curve[-1].variant == reference)}"
        for curve in shown
    ]
    ends = [(curve[-1], text) for curve, text in zip(shown, texts, strict=True)]
    beside = layout is WIDE
    width = layout.width_pt - _AXIS_PT - (26 + max(map(len, texts)) * CHARACTER_PT if beside else 16)
    height = curves.plot_height(len(shown)) if beside else _NARROW_PT

    def draw(figure: Any, top: float) -> None:
        write_at(figure, 0, top + 8, f"{ranking_regime(group.records)} time per call (ms, logarithmic)")
        plot = axes(figure, _AXIS_PT, top + 18, width, height)
        low, high = _limits(shown)
        curves.log_y(plot, low, high, curves.tick_multiples(low, high))
        _scale_x(plot, group, width, layout.character_pt)
        plot.set_xlabel(group.axis)
        for curve, shift_pt in zip(shown, _shifts(shown), strict=True):
            _draw_curve(plot, group, curve, shift_pt=shift_pt, size_pt=6)
        if beside:
            curves.label_ends(plot, width, height, ends, SMALL_PT)

    return [Strip(height + 56, draw), *([] if beside else [curves.key(layout, ends)])]


def _draw_panel(group: Group, kernel: str, forms: list[Curve], figure: Any, top: float) -> None:
    texts = [f"{_FORMS.get(curve[-1].form, curve[-1].form)} {_last(group, curve)}" for curve in forms]
    width = NARROW.width_pt - _AXIS_PT - 24 - max(16, *map(len, texts)) * NARROW.character_pt
    write_at(figure, _AXIS_PT, top + 8, variants.label(kernel), fontweight="bold")
    plot = axes(figure, _AXIS_PT, top + 16, width, _PANEL_PT)
    low, high = _limits(forms)
    if high / low > 6:
        curves.log_y(plot, low, high, (1, 3) if high / low < 100 else (1,))
    else:
        pad = 0.08 * (high - low) or 0.1 * high
        plot.set_ylim(low - pad, high + pad)
        plot.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        plot.yaxis.set_major_formatter(FuncFormatter(curves.plain_number))
    _scale_x(plot, group, width, NARROW.character_pt)
    for index, curve in enumerate(forms):
        _draw_curve(plot, group, curve, shift_pt=3 * (index - (len(forms) - 1) / 2), size_pt=4.5)
    ends = [(curve[-1], text) for curve, text in zip(forms, texts, strict=True)]
    curves.label_ends(plot, width, _PANEL_PT, ends, NARROW.text_pt)


def _draw_curve(plot: Any, group: Group, curve: Curve, *, shift_pt: float, size_pt: float) -> None:
    """Draw one curve with its intervals."""
    style = look_of(curve[0])
    common = {"color": style.colour, "transform": curves.moved_sideways(plot, shift_pt)}
    medians = [timing_of(record).median_ms for record in curve]
    plot.plot([record.workload.x for record in curve], medians, linewidth=1.5, **style.dash_options, **common)
    known = [record for record in curve if not is_launch_bound(record)]
    ends = [timing_of(record).ci95_ms for record in known]
    curves.intervals(plot, [record.workload.x for record in known], ends, **common)
    for record, median in zip(curve, medians, strict=True):
        x = record.workload.x
        (mark,) = plot.plot([x], [median], style.marker, **style.mark_options(size_pt), transform=common["transform"])
        time = interval(median, timing_of(record).ci95_ms, unit=" ms")
        tooltip(mark, f"{named(record)} at {x:,} {group.axis}: {time}, {ranking_regime([record])}")


def _scale_x(plot: Any, group: Group, width_pt: float, character_pt: float) -> None:
    """Set the x-axis to the workloads of the group, and label those for which there is room."""
    lengths = [workload.x for workload in group.workloads]
    low, high = min(lengths), max(lengths)
    if high / low < _LOG_FROM:
        pad = 0.04 * (high - low) or 1.0
        left, right = low - pad, high + pad
        shares = [(length - left) / (right - left) for length in lengths]
    else:
        pad = (high / low) ** 0.04
        left, right = low / pad, high * pad
        plot.set_xscale("log")
        shares = [math.log(length / left) / math.log(right / left) for length in lengths]
    plot.set_xlim(left, right)
    labelled: list[int] = []
    for index in reversed(range(len(lengths))):  # the longest, where variants are ranked, always has its label
        room = (len(f"{lengths[index]:,}") + 1.5) * character_pt
        if not labelled or (shares[labelled[-1]] - shares[index]) * width_pt >= room:
            labelled.append(index)
    plot.xaxis.set_major_locator(FixedLocator([lengths[index] for index in labelled]))
    plot.xaxis.set_minor_locator(NullLocator())
    plot.xaxis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:,.0f}"))


def _limits(shown: list[Curve]) -> tuple[float, float]:
    """Return the least and the largest time that is drawn; of a launch-bound one the median alone is."""
    records = [record for curve in shown for record in curve]
    ends = [timing_of(record).median_ms for record in records]
    ends += [end for record in records if not is_launch_bound(record) for end in timing_of(record).ci95_ms]
    return min(ends), max(ends)


def _last(group: Group, curve: Curve) -> str:
    """Return the last point's median in ms, its symbol, and its x where that is not the group's longest."""
    record = curve[-1]
    x = "" if record.workload == group.longest else f" at {record.workload.x:,}"
    return number(timing_of(record).median_ms) + " h" * is_launch_bound(record) + x
