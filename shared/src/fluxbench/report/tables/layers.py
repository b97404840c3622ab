"""Whole layers: which implementation is fastest, and of each layer the times of forward, backward and both."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

from fluxbench.analysis.groups import timing_of
from fluxbench.analysis.layers import EAGER, PASSES, TOTAL, Layer, layers
from fluxbench.analysis.verdict import DEFAULT
from fluxbench.core.formatting import count, interval, number, plus_minus
from fluxbench.operations.words import describe
from fluxbench.records.schema import Record
from fluxbench.records.status import Status
from fluxbench.report import legend
from fluxbench.report.blocks import Block, Column, Fold, Name, Paragraph, Row, Table
from fluxbench.report.results import Results
from fluxbench.report.sentences import INTERVALS, capitalized, conditions, factor, statistic
from fluxbench.report.tables import Rows, ends, estimate_cells, time_cells
from fluxbench.report.tables.not_passed import not_passed
from fluxbench.stats.intervals import Estimate
from fluxbench.variants import label

_IN_ORDER = (TOTAL, *(which for which in PASSES.values() if which != TOTAL))  # a narrow page cuts the last columns
OPEN = 4  # layers whose tables are open; those of today's models come first
_UNDER, _OVER = " <", " >"
_OF_SUM = (
    "The time of both passes in one call over the sum of the two timed alone. < marks one under 1, > one "
    "over 1, with the whole interval. Somewhat under 1 is usual: what the forward pass wrote is still in the cache."
)


def blocks(results: Results) -> list[Block]:
    """Return the fastest of each layer, and a table of each: the first ones open, the others in a fold."""
    found = layers(results.records)
    if not found:
        return [Paragraph(f"There are no {'layers among the records' if results.records else 'records'}.")]
    every = [_of_layer(layer) for layer in found]
    folded = [Fold(f"The other {len(every) - OPEN} layers", every[OPEN:])] if len(every) > OPEN else []
    of_layers = [record for record in results.records if record.workload.operation in PASSES]
    of_sum = Fold("Total / sum in the tables of layers", [Paragraph(_OF_SUM)])
    return [Paragraph(_lead(found)), _fastest(found), of_sum, *every[:OPEN], *folded, *not_passed(of_layers)]


def rows(results: Results) -> Rows:
    """Return one row per layer, variant and pass, with the speed over unfused attention and over torch's choice."""
    header = ("layer", "variant", "pass", "status", "ms", "ms_low", "ms_high")
    csv: Rows = [(*header, *ends("over_math"), *ends("over_default"), *ends("total_over_sum"))]
    for layer in layers(results.records):
        for variant in layer.variants:
            for which, group in layer.passes.items():
                record = group.find(variant, group.longest)
                if record is None:
                    continue
                speeds = (layer.speedup(variant, over, which) for over in (EAGER, DEFAULT))
                of_sum = layer.total_over_sum(variant) if which == TOTAL else None
                estimates = [end for estimate in (*speeds, of_sum) for end in estimate_cells(estimate)]
                csv.append((layer.name, variant, which, record.status.value, *time_cells(record.timing), *estimates))
    return csv


def _lead(found: Sequence[Layer]) -> str:
    """Return which implementations are fastest in one call of both passes, at how many layers, and by how much."""
    unbeaten = [first for layer in found if (first := layer.unbeaten(TOTAL))]
    if not unbeaten:
        return "Nothing passed both passes, so nothing is fastest."
    alone = Counter(first[0].variant for first in unbeaten if len(first) == 1)
    tied = Counter(record.variant for first in unbeaten if len(first) > 1 for record in first)
    variant = max({**alone, **tied}, key=lambda one: (alone[one], tied[one]))
    estimates = [
        estimate.value
        for layer in found
        if (first := layer.unbeaten(TOTAL)) and (estimate := layer.speedup(first[0].variant, EAGER, TOTAL))
    ]
    gain = f" The fastest of a layer is {_span(estimates)} as fast as unfused attention." if estimates else ""
    ties = f", and ties as fastest at {tied[variant]}" if tied[variant] else ""
    others = "".join(f"; {label(name)} is at {times}" for name, times in alone.most_common() if name != variant)
    return (
        f"Forward and backward in one call: {label(variant)} is measurably the fastest at {alone[variant]} of "
        f"{count(len(unbeaten), 'layer')}{ties}{others}.{gain}"
    )


