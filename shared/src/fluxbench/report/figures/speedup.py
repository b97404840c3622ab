"""The speedup figure: at each shape of a grid, how many times as fast as eager attention the fastest kernel is.

A map of each pass and dtype: a block for each head_dim, a row for each batch and number of heads, a column for each
length. A cell has its number, so that the map needs no colour; the density of its one colour follows the number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.patches import Rectangle

from fluxbench.analysis.grid import EAGER, Grid, Point, grids
from fluxbench.analysis.ranking import UNCERTAIN_FROM, is_vague
from fluxbench.core.formatting import count, interval, number
from fluxbench.records.status import Status
from fluxbench.report.blocks import Block, Paragraph
from fluxbench.report.figures import Drawing, Rows
from fluxbench.report.figures.layout import heading, prose, svg_of, write_at
from fluxbench.report.figures.style import COLOURS
from fluxbench.report.figures.svg import NARROW, WIDE, Layout, Strip, tooltip
from fluxbench.report.results import Results
from fluxbench.report.sentences import capitalized
from fluxbench.report.tables.grid_words import without_winner
from fluxbench.stats.intervals import Estimate
from fluxbench.variants import label

_COLOUR = COLOURS[1]
_FAINTEST, _DENSEST = 0.06, 0.55  # text over the densest has a contrast of 6:1 and more on both backgrounds of a page
_FULL_AT_LEAST = 2.0  # speedup that has the densest colour, where no shape has a larger one
_ROW_PT, _GAP_PT = 16.0, 14.0
_CORNER = "batch×heads"
_MOST_COLUMNS = 12  # lengths of a block
_TITLE = "How many times as fast as eager attention the fastest implementation is, at each shape"
_NOT_FITTING = "OOM"


def draw(results: Results) -> Drawing | None:
    """Draw a map for each pass and dtype; None where nothing can be compared with eager attention."""
    every = grids(results.records)
    found = [grid for grid in every if any(_gain(point) for point in grid.points)]
    if not found:
        return None
    gains = [gain.value for grid in found for point in grid.points if (gain := _gain(point)) and not _is_vague(gain)]
    most = max([_FULL_AT_LEAST, *gains])
    graphs = any(grid.is_replayed for grid in found)

    def svg(layout: Layout) -> str:
        strips: list[Strip] = []
        for grid in every:
            strips.append(heading(layout, capitalized(grid.name)))
            strips += _map(layout, grid, most) if grid in found else [prose(layout, "Nothing beside eager attention.")]
        return svg_of(layout, strips, _TITLE, " ".join(map(_words, every)), name="speedup")

    details: list[Block] = [
        Paragraph(
            "Each number is the speedup of the fastest implementation of its shape over torch_eager, of burst times"
            + graphs * " of calls that were replayed as CUDA graphs, not as the host launches them"
            + ". A number under 1 has no colour: eager attention is the fastest there. The tooltip of a cell names the "
            "implementation, with the 95% interval, or those of which one may be the fastest where there is no winner; "
            "speedup.csv has all implementations."
        ),
        Paragraph(
            f"{_NOT_FITTING}: eager attention did not fit into memory. -: no time of eager attention, or of others. "
            f"?: the interval reaches over {UNCERTAIN_FROM:g} times the speedup, which has no colour."
        ),
    ]
    caption = "Times as fast as eager attention: the fastest implementation at each shape"
    caption += f"{', replayed as CUDA graphs' * graphs}. More colour is faster."
    return Drawing(svg=svg(WIDE), narrow=svg(NARROW), rows=_rows(every), caption=caption, details=details)


def _gain(point: Point) -> Estimate | None:
    """Return the speedup of the fastest implementation but eager attention itself."""
    fastest = next((variant for variant in point.records if variant != EAGER), None)
    return point.speedup(fastest) if fastest else None


def _is_vague(gain: Estimate) -> bool:
    return is_vague(gain.value, gain.high)


def _rows(every: Sequence[Grid]) -> Rows:
    rows: Rows = [
        ("pass", "dtype", "batch", "seq_len", "head_dim", "heads", "variant", "speedup", "speedup_low", "speedup_high")
    ]
    for grid in every:
        for point in grid.points:
            for variant in point.records:
                if gain := point.speedup(variant):
                    rows.append((grid.which, grid.dtype, *point.sizes, variant, gain.value, gain.low, gain.high))
    return rows


def _map(layout: Layout, grid: Grid, most: float) -> list[Strip]:
    """Return the blocks of a map: beside one another on a wide screen, below one another on a phone."""
    dims = list(dict.fromkeys(sorted(point.sizes[2] for point in grid.points)))
    beside = 3 if layout is WIDE else 1
    return [_blocks(layout, grid, dims[start : start + beside], beside, most) for start in range(0, len(dims), beside)]


def _blocks(layout: Layout, grid: Grid, dims: Sequence[int], beside: int, most: float) -> Strip:
    width = (layout.width_pt - (beside - 1) * _GAP_PT) / beside
    of_dims = [[point for point in grid.points if point.sizes[2] == dim] for dim in dims]
    height = (2 + max(len(_pairs(points)) for points in of_dims)) * _ROW_PT + _GAP_PT

    def draw(figure: Any, top: float) -> None:
        for place, (dim, points) in enumerate(zip(dims, of_dims, strict=True)):
            _block(figure, layout, place * (width + _GAP_PT), top, width, f"head_dim {dim}, by tokens", points, most)

    return Strip(height, draw)


def _pairs(points: Sequence[Point]) -> list[tuple[int, int]]:
    """Return batch and heads of the rows of a block."""
    return sorted({(point.sizes[0], point.sizes[3]) for point in points})


def _block(
    figure: Any, layout: Layout, left: float, top: float, width: float, title: str, points: Sequence[Point], most: float
) -> None:
    lengths, pairs = sorted({point.sizes[1] for point in points})[-_MOST_COLUMNS:], _pairs(points)
    first = left + (len(_CORNER) + 1) * layout.character_pt
    cell = min(64.0, (left + width - first) / len(lengths))

    def baseline(row: int) -> float:
        return top + (row + 0.5) * _ROW_PT + 0.34 * layout.text_pt

    write_at(figure, left, baseline(0), title, fontweight="bold")
    write_at(figure, left, baseline(1), _CORNER)
    for column, length in enumerate(lengths):
        write_at(figure, first + (column + 0.5) * cell, baseline(1), f"{length:,}", ha="center")
    for row, (batch, heads) in enumerate(pairs, start=2):
        write_at(figure, left, baseline(row), f"{batch}×{heads}")
    for point in points:
        batch, length, _, heads = point.sizes
        if length not in lengths:
            continue
        column, row = lengths.index(length), 2 + pairs.index((batch, heads))
        gain = _gain(point)
        if gain and gain.value > 1 and not _is_vague(gain):
            corner = first + column * cell + 0.5, top + row * _ROW_PT + 0.5
            box = _box(figure, *corner, cell - 1, _ROW_PT - 1, _density(gain.value, most))
            tooltip(box, _sentence(point, gain))
            figure.add_artist(box)
        write_at(figure, first + (column + 0.5) * cell, baseline(row), _text(point, gain), ha="center")


def _text(point: Point, gain: Estimate | None) -> str:
    if gain:
        return number(gain.value, 2) + "?" * _is_vague(gain)
    eager = point.record(EAGER)
    return _NOT_FITTING if eager and eager.status is Status.OUT_OF_MEMORY else "-"


def _density(gain: float, most: float) -> float:
    """Return how dense the colour of a speedup is: it grows with the logarithm."""
    return _FAINTEST + (_DENSEST - _FAINTEST) * math.log(max(1.0, gain)) / math.log(most)


def _box(figure: Any, left: float, top: float, width: float, height: float, alpha: float) -> Rectangle:
    """Return a rectangle at a place in points from the figure's top left corner."""
    whole_width, whole_height = figure.get_size_inches() * 72
    corner = (left / whole_width, 1 - (top + height) / whole_height)
    options = {"color": _COLOUR, "alpha": round(alpha, 3), "linewidth": 0, "transform": figure.transFigure}
    return Rectangle(corner, width / whole_width, height / whole_height, **options)


def _at(point: Point) -> str:
    batch, length, dim, heads = point.sizes
    return f"batch {batch}, {length:,} tokens, {count(heads, 'head')} of {dim}"


def _sentence(point: Point, gain: Estimate) -> str:
    fastest = next(variant for variant in point.records if variant != EAGER)
    speed = f"{_at(point)}, burst: {label(fastest)} {interval(gain.value, (gain.low, gain.high), unit='×')}"
    return speed if point.winner else f"{speed}. No winner: {without_winner(point)}"


def _words(grid: Grid) -> str:
    """Return what a map shows, for a reader who does not see it: the least and the largest speedup of each length."""
    parts = []
    for length in sorted({point.sizes[1] for point in grid.points}):
        found = [gain for point in grid.points if point.sizes[1] == length and (gain := _gain(point))]
        gains = [gain.value for gain in [one for one in found if not _is_vague(one)] or found]
        if gains:
            parts.append(f"{length:,} tokens {number(min(gains), 2)} to {number(max(gains), 2)} times")
        else:
            parts.append(f"{length:,} tokens no comparison")
    return f"{capitalized(grid.name)}, {len(grid.points)} shapes: {'; '.join(parts)}."
