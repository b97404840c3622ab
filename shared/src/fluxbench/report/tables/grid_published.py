"""The published grid beside ours: speedups over eager attention within each source, never times across cards."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence

from fluxbench.analysis.audit import published
from fluxbench.analysis.audit.claim import Metric
from fluxbench.analysis.audit.judge import Judged, of_source
from fluxbench.analysis.grid import EAGER, Grid, Point, called_ms, grids
from fluxbench.core.formatting import number
from fluxbench.report.audit.text import why
from fluxbench.report.blocks import Block, Column, Fold, Paragraph, Row, Table
from fluxbench.report.results import Results
from fluxbench.report.sentences import capitalized, factor
from fluxbench.report.tables import Rows, estimate_cells
from fluxbench.report.tables.grid import SIZES
from fluxbench.variants import label

SOURCE = "sdpa-grid"
OURS = {"sdpa": "torch_native", "flash-attn": "flash_attn_2"}  # the source's columns, and the same of ours
_WORDS = {"sdpa": "SDPA", "flash-attn": "FlashAttention"}
_PASSES = {"forward": "forward", "forward+backward": "forward + backward"}
_Key = tuple[str, tuple[int, ...]]  # a pass, and batch, seq_len, head_dim and heads
_Theirs = Mapping[str, Judged]  # by implementation


def blocks(results: Results) -> list[Block]:
    """Return by length how far speedups reach in both sources, then each shape, and why wrong figures are wrong."""
    theirs, found = _theirs(), [grid for grid in grids(results.records) if _shared(grid)]
    if not found:
        which = "published shapes among the records" if results.records else "records"
        return [Paragraph(f"There are no {which}.")]
    source = published.sources()[SOURCE]
    marked = [judged for of in theirs.values() for judged in of.values() if judged.judgement.is_flagged]
    note = (
        f"Of their {sum(map(len, theirs.values()))} times the audit of published figures finds {len(marked)} wrong. "
        "The source does not state a dtype, so both of ours stand beside it."
    )
    called = results.device.kind != "cpu"
    shown: list[Block] = [_by_length(found, f"theirs on {source.gpu}, ours on {results.device.name}", note, called)]
    shown += [Fold(f"Each shape: {grid.name}", [_each(grid, called)]) for grid in found]
    if marked:
        columns = [Column(head, left=True) for head in ("figure", "why")]
        reasons = [Row((_figure(judged), why(judged))) for judged in marked]
        shown.append(Fold(f"Why {len(marked)} of their times are wrong", [Table(columns, reasons)]))
    return shown


def rows(results: Results) -> Rows:
    """Return one row per shape, pass and dtype that the source has too: its times and speedups, and our speedups."""
    header = ["pass", "dtype", *SIZES, "their_eager_ms"]
    for name in OURS:
        short = name.replace("-", "_")
        header += [f"their_{short}_ms", f"their_{short}_over_eager", f"their_{short}_judgement"]
        header += [f"our_{OURS[name]}_over_eager{end}" for end in ("", "_low", "_high", "_as_called")]
    csv: Rows = [header]
    for grid in grids(results.records):
        for point, of in _shared(grid):
            cells: list[object] = [grid.which, grid.dtype, *point.sizes, _ms(of["eager"])]
            for name, variant in OURS.items():
                judged = of.get(name)
                cells += [_ms(judged), _gain(of, name), _judgement(of, name)] if judged else [None] * 3
                cells += [*estimate_cells(point.speedup(variant)), _as_called(point, variant)]
            csv.append(cells)
    return csv


@functools.cache
def _theirs() -> Mapping[_Key, _Theirs]:
    """Return the source's times by pass and shape, and by implementation, with the judgements of the audit."""
    found: dict[_Key, dict[str, Judged]] = {}
    for row in of_source(SOURCE):
        if row.claims[0].metric is Metric.TIME:
            key = _PASSES[row.context.get("pass")], tuple(int(row.context.get(size)) for size in SIZES)
            found.setdefault(key, {})[row.context.get("implementation")] = row
    return found