def _fastest(found: Sequence[Layer]) -> Table:
    heads = [f"speed over\n{label(other)}" for other in (EAGER, DEFAULT)]
    columns = [Column("layer", left=True), Column(f"{TOTAL}:\nfastest", left=True), *map(Column, heads)]
    _, *others = _IN_ORDER
    body = []
    for layer in found:
        fastest = {which: layer.unbeaten(which) for which in PASSES.values()}
        names = {which: f"{label(of[0].variant)}{' =' * (len(of) > 1)}" if of else "-" for which, of in fastest.items()}
        speeds = [
            _speed(layer, record.variant, other, TOTAL) for other in (EAGER, DEFAULT) for record in fastest[TOTAL][:1]
        ]
        body.append(Row((layer.name, names[TOTAL], *(speeds or ("-", "-")), *(names[which] for which in others))))
    return Table(
        columns=[*columns, *(Column(f"{which}:\nfastest", left=True) for which in others)],
        rows=body,
        caption=f"The fastest implementation of each layer; {TOTAL} is forward and backward in one call.",
        notes=["=: one or more others are neither measurably faster nor slower."],
    )


def _of_layer(layer: Layer) -> Table:
    by_pass = ((f"{which}\nms", "speed", *[f"{TOTAL}\n/ sum"] * (which == TOTAL)) for which in _IN_ORDER)
    columns = [Column("implementation", left=True), *map(Column, itertools.chain(*by_pass))]
    timed = [record for which in PASSES.values() for record in layer.ranked(which)]
    notes = []
    if timed:
        regime = next(iter(timed[0].timings))
        measured = f"{statistic(timed, regime)} time per call, {regime}; {conditions(timed, regime)}"
        speed = f"Speed: how many times as fast as {label(EAGER)}"
        notes = [f"{capitalized(measured)}. {speed}. {capitalized(INTERVALS)}."]
    body = [_row(layer, variant) for variant in _by_total(layer)]
    return Table(columns, body, f"{layer.name}: {describe(layer.workload)}", notes)


def _row(layer: Layer, variant: str) -> Row:
    cells: list[str | Name] = [legend.name(variant)]
    failed, whole = False, layer.total_over_sum(variant)
    for which in _IN_ORDER:
        group = layer.passes.get(which)
        record = group.find(variant, group.longest) if group else None
        cells += [_time(record), _speed(layer, variant, EAGER, which)]
        cells += [_marked(whole) if whole else "-"] * (which == TOTAL)
        failed |= record is None or record.status is not Status.PASSED
    return Row(tuple(cells), failed)


def _time(record: Record | None) -> str:
    if record is None:
        return "no record"
    if record.status is not Status.PASSED:
        return record.status.value
    return plus_minus(timing_of(record).median_ms, timing_of(record).ci95_ms)


def _speed(layer: Layer, variant: str, over: str, which: str) -> str:
    if variant == over:
        return "1×" if layer.record(variant, which) else "-"
    return factor(layer.speedup(variant, over, which))


def _marked(whole: Estimate) -> str:
    mark = _UNDER if whole.high < 1 else _OVER if whole.low > 1 else ""
    return interval(whole.value, (whole.low, whole.high)) + mark


def _by_total(layer: Layer) -> list[str]:
    """Return the variants that passed some pass, the fastest in both first, then by forward, then by backward."""
    return list(dict.fromkeys(record.variant for which in _IN_ORDER for record in layer.ranked(which)))


def _span(values: Sequence[float]) -> str:
    low, high = number(min(values)), number(max(values))
    return f"{low} times" if low == high else f"{low} to {high} times"
