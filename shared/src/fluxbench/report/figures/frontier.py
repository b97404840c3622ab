"""The frontier figure: a kernel's error against its time. What lies low and left errs little and is fast."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from fluxbench.analysis.ranking import Group, base, correctness_of, launch_bound, overlap, timing_of
from fluxbench.core.formatting import interval, number
from fluxbench.records.schema import Record
from fluxbench.report.figures.rows import by_class, place
from fluxbench.report.figures.style import look
from fluxbench.report.figures.svg import CHARACTER_PT, INK, SMALL_PT, WIDTH_PT, Block, axes, prose, tell, write_at
from fluxbench.report.legend import late_note, named
from fluxbench.report.sentences import conditions

HEADER = (
    *("workload", "variant", "precision_class", "regime", "median_ms", "ci95_low_ms", "ci95_high_ms"),
    *("rel_l2", "budget_rel_l2", "on_frontier", "launch_bound"),
)
_ALIKE = 1.05  # errors of which the larger is at most so many times the smaller count as equal
_LEFT_PT, _PLOT_PT = 48.0, 356.0
_KEY_PT, _KEY_LINE_PT = 424.0, 13.5
_LEAST_PT = 300.0


def rows(group: Group) -> list[Sequence[object]]:
    """Return every ranked variant's time and error, in the columns of `HEADER`."""
    found = _ranked(group)
    best = {record.variant for record in frontier(found)}
    return [
        (
            *(group.longest.name, record.variant, right.precision_class, timing.regime),
            *(timing.median_ms, *timing.ci95_ms, right.rel_l2, right.budget_rel_l2),
            *(record.variant in best, int(launch_bound(record))),
        )
        for record in found
        for timing, right in ((timing_of(record), correctness_of(record)),)
    ]


def frontier(records: Sequence[Record]) -> list[Record]:
    """Return the records that no other beats, fastest first.

    One beats another if it errs less and is not measurably slower, or errs about as much and is measurably faster.
    A record whose time is of launching beats none, and is none of these.
    """
    kernels = [record for record in records if not launch_bound(record)]
    found = [record for record in kernels if not any(_beats(other, record) for other in kernels)]
    return sorted(found, key=lambda record: timing_of(record).median_ms)


def _beats(one: Record, other: Record) -> bool:
    slower = not overlap(one, other) and timing_of(one).ratio > timing_of(other).ratio
    faster = not overlap(one, other) and timing_of(one).ratio < timing_of(other).ratio
    less = _error(one) * _ALIKE < _error(other)
    return not slower if less else faster and _error(one) <= _error(other) * _ALIKE


def blocks(group: Group) -> list[Block]:
    """Return the parts of the figure, none where nothing is ranked."""
    fastest: dict[str, Record] = {}
    for record in sorted(_ranked(group), key=launch_bound):
        fastest.setdefault(base(record.variant), record)
    shown = sorted(fastest.values(), key=lambda record: timing_of(record).median_ms)
    if not shown:
        return []
    note = (
        "Low and left is better. One mark per kernel, in its fastest form: its median time and 95% interval, and its "
        "error against the float64 reference, of the worse of two kinds of inputs. In bold, and joined by the line, is "
        "what no other kernel beats: all that err less are measurably slower, and none that errs about as much (within "
        f"{_ALIKE - 1:.0%}) is measurably faster. Measurably: the intervals of the sustained ratio do not overlap. "
        f"Sustained: {conditions(shown)}."
    )
    if late := late_note(shown):
        note += f" {late} Such times beat nothing, have no interval here, and are of kernels with h in all forms."
    height = max(_LEAST_PT, (len(shown) + 1) * _KEY_LINE_PT + 8)
    draw = partial(_draw, shown, height)
    return [prose(note, heading=f"Error against sustained time: {place(group)}", gap=18), (height + 40, draw)]


def _ranked(group: Group) -> list[Record]:
    """Return the ranked records with an error, fastest first; a logarithmic axis has no place for no error."""
    found = [entry.record for places in by_class(group).values() for entry in places if _error(entry.record) > 0]
    return sorted(found, key=lambda record: timing_of(record).median_ms)


def _error(record: Record) -> float:
    return correctness_of(record).rel_l2 or 0.0


def _budgets(shown: list[Record]) -> dict[str, float]:
    """Return the error budget of each class of precision whose kernels share one."""
    found: dict[str, list[float]] = {}
    for record in shown:
        right = correctness_of(record)
        found.setdefault(right.precision_class, []).append(right.budget_rel_l2)
    return {kind: its[0] for kind, its in found.items() if max(its) <= 1.05 * min(its)}


