"""Which variant is faster than which at the longest workload, with ties, and what has no place and why."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from fluxbench.analysis import verdict
from fluxbench.analysis.groups import (
    Group,
    groups,
    incomparable,
    ranking_regime,
    reference_variant,
    throughput,
    timing_of,
)
from fluxbench.analysis.ranking import CLASSES, Ranked, order, ranked, ties
from fluxbench.core.formatting import interval, listed, number, plus_minus
from fluxbench.operations.precision import EXACT, QUANTIZED
from fluxbench.records.schema import BURST, SUSTAINED, Record
from fluxbench.report import legend
from fluxbench.report.best_forms import best_of_kernels
from fluxbench.report.blocks import Block, Column, Fold, Heading, Paragraph, Row, Table
from fluxbench.report.results import Results
from fluxbench.report.sentences import (
    INTERVALS,
    MEASURABLY,
    burst_order,
    capitalized,
    factor,
    method,
    mixed_versions,
    shape,
)
from fluxbench.report.tables.not_passed import not_passed
from fluxbench.variants import label

_NO_DIFFERENCE = "Not measurably apart (=) by a test that is corrected for the number of kernels: {sets}."
_MANY_TIES = "=: not measurably apart from another of these, by a test that is corrected for the number of kernels."


def blocks(results: Results) -> list[Block]:
    """Return the ranking of each group, and what its times are."""
    every_group = groups(results.records)
    if not every_group:
        return [Paragraph("There are no records.")]
    ranking = [block for group in every_group for block in _of_group(group, results)]
    measured = Fold("How this was measured", [Paragraph(text) for text in method(results.records)])
    symbols = "".join(map(_symbols, every_group))
    return [*ranking, *legend.explained(symbols), *not_passed(results.records), measured]


def _symbols(group: Group) -> str:
    """Return the symbols that the rows of a group have."""
    places = [place for kind in CLASSES for place in ranked(group, group.longest, kind)]
    omitted = legend.everywhere(place.record for place in places)
    return "".join(legend.of_place(place, omitted) + legend.of_time(place.record, BURST, omitted) for place in places)


def _of_group(group: Group, results: Results) -> Iterator[Block]:
    every = {kind: ranked(group, group.longest, kind) for kind in CLASSES}
    places = {kind: [place for place in entries if not place.uncertain] for kind, entries in every.items()}
    without = {kind: [place for place in entries if place.uncertain] for kind, entries in every.items()}
    timed = [place.record for entries in every.values() for place in entries]
    count = sum(map(len, places.values()))
    peak = results.peak_rate(group.longest)
    by_sheet = f"peak {peak:,.0f} {results.rate} by data sheet" if peak else "peak unknown"
    caption = f"Ranking at {shape(group)}; {by_sheet}."
    if not count:
        yield Paragraph(f"{caption} {_no_rank(without) or 'Nothing passed, so nothing is ranked.'}")
        return
    if why := incomparable(timed):
        yield Paragraph(f"{caption} Nothing is ranked: not all of these can be compared, since {why}.")
        return
    shown = _Shown(group, results.rate, peak, ranking_regime(timed), legend.everywhere(timed))
    best = _best(group, places)
    than = label(shown.baseline.variant) if shown.baseline else ""
    speed = [f"Speed: how many times as fast as {than}. {INTERVALS}.{_over_lengths(group, shown)}"] if than else []
    heads = (f"speed over\n{than}", *shown.heads)
    yield Table(
        columns=[Column("rank"), Column("kernel", left=True), *map(Column, heads)],
        rows=[*_rows(best, shown.open_row), *_without_rank(_best_of_rest(group, without, best), shown.open_row)],
        caption=f"{caption} The best form of each exact and quantized kernel, and those of the verdict.",
        notes=[*speed, *_notes(group, places, shown.regime), *filter(None, [_no_rank(without)])],
    )
    ratio = f"Ratio: time over {label(reference_variant(group.records) or '')}'s; under 1 is faster."
    whole = Table(
        columns=[Column("rank"), Column("kernel", left=True), *map(Column, (f"{shown.regime}\nratio", *shown.heads))],
        rows=[*_rows(places, shown.row), *_without_rank(without, shown.row)],
        caption=caption,
        notes=[ratio],
    )
    yield Fold("The one ranked variant" if count == 1 else f"All {count} ranked variants", [whole])


def _rows(places: Mapping[str, Sequence[Ranked]], row_of: Callable[[Ranked, str], Row]) -> Iterator[Row | Heading]:
    for kind, entries in places.items():
        if entries and kind != EXACT:
            yield Heading(f"{kind}: looser error budgets, ranked separately")
        yield from (row_of(place, kind) for place in entries)


def _over_lengths(group: Group, shown: _Shown) -> str:
    """Return between which speeds over the baseline the first kernel of the verdict is, at the lengths of a group."""
    first, base = next(iter(verdict.of(group).named), None), shown.baseline
    if first is None or base is None or first.record is base:
        return ""
    speeds = [
        order(group, workload).speedup(one, other).value
        for workload in group.workloads
        if (one := group.trusted(first.record.variant, workload)) and (other := group.trusted(base.variant, workload))
    ]
    who = f"{label(first.record.variant)} at {len(speeds)} lengths"
    return f" {who}: {min(speeds):.2f} to {max(speeds):.2f} times." if len(speeds) > 1 else ""


def _without_rank(
    without: Mapping[str, Sequence[Ranked]], row_of: Callable[[Ranked, str], Row]
) -> Iterator[Row | Heading]:
    """Yield the rows of what is too uncertain, below those with a rank."""
    for kind, entries in without.items():
        if entries:
            yield Heading(f"{kind}: {legend.TOO_UNCERTAIN}")
        yield from (row_of(place, kind) for place in entries)


def _no_rank(without: Mapping[str, Sequence[Ranked]]) -> str:
    """Return which variants have no rank since they are too uncertain, with their times; empty where none is."""
    records = [place.record for entries in without.values() for place in entries]
    times = [
        f"{label(record.variant)} ({plus_minus(timing_of(record).median_ms, timing_of(record).ci95_ms)} ms)"
        for record in records
    ]
    return f"{capitalized(legend.TOO_UNCERTAIN)}: {listed(times)}." if records else ""


def _best(group: Group, places: Mapping[str, Sequence[Ranked]]) -> dict[str, list[Ranked]]:
    """Return the best form of each kernel, exact and quantized, and the kernels of the verdict in their forms."""
    found = verdict.of(group)
    fastest = {contender.record.kernel: contender.record for contender in found.named}
    base = [found.baseline] if found.baseline else []
    best: dict[str, list[Ranked]] = {}
    for kind in (EXACT, QUANTIZED):
        chosen = best_of_kernels(group, [place.record for place in places[kind]])
        if kind == EXACT:
            chosen = [*base, *fastest.values(), *(record for record in chosen if record.kernel not in fastest)]
        best[kind] = [place for place in places[kind] if place.record in chosen]
    if found.rounding:
        record = found.rounding.record
        best[record.precision_class] = [place for place in places[record.precision_class] if place.record is record]
    return {kind: sorted(best[kind], key=_place_and_time) for kind in CLASSES if kind in best}


def _best_of_rest(
    group: Group, without: Mapping[str, Sequence[Ranked]], best: Mapping[str, Sequence[Ranked]]
) -> dict[str, list[Ranked]]:
    """Return the best form of each exact and quantized kernel that is too uncertain for a rank in all of its forms."""
    ranked_too = {place.record.kernel for entries in best.values() for place in entries}
    found = {}
    for kind in (EXACT, QUANTIZED):
        rest = [place for place in without[kind] if place.record.kernel not in ranked_too]
        chosen = best_of_kernels(group, [place.record for place in rest])
        found[kind] = [place for place in rest if place.record in chosen]
    return found


def _place_and_time(place: Ranked) -> tuple[int, float]:
    """Return what orders the open table: within a rank the time, which it shows, and not the ratio to a reference."""
    return place.rank, timing_of(place.record).median_ms


class _Shown:
    """Makes the rows of a group's tables."""

    def __init__(self, group: Group, rate: str, peak: float | None, regime: str, omitted: Collection[str]) -> None:
        self.regime = regime
        self.baseline = verdict.baseline_of(group, group.longest)
        of_peak = ["of peak"] * (peak is not None)
        self.heads = [f"{regime}\n{what}" for what in ("ms", rate, *of_peak)] + ["burst\nms"] * (regime != BURST)
        self._ordering = order(group, group.longest)
        self._rate, self._peak, self._omitted = rate, peak, omitted

    def open_row(self, place: Ranked, kind: str) -> Row:
        """Return a row with the speed over the default, and no symbols but that of a tie."""
        record, speed = place.record, "-"
        if self.baseline:
            speed = "1×" if record is self.baseline else factor(verdict.speedup(self._ordering, record, self.baseline))
        rank = "-" if place.uncertain else f"{place.rank}{'=' * place.tied:<1}"
        cells = (rank, legend.name(record.variant), speed)
        return Row((*cells, *self._times(record, kind, frozenset((SUSTAINED, BURST)))))

    def row(self, place: Ranked, kind: str) -> Row:
        """Return a row with the ratio to the reference, and all symbols."""
        record, timing = place.record, timing_of(place.record)
        is_reference = record.variant == timing.reference_variant
        cells = (
            f"{'-' if place.uncertain else place.rank}{legend.of_place(place, self._omitted):<3}",
            legend.name(record.variant),
            "reference" if is_reference else interval(timing.ratio, timing.ratio_ci95),
        )
        return Row((*cells, *self._times(record, kind, self._omitted)))

    def _times(self, record: Record, kind: str, omitted: Collection[str]) -> Iterator[str]:
        timing, burst, reached = timing_of(record), record.burst, throughput(record, self._rate)
        share_of = self._peak if kind != QUANTIZED or self._rate == "GB/s" else None  # narrow formats have another peak
        yield plus_minus(timing.median_ms, timing.ci95_ms)
        yield number(reached)
        if self._peak is not None:
            yield f"{reached / share_of:.1%}" if share_of else "-"
        if self.regime != BURST:
            time = burst and plus_minus(burst.median_ms, burst.ci95_ms) + legend.of_time(record, BURST, omitted)
            yield time or "-"


