"""Which variant is faster than which at the longest workload, with ties, and what has no place and why."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from fluxbench.analysis.groups import Group, groups, ranking_regime, reference_variant, throughput, timing_of
from fluxbench.analysis.ranking import CLASSES, Ranked, ranked, ties
from fluxbench.core.formatting import interval, number, plus_minus
from fluxbench.operations.precision import EXACT, QUANTIZED
from fluxbench.records.schema import BURST
from fluxbench.report import legend
from fluxbench.report.best_forms import best_of_libraries
from fluxbench.report.blocks import Block, Column, Fold, Heading, Name, Paragraph, Row, Table
from fluxbench.report.results import Results
from fluxbench.report.sentences import INTERVALS, MEASURABLY, burst_order, method, shape
from fluxbench.report.tables.not_passed import not_passed
from fluxbench.variants import label

MOST = 11  # rows that are open
_NO_DIFFERENCE = "No measurable difference (=): {sets}."
_MANY_TIES = "=: no measurable difference to another of these."


def blocks(results: Results) -> list[Block]:
    """Return the ranking of each group, and what its times are."""
    every_group = groups(results.records)
    if not every_group:
        return [Paragraph("There are no records.")]
    ranking = [block for group in every_group for block in _of_group(group, results)]
    measured = Fold("How this was measured", [Paragraph(text) for text in method(results.records)])
    return [*ranking, legend.SIGNS, *not_passed(results.records), measured]


def _of_group(group: Group, results: Results) -> Iterator[Block]:
    places = {kind: ranked(group, group.longest, kind) for kind in CLASSES}
    records = [place.record for entries in places.values() for place in entries]
    peak = results.peak_rate(group.longest)
    by_sheet = f"peak {peak:,.0f} {results.rate} by data sheet" if peak else "peak unknown"
    caption = f"Ranking at {shape(group)}; {by_sheet}."
    if not records:
        yield Paragraph(f"{caption} Nothing passed, so nothing is ranked.")
        return
    regime, omitted = ranking_regime(records), legend.everywhere(records)
    heads = [f"{regime}\n{what}" for what in ("ratio", "ms", results.rate, "of peak")]
    heads += ["burst\nms"] if regime != BURST else []
    columns = [Column("rank"), Column("kernel", left=True), *map(Column, heads)]

    def table(shown: Mapping[str, Sequence[Ranked]], notes: Sequence[str]) -> Table:
        rows: list[Row | Heading] = []
        for kind, entries in shown.items():
            if entries and kind != EXACT:
                rows.append(Heading(f"{kind}: looser error budgets, ranked separately"))
            share_of = peak if kind != QUANTIZED or results.rate == "GB/s" else None  # narrow formats have another peak
            rows += [_row(place, results.rate, share_of, regime, omitted) for place in entries]
        return Table(columns=columns, rows=rows, caption=caption, notes=notes)

    ratio = f"Ratio: time over {label(reference_variant(group.records) or '')}'s; under 1 is faster. {INTERVALS}."
    best = _best(group, places)
    yield table(best, [ratio, *_notes(group, places, regime)])
    if sum(map(len, best.values())) < len(records):
        yield Fold(f"All {len(records)} ranked variants", [table(places, ())])


def _best(group: Group, places: Mapping[str, Sequence[Ranked]]) -> dict[str, list[Ranked]]:
    """Return the best form of each library, exact and quantized: `MOST` at most, of which the slowest exact ones go."""
    best: dict[str, list[Ranked]] = {}
    for kind in (EXACT, QUANTIZED):
        chosen = best_of_libraries(group, [place.record for place in places[kind]])
        best[kind] = [place for place in places[kind] if place.record in chosen][:MOST]
    return {**best, EXACT: best[EXACT][: MOST - len(best[QUANTIZED])]}


def _row(place: Ranked, rate: str, peak: float | None, regime: str, omitted: Collection[str]) -> Row:
    record, timing, burst = place.record, timing_of(place.record), place.record.burst
    is_reference = record.variant == timing.reference_variant
    reached = throughput(record, rate)
    cells: list[str | Name] = [
        f"{place.rank}{legend.of_place(place, omitted):<3}",
        legend.name(record.variant),
        "reference" if is_reference else interval(timing.ratio, timing.ratio_ci95),
        plus_minus(timing.median_ms, timing.ci95_ms),
        number(reached),
        f"{reached / peak:.1%}" if peak else "-",
    ]
    if regime != BURST:
        time = burst and plus_minus(burst.median_ms, burst.ci95_ms) + legend.of_time(record, BURST, omitted)
        cells.append(time or "-")
    return Row(tuple(cells))


def _notes(group: Group, places: dict[str, list[Ranked]], regime: str) -> Iterator[str]:
    yield (
        f"{regime.capitalize()} ranks. A rank is one more than the number of variants that are measurably faster: "
        f"{MEASURABLY}. So a wide interval can rank before a faster time."
        + (" Each quantized kernel has an error budget of its own." if places[QUANTIZED] else "")
    )
    sets = [names for entries in places.values() for names in ties(group, entries)]
    if not sets:
        yield "All differences are measurable."
    elif sum(map(len, sets)) > legend.MANY:
        yield _MANY_TIES
    else:
        yield _NO_DIFFERENCE.format(sets="; ".join(" = ".join(names) for names in sets))
    if regime != BURST:
        yield from filter(None, map(burst_order, places.values()))
