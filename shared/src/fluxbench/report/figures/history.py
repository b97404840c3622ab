"""The history figure: sustained time at the longest workload over the revisions, a line per kernel, logarithmic."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from matplotlib.transforms import ScaledTranslation

from fluxbench.analysis.history import VERSIONS, Timeline, not_comparable
from fluxbench.analysis.ranking import base, form, timing_of
from fluxbench.core.formatting import interval, number
from fluxbench.records.schema import Record
from fluxbench.report.figures.lines import intervals, label_ends, log_y, plot_height
from fluxbench.report.figures.style import look
from fluxbench.report.figures.svg import (
    CHARACTER_PT,
    FONT_PT,
    INK,
    SMALL_PT,
    WIDTH_PT,
    Block,
    axes,
    prose,
    tell,
    write_at,
)

HEADER = (
    *("workload", "revision", "measured_at", *VERSIONS, "variant", "regime"),
    *("median_ms", "ci95_low_ms", "ci95_high_ms", "not_comparable_with_before"),
)

_LEFT_PT = 52.0  # room for the numbers of the y-axis, and below them for what the rows of the x-axis are called
_LINE_PT = 1.4 * SMALL_PT
_APART_PT = 4.0  # at most, between two variants of one revision, so that equal times do not hide each other

Point = tuple[int, Record]


def rows(timeline: Timeline) -> list[Sequence[object]]:
    """Return the times of every variant, in the columns of `HEADER`; revisions count from 1."""
    found: list[Sequence[object]] = []
    for variant, points in timeline.points.items():
        for place, (at, record) in enumerate(points):
            timing = timing_of(record)
            versions = [timeline.revisions[at].versions.get(name, "") for name in VERSIONS]
            reason = not_comparable(points[place - 1][1], record) if place else None
            who = (timeline.group.longest.name, at + 1, record.measured_at, *versions, variant, timing.regime)
            found.append((*who, timing.median_ms, *timing.ci95_ms, reason or ""))
    return sorted(found, key=lambda row: int(str(row[1])))


def blocks(timeline: Timeline) -> list[Block]:
    """Return the parts of the figure; where there are no two revisions or is no time, a sentence that says so."""
    heading = f"Sustained time per call (ms, logarithmic) over drivers and libraries: {timeline.where}"
    if len(timeline.revisions) < 2 or not timeline.points:
        return [prose("There are no two revisions with a time to draw.", heading=heading)]
    curves = _shown(timeline)
    note = "Sustained: medians and 95% intervals; numbers are ms at the last point."
    if len(curves) < len(timeline.points):
        note += " One line per kernel, in its simplest form; the table and history.csv have them all."
    if timeline.breaks:
        note += " Lines are broken where times must not be compared."
    head = timeline.head
    characters = max(len(text) for texts in head.values() for text in texts) + 2
    texts = {variant: _text(timeline, variant, points) for variant, points in curves.items()}
    width = WIDTH_PT - _LEFT_PT - 26 - max(map(len, texts.values())) * 0.602 * FONT_PT
    margin = characters * CHARACTER_PT / 2
    step = (width - 2 * margin) / (len(timeline.revisions) - 1)
    key: list[Block] = []
    if step < characters * CHARACTER_PT:  # no room for more than their numbers
        key = [prose(*(f"{at + 1}: {timeline.called(at)}" for at in range(len(timeline.revisions))), gap=4)]
        head = {"revision": head["revision"]}
    height = plot_height(len(curves)) + 14 + len(head) * _LINE_PT + 8
    draw = partial(_draw, timeline, curves, texts, head, (width, margin, step))
    broken = [prose(*timeline.broken())] if timeline.breaks else []
    return [prose(note, heading=heading), (height, draw), *key, *broken]


def summary(timeline: Timeline) -> str:
    """Return what the figure shows, for a reader who does not see it."""
    times = []
    for variant, points in _shown(timeline).items():
        medians = [f"{number(timing_of(record).median_ms)} ms (revision {at + 1})" for at, record in points]
        times.append(f"{variant} {', '.join(medians)}")
    called = [f"{at + 1}: {timeline.called(at)}" for at in range(len(timeline.revisions))]
    return " ".join([f"{timeline.where}: {'; '.join(times)}. Revisions: {'; '.join(called)}.", *timeline.broken()])


def _shown(timeline: Timeline) -> dict[str, list[Point]]:
    """Return one variant per kernel, the one in the simplest form."""
    simplest: dict[str, str] = {}
    for variant in sorted(timeline.points, key=lambda variant: len(form(variant))):
        simplest.setdefault(base(variant), variant)
    return {variant: points for variant, points in timeline.points.items() if variant in simplest.values()}


def _text(timeline: Timeline, variant: str, points: Sequence[Point]) -> str:
    at, record = points[-1]
    place = "" if at + 1 == len(timeline.revisions) else f" (revision {at + 1})"
    return f"{variant} {number(timing_of(record).median_ms)}{place}"


def _draw(
    timeline: Timeline,
    curves: dict[str, list[Point]],
    texts: dict[str, str],
    head: dict[str, list[str]],
    sizes_pt: tuple[float, float, float],
    figure: Any,
    top: float,
) -> None:
    """Draw the curves; `sizes_pt` are the plot's width, its margin to either side and the step between revisions."""
    width, margin, step = sizes_pt
    last = len(timeline.revisions) - 1
    height = plot_height(len(curves))
    plot = axes(figure, _LEFT_PT, top + 4, width, height - 4)
    ends = [end for points in curves.values() for _, record in points for end in timing_of(record).ci95_ms]
    low, high = min(ends), max(ends)
    fine = (1, 1.2, 1.5, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9)
    log_y(plot, low, high, (1, 2, 5) if high / low > 6 else fine if high / low < 2 else (1, 1.5, 2, 3, 4, 5, 6, 8))
    plot.set_xlim(-margin / step, last + margin / step)
    plot.xaxis.set_major_locator(FixedLocator(range(last + 1)))
    plot.xaxis.set_minor_locator(NullLocator())
    plot.xaxis.set_major_formatter(FuncFormatter(lambda value, position: ""))
    for before in _gaps(timeline):
        plot.axvline(before + 0.5, color=INK, alpha=0.5, linewidth=0.8, dashes=(2, 3))
    apart = min(_APART_PT, 0.5 * step / len(curves))
    for index, (variant, points) in enumerate(curves.items()):
        _curve(plot, variant, points, apart * (index - (len(curves) - 1) / 2))
    for line, (name, values) in enumerate(head.items(), start=1):
        baseline = top + height + 6 + line * _LINE_PT
        write_at(figure, _LEFT_PT - 6, baseline, name, ha="right")
        for at, value in enumerate(values):
            write_at(figure, _LEFT_PT + margin + at * step, baseline, value, ha="center")
    named = [(points[-1][1], texts[variant]) for variant, points in curves.items()]
    label_ends(plot, width, height - 4, named, FONT_PT)


