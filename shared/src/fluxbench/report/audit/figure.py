"""One figure of all rows as a share of their card's peak, the wrong ones marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from fluxbench.analysis.audit.finding import WRONG, Judgement
from fluxbench.analysis.audit.judge import Audit, Judged
from fluxbench.analysis.audit.ours import Ours
from fluxbench.core.formatting import percent
from fluxbench.report.audit.text import label
from fluxbench.report.blocks import Paragraph
from fluxbench.report.figures import Drawing
from fluxbench.report.figures import layout as layout_of
from fluxbench.report.figures.style import COLOURS, INK
from fluxbench.report.figures.svg import NARROW, WIDE, Layout, Strip, tooltip

_LEFT_PT, _RIGHT_PT = 236.0, 26.0
_ROW_PT, _NARROW_ROW_PT = 40.0, 58.0
_ABOVE_PT, _SCALE_PT = 18.0, 44.0
_SPREAD = 0.3  # of a row, to both sides of its middle
_GOLDEN = (math.sqrt(5) - 1) / 2
_LOOKS = {  # colour, marker, size, in the order in which they are drawn
    Judgement.FINE: (COLOURS[1], ".", 3.5),
    Judgement.UNDECIDABLE: (INK, ".", 3.0),
    Judgement.IMPLAUSIBLE: (COLOURS[0], "D", 5.0),
    Judgement.CONDITIONAL: (COLOURS[6], "P", 7.0),
    Judgement.CONTRADICTORY: (COLOURS[2], "s", 5.0),
    Judgement.IMPOSSIBLE: (COLOURS[6], "X", 8.0),
}
_TICKS = (1e-4, 1e-3, 1e-2, 0.1, 0.5, 2, 5)
_NOTES = (
    "Each mark is a published figure: its operations by the usual count over its time, as a share of the data sheet's "
    "dense peak (fp8's for fp8).",
    "Only attention's own operations count, and 6 a parameter and token of training. A causal call whose mask is not "
    "stated is drawn at up to twice its share.",
)
_HEADER = ("source", "pass", "line", "judgement", "share_of_peak")


def draw(audit: Audit, ours: Ours) -> Drawing:
    """Draw every row whose share of the peak is known, a line of dots for each source and pass."""
    groups = _groups(audit)
    shown = [row for rows in groups.values() for row in rows]
    title = f"{len(shown):,} published figures as a share of their card's peak{_wrong(shown, ': ')}"
    described = "; ".join(f"{source}, {passes}: {len(of_group)}" for (source, passes), of_group in groups.items())
    rows = [
        (source, passes, row.line, row.judgement.value, f"{row.share:.6g}")
        for (source, passes), of_group in groups.items()
        for row in of_group
    ]

    def svg(layout: Layout) -> str:
        strips = [layout_of.heading(layout, title), _plot(layout, groups, ours)]
        return layout_of.svg_of(layout, strips, title, described, name="shares")

    return Drawing(
        svg=svg(WIDE),
        narrow=svg(NARROW),
        rows=[_HEADER, *rows],
        caption="A cross is impossible, a square contradicts another figure or a formula, a plus is wrong if what the "
        "source does not state is as assumed, a diamond is implausible.",
        details=[Paragraph(note) for note in _NOTES],
    )


def _groups(audit: Audit) -> dict[tuple[str, str], list[Judged]]:
    groups: dict[tuple[str, str], list[Judged]] = {}
    for row in audit.rows:
        if row.share is not None:
            key = (row.context.get("source"), row.context.get("pass") or "pass not stated")
            kind = "training" if row.context.get("model") else key[1]
            groups.setdefault((key[0], kind), []).append(row)
    return groups


def _plot(layout: Layout, groups: dict[tuple[str, str], list[Judged]], ours: Ours) -> Strip:
    is_wide = layout is WIDE
    left, row_pt = (_LEFT_PT, _ROW_PT) if is_wide else (_RIGHT_PT / 2, _NARROW_ROW_PT)
    height = row_pt * len(groups)

    def draw(figure: Any, top: float) -> None:
        plot = layout_of.axes(figure, left, top + _ABOVE_PT, layout.width_pt - left - _RIGHT_PT, height)
        _scale(plot, [row.share for rows in groups.values() for row in rows if row.share], len(groups))
        plot.plot([1, 1], [-0.5, len(groups) - 0.5], color=INK, linewidth=1)
        plot.text(1.04, -0.56, "peak", ha="left", va="bottom")
        if best := ours.best("forward"):
            plot.plot([best.share] * 2, [-0.5, len(groups) - 0.5], color=INK, linewidth=0.8, dashes=(4, 3))
            plot.text(best.share * 0.96, -0.56, "ours", ha="right", va="bottom")
        for index, ((source, passes), rows) in enumerate(groups.items()):
            words = f"{passes}: {len(rows):,}{_wrong(rows, ', ')}"
            middle = top + _ABOVE_PT + (index + 0.5) * row_pt
            if is_wide:
                layout_of.write_at(figure, 0, middle - 3, source, fontweight="bold")
                layout_of.write_at(figure, 0, middle + 10, words)
            else:
                layout_of.write_at(figure, 0, middle - 0.28 * row_pt, f"{source}, {words}")
            _draw_marks(plot, index if is_wide else index + 0.18, rows, _SPREAD if is_wide else _SPREAD * 0.8)

    return Strip(_ABOVE_PT + height + _SCALE_PT, draw)


def _scale(plot: Any, shares: Sequence[float], rows: int) -> None:
    plot.set_xscale("log")
    plot.set_xlim(min(shares, default=0.01) / 1.4, max([*shares, 1.0]) * 1.4)
    plot.set_ylim(rows - 0.5, -0.5)
    plot.xaxis.set_major_locator(FixedLocator(_TICKS))
    plot.xaxis.set_minor_locator(NullLocator())
    plot.xaxis.set_major_formatter(FuncFormatter(lambda value, position: f"{100 * value:g}%"))
    plot.yaxis.set_major_locator(NullLocator())
    plot.grid(axis="x", alpha=0.18, linewidth=0.6)
    plot.set_xlabel("share of the card's dense peak (logarithmic)")


def _wrong(rows: Sequence[Judged], before: str) -> str:
    """Return how many of some rows are wrong, by judgement, with what stands before it; empty where none is."""
    counts = {judgement: sum(row.judgement is judgement for row in rows) for judgement in WRONG}
    words = ", ".join(f"{count} {judgement}" for judgement, count in counts.items() if count)
    return f"{before}{words}" if words else ""


def _draw_marks(plot: Any, middle: float, rows: Sequence[Judged], spread: float) -> None:
    """Draw the rows of a group, spread evenly over its height; those that are not fine have a tooltip."""
    places = [middle + spread * (2 * ((number * _GOLDEN) % 1) - 1) for number in range(len(rows))]
    for judgement, (colour, marker, size) in _LOOKS.items():
        these = [(row, place) for row, place in zip(rows, places, strict=True) if row.judgement is judgement]
        style = {"color": colour, "markersize": size, "linestyle": "none", "markeredgewidth": 0}
        if judgement in (Judgement.FINE, Judgement.UNDECIDABLE):
            plot.plot([row.share for row, _ in these], [place for _, place in these], marker, **style)
            continue
        for row, place in these:
            (mark,) = plot.plot([row.share], [place], marker, **style)
            tooltip(mark, f"{label(row)}: {percent(row.share or 0)} of the peak, {judgement.value}")
