"""What a cache in pages costs a kernel: its time over that of the same kernel on a contiguous cache."""

from __future__ import annotations

from fluxbench.analysis.decode import Cache, caches, over
from fluxbench.analysis.groups import has_time, timing_of
from fluxbench.core.formatting import plus_minus
from fluxbench.records.schema import Record
from fluxbench.report import legend
from fluxbench.report.blocks import Block, Column, Name, Paragraph, Row, Table
from fluxbench.report.results import Results
from fluxbench.report.sentences import factor
from fluxbench.report.tables import Rows, estimate_cells

_WORDS = (
    "A ratio is the time on pages over that of the same kernel on a contiguous cache. Pages lie in random order. "
    "Kernels without any time are left out. scaled_dot_product_attention takes no table of pages: they are gathered "
    "into a contiguous cache within the call."
)


def blocks(results: Results) -> list[Block]:
    """Return a table for each batch and number of cached tokens that was measured in pages, fastest first."""
    if not results.records:
        return [Paragraph("There are no records.")]
    tables: list[Block] = [_table(cache) for cache in caches(results.records) if len(cache.at) > 1]
    return [*tables, Paragraph(_WORDS)] if tables else [Paragraph("No cache in pages was measured.")]


def rows(results: Results) -> Rows:
    """Return the ratio of every variant, batch, number of cached tokens and page size."""
    csv: Rows = [("variant", "batch", "cached_tokens", "page_size", "over_contiguous", "ratio_low", "ratio_high")]
    for cache in caches(results.records):
        for page_size in filter(None, cache.at):
            for variant in cache.variants:
                paged, plain = cache.trusted(variant, page_size), cache.trusted(variant)
                if paged and plain:
                    ratio = over(paged, plain)
                    place = (variant, cache.batch, cache.tokens, page_size)
                    csv.append((*place, *estimate_cells(ratio)))
    return csv


def _table(cache: Cache) -> Table:
    pages = sorted(filter(None, cache.at))
    heads = [head for page in pages for head in (f"pages of {page}\nms", f"pages of {page}\nratio")]
    variants = dict.fromkeys(record.variant for page in (*pages, 0) for record in cache.ranked(page))
    return Table(
        columns=[Column("kernel", left=True), Column("contiguous\nms"), *map(Column, heads)],
        rows=[_row(variant, cache, pages) for variant in variants],
        caption=f"Batch {cache.batch}, {cache.tokens:,} cached tokens: contiguous and in pages",
    )


def _row(variant: str, cache: Cache, pages: list[int]) -> Row:
    cells: list[str | Name] = [legend.name(variant), _time(cache.find(variant))]
    for page in pages:
        paged, plain = cache.trusted(variant, page), cache.trusted(variant)
        cells += [
            _time(cache.find(variant, page)),
            factor(over(paged, plain) if paged and plain else None),
        ]
    return Row(tuple(cells))


def _time(record: Record | None) -> str:
    if record is None or not has_time(record):
        return legend.status(record)
    return plus_minus(timing_of(record).median_ms, timing_of(record).ci95_ms)
