"""The parts figure: on what the time of one call of each variant is spent at the longest workload, shortest call first.

A call's parts are those that its operation names, see `Operation.parts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter

from fluxbench.analysis.groups import Group
from fluxbench.core.formatting import number, percent
from fluxbench.records.schema import BURST, Record
from fluxbench.report.best_forms import best_of_kernels
from fluxbench.report.figures import Drawing, Rows
from fluxbench.report.figures.layout import Part, draw_groups, place, prose, ranked_records, write_at
from fluxbench.report.figures.rows import SCALE_PT, row_axes, row_layout, write_row
from fluxbench.report.figures.style import COLOURS, INK
from fluxbench.report.figures.svg import NARROW, Layout, Strip, tooltip
from fluxbench.report.results import Results
from fluxbench.report.sentences import capitalized, conditions

# By part: colour and density; they differ in lightness too. Parts of other operations have the colours that are left.
_PAINT = {
    "attention": (INK, 0.28),
    "quantization": (COLOURS[0], 1.0),
    "copies": (COLOURS[1], 1.0),
    "other": (INK, 0.8),
}
_LAST = "other"
_KEY_PT = 18.0
_BAR_PT = 10.0  # height of a bar
_SHOWN_FROM = 0.01  # share of a call from which on the time of the largest part but attention is written


def draw(results: Results) -> Drawing | None:
    """Draw the parts of one call of every variant in ms, a part of the figure for each group."""
    parts, is_known = _part_names(results.records), any(map(_parts, results.records))
    caption = "Grey is attention itself; colours are what else a call pays for: copies, quantization, the rest."
    return draw_groups(
        results,
        name="parts",
        title="What one call's time is spent on, for each variant",
        header=("workload", "variant", "regime", "call_ms", *(f"{part}_ms" for part in parts)),
        caption=caption if is_known else "The parts of a call are not known here.",
        part_of=_part,
        rows_of=partial(_rows, parts=parts),
        more="All forms",
    )


def _part_names(records: tuple[Record, ...] | list[Record]) -> list[str]:
    """Return the parts of such records: the attention, what the paint names, what other operations have, the rest."""
    named = dict.fromkeys(part for record in records for part in _parts(record))
    return [*(part for part in _PAINT if part != _LAST), *(part for part in named if part not in _PAINT), _LAST]


def _paint(parts: list[str]) -> dict[str, tuple[str, float]]:
    others = [part for part in parts if part not in _PAINT]
    every = _PAINT | {part: (COLOURS[(2 + index) % len(COLOURS)], 1.0) for index, part in enumerate(others)}
    return {part: every[part] for part in parts}


def _rows(group: Group, parts: list[str]) -> Rows:
    rows: Rows = []
    for record in ranked_records(group):
        times = _parts(record)
        call_ms = record.cupti.events_ms if record.cupti else ""
        who = (group.longest.name, record.variant, BURST, call_ms)
        rows.append((*who, *(times.get(part, 0.0) if times else "" for part in parts)))
    return rows


def _part(group: Group) -> Part | None:
    records = ranked_records(group)
    if not records:
        return None
    known = sorted((record for record in records if _parts(record)), key=_call_ms)
    if not known:
        unknown = "Not known: torch's profiler recorded no call."
        return Part(heading=place(group), strips=lambda layout: [prose(layout, unknown)], notes=[])
    notes = [
        "Single calls on a device that rested (burst), as shares of the call's time, shortest call first; numbers are "
        "the call's ms, and the largest part that is not attention. One row per kernel, in its best form.",
        "The call's time is by device events, the median of the first process's bursts. The profiler saw seven calls "
        "after these, so the parts can exceed the call by a percent. What is missing at the right end passes between "
        f"kernels. {capitalized(conditions(known, BURST))}.",
    ]
    if unknown_of := [record.variant for record in records if not _parts(record)]:
        notes.append(f"Not profiled: {', '.join(unknown_of)}.")
    shown = best_of_kernels(group, known)
    return Part(
        heading=place(group),
        strips=lambda layout: [_calls(layout, shown)],
        notes=notes,
        more=[_calls(NARROW, known)] if len(shown) < len(known) else (),
    )


def _calls(layout: Layout, known: list[Record]) -> Strip:
    at, parts = row_layout(layout), _part_names(known)
    paint = _paint(parts)

    def draw(figure: Any, top: float) -> None:
        left = at.left_pt
        for part in parts:
            figure.add_artist(_box(figure, left, top + 2, *paint[part]))
            write_at(figure, left + 12, top + 10, part)
            left += 22 + layout.character_pt * len(part)
        plot = row_axes(figure, at, top + _KEY_PT, len(known), f"share of the call's time ({BURST})")
        plot.set_xlim(0, 1)
        plot.grid(visible=False, axis="y")
        plot.xaxis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:.0%}"))
        for index, record in enumerate(known):
            _draw_call(plot, index, record, paint, _BAR_PT / at.row_pt)
            times, call_ms = _parts(record), _call_ms(record)
            most = max(parts[1:], key=lambda part: times.get(part, 0.0))
            is_shown = times.get(most, 0.0) >= _SHOWN_FROM * call_ms
            words = f"{most} {number(times[most], 2)}" if is_shown else ""
            ms = f"{number(call_ms)} ms"
            write_row(figure, at, at.baseline(top + _KEY_PT, index), record, (words, ms), ms)

    return Strip(_KEY_PT + len(known) * at.row_pt + SCALE_PT, draw)


def _draw_call(plot: Any, index: int, record: Record, paint: Mapping[str, tuple[str, float]], height: float) -> None:
    start, times, call_ms = 0.0, _parts(record), _call_ms(record)
    for part, (colour, density) in paint.items():
        if ms := times.get(part, 0.0):
            share = ms / call_ms
            (bar,) = plot.barh([index], [share], height, start, color=colour, alpha=density, linewidth=0)
            words = f"{number(ms)} ms of {number(call_ms)} ms, {percent(share)}, {BURST}"
            tooltip(bar, f"{record.variant}, {part}: {words}")
            start += share


def _parts(record: Record) -> dict[str, float]:
    return record.cupti.parts_ms if record.cupti else {}


def _call_ms(record: Record) -> float:
    assert record.cupti
    return record.cupti.events_ms


def _box(figure: Any, left: float, top: float, colour: str, density: float) -> Rectangle:
    """Return a small box of a part's paint, at a place in points from the figure's top left corner."""
    width, height = figure.get_size_inches() * 72
    corner = (left / width, 1 - (top + 8) / height)
    options = {"color": colour, "alpha": density, "linewidth": 0, "transform": figure.transFigure}
    return Rectangle(corner, 8 / width, 8 / height, **options)
