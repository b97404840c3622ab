"""FlashAttention's versions side by side at the shapes of a published guide, and the guide's own figures."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping

from fluxbench.analysis.audit.claim import Metric
from fluxbench.analysis.audit.judge import Judged, of_source
from fluxbench.analysis.groups import Group, groups, tflops, timing_of
from fluxbench.analysis.ranking import order
from fluxbench.core.formatting import number, percent, plus_minus
from fluxbench.operations.precision import QUANTIZED
from fluxbench.operations.words import describe
from fluxbench.operations.workload import Workload
from fluxbench.records.schema import Record
from fluxbench.report import legend
from fluxbench.report.blocks import Block, Column, Fold, Name, Paragraph, Row, Table
from fluxbench.report.results import Results
from fluxbench.report.sentences import factor
from fluxbench.report.tables import Rows
from fluxbench.report.tables.not_passed import not_passed
from fluxbench.stats.intervals import Estimate

SOURCE, TABLE = "speed-guide", "forward time, H100"
OVER = "flash_attn_2"  # within each source, speeds are over this version
THEIRS = {  # the source's names, by variant
    **{"torch_math": "standard", OVER: "flash-attn-2", "flash_attn_3": "flash-attn-3 fp16"},
    "flash_attn_3_fp8": "flash-attn-3 fp8",
}
FIRST = (
    "FlashAttention-1: not measured. Its last release, flash-attn 1.0.9, is published as source code alone (PyPI, "
    "2026-11-22), so no package of it can be installed beside the torch that is measured here."
)
_WORDS = (
    "Of peak: of this device's data sheet, of float8 where the kernel computes in it. Peak memory: what a call "
    "allocates at most, output included, q, k and v not. Speeds are over FlashAttention-2 within one source, here that "
    "of the package flash-attn (flash_attn_2); those of the verdict and the ranking are over FlashAttention-2 (SDPA). "
    "Quantized versions stand last; one that is wrong at any length has no rank. What PyTorch chooses by default is "
    "not measured here. The guide's times are of an H100-80GB, by software that it does not state: they cannot be "
    "compared with ours."
)
_FLAGGED = "Behind a time of the guide in which the audit finds an error stands its judgement."
_FINE = "The audit finds nothing wrong with these times of the guide."


def blocks(results: Results) -> list[Block]:
    """Return a table for each number of tokens, the most first, and why FlashAttention-1 has none."""
    if not results.records:
        return [Paragraph("There are no records.")]
    tables: list[Block] = [
        _table(group, workload, results) for group in groups(results.records) for workload in reversed(group.workloads)
    ]
    first, *others = tables
    folded = [Fold(f"At {len(others)} other lengths", others)] if others else []
    flagged = any(row.judgement.is_flagged for row in _guide().values())
    words = f"{_WORDS} {_FLAGGED if flagged else _FINE}"
    return [first, Paragraph(words), Paragraph(FIRST), *folded, *not_passed(results.records)]


def rows(results: Results) -> Rows:
    """Return every variant and number of tokens, with the guide's time and speed where it has them."""
    columns = ("variant", "tokens", "status", "ms", "tflops", "of_peak", "peak_bytes", "over_flash_attn_2")
    csv: Rows = [(*columns, "guide_ms", "guide_over_flash_attn_2", "guide_judgement")]
    for group in groups(results.records):
        for workload in group.workloads:
            for variant in group.variants:
                record = group.find(variant, workload)
                if record is None:
                    continue
                numbers: tuple[object, ...] = (None,) * 4
                if record.timing:
                    rate, peak = tflops(record), _peak(record, results)
                    numbers = (record.timing.median_ms, rate, rate / peak if peak else None, record.peak_memory_bytes)
                speed = _speed(group, workload, record)
                theirs, other = _theirs(variant, workload), _theirs(OVER, workload)
                of_guide = (theirs.claims[0].value, other.claims[0].value) if theirs and other else None
                csv.append((
                    variant, workload.x, record.status.value, *numbers, speed and speed.value,
                    of_guide and of_guide[0], of_guide and of_guide[1] / of_guide[0], theirs and str(theirs.judgement),
                ))  # fmt: skip
    return csv


def _table(group: Group, workload: Workload, results: Results) -> Table:
    heads = (
        "ms",
        "TFLOP/s",
        "of peak",
        "peak memory\nMiB",
        "ours over\nflash_attn_2",
        "guide\nms",
        "guide over\nits FA-2",
    )
    found = {variant: record for variant in group.variants if (record := group.find(variant, workload))}
    in_order = sorted(
        found.values(),
        key=lambda record: (
            record.precision_class == QUANTIZED,
            record.timing.median_ms if record.timing else math.inf,
        ),
    )
    return Table(
        columns=[Column("kernel", left=True), *map(Column, heads)],
        rows=[_row(group, workload, record, results) for record in in_order],
        caption=f"Versions at {describe(workload)}",
    )


def _row(group: Group, workload: Workload, record: Record, results: Results) -> Row:
    cells: list[str | Name] = [legend.name(record.variant)]
    if record.timing:
        rate, peak, memory = tflops(record), _peak(record, results), record.peak_memory_bytes
        cells += [plus_minus(timing_of(record).median_ms, timing_of(record).ci95_ms), number(rate)]
        cells += [percent(rate / peak) if peak else "-", "-" if memory is None else f"{memory / 2**20:,.0f}"]
    else:
        cells += [record.status.value, "-", "-", "-"]
    speed = _speed(group, workload, record)
    cells.append(factor(speed) if speed else "1×" * (record.variant == OVER and record.timing is not None) or "-")
    theirs, other = _theirs(record.variant, workload), _theirs(OVER, workload)
    if theirs and other:
        mark = f" ({theirs.judgement})" if theirs.judgement.is_flagged else ""
        cells += [f"{theirs.claims[0].value:g}{mark}", f"{other.claims[0].value / theirs.claims[0].value:.2f}×"]
    else:
        cells += ["-", "-"]
    return Row(tuple(cells), failed=record.timing is None)


def _speed(group: Group, workload: Workload, record: Record) -> Estimate | None:
    """Return how many times as fast a variant is as FlashAttention-2, with its interval; None where one has no rank."""
    one, other = group.trusted(record.variant, workload), group.trusted(OVER, workload)
    if one is None or other is None or one is other:
        return None
    return order(group, workload).speedup(one, other)


def _peak(record: Record, results: Results) -> float | None:
    if results.peak is None:
        return None
    return results.peak.fp8_tflops if record.precision_class == QUANTIZED else results.peak.bf16_tflops


def _theirs(variant: str, workload: Workload) -> Judged | None:
    """Return the guide's row of a time at this shape, with the audit's judgement."""
    sizes = tuple(str(workload.shape.get(name)) for name in ("batch", "seq_len_q", "heads", "head_dim_qk"))
    return _guide().get((THEIRS.get(variant, ""), *sizes))


@functools.cache
def _guide() -> Mapping[tuple[str, ...], Judged]:
    found = {}
    for row in of_source(SOURCE):
        context = row.context
        if context.get("table") == TABLE and row.claims[0].metric is Metric.TIME:
            sizes = (context.get(name) for name in ("batch", "seq_len", "heads", "head_dim"))
            found[(context.get("implementation"), *map(str, sizes))] = row
    return found
