"""What figures of one row per variant share: its name on the left, a plot in the middle, numbers on the right."""

from __future__ import annotations

from typing import Any

from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from fluxbench.records.schema import Record
from fluxbench.report.figures.layout import axes, write_at
from fluxbench.report.figures.style import look_of
from fluxbench.report.figures.svg import SMALL_PT, tooltip
from fluxbench.report.legend import named

ROW_PT = 17.0
SCALE_PT = 36.0  # room for the scale below the rows
_NAME_PT = 34.0  # left end of the names
PLOT_LEFT_PT = 214.0
PLOT_RIGHT_PT = 480.0
TEXT_PT = 494.0  # left end of the numbers
_LOG_FROM = 3.0  # quotient of the ends of an axis from which on it is logarithmic


def row_axes(figure: Any, top: float, rows: int, label: str) -> Any:
    """Return axes with so many rows, first on top; without a label they have no scale below them."""
    plot = axes(figure, PLOT_LEFT_PT, top, PLOT_RIGHT_PT - PLOT_LEFT_PT, rows * ROW_PT)
    plot.set_ylim(rows - 0.5, -0.5)
    plot.yaxis.set_major_locator(FixedLocator(range(rows)))
    plot.yaxis.set_major_formatter(FuncFormatter(lambda value, position: ""))
    plot.grid(axis="x", alpha=0.18, linewidth=0.6)
    if label:
        plot.set_xlabel(label, fontsize=SMALL_PT)
    else:
        plot.tick_params(axis="x", labelbottom=False, length=0)
    return plot


def scale_x(plot: Any, low: float, high: float, unit: str = "") -> None:
    """Make the x-axis reach a little beyond these ends, logarithmic where they are far apart."""
    if low > 0 and high / low > _LOG_FROM:
        plot.set_xscale("log")
        plot.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        plot.set_xlim(low / 1.12, high * 1.12)
    else:
        pad = 0.05 * (high - low) + 0.01
        plot.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        plot.set_xlim(low - pad, high + pad)
    plot.xaxis.set_minor_locator(NullLocator())
    plot.xaxis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:g}{unit}"))


def baseline_of(top: float, index: int) -> float:
    """Return where the text of a row stands, in points from the figure's top."""
    return top + (index + 0.5) * ROW_PT + 0.34 * SMALL_PT


def write_name(figure: Any, baseline: float, name: str) -> None:
    """Write what a row is of."""
    write_at(figure, _NAME_PT, baseline, name, fontsize=SMALL_PT + 0.5)


def mark_row(plot: Any, index: int, record: Record, value: float, line: tuple[float, float], words: str) -> None:
    """Draw a record's mark in its row and a line, over its interval or from zero; `words` are the mark's tooltip."""
    style = look_of(record)
    plot.plot(line, [index, index], color=style.colour, linewidth=1.6)
    (mark,) = plot.plot([value], [index], style.marker, **style.mark_options(7))
    tooltip(mark, f"{named(record)}: {words}")
