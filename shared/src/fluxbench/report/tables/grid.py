"""A grid of shapes: which implementation is fastest at how many of them, and at each the winner with its margin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from statistics import median

from fluxbench.analysis.grid import EAGER, Grid, Point, called_ms, grids
from fluxbench.analysis.groups import timing_of
from fluxbench.analysis.ranking import UNCERTAIN_FROM
from fluxbench.analysis.unbeaten import LEVEL_WITHIN
from fluxbench.analysis.verdict import DEFAULT
from fluxbench.core.formatting import count, number, plus_minus, reason
from fluxbench.records.schema import BURST, Record
from fluxbench.records.status import Status
from fluxbench.report import legend
from fluxbench.report.blocks import Block, Column, Fold, Heading, Paragraph, Row, Table
from fluxbench.report.results import Results
from fluxbench.report.sentences import capitalized, conditions, factor
from fluxbench.report.tables import Rows, estimate_cells, time_cells
from fluxbench.report.tables.grid_words import CALLED, middle_span, sentence, span, without_winner
from fluxbench.variants import label

SIZES = ("batch", "seq_len", "head_dim", "heads")
_OPEN = 30  # shapes that are not folded
_SINGLY = (
    "short calls that were timed one by one, since the first ones seemed to take a millisecond beside other workers: "
    "they take up to 1.7 times as long as in a row"
)
_ASTRAY = "beside a reference whose time differs from that in other cells by 10% or more, as it was timed one by one"
_WINNER = (
    "A winner is measurably faster than every other implementation, and the 95% interval of each margin lies above 1. "
    "No shape has one where an implementation that passed has no rank, unless that takes over twice as long. Elsewhere "
    "the row names those that tie (=), then those that may be as fast: the interval of their time over the fastest "
    f"reaches {LEVEL_WITHIN:g} or more, or they have no rank."
)
_RATIOS = (
    "Speedups: the median over shapes, and the least and the largest. Medians of different ratios do not follow from "
    "one another, since another shape is in the middle of each. What has a rank nowhere is left out, and so is a "
    f"speedup whose interval reaches over {UNCERTAIN_FROM:g} times its value. As called: the median, and between which "
    "speedups nine tenths of the shapes lie, as a call may be late."
)


def blocks(results: Results) -> list[Block]:
    """Return the answer, a table of implementations for each grid, the winners, and what did not pass."""
    found = grids(results.records)
    if not found:
        return [Paragraph(f"There are no {'grids among the records' if results.records else 'records'}.")]
    on_device = results.device.kind != "cpu"
    shown: list[Block] = [Paragraph(sentence(grid), kind="lead") for grid in found]
    if any(grid.is_replayed for grid in found):
        shown.append(Paragraph(CALLED))
    shown += [_summary(found, on_device), *_winners(found, on_device)]
    timed = [record for grid in found for point in grid.points for record in point.records.values()]
    if timed:
        shown.append(Paragraph(f"{capitalized(conditions(timed, BURST))}, on {results.device.name}."))
    return [*shown, *_not_passed(found)]


def rows(results: Results) -> Rows:
    """Return one row per shape, pass, dtype and variant; times in ms, on the device and as the host launches calls."""
    times = ("device_ms", "device_ms_low", "device_ms_high", "as_called_ms")
    gains = [f"{what}{end}" for what in ("over_eager", "over_default") for end in ("", "_low", "_high")]
    csv: Rows = [("pass", "dtype", *SIZES, "variant", "status", "reason", *times, *gains, "place")]
    for grid in grids(results.records):
        for point in grid.points:
            for variant in point.group.variants:
                if record := point.record(variant):
                    csv.append((grid.which, grid.dtype, *point.sizes, *_numbers(point, record)))
    return csv


def _summary(found: Sequence[Grid], on_device: bool) -> Table:
    """Return a row for each implementation with a time: where it wins, its speedups over eager and torch's choice."""
    body: list[Row | Heading] = []
    for grid in found:
        body.append(Heading(f"{capitalized(grid.name)}: {count(len(grid.points), 'shape')}"))
        timed = [variant for variant in grid.variants if any(variant in point.records for point in grid.points)]
        timed.sort(key=lambda variant: -(_middle(grid, variant) or 1))
        body += [_row(grid, variant, on_device) for variant in timed]
    heads = ["wins", "ties\nfor first", "speedup\nover eager", "over\nthe default"]
    heads += ["shortest\nas called", "as called,\nover the default"] if on_device else []
    return Table(
        columns=[Column("implementation", left=True), *map(Column, [*heads, "ranked"])],
        rows=body,
        caption="Implementations over all shapes.",
        notes=[_RATIOS, _WINNER],
    )