def _gaps(timeline: Timeline) -> set[int]:
    """Return the revisions from which no time leads over to the next one, since it must not be compared."""
    broken = {at for each in timeline.breaks for at in range(each.before, each.after)}
    for points in timeline.points.values():
        for (before, old), (after, new) in itertools.pairwise(points):
            if not not_comparable(old, new):
                broken -= set(range(before, after))
    return broken


def _curve(plot: Any, variant: str, points: Sequence[Point], shift_pt: float) -> None:
    """Draw one variant's points with their intervals, and a line between two in succession that may be compared."""
    style = look(variant)
    moved = plot.transData + ScaledTranslation(shift_pt / 72, 0, plot.figure.dpi_scale_trans)
    common = {"color": style.colour, "transform": moved}
    dashes = {"dashes": style.dashes} if style.dashes else {}
    for (before, old), (after, new) in itertools.pairwise(points):
        if not not_comparable(old, new):
            medians = [timing_of(old).median_ms, timing_of(new).median_ms]
            plot.plot([before, after], medians, linewidth=1.5, **dashes, **common)
    x = [at for at, _ in points]
    intervals(plot, x, [timing_of(record).ci95_ms for _, record in points], **common)
    for at, record in points:
        median = timing_of(record).median_ms
        (mark,) = plot.plot(
            [at], [median], style.marker, fillstyle=style.filling, markersize=6, clip_on=False, **common
        )
        told = interval(median, timing_of(record).ci95_ms, unit=" ms")
        tell(mark, f"{variant}, revision {at + 1}: {told}, sustained")
