"""What figures with curves share: logarithmic axes, upright intervals, and names at the ends of the curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from matplotlib.transforms import ScaledTranslation, Transform

from fluxbench.analysis.groups import timing_of
from fluxbench.records.schema import Record
from fluxbench.report.figures.layout import fitted, mark_at, write_at
from fluxbench.report.figures.style import look_of
from fluxbench.report.figures.svg import Layout, Strip

_LABEL_GAP_PT = 12.0
_KEY_LINE_PT = 14.0
_LABELLED_PT = 250.0  # height of a plot whose curves are labelled at their ends, where that is enough for all
_FINE = (1, 1.2, 1.5, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9)
_MIDDLE = (1, 1.5, 2, 3, 4, 5, 6, 8)
COARSE = (1, 2, 5)
_FAR, _NEAR = 6.0, 2.0  # quotients of the ends of an axis


def plain_number(value: float, position: int | None = None) -> str:
    """Return a number beside an axis, as matplotlib asks for it."""
    return f"{value:g}"


def tick_multiples(low: float, high: float, *, fine: bool = False) -> Sequence[float]:
    """Return which multiples of the powers of ten a logarithmic axis labels, so that it has a few of them."""
    if high / low > _FAR:
        return COARSE
    return _FINE if fine and high / low < _NEAR else _MIDDLE


def log_y(plot: Any, low: float, high: float, multiples: Sequence[float]) -> None:
    """Make the y-axis logarithmic, with labels at these multiples of the powers of ten."""
    plot.set_yscale("log")
    plot.set_ylim(low / 1.15, high * 1.15)
    plot.yaxis.set_major_locator(LogLocator(subs=multiples))
    plot.yaxis.set_minor_locator(NullLocator())
    plot.yaxis.set_major_formatter(FuncFormatter(plain_number))


def moved_sideways(plot: Any, shift_pt: float) -> Transform:
    """Return the plot's transform of data, moved by some points so that equal values do not hide each other."""
    moved: Transform = plot.transData + ScaledTranslation(shift_pt / 72, 0, plot.figure.dpi_scale_trans)
    return moved


def intervals(plot: Any, x: Sequence[float], ends: Sequence[tuple[float, float]], **style: Any) -> None:
    """Draw upright intervals, all as one line with gaps."""
    xs = [value for place in x for value in (place, place, math.nan)]
    plot.plot(xs, [end for low, high in ends for end in (low, high, math.nan)], linewidth=1.5, clip_on=False, **style)


def plot_height(curves: int) -> float:
    """Return the height in points of a plot with so many curves that are labelled at their ends."""
    return max(_LABELLED_PT, (curves + 1) * _LABEL_GAP_PT)


def label_ends(plot: Any, width_pt: float, height_pt: float, ends: list[tuple[Record, str]], size_pt: float) -> None:
    """Write each curve's text beside its last record, moved apart where they would overlap."""
    to_axes = plot.transScale + plot.transLimits
    edge = plot.get_xlim()[1]
    wanted = [float(to_axes.transform((edge, timing_of(record).median_ms))[1]) * height_pt for record, _ in ends]
    for (record, text), y_from, y_to in zip(ends, wanted, _spread(wanted, _LABEL_GAP_PT, height_pt), strict=True):
        style = look_of(record)
        x = [1.0, 1 + 10 / width_pt]
        y = [y_from / height_pt, y_to / height_pt]
        plot.plot(x, y, color=style.colour, linewidth=0.8, transform=plot.transAxes, clip_on=False)
        plot.plot([1 + 15 / width_pt], y[1:], style.marker, transform=plot.transAxes, **style.mark_options(6))
        place = (1 + 22 / width_pt, y[1] - 0.34 * size_pt / height_pt)
        plot.text(*place, text, transform=plot.transAxes, fontsize=size_pt)


def key(layout: Layout, ends: Sequence[tuple[Record, str]]) -> Strip:
    """Return a strip of each curve's mark and text, highest curve first: on a phone, where its end has no room."""
    lines = sorted(ends, key=lambda end: -timing_of(end[0]).median_ms)

    def draw(figure: Any, top: float) -> None:
        for index, (record, text) in enumerate(lines, start=1):
            baseline = top + index * _KEY_LINE_PT
            mark_at(figure, 10, baseline - 0.34 * layout.text_pt, record)
            write_at(figure, 20, baseline, fitted(text, layout.width_pt - 22, layout.character_pt))

    return Strip(len(lines) * _KEY_LINE_PT + 12, draw)


def _spread(wanted_pt: Sequence[float], gap_pt: float, height_pt: float) -> list[float]:
    """Return heights in points near the wanted ones, in the same order, at least a gap apart, inside 0 to the height.

    The nearest such heights in the sense of least squares: pools of neighbours that would overlap share their mean.
    """
    order = sorted(range(len(wanted_pt)), key=lambda index: wanted_pt[index])
    pools: list[tuple[float, int]] = []  # mean of the heights less those of the gaps below them, and how many they are
    for rank, index in enumerate(order):
        pools.append((wanted_pt[index] - rank * gap_pt, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (mean, count), (mean_below, count_below) = pools.pop(), pools.pop()
            both = count + count_below
            pools.append(((mean_below * count_below + mean * count) / both, both))
    means = [mean for mean, count in pools for _ in range(count)]
    top = height_pt - (len(order) - 1) * gap_pt
    heights = [0.0] * len(order)
    for rank, index in enumerate(order):
        heights[index] = max(min(means[rank], top), 0.0) + rank * gap_pt
    return heights