def _row(grid: Grid, variant: str, on_device: bool) -> Row:
    tied = sum(len(point.level) > 1 and any(one.variant == variant for one in point.level) for point in grid.points)
    ranked = sum(variant in point.records for point in grid.points)
    cells = [f"{grid.wins[variant]}", f"{tied}", *(_range(grid, variant, over) for over in (EAGER, DEFAULT))]
    if on_device:
        shortest = sum(next(iter(point.called), None) == variant for point in grid.points)
        both = [point.called for point in grid.points if variant in point.called and DEFAULT in point.called]
        gains = [called[DEFAULT] / called[variant] for called in both]
        cells += [f"{shortest}", "1×" if variant == DEFAULT else _spread(gains, middle_span)]
    return Row((legend.name(variant), *cells, f"{ranked} of {len(grid.points)}"))


def _middle(grid: Grid, variant: str) -> float | None:
    gains = [gain.value for point in grid.points if (gain := point.known(variant))]
    return median(gains) if gains else None


def _range(grid: Grid, variant: str, over: str) -> str:
    gains = [gain.value for point in grid.points if (gain := point.known(variant, over))]
    return "1×" if variant == over else _spread(gains, span)


def _spread(gains: Sequence[float], reach: Callable[[Sequence[float]], str]) -> str:
    return f"{number(median(gains))}× ({reach(gains)})" if gains else "-"


def _winners(found: Sequence[Grid], on_device: bool) -> list[Block]:
    """Return the fastest of each shape: open in one table where there are few."""
    times = ["on the device\nµs", "as called\nµs"] if on_device else ["time\nms"]
    columns = [*map(Column, SIZES), Column("fastest", left=True), Column("margin over\nthe second")]
    columns += [*map(Column, times), Column("eager\n" + ("µs" if on_device else "ms")), Column("speedup\nover eager")]
    columns += [Column("shortest as called\nµs", left=True)] if on_device else []
    bodies = {grid.name: [_winner(point, on_device) for point in grid.points] for grid in found}
    if sum(map(len, bodies.values())) <= _OPEN:
        every: list[Row | Heading] = []
        for name, body in bodies.items():
            every += [Heading(capitalized(name)), *body]
        return [Table(columns, every, "The fastest at each shape.", [_WINNER])]
    return [
        Fold(f"The fastest at each shape: {name}", [Table(columns, body, f"{capitalized(name)}.", [_WINNER])])
        for name, body in bodies.items()
    ]


def _winner(point: Point, on_device: bool) -> Row:
    sizes = tuple(f"{size:,}" for size in point.sizes)
    eager = point.record(EAGER)
    of_eager = _time(eager, on_device) if eager else "-"
    if not point.records:
        lacking = ["-"] * (1 + on_device)
        return Row((*sizes, "nothing passed", "-", *lacking, of_eager, *lacking), failed=True)
    fastest = next(iter(point.records.values()))
    who = legend.name(fastest.variant) if point.winner else without_winner(point)
    margin = factor(point.margin) if point.winner else "no winner"
    times = [_time(fastest, on_device), *([number(1e3 * called_ms(fastest))] if on_device else [])]
    shortest = [f"{label(name)} {number(1e3 * ms)}" for name, ms in point.called.items()][:on_device]
    return Row((*sizes, who, margin, *times, of_eager, factor(point.speedup(fastest.variant)), *shortest))


