"""The parts figure: on what the time of one call of each variant is spent at the longest workload, shortest call first.

A call's parts are those that its operation names, see `Operation.parts`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter

from fluxbench.analysis.groups import Group
from fluxbench.core.formatting import number, percent
from fluxbench.records.schema import BURST, Record
from fluxbench.report.figures import Drawing, Rows
from fluxbench.report.figures.layout import draw_groups, place, prose, ranked_records, write_at
from fluxbench.report.figures.rows import ROW_PT, SCALE_PT, TEXT_PT, baseline_of, row_axes, write_name
from fluxbench.report.figures.style import COLOURS, INK
from fluxbench.report.figures.svg import SMALL_PT, Strip, tooltip
from fluxbench.report.results import Results
from fluxbench.report.sentences import capitalized, conditions

# By part: colour and density; they differ in lightness too. Parts of other operations have the colours that are left.
_PAINT = {
    "attention": (INK, 0.28),
    "quantization": (COLOURS[0], 1.0),
    "copies": (COLOURS[1], 1.0),
    "other": (INK, 0.8),
}
_FIRST, _LAST = "attention", "other"
_KEY_LEFT_PT, _KEY_PT = TEXT_PT - 280, 14.0
_SHOWN_FROM = 0.01  # share of a call from which on a part's time is written beside it


def draw(results: Results) -> Drawing | None:
    """Draw the parts of one call of every variant in ms, a part of the figure for each group."""
    parts = _part_names(results.records)
    return draw_groups(
        results,
        name="parts",
        title="What one call's time is spent on, for each variant",
        header=("workload", "variant", "regime", "call_ms", *(f"{part}_ms" for part in parts)),
        strips_of=_strips,
        rows_of=partial(_rows, parts=parts),
    )


def _part_names(records: tuple[Record, ...] | list[Record]) -> list[str]:
    """Return the parts of such records: the attention, what the paint names, what other operations have, the rest."""
    named = dict.fromkeys(part for record in records for part in _parts(record))
    return [*(part for part in _PAINT if part != _LAST), *(part for part in named if part not in _PAINT), _LAST]


def _paint(parts: list[str]) -> dict[str, tuple[str, float]]:
    others = [part for part in parts if part not in _PAINT]
    return _PAINT | {part: (COLOURS[(2 + index) % len(COLOURS)], 1.0) for index, part in enumerate(others)}


def _rows(group: Group, parts: list[str]) -> Rows:
    rows: Rows = []
    for record in ranked_records(group):
        times = _parts(record)
        call_ms = record.cupti.events_ms if record.cupti else ""
        who = (group.longest.name, record.variant, BURST, call_ms)
        rows.append((*who, *(times.get(part, 0.0) if times else "" for part in parts)))
    return rows


def _strips(group: Group) -> list[Strip]:
    records = ranked_records(group)
    if not records:
        return []
    heading = f"What one call's time is spent on: {place(group)}"
    known = sorted((record for record in records if _parts(record)), key=_call_ms)
    if not known:
        return [prose("Not known: torch's profiler recorded no call.", heading=heading)]
    note = (
        "Single calls on a device that rested (burst), by the kernels that the profiler saw, as shares of the call's "
        "time by device events, the median of the first process's bursts; the profiler saw seven calls after these, so "
        "the parts can exceed the call by a percent. What is missing at the right end passes between kernels. Numbers: "
        f"the call's ms, and what of it is not attention. {capitalized(conditions(known, BURST))}."
    )
    unknown = [record.variant for record in records if not _parts(record)]
    rest = [prose(f"Not profiled: {', '.join(unknown)}.")] if unknown else []
    return [prose(note, heading=heading), _calls(known), *rest]


def _calls(known: list[Record]) -> Strip:
    parts = _part_names(known)
    paint = _paint(parts)

    def draw(figure: Any, top: float) -> None:
        left = _KEY_LEFT_PT
        for part in parts:
            figure.add_artist(_box(figure, left, top + 2, *paint[part]))
            write_at(figure, left + 12, top + 9, part)
            left += 28 + 6 * len(part)
        plot = row_axes(figure, top + _KEY_PT, len(known), f"share of the call's time ({BURST})")
        plot.set_xlim(0, 1)
        plot.grid(visible=False, axis="y")
        plot.xaxis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:.0%}"))
        for index, record in enumerate(known):
            _draw_call(plot, index, record, parts, paint)
            baseline, times, call_ms = baseline_of(top + _KEY_PT, index), _parts(record), _call_ms(record)
            beside = [part for part in parts if part != _FIRST and times.get(part, 0.0) >= _SHOWN_FROM * call_ms]
            write_name(figure, baseline, record.variant)
            write_at(figure, TEXT_PT + 50, baseline, f"{number(call_ms)} ms", ha="right")
            words = ", ".join(f"{part} {number(times[part], 2)}" for part in beside)
            write_at(figure, TEXT_PT + 58, baseline, words, fontsize=SMALL_PT - 1)

    return Strip(_KEY_PT + len(known) * ROW_PT + SCALE_PT, draw)


def _draw_call(plot: Any, index: int, record: Record, parts: list[str], paint: dict[str, tuple[str, float]]) -> None:
    start, times, call_ms = 0.0, _parts(record), _call_ms(record)
    for part in parts:
        if ms := times.get(part, 0.0):
            colour, density = paint[part]
            share = ms / call_ms
            (bar,) = plot.barh([index], [share], 0.62, start, color=colour, alpha=density, linewidth=0)
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
