"""Records -> what a call costs at the longest workload, by variant: its energy, and what its time is spent on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter

from fluxbench.analysis.ranking import Group, launch_bound, timing_of
from fluxbench.core.formatting import interval, number, percent, plus_minus
from fluxbench.records.schema import PARTS, Record
from fluxbench.report.figures.rows import (
    NAME_PT,
    ROW_PT,
    TEXT_PT,
    baseline_of,
    by_class,
    mark_row,
    place,
    row_axes,
    scale_x,
)
from fluxbench.report.figures.style import COLOURS
from fluxbench.report.figures.svg import INK, SMALL_PT, WIDTH_PT, Block, prose, tell, write_at
from fluxbench.report.legend import late_note, named
from fluxbench.report.sentences import conditions

ENERGY_HEADER = (
    *("workload", "variant", "regime", "energy_mj", "energy_low_mj", "energy_high_mj", "power_w"),
    "launch_bound",
)
PARTS_HEADER = ("workload", "variant", "regime", "call_ms", *(f"{part}_ms" for part in PARTS))
# Of which colour a part is, and how dense: they differ in lightness too.
_PAINT = {"attention": (INK, 0.28), "quantization": (COLOURS[0], 1.0), "copies": (COLOURS[1], 1.0), "other": (INK, 0.8)}


def energy_blocks(group: Group) -> list[Block]:
    """Return the parts that show the energy of one sustained call of each variant, the least first.

    What the host launched too slowly comes after the rest.
    """
    records = _ranked(group)
    if not records:
        return []
    heading = f"Energy of a call, sustained: {place(group)}"
    known = sorted(
        (r for r in records if r.energy_mj), key=lambda record: (launch_bound(record), record.energy_mj or 0.0)
    )
    if not known:
        return [prose("Not known: this device has no energy counter, or it was not asked.", heading=heading)]
    note = (
        "Left is less. Energy by the device's own counter over sustained blocks of this kernel alone, divided by their "
        f"calls, with 95% intervals; the second number is the mean power meanwhile. {_upper(conditions(known))}."
    )
    if late := late_note(known):
        note += f" {late} Such rows come last: the energy of a device that waited in part compares with nothing."
    unknown = [record.variant for record in records if not record.energy_mj]
    rest = [prose(f"Not known of {', '.join(unknown)}.")] if unknown else []
    return [prose(note, heading=heading), (len(known) * ROW_PT + 36, partial(_energy, known)), *rest]


def energy_rows(group: Group) -> list[Sequence[object]]:
    """Return what `energy_blocks` plots, in the columns of `ENERGY_HEADER`."""
    return [
        (
            *(group.longest.name, record.variant, timing_of(record).regime),
            *("" if each is None else each for each in (record.energy_mj, *(record.energy_ci95_mj or (None, None)))),
            "" if record.telemetry is None or record.telemetry.power_w is None else record.telemetry.power_w,
            int(launch_bound(record)),
        )
        for record in _ranked(group)
    ]


def parts_blocks(group: Group) -> list[Block]:
    """Return the parts that show on what the time of one call is spent, the shortest call first."""
    records = _ranked(group)
    if not records:
        return []
    heading = f"What one call's time is spent on: {place(group)}"
    known = sorted((r for r in records if _parts(r)), key=_call_ms)
    if not known:
        return [prose("Not known: no call was taken apart by torch's profiler.", heading=heading)]
    note = (
        "Single calls on a device that rested (burst), by the kernels that the profiler saw, as shares of the call's "
        "time by device events, the median of the first process's bursts; the profiler saw seven calls after these, so "
        "the parts can exceed the call by a percent. What is missing at the right end passes between kernels. Numbers: "
        f"the call's ms, and what of it is not attention. {_upper(conditions(known, 'burst'))}."
    )
    unknown = [record.variant for record in records if not _parts(record)]
    rest = [prose(f"Not taken apart: {', '.join(unknown)}.")] if unknown else []
    return [prose(note, heading=heading), (14 + len(known) * ROW_PT + 36, partial(_split, known)), *rest]


def parts_rows(group: Group) -> list[Sequence[object]]:
    """Return what `parts_blocks` plots, in the columns of `PARTS_HEADER`; empty where a call was not taken apart."""
    return [
        (
            *(
                group.longest.name,
                record.variant,
                "burst",
                record.second_clock.events_ms if record.second_clock else "",
            ),
            *(_parts(record).get(part, 0.0) if _parts(record) else "" for part in PARTS),
        )
        for record in _ranked(group)
    ]


def _ranked(group: Group) -> list[Record]:
    return [entry.record for places in by_class(group).values() for entry in places]


def _parts(record: Record) -> dict[str, float]:
    return dict(record.second_clock.parts_ms) if record.second_clock else {}


def _call_ms(record: Record) -> float:
    assert record.second_clock
    return record.second_clock.events_ms


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _energy(known: list[Record], figure: Any, top: float) -> None:
    plot = row_axes(figure, top, len(known), 34)
    pairs = [(record.energy_mj or 0.0, record.energy_ci95_mj or (record.energy_mj or 0.0,) * 2) for record in known]
    scale_x(plot, min(ends[0] for _, ends in pairs), max(ends[1] for _, ends in pairs), "")
    plot.set_xlabel("energy of a call (mJ, sustained)", fontsize=SMALL_PT)
    for index, (record, (energy, ends)) in enumerate(zip(known, pairs, strict=True)):
        watts = record.telemetry.power_w if record.telemetry else None
        power = "" if watts is None else f"{watts:,.0f} W"
        told = ", ".join(filter(None, (f"{interval(energy, ends, unit=' mJ')} a call, sustained", power)))
        mark_row(plot, index, record, energy, ends, told)
        baseline = baseline_of(top, index)
        write_at(figure, NAME_PT, baseline, named(record), fontsize=SMALL_PT + 0.5)
        write_at(figure, TEXT_PT, baseline, f"{plus_minus(energy, ends)} mJ")
        write_at(figure, WIDTH_PT - 2, baseline, power, ha="right")


def _split(known: list[Record], figure: Any, top: float) -> None:
    left = TEXT_PT - 280
    for part in PARTS:
        colour, dense = _PAINT[part]
        figure.add_artist(_box(figure, left, top + 2, colour, dense))
        write_at(figure, left + 12, top + 9, part)
        left += 20 + 6 * len(part) + 8
    plot = row_axes(figure, top + 14, len(known), 34)
    plot.set_xlim(0, 1)
    plot.grid(visible=False, axis="y")
    plot.xaxis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:.0%}"))
    plot.set_xlabel("share of the call's time (burst)", fontsize=SMALL_PT)
    for index, record in enumerate(known):
        start, parts = 0.0, _parts(record)
        for part in PARTS:
            if ms := parts.get(part, 0.0):
                colour, dense = _PAINT[part]
                share = ms / _call_ms(record)
                (bar,) = plot.barh([index], [share], 0.62, start, color=colour, alpha=dense, linewidth=0)
                told = f"{number(ms)} ms of {number(_call_ms(record))} ms, {percent(share)}, burst"
                tell(bar, f"{record.variant}, {part}: {told}")
                start += share
        baseline = baseline_of(top + 14, index)
        write_at(figure, NAME_PT, baseline, record.variant, fontsize=SMALL_PT + 0.5)
        write_at(figure, TEXT_PT + 50, baseline, f"{number(_call_ms(record))} ms", ha="right")
        besides = [
            f"{part} {number(parts[part], 2)}" for part in PARTS[1:] if parts.get(part, 0.0) >= 0.01 * _call_ms(record)
        ]
        write_at(figure, TEXT_PT + 58, baseline, ", ".join(besides), fontsize=SMALL_PT - 1)


def _box(figure: Any, left: float, top: float, colour: str, dense: float) -> Any:
    """Return a small box of a part's paint, at a place in points from the figure's top left corner."""
    width, height = figure.get_size_inches() * 72
    place = (left / width, 1 - (top + 8) / height)
    return Rectangle(place, 8 / width, 8 / height, color=colour, alpha=dense, linewidth=0, transform=figure.transFigure)
