"""The frontier figure: a kernel's error against its time. What lies low and left errs little and is fast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from fluxbench.analysis.groups import Group, is_launch_bound, ranking_regime, timing_of
from fluxbench.analysis.ranking import Ordering, order
from fluxbench.core.formatting import interval, listed, number
from fluxbench.records.schema import Record
from fluxbench.report.best_forms import best_of_kernels
from fluxbench.report.figures import Drawing, Rows
from fluxbench.report.figures.curves import COARSE, plain_number, tick_multiples
from fluxbench.report.figures.layout import Part, axes, draw_groups, fitted, mark_at, place, ranked_records, write_at
from fluxbench.report.figures.style import INK, look_of
from fluxbench.report.figures.svg import WIDE, Layout, Strip, tooltip
from fluxbench.report.legend import label, named
from fluxbench.report.results import Results
from fluxbench.report.sentences import capitalized, conditions
from fluxbench.report.tables import time_cells

HEADER = (
    *("workload", "variant", "precision_class", "regime", "median_ms", "ci95_low_ms", "ci95_high_ms"),
    *("rel_l2", "on_frontier", "launch_bound"),
)
_ALIKE = 1.05  # errors of which the larger is at most so many times the smaller count as equal
_LEFT_PT, _KEY_LINE_PT = 48.0, 13.5
_PLOT_PT, _KEY_LEFT_PT = 326.0, 388.0  # on a wide screen: width of the plot, left end of the key beside it
_LEAST_PT = 270.0  # height of the plot
_BELOW_PT = 42.0  # height of what is below the plot

_Errors = Mapping[str, float]  # of each variant
_Box = tuple[float, float, float, float]  # left, bottom, right, top in points


def draw(results: Results) -> Drawing | None:
    """Draw every kernel's error against its time at the longest workload, a part for each group."""
    return draw_groups(
        results,
        name="frontier",
        title=f"Error of each kernel against its {ranking_regime(results.records)} time",
        header=HEADER,
        caption="Low and left is better; no other kernel beats a bold one in time and error. Quantized kernels may err "
        "far more on other inputs, see Correctness.",
        part_of=_part,
        rows_of=_rows,
    )


def frontier(records: Sequence[Record], ordering: Ordering, errors: _Errors) -> list[Record]:
    """Return the PASSED records that no other beats, fastest first.

    One beats another if it errs less and is not measurably slower, or errs about as much and is measurably faster.
    A launch-bound record beats none, and is none of these.
    """
    kernels = [record for record in records if not is_launch_bound(record)]
    unbeaten = [record for record in kernels if not any(_beats(other, record, ordering, errors) for other in kernels)]
    return sorted(unbeaten, key=lambda record: timing_of(record).median_ms)


def _beats(one: Record, other: Record, ordering: Ordering, errors: _Errors) -> bool:
    error, of_other = errors[one.variant], errors[other.variant]
    if error * _ALIKE < of_other:
        return not ordering.faster(other, one)
    return ordering.faster(one, other) and error <= of_other * _ALIKE


def kinds_of_all(records: Sequence[Record]) -> list[str]:
    """Return the kinds of inputs on which all these records are judged, so that their errors compare."""
    judged = [record.judged_kinds for record in records]
    return [kind for kind in judged[0] if all(kind in kinds for kinds in judged)] if judged else []


def largest_errors(records: Sequence[Record]) -> _Errors:
    """Return each variant's largest error on the kinds of inputs that all are judged on."""
    kinds = kinds_of_all(records)
    return {record.variant: record.largest_error(kinds) or 0.0 for record in records}


def _rows(group: Group) -> Rows:
    errors = largest_errors(ranked_records(group))
    records = _with_error(group, errors)
    best = {record.variant for record in frontier(records, order(group, group.longest), errors)}
    return [
        (
            *(group.longest.name, record.variant, record.precision_class, ranking_regime([record])),
            *(*time_cells(record.timing), errors[record.variant]),
            *(record.variant in best, int(is_launch_bound(record))),
        )
        for record in records
    ]


def _part(group: Group) -> Part | None:
    ranked = ranked_records(group)
    kinds, errors = kinds_of_all(ranked), largest_errors(ranked)
    shown = best_of_kernels(group, _with_error(group, errors))
    if not shown:
        return None
    regime = ranking_regime(shown)
    outputs = "of all outputs, " if any(len(record.errors) > 1 for record in shown) else ""
    inputs = f"on {listed(kinds)} inputs" if kinds else "on the inputs nearest to its budget"
    notes = [
        "One mark per kernel, in its best form: its time with a 95% interval, and its largest relative L2 error "
        f"against the float64 reference ({outputs}{inputs}). {capitalized(regime)}: {conditions(shown, regime)}.",
        "Bold, and joined by the line, is what no other kernel beats: all that err less are measurably slower, and "
        f"none that errs about as much (within {_ALIKE - 1:.0%}) is measurably faster.",
    ]
    if any(map(is_launch_bound, shown)):
        notes.append("Times with h beat nothing, have no interval, and are of kernels with h in all forms.")
    return Part(
        heading=place(group),
        strips=lambda layout: [_errors_over_times(layout, group, shown, errors, regime)],
        notes=notes,
    )


def _with_error(group: Group, errors: _Errors) -> list[Record]:
    """Return the ranked records with an error, fastest first; a logarithmic axis has no place for no error."""
    records = [record for record in ranked_records(group) if errors[record.variant] > 0]
    return sorted(records, key=lambda record: timing_of(record).median_ms)


