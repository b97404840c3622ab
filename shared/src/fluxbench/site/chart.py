"""A small figure as inline SVG: one line per kernel with its name, its time, and a mark with its 95% interval.

Positions along the axis are shares of the width, so the figure fits any page without a script.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fluxbench.analysis.ranking import (
    Group,
    base,
    correctness_of,
    form,
    kept_busy,
    launch_bound,
    overlap,
    ranked,
    reference_variant,
    timing_of,
)
from fluxbench.core.formatting import plus_minus
from fluxbench.records.schema import Record
from fluxbench.report.figures.style import COLOURS, look
from fluxbench.site.page import text

KERNELS = 6  # fastest kernels of a figure
_LINE, _TOP, _BOTTOM = 38, 4, 40  # heights in CSS pixels
_LEFT, _RIGHT = 2.0, 97.0  # of the axis, in percent of the width
_SHARES_ONE_SCALE = 8  # largest quotient of two times that are drawn on a linear axis from zero
_STEPS = (1, 2, 5)
# Paths around the origin, by the names that figures know markers by.
MARKERS = {
    "o": "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z",
    "s": "M-4.5 -4.5h9v9h-9z",
    "^": "M0 -5.5L5.5 4.5H-5.5z",
    "v": "M0 5.5L5.5 -4.5H-5.5z",
    "<": "M-5.5 0L4.5 -5.5V5.5z",
    ">": "M5.5 0L-4.5 -5.5V5.5z",
    "D": "M0 -6L6 0L0 6L-6 0z",
    "P": "M-2 -5.5h4v3.5h3.5v4h-3.5v3.5h-4v-3.5h-3.5v-4h3.5z",
    "X": "M-5 -2.5L-2.5 -5L0 -2.5L2.5 -5L5 -2.5L2.5 0L5 2.5L2.5 5L0 2.5L-2.5 5L-5 2.5L-2.5 0z",
    "h": "M0 -5.5L4.8 -2.75V2.75L0 5.5L-4.8 2.75V-2.75z",
    "p": "M0 -5.5L5.2 -1.7L3.2 4.5H-3.2L-5.2 -1.7z",
}


def fastest(group: Group) -> list[Record]:
    """Return what a small figure shows of `in_order`: the fastest kernels, those quantized ones that no other quantized
    one beats, and the reference."""
    reference = reference_variant(group.records)
    first = {base(place.record.variant) for place in ranked(group, group.longest, "quantized") if place.rank == 1}
    return [
        record
        for at, record in enumerate(in_order(group))
        if at < KERNELS or record.variant == reference or base(record.variant) in first
    ]


def in_order(group: Group) -> list[Record]:
    """Return each kernel in order of time, those last of which launching was timed in all forms.

    Each is in the simplest form that none of its other ranked forms beats, the reference in its own.
    """
    places = [*ranked(group, group.longest, "exact"), *ranked(group, group.longest, "quantized")]
    kernels: dict[str, list[Record]] = {}
    for place in places:
        kernels.setdefault(base(place.record.variant), []).append(place.record)
    reference = reference_variant(group.records)
    shown = (_shown(forms, reference) for forms in kernels.values())
    return sorted(shown, key=lambda record: (launch_bound(record), timing_of(record).median_ms))


def _shown(forms: Sequence[Record], reference: str | None) -> Record:
    known = kept_busy(forms)
    best = known[0]  # they come as they are ranked
    unbeaten = min((each for each in known if overlap(each, best)), key=lambda record: len(form(record.variant)))
    return next((record for record in forms if record.variant == reference), unbeaten)


def times(group: Group) -> str:
    """Return the figure of a group at its longest workload, in ms, sustained; empty where nothing is ranked."""
    shown = fastest(group)
    if not shown:
        return ""
    reference = reference_variant(group.records)
    whole = kept_busy(shown)  # their intervals are drawn
    ends = [end for record in whole for end in timing_of(record).ci95_ms]
    place, ticks, kind = _scale(min(ends), max(ends))
    height = _TOP + _LINE * len(shown) + _BOTTOM
    foot = _TOP + _LINE * len(shown)
    parts = [
        f'<svg class="chart" role="img" width="100%" height="{height}" aria-label="{text(_described(shown))}">',
        *(
            f'<line class="grid" x1="{place(tick)}%" x2="{place(tick)}%" y1="{_TOP}" y2="{foot}"/>'
            f'<text class="tick" x="{place(tick)}%" y="{foot + 15}" text-anchor="{_anchor(place(tick))}">'
            f"{tick:,.6g}</text>"
            for tick in ticks
        ),
        *(
            _row(record, place, _TOP + index * _LINE, reference, whole=record in whole)
            for index, record in enumerate(shown)
        ),
        f'<text class="tick" x="{_LEFT}%" y="{foot + 33}">ms a call, sustained{kind}; median, 95% interval</text>',
        "</svg>",
    ]
    return "".join(parts)


def series(variant: str) -> str:
    """Return a variant's colour as the stylesheet calls it, which is another in each theme."""
    return f"var(--s{COLOURS.index(look(variant).colour) + 1})"