def _time(record: Record, on_device: bool) -> str:
    if record.status is not Status.PASSED:
        return record.status.value
    timing, scale = timing_of(record), 1e3 if on_device else 1.0
    low, high = timing.ci95_ms
    return plus_minus(scale * timing.median_ms, (scale * low, scale * high))


def _numbers(point: Point, record: Record) -> Iterator[object]:
    yield from (record.variant, record.status.value, record.reason)
    if record.status is Status.PASSED:
        yield from (*time_cells(record.timing), None if record in point.single else called_ms(record))
    else:
        yield from [None] * 4
    for over in (EAGER, DEFAULT):
        yield from estimate_cells(point.speedup(record.variant, over))
    yield _place(point, record)


def _place(point: Point, record: Record) -> str | None:
    """Return "winner", "tied", or "unsure" of another record that may be the fastest; None of what is slower."""
    if point.winner is record:
        return "winner"
    if len(point.level) > 1 and any(one is record for one in point.level):
        return "tied"
    return "unsure" if any(one is record for one in (*point.unbeaten, *point.unranked)) else None


def _not_passed(found: Sequence[Grid]) -> list[Block]:
    """Return a fold with a row for each reason: which variant, at which shapes."""
    every = [(grid, point, record) for grid in found for point in grid.points for record in _all(point)]
    failed: dict[tuple[Status, str, str], list[tuple[Grid, Point]]] = {}
    for grid, point, record in every:
        if record.status is not Status.PASSED:
            failed.setdefault((record.status, record.variant, reason(record.reason)), []).append((grid, point))
    points = [point for grid in found for point in grid.points]
    unranked = Counter((record.variant, _SINGLY) for point in points for record in point.single)
    unranked += Counter((record.variant, _ASTRAY) for point in points for record in point.astray)
    if not failed and not unranked:
        return []
    body: list[Row | Heading] = []
    for status in dict.fromkeys(status for status, _, _ in failed):
        rows_of = {key: at for key, at in failed.items() if key[0] is status}
        count = sum(map(len, rows_of.values()))
        body.append(Heading(f"{status.value}: {count:,} row{'s' * (count > 1)}"))
        body += [
            Row((legend.name(variant), f"{len(at):,}", f"{_where(at, found)}: {why}"))
            for (_, variant, why), at in rows_of.items()
        ]
    if unranked:
        body.append(Heading(f"Without a rank: {unranked.total():,} row{'s' * (unranked.total() > 1)}"))
        body += [Row((legend.name(variant), f"{count:,}", why)) for (variant, why), count in unranked.items()]
    columns = [Column("implementation", left=True), Column("shapes"), Column("where, and why", left=True)]
    count = sum(map(len, failed.values())) + unranked.total()
    return [Fold(f"{count:,} of {len(every):,} rows have no time or rank. Which, and why", [Table(columns, body)])]


def _all(point: Point) -> Iterator[Record]:
    return (record for variant in point.group.variants if (record := point.record(variant)))


def _where(at: Sequence[tuple[Grid, Point]], found: Sequence[Grid]) -> str:
    """Return what shapes have in common that others lack: "forward, float16, head_dim 32"; "everywhere"."""
    own = [_axes(grid, point) for grid, point in at]
    every = [_axes(grid, point) for grid in found for point in grid.points]
    parts = []
    for axis in every[0]:
        there = {axes[axis] for axes in own}
        known = dict.fromkeys(axes[axis] for axes in every)
        if values := [value for value in known if value in there and len(there) < len(known)]:
            parts.append(f"{axis} {', '.join(values)}".strip())
    return ", ".join(parts) or "everywhere"


def _axes(grid: Grid, point: Point) -> dict[str, str]:
    """Return what a row differs from others by; pass and dtype need no name."""
    return {"": grid.which, " ": grid.dtype} | dict(zip(SIZES, map(str, point.sizes), strict=True))