def _draw(shown: list[Record], height: float, figure: Any, top: float) -> None:
    plot = axes(figure, _LEFT_PT, top + 6, _PLOT_PT, height - 6)
    times = [timing_of(record).median_ms for record in shown]
    times += [end for record in shown if not launch_bound(record) for end in timing_of(record).ci95_ms]
    budgets = _budgets(shown)
    errors = [*map(_error, shown), *budgets.values()]
    plot.set_xscale("log")
    plot.set_yscale("log")
    plot.set_xlim(min(times) / 1.15, max(times) * 1.15)
    plot.set_ylim(min(errors) / 1.5, max(errors) * 1.5)
    for axis in (plot.xaxis, plot.yaxis):
        narrow = axis is plot.xaxis and max(times) / min(times) < 6
        axis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 5, 6, 8) if narrow else (1, 2, 5)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:g}"))
    plot.grid(axis="x", alpha=0.18, linewidth=0.6)
    plot.set_xlabel("sustained time per call (ms, logarithmic)", fontsize=SMALL_PT)
    write_at(figure, 0, top + 4, "relative L2 error (logarithmic)")
    for kind, budget in budgets.items():
        (line,) = plot.plot([0, 1], [budget] * 2, transform=plot.get_yaxis_transform(), color=INK, linewidth=0.8)
        line.set_dashes((4, 3))
        above = (0.99, budget * 1.04)
        plot.text(*above, f"budget, {kind}", transform=plot.get_yaxis_transform(), fontsize=SMALL_PT, ha="right")
    best = frontier(shown)
    steps = [(timing_of(record).median_ms, _error(record)) for record in best]
    x = [*(ms for ms, _ in steps for _ in range(2)), max(times) * 1.15][1:]
    y = [error for _, error in steps for _ in range(2)]
    plot.plot(x, y, color=INK, linewidth=1, alpha=0.7)
    _name(plot, best, shown)
    write_at(figure, WIDTH_PT - 56, top + 8, "ms", ha="right", fontweight="bold")
    write_at(figure, WIDTH_PT - 2, top + 8, "error", ha="right", fontweight="bold")
    for index, record in enumerate(shown):
        style = look(record.variant)
        timing = timing_of(record)
        shape = {"color": style.colour, "fillstyle": style.filling, "markersize": 7, "clip_on": False}
        if not launch_bound(record):
            plot.plot(timing.ci95_ms, [_error(record)] * 2, color=style.colour, linewidth=1.4)
        (mark,) = plot.plot([timing.median_ms], [_error(record)], style.marker, **shape)
        told = f"{named(record)}: {interval(timing.median_ms, timing.ci95_ms, unit=' ms')} sustained"
        tell(mark, f"{told}, relative error {_error(record):.2e}")
        baseline = top + 8 + (index + 1) * _KEY_LINE_PT
        _key(
            plot,
            (_KEY_PT - _LEFT_PT) / _PLOT_PT,
            1 - (baseline - 0.34 * SMALL_PT - top - 6) / (height - 6),
            style.marker,
            shape,
        )
        weight = "bold" if record in best else "normal"
        write_at(figure, _KEY_PT + 10, baseline, named(record), fontweight=weight)
        write_at(figure, WIDTH_PT - 56, baseline, number(timing.median_ms), ha="right", fontweight=weight)
        write_at(figure, WIDTH_PT - 2, baseline, f"{_error(record):.1e}", ha="right", fontweight=weight)


def _name(plot: Any, best: Sequence[Record], shown: Sequence[Record]) -> None:
    """Write the names of those on the line beside their marks, where there is room."""
    scale = 72 / plot.figure.dpi
    at = {r.variant: plot.transData.transform((timing_of(r).median_ms, _error(r))) * scale for r in shown}
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in at.values()]
    right = plot.bbox.x1 * scale
    for record in best:
        x, y = at[record.variant]
        width = len(record.variant) * CHARACTER_PT
        for left, below in ((x - 4, y - 16), (x + 7, y + 5), (x - width - 8, y - 3)):
            box = (left, below - 2, left + width, below + SMALL_PT)
            if box[2] < right and box[0] > _LEFT_PT and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                where = plot.transAxes.inverted().transform((left / scale, below / scale))
                plot.text(*where, record.variant, transform=plot.transAxes, fontsize=SMALL_PT)
                break


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _key(plot: Any, x: float, y: float, marker: str, shape: dict[str, object]) -> None:
    """Draw a mark beside its name, at a place in shares of the plot."""
    plot.plot([x], [y], marker, transform=plot.transAxes, **{**shape, "markersize": 6})