def _shared(grid: Grid) -> list[tuple[Point, _Theirs]]:
    """Return the shapes of a grid that the source has too, with what it has of them."""
    pairs = ((point, _theirs().get((grid.which, point.sizes))) for point in grid.points)
    return [(point, of) for point, of in pairs if of]


def _by_length(found: Sequence[Grid], of: str, note: str, called: bool) -> Table:
    """Return a row for each pass, dtype and length; `called`: with times as the host launches calls."""
    body = []
    for grid in found:
        shared = _shared(grid)
        for length in dict.fromkeys(point.sizes[1] for point, _ in shared):
            at = [(point, theirs) for point, theirs in shared if point.sizes[1] == length]
            cells: list[str] = []
            for name, variant in OURS.items():
                their_gains = [gain for _, theirs in at if (gain := _gain(theirs, name))]
                our_gains = [ours.value for point, _ in at if (ours := point.speedup(variant))]
                launched = [gain for point, _ in at if (gain := _as_called(point, variant))]
                cells += [_span(their_gains), _span(our_gains), *([_span(launched)] if called else [])]
            body.append(Row((grid.which, grid.dtype, f"{length:,}", f"{len(at)}", *cells)))
    return Table(
        columns=[
            Column("pass", left=True),
            Column("dtype", left=True),
            Column("tokens"),
            Column("shapes"),
            *_heads(called),
        ],
        rows=body,
        caption=f"Speed over eager attention, the least and the largest of a length's shapes: {of}.",
        notes=[note, f"Ours are of times on the device{', and as called' * called}. -: no time of one of the two."],
    )


def _heads(called: bool) -> Iterator[Column]:
    for name, variant in OURS.items():
        yield Column(f"theirs:\n{_WORDS[name]}")
        yield Column(f"ours:\n{label(variant)}")
        if called:
            yield Column("ours,\nas called")


def _each(grid: Grid, called: bool) -> Table:
    body = []
    for point, theirs in _shared(grid):
        cells: list[str] = []
        for name, variant in OURS.items():
            gain, judgement, launched = _gain(theirs, name), _judgement(theirs, name), _as_called(point, variant)
            cells.append(f"{number(gain)}×" + f" {judgement}" * bool(judgement) if gain else "-")
            cells.append(factor(point.speedup(variant)))
            if called:
                cells.append(f"{number(launched)}×" if launched else "-")
        body.append(Row((*(f"{size:,}" for size in point.sizes), *cells)))
    return Table(
        columns=[*map(Column, SIZES), *_heads(called)],
        rows=body,
        caption=f"{capitalized(grid.name)}: speed over eager attention.",
        notes=["95% intervals in brackets." + " Speedups of calls as the host launches them have none." * called],
    )


def _gain(theirs: _Theirs, name: str) -> float | None:
    return _ms(theirs["eager"]) / _ms(theirs[name]) if name in theirs else None


def _ms(judged: Judged) -> float:
    return judged.claims[0].value


def _judgement(theirs: _Theirs, name: str) -> str:
    """Return the judgement of a speedup: that of the wrong one of its two times."""
    both = (theirs[name], theirs["eager"]) if name in theirs else ()
    return next((one.judgement.value for one in both if one.judgement.is_flagged), "")


def _as_called(point: Point, variant: str) -> float | None:
    one, eager = point.records.get(variant), point.records.get(EAGER)
    return called_ms(eager) / called_ms(one) if one and eager else None


def _span(values: Sequence[float]) -> str:
    if not values:
        return "-"
    low, high = number(min(values)), number(max(values))
    return f"{low}×" if low == high else f"{low} to {high}×"


def _figure(judged: Judged) -> str:
    context = judged.context
    sizes = ", ".join(f"{size} {context.get(size)}" for size in SIZES)
    return f"{context.get('implementation')}, {context.get('pass')}, {sizes}: {judged.claims[0].text}"
