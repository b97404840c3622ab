"""What figures of one row per variant share: its name, a plot, and numbers.

On a wide screen they stand beside each other. On a phone the name and a number stand above the plot of their row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from fluxbench import variants
from fluxbench.records.schema import Record
from fluxbench.report.figures.curves import tick_multiples
from fluxbench.report.figures.layout import axes, fitted, write_at
from fluxbench.report.figures.style import look_of
from fluxbench.report.figures.svg import NARROW, WIDE, Layout, tooltip
from fluxbench.report.legend import label, named

SCALE_PT = 38.0  # room for the scale below the rows
_FAR = 5.0
_LOG_FROM = 3.0  # quotient of the ends of an axis from which on it is logarithmic


@dataclass(frozen=True, kw_only=True)
class RowLayout:
    """Where the parts of a row are, in points."""

    layout: Layout
    row_pt: float  # height
    rank_pt: float  # right end of what stands before the name
    name_pt: float  # left end of the name
    left_pt: float  # ends of the plot
    right_pt: float
    text_pt: float  # left end of the first number; 0: there is room for one number alone
    text: float  # centre of the text, as a share of the row's height
    mark: float  # centre of the mark

    @property
    def end_pt(self) -> float:
        """The right end of the numbers."""
        return self.layout.width_pt - 2

    def baseline(self, top: float, index: int) -> float:
        """Return where the text of a row stands, in points from the figure's top."""
        return top + (index + self.text) * self.row_pt + 0.34 * self.layout.text_pt


_ON_WIDE = RowLayout(
    layout=WIDE, row_pt=15.5, rank_pt=30, name_pt=36, left_pt=264, right_pt=508, text_pt=520, text=0.5, mark=0.5
)
_ON_NARROW = RowLayout(
    layout=NARROW, row_pt=29, rank_pt=26, name_pt=32, left_pt=18, right_pt=342, text_pt=0, text=0.3, mark=0.78
)


def row_layout(layout: Layout) -> RowLayout:
    """Return where the parts of a row are in a layout."""
    return _ON_WIDE if layout is WIDE else _ON_NARROW


def row_axes(figure: Any, at: RowLayout, top: float, rows: int, label: str) -> Any:
    """Return axes with so many rows, first on top; without a label they have no scale below them."""
    plot = axes(figure, at.left_pt, top, at.right_pt - at.left_pt, rows * at.row_pt)
    plot.set_ylim(rows - at.mark, -at.mark)
    plot.yaxis.set_major_locator(FixedLocator(range(rows)))
    plot.yaxis.set_major_formatter(FuncFormatter(lambda value, position: ""))
    plot.grid(axis="x", alpha=0.18, linewidth=0.6)
    if label:
        plot.set_xlabel(label)
    else:
        plot.tick_params(axis="x", labelbottom=False, length=0)
    return plot


def scale_x(plot: Any, low: float, high: float, unit: str = "") -> None:
    """Make the x-axis reach a little beyond these ends, logarithmic where they are far apart."""
    if low > 0 and high / low > _LOG_FROM:
        plot.set_xscale("log")
        plot.xaxis.set_major_locator(LogLocator(subs=tick_multiples(low, high)))
        plot.set_xlim(low / 1.12, high * 1.12)
    else:
        pad = 0.05 * (high - low) + 0.01
        plot.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        plot.set_xlim(low - pad, high + pad)
    plot.xaxis.set_minor_locator(NullLocator())
    plot.xaxis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:g}{unit}"))


def near(records: Sequence[Record], value: Callable[[Record], float]) -> list[Record]:
    """Return the records that are not far above the least, so that these do not flatten the others."""
    least = min(map(value, records), default=0.0)
    return [record for record in records if value(record) <= _FAR * least]


def far_words(left_out: int) -> str:
    """Return the sentence that says how many rows `near` left to the fold; empty where it is none."""
    if not left_out:
        return ""
    which = "1 kernel" if left_out == 1 else f"{left_out} kernels"
    return f"{which} over {_FAR:g} times the least {'is' if left_out == 1 else 'are'} in the fold."


def upright(plot: Any, at: RowLayout, rows: int, x: float, **style: Any) -> None:
    """Draw an upright line through all rows, where it does not cross their text."""
    if at is _ON_WIDE:
        plot.axvline(x, **style)
        return
    ends = [(index - 0.2, index + 0.2, math.nan) for index in range(rows)]
    plot.plot([x] * 3 * rows, [y for row in ends for y in row], **style)


def write_row(
    figure: Any, at: RowLayout, baseline: float, record: Record, wide: Sequence[str], narrow: str, rank: str = ""
) -> None:
    """Write the name of a row and its numbers: at most two on a wide screen, one on a phone; before both its rank."""
    write_at(figure, at.rank_pt, baseline, rank, ha="right")
    last = wide[-1] if at.text_pt else narrow
    end = at.left_pt if at.text_pt else at.end_pt - len(last) * at.layout.character_pt
    left, name = (at.name_pt, variants.label(record.variant)) if rank else (0.0, label(record))
    room = end - left - at.layout.character_pt
    write_at(figure, left, baseline, fitted(name, room, at.layout.character_pt))
    if at.text_pt and len(wide) > 1:
        write_at(figure, at.text_pt, baseline, wide[0])
    write_at(figure, at.end_pt, baseline, last, ha="right")


def mark_row(plot: Any, index: int, record: Record, value: float, line: tuple[float, float], words: str) -> None:
    """Draw a record's mark in its row and a line, over its interval or from zero; `words` are the mark's tooltip."""
    style = look_of(record)
    plot.plot(line, [index, index], color=style.colour, linewidth=1.6)
    (mark,) = plot.plot([value], [index], style.marker, **style.mark_options(7))
    tooltip(mark, f"{named(record)}: {words}")
