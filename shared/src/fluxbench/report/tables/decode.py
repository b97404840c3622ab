"""Decoding: the fastest kernel at each batch and number of cached tokens, its bandwidth, and all kernels by batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from fluxbench.analysis.decode import ATTENTION, Cache, bandwidth, caches, share_of_copy
from fluxbench.analysis.groups import has_time, timing_of
from fluxbench.core.formatting import count, interval, is_unknown, number, percent, plus_minus
from fluxbench.records.schema import Record
from fluxbench.report import legend
from fluxbench.report.blocks import Block, Column, Fold, Name, Paragraph, Row, Table
from fluxbench.report.flags import why_no_time
from fluxbench.report.results import Results
from fluxbench.report.sentences import INTERVALS, capitalized, conditions, statistic
from fluxbench.report.tables import Rows, estimate_cells, time_cells
from fluxbench.report.tables.not_passed import not_passed
from fluxbench.stats.intervals import Estimate

_BYTES = (
    "GB/s: q, k, v and the output, each moved once, over the time. Of own copy: that over what a copy reaches on this "
    "device, which counts bytes read and written; its interval has the range of the copy over its processes too. "
    "Decoding reads nearly all that it moves, and a device may read faster than it copies, so a share may exceed 100%."
)
_TIES = (
    "Fastest: of the exact kernels that none is measurably faster than, the one of the shortest time. =: one or more "
    "others are neither measurably faster nor slower. A kernel whose interval is too wide for a rank is not named."
)
_SMALL = "A cache that fits in the last-level cache may be read from it in part; it is cleared before each call."


def blocks(results: Results) -> list[Block]:
    """Return the fastest at each batch and length, and a fold with all kernels of each batch."""
    records = [record for record in results.records if record.workload.operation == ATTENTION]
    found = [cache for cache in caches(records) if 0 in cache.at]
    if not results.records:
        return [Paragraph("There are no records.")]
    if not found:
        return [Paragraph("No decoding from a contiguous cache was measured.")]
    folds: list[Block] = [
        Fold(f"All kernels at batch {batch}", [_of_batch(list(of_batch), results)])
        for batch, of_batch in groupby(found, key=lambda cache: cache.batch)
    ]
    return [_fastest(found, results), *beyond_peak(records, results), *folds, *not_passed(records)]


def beyond_peak(records: Sequence[Record], results: Results) -> list[Paragraph]:
    """Return how many intervals end where no bandwidth of the device can; nothing where none does."""
    peak_gb_s = results.peak.memory_gb_s if results.peak else math.inf
    found = [bandwidth(record) for record in records if has_time(record)]
    ends = [(one.low, one.high) for one in found if not is_unknown(one.value, (one.low, one.high))]
    if not (beyond := sum(high > peak_gb_s for _, high in ends)):
        return []
    words = f"In {count(beyond, 'row')} the interval reaches over the data sheet's {peak_gb_s:,.0f} GB/s"
    return [Paragraph(f"{words}: times of so few processes may scatter so far, but no step or call can be so short.")]


def rows(results: Results) -> Rows:
    """Return every variant and workload, contiguous and in pages: time, bandwidth and its shares, or the reason."""
    columns = ("variant", "batch", "cached_tokens", "page_size", "status", "reason", "cache_bytes")
    measured = ("ms", "ms_low", "ms_high", "gb_s", "gb_s_low", "gb_s_high")
    csv: Rows = [(*columns, *measured, "of_copy", "of_copy_low", "of_copy_high", "of_data_sheet")]
    for cache in caches(results.records):
        for page_size, (group, workload) in cache.at.items():
            for variant in group.variants:
                if (record := group.find(variant, workload)) is None:
                    continue
                why = None if has_time(record) else record.reason or why_no_time(record)
                place = (variant, cache.batch, cache.tokens, page_size, record.status.value, why)
                csv.append((*place, workload.cost.min_bytes, *_numbers(record, results)))
    return csv


def _numbers(record: Record, results: Results) -> Sequence[object]:
    if not has_time(record):
        return (None,) * 10
    reached, share, peak = bandwidth(record), share_of_copy(record, results.rates), results.peak
    return (
        *(*time_cells(record.timing), *estimate_cells(reached), *estimate_cells(share)),
        reached.value / peak.memory_gb_s if peak else None,
    )


def _fastest(found: Sequence[Cache], results: Results) -> Table:
    heads = ("batch", "cached\ntokens", "one layer's\ncache, GB")
    columns = [*map(Column, heads), Column("fastest", left=True), Column("ms"), Column("GB/s")]
    ranked = [place.record for cache in found if (place := cache.fastest)]
    notes = [_TIES, _BYTES, _SMALL]
    if ranked:
        regime = next(iter(ranked[0].timings))
        measured = f"{statistic(ranked, regime)} time per call, {regime}; {conditions(ranked, regime)}"
        notes.insert(0, f"{capitalized(measured)}. {capitalized(INTERVALS)}.")
    return Table(
        columns=[*columns, Column("of own copy"), Column("of data\nsheet")],
        rows=[_row(cache, results) for cache in found],
        caption="The fastest kernel at each batch and number of cached tokens, contiguous cache",
        notes=notes,
    )


def _row(cache: Cache, results: Results) -> Row:
    _, workload = cache.at[0]
    place = (f"{cache.batch}", f"{cache.tokens:,}", number(workload.cost.min_bytes / 1e9))
    first, peak = cache.fastest, results.peak
    if not first:
        return Row((*place, _why(cache), "-", "-", "-", "-"), failed=True)
    record = first.record
    timing, reached = timing_of(record), bandwidth(record)
    return Row((
        *place,
        legend.name(record.variant, tied=first.tied),
        plus_minus(timing.median_ms, timing.ci95_ms),
        number(reached.value, 4),
        _percent(share_of_copy(record, results.rates)),
        percent(reached.value / peak.memory_gb_s) if peak else "-",
    ))  # fmt: skip


def _why(cache: Cache) -> str:
    """Return why there is no time: the status and the reason that most variants have."""
    failed = [record for variant in cache.variants if (record := cache.find(variant))]
    whys = [legend.TOO_UNCERTAIN if has_time(record) else why_no_time(record) for record in failed]
    return max(whys, key=whys.count) if whys else "no record"


def _of_batch(found: Sequence[Cache], results: Results) -> Table:
    heads = [Column(f"{cache.tokens:,}\n{what}") for cache in found for what in ("ms", "of copy")]
    variants = {variant for cache in found for variant in cache.variants if cache.find(variant)}
    in_order = sorted(variants, key=lambda variant: (_speed(variant, found), variant))
    return Table(
        columns=[Column("kernel", left=True), *heads],
        rows=[_of_variant(variant, found, results) for variant in in_order],
        caption=f"All kernels at batch {found[0].batch}, by cached tokens; fastest at the most tokens first",
    )


def _of_variant(variant: str, found: Sequence[Cache], results: Results) -> Row:
    cells: list[str | Name] = [legend.name(variant)]
    records = [cache.find(variant) for cache in found]
    for record in records:
        if record and has_time(record):
            timing, share = timing_of(record), share_of_copy(record, results.rates)
            cells.append(plus_minus(timing.median_ms, timing.ci95_ms))
            cells.append(percent(share.value) if share else "-")
        else:
            cells += [legend.status(record), "-"]
    return Row(tuple(cells), failed=not any(record and has_time(record) for record in records))


def _speed(variant: str, found: Sequence[Cache]) -> tuple[float, ...]:
    """Return what sorts variants: the times from the most tokens on; one that is missing comes last."""
    records = (cache.trusted(variant) for cache in reversed(found))
    return tuple(timing_of(record).median_ms if record else float("inf") for record in records)


def _percent(share: Estimate | None) -> str:
    return interval(100 * share.value, (100 * share.low, 100 * share.high), unit="%") if share else "-"
