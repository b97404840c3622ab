"""The history figure: time at the longest workload over the revisions, a line per kernel, logarithmic."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from fluxbench import variants
from fluxbench.analysis import history
from fluxbench.analysis.groups import ranking_regime, timing_of
from fluxbench.analysis.history import Timeline, not_comparable
from fluxbench.analysis.revision import VERSIONS, libraries_of
from fluxbench.core.formatting import interval, number
from fluxbench.records.schema import Record
from fluxbench.report.blocks import Paragraph
from fluxbench.report.figures import Drawing, Rows, curves
from fluxbench.report.figures.layout import axes, heading, prose, svg_of, write_at
from fluxbench.report.figures.style import INK, look_of
from fluxbench.report.figures.svg import CHARACTER_PT, NARROW, SMALL_PT, WIDE, Layout, Strip, tooltip
from fluxbench.report.results import Results
from fluxbench.report.tables import time_cells
from fluxbench.variants.forms import simplicity

HEADER = (
    *("workload", "revision", "measured_at", *VERSIONS, "libraries", "variant", "regime"),
    *("median_ms", "ci95_low_ms", "ci95_high_ms", "not_comparable_with_before"),
)
_LEFT_PT = 56.0  # room for the numbers of the y-axis, and below them for what the rows of the x-axis are called
_LINE = 1.4  # height of a line of text, as a multiple of its size
_NARROW_PT = 240.0  # height of the plot on a phone
_APART_PT = 4.0  # at most, between two variants of one revision, so that equal times do not hide each other

Curve = Sequence[tuple[int, Record]]  # PASSED records of one variant with the index of their revision, oldest first


def draw(results: Results) -> Drawing | None:
    """Draw the time of every kernel over drivers and libraries, a part for each group; None before two revisions."""
    timelines = history.of(results.records, results.device, results.earlier).timelines
    if all(len(timeline.revisions) < 2 for timeline in timelines):
        return None
    rows: Rows = [HEADER, *(row for timeline in timelines for row in _rows(timeline))]
    title, words = "Time of each kernel over drivers and libraries", " ".join(map(_summary, timelines))

    def svg(layout: Layout) -> str:
        strips = [strip for timeline in timelines for strip in _strips(layout, timeline)]
        return svg_of(layout, strips, title, words, name="history")

    notes = [
        "Times with 95% intervals; numbers are ms at the last point. One line per kernel, in its simplest form; the "
        "table and history.csv have them all.",
        *dict.fromkeys(sentence for timeline in timelines for sentence in timeline.break_sentences()),
        *dict.fromkeys(sentence for timeline in timelines for sentence in timeline.machine_sentences()),
    ]
    return Drawing(
        svg=svg(WIDE),
        narrow=svg(NARROW),
        rows=rows,
        caption="Lower is faster; lines are broken where times must not be compared.",
        details=[Paragraph(note) for note in notes],
    )


def _rows(timeline: Timeline) -> Rows:
    """Return the times of every variant; revisions count from 1."""
    rows: Rows = []
    for variant, points in timeline.points.items():
        before: Record | None = None
        for index, record in points:
            versions = (timeline.revisions[index].versions.get(name, "") for name in VERSIONS)
            reason = not_comparable(before, record) if before else None
            libraries = ", ".join(f"{name} {version}" for name, version in libraries_of(record).items())
            who = (timeline.group.longest.name, index + 1, record.measured_at, *versions, libraries, variant)
            rows.append((*who, ranking_regime([record]), *time_cells(record.timing), str(reason or "")))
            before = record
    return sorted(rows, key=lambda row: int(str(row[1])))


def _strips(layout: Layout, timeline: Timeline) -> list[Strip]:
    above = heading(layout, timeline.where)
    if len(timeline.revisions) < 2 or not timeline.points:
        return [above, prose(layout, "There are no two revisions with a time to draw.")]
    shown = _one_per_kernel(timeline)
    texts = {variant: _label(timeline, variant, points) for variant, points in shown.items()}
    head = timeline.head
    column_pt = (max(len(text) for row in head.values() for text in row) + 2) * layout.character_pt
    room = 26 + max(map(len, texts.values())) * CHARACTER_PT if layout is WIDE else 16
    scale = _Scale(
        width=layout.width_pt - _LEFT_PT - room, margin=min(column_pt / 2, 40), revisions=len(timeline.revisions)
    )
    below: list[Strip] = []
    if layout is NARROW:
        below.append(curves.key(layout, [(points[-1][1], texts[variant]) for variant, points in shown.items()]))
    if scale.step < column_pt or scale.margin < column_pt / 2:  # no room for more than their numbers
        below.append(prose(layout, *_revisions(timeline), gap=4))
        head = {"revision": head["revision"]}
    return [above, _times(layout, timeline, shown, texts, head, scale), *below]


def _summary(timeline: Timeline) -> str:
    """Return what the figure shows, for a reader who does not see it."""
    times = []
    for variant, points in _one_per_kernel(timeline).items():
        medians = [f"{number(timing_of(record).median_ms)} ms (revision {index + 1})" for index, record in points]
        times.append(f"{variant} {', '.join(medians)}")
    revisions = "; ".join(_revisions(timeline))
    return " ".join([f"{timeline.where}: {'; '.join(times)}. Revisions: {revisions}.", *timeline.break_sentences()])


def _revisions(timeline: Timeline) -> list[str]:
    return [f"{index + 1}: {timeline.label(index)}" for index in range(len(timeline.revisions))]


def _one_per_kernel(timeline: Timeline) -> dict[str, Curve]:
    """Return one variant per kernel, the one in the simplest form."""
    newest = {variant: points[-1][1] for variant, points in timeline.points.items()}
    simplest: dict[str, str] = {}
    for variant, record in sorted(newest.items(), key=lambda item: simplicity(item[1].form)):
        simplest.setdefault(record.kernel, variant)
    return {variant: points for variant, points in timeline.points.items() if variant in simplest.values()}


def _label(timeline: Timeline, variant: str, points: Curve) -> str:
    index, record = points[-1]
    place = "" if index + 1 == len(timeline.revisions) else f" (revision {index + 1})"
    return f"{variants.label(variant)} {number(timing_of(record).median_ms)}{place}"


@dataclass(frozen=True, kw_only=True)
class _Scale:
    """Places of revisions along the x-axis, in points."""

    width: float
    margin: float  # to either side
    revisions: int

    @property
    def step(self) -> float:
        """From one revision to the next."""
        return (self.width - 2 * self.margin) / (self.revisions - 1)


def _times(
    layout: Layout,
    timeline: Timeline,
    shown: Mapping[str, Curve],
    texts: Mapping[str, str],
    head: Mapping[str, Sequence[str]],
    scale: _Scale,
) -> Strip:
    height = curves.plot_height(len(shown)) if layout is WIDE else _NARROW_PT
    line_pt = _LINE * layout.text_pt

    def draw(figure: Any, top: float) -> None:
        regime = ranking_regime(record for points in timeline.points.values() for _, record in points)
        write_at(figure, 0, top + 8, f"{regime} time per call (ms, logarithmic)")
        plot = axes(figure, _LEFT_PT, top + 18, scale.width, height - 18)
        ends = [end for points in shown.values() for _, record in points for end in timing_of(record).ci95_ms]
        low, high = min(ends), max(ends)
        curves.log_y(plot, low, high, curves.tick_multiples(low, high, fine=True))
        plot.set_xlim(-scale.margin / scale.step, scale.revisions - 1 + scale.margin / scale.step)
        plot.xaxis.set_major_locator(FixedLocator(range(scale.revisions)))
        plot.xaxis.set_minor_locator(NullLocator())
        plot.xaxis.set_major_formatter(FuncFormatter(lambda value, position: ""))
        for before in _gaps(timeline):
            plot.axvline(before + 0.5, color=INK, alpha=0.5, linewidth=0.8, dashes=(2, 3))
        apart = min(_APART_PT, 0.5 * scale.step / len(shown))
        for index, (variant, points) in enumerate(shown.items()):
            _draw_curve(plot, variant, points, apart * (index - (len(shown) - 1) / 2))
        for line, (name, values) in enumerate(head.items(), start=1):
            baseline = top + height + 6 + line * line_pt
            write_at(figure, _LEFT_PT - 6, baseline, name, ha="right")
            for index, value in enumerate(values):
                write_at(figure, _LEFT_PT + scale.margin + index * scale.step, baseline, value, ha="center")
        if layout is WIDE:
            labelled = [(points[-1][1], texts[variant]) for variant, points in shown.items()]
            curves.label_ends(plot, scale.width, height - 18, labelled, SMALL_PT)

    return Strip(height + 14 + len(head) * line_pt + 8, draw)


def _gaps(timeline: Timeline) -> set[int]:
    """Return the revisions from which no time leads over to the next one, since it must not be compared."""
    gaps = {index for gap in timeline.breaks for index in range(gap.before, gap.after)}
    for points in timeline.points.values():
        for (before, old), (after, new) in itertools.pairwise(points):
            if not not_comparable(old, new):
                gaps -= set(range(before, after))
    return gaps


def _draw_curve(plot: Any, variant: str, points: Curve, shift_pt: float) -> None:
    """Draw one variant's points with their intervals, and a line between two in succession that may be compared."""
    style = look_of(points[-1][1])
    common = {"color": style.colour, "transform": curves.moved_sideways(plot, shift_pt)}
    for (before, old), (after, new) in itertools.pairwise(points):
        if not not_comparable(old, new):
            medians = [timing_of(old).median_ms, timing_of(new).median_ms]
            plot.plot([before, after], medians, linewidth=1.5, **style.dash_options, **common)
    ends = [timing_of(record).ci95_ms for _, record in points]
    curves.intervals(plot, [index for index, _ in points], ends, **common)
    for index, record in points:
        median = timing_of(record).median_ms
        mark_options = style.mark_options(6) | {"transform": common["transform"]}
        (mark,) = plot.plot([index], [median], style.marker, **mark_options)
        time = interval(median, timing_of(record).ci95_ms, unit=" ms")
        tooltip(mark, f"{variant}, revision {index + 1}: {time}, {ranking_regime([record])}")
