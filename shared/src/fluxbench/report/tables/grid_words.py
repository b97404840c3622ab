"""A grid in words: what wins at how many shapes, what is the fastest as called, and why a shape has no winner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median, quantiles

from fluxbench.analysis.failures import is_late
from fluxbench.analysis.grid import EAGER, Grid, Point
from fluxbench.core.formatting import count, first, listed, number, reason
from fluxbench.records.schema import Record
from fluxbench.records.status import Status
from fluxbench.report.sentences import capitalized
from fluxbench.variants import label

CALLED = (
    "Without CUDA graphs a program gets the time as called. It depends on the host, and is the mean of three processes "
    "without an interval, so no winner as called is named at a shape: read how often an implementation has the "
    "shortest time. A call of a backend that PyTorch does not choose by itself enters `sdpa_kernel`, as in diffusers, "
    "which is part of this time."
)
_NAMED = 3  # tied implementations that a row names before it counts the rest
_NINE_TENTHS_OF = 20  # values at least, of which the lowest and the highest twentieth are left out
_MISSING = 2  # implementations without a time that a sentence gives reasons for


def sentence(grid: Grid) -> str:
    """Return which implementation wins at most shapes of a grid, and how much faster than eager the fastest are.

    Where calls were replayed as CUDA graphs, it says so, and what is the fastest as called.
    """
    timed = [point for point in grid.points if point.records]
    if not timed:
        return f"{capitalized(grid.name)}: nothing passed."
    graphs = ", replayed as CUDA graphs" * grid.is_replayed
    ties = len(timed) - grid.wins.total()
    if grid.wins:
        variant, times = grid.wins.most_common(1)[0]
        wins = f"{label(variant)} is measurably the fastest at {times} of {_shapes(timed)}{_more(grid.wins, ties)}."
        wins += _ties(timed, ties)
    else:
        wins = f"none of {_shapes(timed)} has a winner."
    gains = [gain.value for point in timed if (gain := point.known(next(iter(point.records))))]
    over = f" The fastest of a shape is {span(gains)} times as fast as eager attention." if gains else ""
    called = as_called(grid) if grid.is_replayed else ""
    return f"{capitalized(grid.name)}{graphs}: {wins}{over}{called}{_too_late(grid)}{_missing(grid)}"


def as_called(grid: Grid) -> str:
    """Return which implementation has the shortest time as called at most shapes, and what that says of the winner."""
    shown = [point for point in grid.points if len(point.called) > 1]
    if not shown:
        return ""
    shortest = Counter(next(iter(point.called)) for point in shown)
    variant, times = shortest.most_common(1)[0]
    gains = [point.called[EAGER] / next(iter(point.called.values())) for point in shown if EAGER in point.called]
    over = f"; the shortest is {middle_span(gains)} times as fast as eager attention" if gains else ""
    over += " at nine tenths of the shapes" * (len(gains) >= _NINE_TENTHS_OF)
    words = (
        f" As called, without graphs, {label(variant)} has the shortest time at {times} of {_shapes(shown)}"
        f"{_more(shortest, 0)}{over}."
    )
    return words + _slower_as_called(grid, variant)


def _slower_as_called(grid: Grid, shortest: str) -> str:
    """Return how much longer the implementation with most wins takes as called, where that is another one."""
    if not grid.wins or (variant := grid.wins.most_common(1)[0][0]) == shortest:
        return ""
    won = [point for point in grid.points if point.winner and point.winner.variant == variant]
    ratios = [point.called[variant] / point.called[shortest] for point in won if shortest in point.called]
    if not (longer := [ratio for ratio in ratios if ratio > 1]):
        return ""
    return (
        f" {label(variant)} takes longer than {label(shortest)} at {len(longer)} of the {len(won)} shapes at which it "
        f"wins, there {number(median(longer))} times as long in the median."
    )


def without_winner(point: Point) -> str:
    """Return which implementations tie at a shape without a winner, and which may be as fast, and why."""
    others = {
        "too uncertain": point.unsure,
        "timed one by one": [record for record in point.unranked if record in point.single],
        "beside a wrong reference": [record for record in point.unranked if record in point.astray],
    }
    parts = [_named(point.level, " = "), *(f"{_named(records)} ({why})" for why, records in others.items() if records)]
    return "; or ".join(parts) + "; no other has a time" * (len(point.records) == 1 and not point.unranked)


def _named(records: Sequence[Record], separator: str = ", ") -> str:
    return first([label(record.variant) for record in records], _NAMED, separator)


def span(values: Sequence[float]) -> str:
    """Return the least and the largest value, or the one where these are the same."""
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low} to {high}"


def middle_span(values: Sequence[float]) -> str:
    """Return between which values nine tenths lie, or of fewer than 20 the least and the largest."""
    if len(values) < _NINE_TENTHS_OF:
        return span(values)
    lowest, *_, highest = quantiles(values, n=_NINE_TENTHS_OF)
    return span([lowest, highest])


def _ties(timed: Sequence[Point], ties: int) -> str:
    """Return which implementations alone tie for first at most shapes without a winner; empty where none do."""
    level = Counter(
        tuple(sorted(label(record.variant) for record in point.level))
        for point in timed
        if len(point.level) > 1 and not point.unsure and not point.unranked
    )
    names, times = level.most_common(1)[0] if level else ((), 0)
    return f" At {times} of these {listed(names)} alone tie for first." if 2 * times > ties else ""


def _shapes(points: Sequence[Point]) -> str:
    return count(len(points), "shape")


def _more(firsts: Counter[str], ties: int) -> str:
    others = firsts.total() - firsts.most_common(1)[0][1]
    parts = [f"{'another' if others == 1 else 'others'} at {others}"] if others else []
    parts += [f"and {ties} {'has' if ties == 1 else 'have'} no winner"] if ties else []
    return "".join(f", {part}" for part in parts)


def _too_late(grid: Grid) -> str:
    """Return which implementations there was no time for, at so many shapes that another one might win."""
    late = Counter(
        variant
        for point in grid.points
        for variant in grid.variants
        if (record := point.record(variant)) and is_late(record)
    )
    parts = [f"{label(variant)} at {times}" for variant, times in late.items()]
    return f" There was no time to measure {' and '.join(parts)} of them." if parts else ""


def _missing(grid: Grid) -> str:
    """Return which implementations have no time at any shape, and why; not those that there was no time for."""
    reasons: dict[str, str] = {}
    for variant in grid.variants:
        records = [record for point in grid.points if (record := point.record(variant))]
        if not any(record.status is Status.PASSED or is_late(record) for record in records):
            reasons[variant] = reason(records[0].reason)
    if len(reasons) > _MISSING:
        return f" {len(reasons)} implementations have no time here; the list of rows without a time says why."
    return "".join(f" {label(variant)} has no time here: {why.rstrip('.')}." for variant, why in reasons.items())