def _errors_over_times(layout: Layout, group: Group, shown: list[Record], errors: _Errors, regime: str) -> Strip:
    key_pt = (len(shown) + 1) * _KEY_LINE_PT + 8
    beside = layout is WIDE
    width = _PLOT_PT if beside else layout.width_pt - _LEFT_PT - 8
    height = max(_LEAST_PT, key_pt) if beside else _LEAST_PT

    def draw(figure: Any, top: float) -> None:
        plot = axes(figure, _LEFT_PT, top + 14, width, height - 14)
        _scale(plot, shown, errors)
        plot.set_xlabel(f"{regime} time per call (ms, logarithmic)")
        write_at(figure, 0, top + 8, "relative L2 error (logarithmic)")
        best = frontier(shown, order(group, group.longest), errors)
        _draw_frontier(plot, best, errors)
        for record in shown:
            _draw_mark(plot, record, errors[record.variant])
        _write_names(plot, layout, best, shown, errors)
        left, above = (_KEY_LEFT_PT, top + 8) if beside else (0.0, top + height + _BELOW_PT)
        _write_key(figure, layout, left, above, shown, best, errors)

    return Strip(height + _BELOW_PT + (0 if beside else key_pt), draw)


def _write_key(
    figure: Any,
    layout: Layout,
    left: float,
    top: float,
    shown: Sequence[Record],
    best: Sequence[Record],
    errors: _Errors,
) -> None:
    """Write each kernel's mark, name, time and error, below their headings."""
    end = layout.width_pt - 2
    ms_end = end - 9 * layout.character_pt
    name, room = left + 12, ms_end - 7 * layout.character_pt - left - 12
    write_at(figure, ms_end, top, "ms", ha="right", fontweight="bold")
    write_at(figure, end, top, "error", ha="right", fontweight="bold")
    for index, record in enumerate(shown, start=1):
        baseline, weight = top + index * _KEY_LINE_PT, "bold" if record in best else "normal"
        mark_at(figure, left + 4, baseline - 0.34 * layout.text_pt, record)
        write_at(figure, name, baseline, fitted(label(record), room, layout.character_pt), fontweight=weight)
        write_at(figure, ms_end, baseline, number(timing_of(record).median_ms), ha="right", fontweight=weight)
        write_at(figure, end, baseline, f"{errors[record.variant]:.1e}", ha="right", fontweight=weight)


def _scale(plot: Any, shown: list[Record], errors_of: _Errors) -> None:
    times = [timing_of(record).median_ms for record in shown]
    times += [end for record in shown if not is_launch_bound(record) for end in timing_of(record).ci95_ms]
    errors = [errors_of[record.variant] for record in shown]
    plot.set_xscale("log")
    plot.set_yscale("log")
    plot.set_xlim(min(times) / 1.15, max(times) * 1.15)
    plot.set_ylim(min(errors) / 1.5, max(errors) * 1.5)
    for axis, multiples in ((plot.xaxis, tick_multiples(min(times), max(times))), (plot.yaxis, COARSE)):
        axis.set_major_locator(LogLocator(subs=multiples))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(plain_number))
    plot.grid(axis="x", alpha=0.18, linewidth=0.6)


def _draw_frontier(plot: Any, best: Sequence[Record], errors_of: _Errors) -> None:
    """Draw the line below and left of which there is nothing, as steps from the fastest on."""
    times = [value for record in best for value in (timing_of(record).median_ms,) * 2]
    errors = [value for record in best for value in (errors_of[record.variant],) * 2]
    plot.plot([*times, plot.get_xlim()[1]][1:], errors, color=INK, linewidth=1, alpha=0.7)


def _draw_mark(plot: Any, record: Record, error: float) -> None:
    style, timing = look_of(record), timing_of(record)
    if not is_launch_bound(record):
        plot.plot(timing.ci95_ms, [error] * 2, color=style.colour, linewidth=1.4)
    (mark,) = plot.plot([timing.median_ms], [error], style.marker, **style.mark_options(7))
    time = f"{interval(timing.median_ms, timing.ci95_ms, unit=' ms')} {ranking_regime([record])}"
    tooltip(mark, f"{named(record)}: {time}, relative error {error:.2e}")


def _write_names(plot: Any, layout: Layout, best: Sequence[Record], shown: Sequence[Record], errors: _Errors) -> None:
    """Write the names of those on the line beside their marks, where there is room."""
    scale = 72 / plot.figure.dpi
    places = {
        record.variant: plot.transData.transform((timing_of(record).median_ms, errors[record.variant])) * scale
        for record in shown
    }
    taken: list[_Box] = [(x - 5, y - 5, x + 5, y + 5) for x, y in places.values()]
    right = plot.bbox.x1 * scale
    for record in best:
        x, y = places[record.variant]
        text = label(record)
        width = len(text) * layout.character_pt
        for left, below in ((x - 4, y - 16), (x + 7, y + 5), (x - width - 8, y - 3)):
            box = (left, below - 2, left + width, below + layout.text_pt)
            if box[2] < right and box[0] > _LEFT_PT and not any(_touch(box, other) for other in taken):
                taken.append(box)
                corner = plot.transAxes.inverted().transform((left / scale, below / scale))
                plot.text(*corner, text, transform=plot.transAxes)
                break


def _touch(one: _Box, other: _Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
