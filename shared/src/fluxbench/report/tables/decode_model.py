"""A whole model's decoding step: its time, tokens a second, and what its weights and its cache take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from fluxbench.analysis.decode import MODEL, Cache, caches, tokens_per_second
from fluxbench.analysis.groups import has_time, is_graph, is_partly_replayed, launched_ms, timing_of
from fluxbench.core.formatting import count, interval, number, plus_minus
from fluxbench.operations.decode_model import DecoderShape
from fluxbench.records.schema import Record
from fluxbench.records.status import FlagKind
from fluxbench.report import legend
from fluxbench.report.blocks import Block, Column, Heading, Paragraph, Row, Table
from fluxbench.report.flags import why_no_time
from fluxbench.report.results import Results
from fluxbench.report.tables import Rows, estimate_cells
from fluxbench.report.tables.decode import beyond_peak

_WORDS = (
    "A step takes one token of each sequence through all layers and the head. All weights and caches are there, in "
    "full size. Tokens/s: the batch over the time of a step. Sampling and the row of the embedding are left out."
)
_REPLAYED = (
    "A step is that of a CUDA graph, as servers replay it. As launched: the time of a step whose kernels the host "
    "launches one by one, which is the host's own where that takes longer; it has no interval, and differs from run to "
    "run: kernels are not compared by it. A time without it is of launched steps."
)
_GRAPH_CHECK = (
    "A replay counts as another where an output differs by over 1% (relative L2) from that of a call, which is checked "
    "itself; by how much is not recorded."
)


def blocks(results: Results) -> list[Block]:
    """Return the steps by batch and cached tokens, each with its kernels fastest first, or why there is no time."""
    found = caches(results.records, MODEL)
    if not results.records:
        return [Paragraph("There are no records.")]
    if not found:
        return [Paragraph("No step of a whole model was measured.")]
    shape = DecoderShape.of(found[0].at[0][1].shape)
    layers = f"{count(shape.layers, 'layer')} of width {shape.width:,}"
    model = f"{layers}, {shape.heads}/{shape.kv_heads} heads of {shape.head_dim}"
    replays = any(is_graph(record) for cache in found for record in cache.ranked())
    rows: list[Row | Heading] = []
    for cache in found:
        of_step = DecoderShape.of(cache.at[0][1].shape)
        needs = f"weights {_gb(of_step.weight_bytes)} GB, cache {_gb(of_step.cache_bytes)} GB"
        rows.append(Heading(f"batch {cache.batch}, {cache.tokens:,} cached tokens: {needs}"))
        rows += _rows(cache, replays=replays)
    columns = [Column("attention", left=True), Column("a step\nms"), Column("tokens/s")]
    columns += [Column("as launched\nms")] * replays
    table = Table(columns, rows, f"Whole decoding steps: {model}", [_WORDS, *[_REPLAYED] * replays])
    records = [record for cache in found for variant in cache.variants if (record := cache.find(variant))]
    return [table, *beyond_peak(records, results), *map(Paragraph, _not_replayed(records))]


def _not_replayed(records: Sequence[Record]) -> Iterator[str]:
    """Yield in how many rows a process had no CUDA graph, and why: an output may be in doubt."""
    passed = [record for record in records if record.timing]
    refused = [(record, flag) for record in passed if (flag := record.flagged(FlagKind.NOT_REPLAYED))]
    for why, of_reason in Counter(flag.detail for _, flag in refused).items():
        untimed = sum(flag.detail == why and is_partly_replayed(record) for record, flag in refused)
        rest = f" {untimed} of these have no time, since other processes had one." if untimed else ""
        rows = f"In {of_reason} of {len(passed)} rows a process or more had no CUDA graph"
        yield f"{rows}: {why or 'it is not known why'}.{rest}"
    if refused:
        yield _GRAPH_CHECK


def rows(results: Results) -> Rows:
    """Return every variant, batch and number of cached tokens, with the status where there is no time."""
    columns = ("variant", "batch", "cached_tokens", "weight_bytes", "cache_bytes", "status", "reason")
    csv: Rows = [(*columns, "step_ms", "tokens_per_s", "tokens_per_s_low", "tokens_per_s_high", "launched_ms")]
    for cache in caches(results.records, MODEL):
        shape = DecoderShape.of(cache.at[0][1].shape)
        for variant in cache.variants:
            if record := cache.find(variant):
                place = (variant, cache.batch, cache.tokens, shape.weight_bytes, shape.cache_bytes)
                timing = record.timing if has_time(record) else None
                why = None if timing else record.reason or why_no_time(record)
                rate = tokens_per_second(record) if timing else None
                speed = (timing and timing.median_ms, *estimate_cells(rate))
                csv.append((*place, record.status.value, why, *speed, launched_ms(record)))
    return csv


def _rows(cache: Cache, *, replays: bool) -> list[Row]:
    """Return a row per variant with a time, fastest first, and one for each reason why others have none."""
    none = ("-",) * replays
    shown = []
    for record in cache.ranked():
        timing, rate = timing_of(record), tokens_per_second(record)
        time = plus_minus(timing.median_ms, timing.ci95_ms)
        launched = launched_ms(record)
        as_launched = (number(launched),) if launched is not None else none
        speed = interval(rate.value, (rate.low, rate.high), 4)
        shown.append(Row((legend.name(record.variant), time, speed, *as_launched)))
    timed = {record.variant for record in cache.ranked()}
    whys: dict[str, list[str]] = {}
    for variant in cache.variants:
        failed = cache.find(variant)
        if failed and variant not in timed:
            whys.setdefault(why_no_time(failed), []).append(variant)
    return [*shown, *(Row((f"{', '.join(names)}: {why}", "-", "-", *none), failed=True) for why, names in whys.items())]


def _gb(size: int) -> str:
    return number(size / 1e9)