def _notes(group: Group, places: dict[str, list[Ranked]], regime: str) -> Iterator[str]:
    yield (
        f"{regime.capitalize()} ranks. A rank is one more than the number of variants, in all forms, that are "
        f"measurably faster: {MEASURABLY}. So a wide interval can rank before a faster time, and two intervals can "
        "overlap whose difference is measurable: a test has the scatter that all variants share, an interval that of "
        "its own cell, and of a ratio the reference's too. What differs between cells no more than the reference's "
        "times do, in three cells or more, is not measurable. Where ratios to the reference in the same processes "
        "scatter less than times, or the device drifts, ranks and speeds are by these: a speed can then differ from "
        "the quotient of two times here."
        + (" Each quantized kernel has an error budget of its own." if places[QUANTIZED] else "")
    )
    if mixed := mixed_versions(place.record for entries in places.values() for place in entries):
        yield mixed
    sets = [names for entries in places.values() for names in ties(group, entries)]
    if not sets:
        yield "All differences are measurable."
    elif sum(map(len, sets)) > legend.MANY:
        yield _MANY_TIES
    else:
        yield _NO_DIFFERENCE.format(sets="; ".join(" = ".join(names) for names in sets))
    if regime != BURST:
        yield from filter(None, map(burst_order, places.values()))
