"""The chart of a verdict: how many times as fast as the baseline each kernel of it is, with its 95% interval.

As wide as a phone, so that its text can be read there too; pages and the site's cards show the same one.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from fluxbench.analysis.verdict import DEFAULT, Contender, Verdict
from fluxbench.operations.precision import ROUNDED, TF32
from fluxbench.records.schema import Record
from fluxbench.report.figures.layout import axes, write_at
from fluxbench.report.figures.style import INK, look_of
from fluxbench.report.figures.svg import ADVANCE, Strip, render, tooltip
from fluxbench.report.sentences import factor
from fluxbench.variants import label

ROUNDS = {ROUNDED: "every intermediate", TF32: "its inputs to TF32"}  # beyond what an exact kernel does
WIDTH_PT = 350.0
_ROW_PT, _LINE_PT, _SCALE_PT = 32.0, 14.0, 34.0
_NAME_PT, _TEXT_PT = 10.5, 9.5  # sizes of text
_MARGIN_PT = 18.0  # half a number of the scale, "0.995×", which may be at its end
_AROUND = 0.06  # of the span of intervals that is left free on either side


def chart(verdict: Verdict, name: str) -> str:
    """Return it as an inline SVG; `name` tells the figures of a page apart."""
    rows = verdict.shown
    words = "; ".join(f"{label(row.record.variant)} {speed(row)}" for row in rows)
    title = "Speed of the kernels in the verdict"
    return render([_strip(verdict)], title, words, name=name, width_pt=WIDTH_PT, text_pt=_TEXT_PT)


def share(value: float) -> str:
    """Return a share in percent, whole from 1% on.

    >>> share(0.052), share(0.0034)
    ('5%', '0.3%')
    """
    return f"{value:.0%}" if value >= 0.01 else f"{value:.1%}"


def speed(row: Contender) -> str:
    """Return "1.04× [1.03, 1.06]", and "1×" of the baseline itself."""
    return "1×" if row.speedup is None else factor(row.speedup)


def baseline_name(record: Record) -> str:
    """Return what speeds are compared with, for a sentence."""
    return "PyTorch's default" if record.variant == DEFAULT else label(record.variant)


def _name(verdict: Verdict, row: Contender) -> str:
    quantized = f" ({share(row.record.rel_l2)} error)" if row is verdict.quantized and row.record.rel_l2 else ""
    return label(row.record.variant) + quantized


def _strip(verdict: Verdict) -> Strip:
    rows = verdict.shown
    speedups = [row.speedup for row in rows if row.speedup]
    ends = [1.0, *(end for one in speedups for end in (one.low, one.value, one.high) if math.isfinite(end))]
    room = _AROUND * (max(ends) - min(ends)) or 0.05
    names = [_name(verdict, row) for row in rows]
    # A speed has a line of its own where the name leaves no room for it.
    lines = [
        _LINE_PT * (ADVANCE * _NAME_PT * len(f"{name} {speed(row)}") > WIDTH_PT)
        for name, row in zip(names, rows, strict=True)
    ]
    *tops, height = itertools.accumulate(lines, lambda top, line: top + _ROW_PT + line, initial=0.0)
    than = baseline_name(verdict.baseline) if verdict.baseline else ""

    def draw(figure: Any, top: float) -> None:
        plot = axes(figure, _MARGIN_PT, top, WIDTH_PT - 2 * _MARGIN_PT, height)
        plot.set_ylim(height, 0)
        plot.set_xlim(min(ends) - room, max(ends) + room)
        plot.xaxis.set_major_locator(MaxNLocator(5, steps=(1, 2, 5, 10)))
        plot.xaxis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:.6g}×"))
        plot.yaxis.set_major_locator(NullLocator())
        plot.grid(visible=False)
        plot.set_xlabel(f"times as fast as {than}", fontsize=_TEXT_PT)
        for row, name, begin, line in zip(rows, names, tops, lines, strict=True):
            y, look = begin + line + 21, look_of(row.record)
            plot.plot([1, 1], [y - 6, y + 6], color=INK, linewidth=0.8, alpha=0.6)
            if row.speedup:
                high = min(row.speedup.high, max(ends) + room)  # nothing is known of an end that is infinite
                plot.plot((row.speedup.low, high), [y, y], color=look.colour, linewidth=2.5)
            (mark,) = plot.plot([row.speedup.value if row.speedup else 1.0], [y], look.marker, **look.mark_options(8))
            tooltip(mark, f"{label(row.record.variant)}: {speed(row)}")
            write_at(figure, 0, top + begin + 12, name, fontsize=_NAME_PT)
            write_at(figure, WIDTH_PT, top + begin + line + 12, speed(row), fontsize=_NAME_PT, ha="right")

    return Strip(height + _SCALE_PT, draw)