def _row(record: Record, place: _Place, top: float, reference: str | None, *, whole: bool) -> str:
    timing = timing_of(record)
    low, high = timing.ci95_ms
    style = look(record.variant)
    colour = series(record.variant)
    kind = "quantized" if correctness_of(record).precision_class == "quantized" else ""
    kind = "the reference" if record.variant == reference else kind
    late = 'h<tspan class="wide">: launching timed</tspan>' if launch_bound(record) else ""
    note = f" ({', '.join(filter(None, [kind, late]))})" if kind or late else ""
    value = plus_minus(timing.median_ms, timing.ci95_ms)
    y = top + 27
    fill = colour if style.filling == "full" else "var(--ground)"
    at = place(timing.median_ms)
    drawn = ""
    if whole:
        drawn = f'<line x1="{place(low)}%" x2="{place(high)}%" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="3"/>'
    if _LEFT <= at <= _RIGHT:
        path = f'<path d="{MARKERS[style.marker]}" fill="{fill}" stroke="{colour}" stroke-width="1.5"/>'
        drawn += f'<svg x="{at}%" y="{y}" overflow="visible">{path}</svg>'
    return (
        f"<g><title>{text(record.variant)}: {text(value)} ms, sustained</title>"
        f'<text class="name" x="0" y="{top + 14}">{text(record.variant)}{note}</text>'
        f'<text class="value" x="100%" y="{top + 14}" text-anchor="end">{text(value)}</text>'
        f'<line class="track" x1="{_LEFT}%" x2="{_RIGHT}%" y1="{y}" y2="{y}"/>{drawn}</g>'
    )


class _Place:
    """Where a time lies along the axis, in percent of the figure's width."""

    def __init__(self, low: float, high: float, *, logarithmic: bool) -> None:
        self._of = math.log if logarithmic else float
        self._low, self._high = self._of(low), self._of(high)

    def __call__(self, ms: float) -> float:
        """Return the place of a time."""
        share = (self._of(ms) - self._low) / (self._high - self._low)
        return round(_LEFT + share * (_RIGHT - _LEFT), 2)


def _scale(low: float, high: float) -> tuple[_Place, Sequence[float], str]:
    """Return the axis, its ticks, and what it is called: from zero where that shows all, else logarithmic."""
    if high / low <= _SHARES_ONE_SCALE:
        power = 10.0 ** math.floor(math.log10(high))
        step = next(power * each / 10 for each in (1, 2, 5, 10, 20) if high / (power * each / 10) <= 5)
        top = step * math.ceil(high / step)
        return _Place(0, top, logarithmic=False), [step * count for count in range(round(top / step) + 1)], ""
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**power for power in powers for step in _STEPS]
    first = max(tick for tick in ticks if tick <= low)
    last = min((tick for tick in ticks if tick >= high), default=high)
    inside = [tick for tick in ticks if first <= tick <= last]
    while len(inside) > 6:
        inside = inside[::2]
    return _Place(first, last, logarithmic=True), inside, " (logarithmic)"


def _anchor(place: float) -> str:
    return "start" if place < _LEFT + 2 else "end" if place > _RIGHT - 2 else "middle"


def _described(shown: Sequence[Record]) -> str:
    times = (
        f"{record.variant} {plus_minus(timing_of(record).median_ms, timing_of(record).ci95_ms)}"
        + " (launching timed)" * launch_bound(record)
        for record in shown
    )
    return f"Sustained ms a call with 95% intervals: {'; '.join(times)}"
