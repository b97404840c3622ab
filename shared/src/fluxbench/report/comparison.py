"""A comparison as blocks: what differs, every row in a table, what is not compared, and what changed. And as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from fluxbench.analysis.comparison.model import Comparison, Row
from fluxbench.core.formatting import number
from fluxbench.report.blocks import Block, Column, Heading, Paragraph, Table
from fluxbench.report.blocks import Row as TableRow
from fluxbench.report.comparison_words import (
    control_note,
    differences,
    label,
    note_text,
    percent_text,
    ratio_text,
    summary,
)
from fluxbench.stats.significance import Change


def blocks(comparison: Comparison) -> list[Block]:
    """Return what differs between the sides, every row as a table, what is not compared, and what changed."""
    shown: list[Block] = [Paragraph(f"before: {comparison.before}; after: {comparison.after}")]
    if differs := differences(comparison):
        shown.append(Paragraph(f"between them: {'; '.join(differs)}"))
    if comparison.compared:
        shown.append(table(comparison))
        if comparison.no_control:
            shown.append(Paragraph(f"Control kernel: {control_note(comparison)}."))
    shown += map(Paragraph, _not_compared(comparison))
    return [*shown, *map(Paragraph, summary(comparison))]


def table(comparison: Comparison) -> Table:
    """Return the rows that are compared, the control kernel first; at most 125 characters wide."""
    normalized, sustained = (any(getattr(r, part) for r in comparison.compared) for part in ("normalized", "sustained"))
    middle = ["time", "normalized to\ncontrol, 95%"] if normalized else ["after / before,\n95%"]
    heads = ["before", "after", *middle, "verdict", "minimum\ndetectable\nchange"]
    heads += ["sustained,\n95%", "verdict"] * sustained
    rows: list[TableRow | Heading] = []
    if comparison.device:
        cells = [*[""] * (3 if normalized else 2), *_shown(comparison.device), *[""] * (2 * sustained)]
        rows += [Heading("control kernel: the device"), TableRow(("  all workloads", *cells))]
    by_variant: dict[str, list[TableRow]] = {}
    for row in comparison.compared:
        by_variant.setdefault(label(comparison, row), []).append(_row(row, normalized=normalized, sustained=sustained))
    for who, of_variant in by_variant.items():
        rows += [Heading(who), *of_variant]
    columns = [Column("workload", left=True), *map(Column, heads)]
    return Table(columns, rows, caption=_legend(normalized=normalized, sustained=sustained))


def to_json(comparison: Comparison) -> str:
    """Return everything as one JSON object; a number that is not finite is null."""
    note = control_note(comparison) or (None if comparison.compared else "nothing was compared")
    data = {
        "before": comparison.before,
        "after": comparison.after,
        "rows": [_row_json(row) for row in comparison.rows],
        "device": comparison.device and dataclasses.asdict(comparison.device),
        "control_note": note,
        "differs": differences(comparison),
        "happened": comparison.happened,
        "summary": summary(comparison),
    }
    return json.dumps(json.loads(json.dumps(data), parse_constant=lambda _: None), indent=1)


def _row(row: Row, *, normalized: bool, sustained: bool) -> TableRow:
    assert row.change
    cells = [_ms(ms) for ms in (row.before_ms, row.after_ms) if ms]
    cells += [ratio_text(row.change.ratio)] * normalized + _shown(row.judged or row.change)
    if sustained:
        cells += [_with_ends(row.sustained, 3), row.sustained.verdict] if row.sustained else ["", ""]
    return TableRow((f"  {row.workload}", *cells))


def _row_json(row: Row) -> dict[str, Any]:
    fields = dataclasses.asdict(row)
    sustained_note = str(row.sustained_note) if row.sustained_note else None
    return {**fields, "note": note_text(row.note) if row.note else None, "sustained_note": sustained_note}


def _legend(*, normalized: bool, sustained: bool) -> str:
    single = ", of burst calls" * sustained
    parts = [f"before, after: ms, mean of the processes' medians, without excluded ones{single}"]
    if normalized:
        parts += ["time: after / before", "normalized: the same less what follows from the control kernel's"]
    parts.append("minimum detectable change: the smallest that would be significant")
    if sustained:
        parts.append("sustained: after / before of calls back to back, device included")
    return "; ".join(parts)


def _not_compared(comparison: Comparison) -> Iterator[str]:
    """Yield a line for each reason with the variants, and the workloads where these are not all of a variant's."""
    rows_of = Counter(label(comparison, row) for row in comparison.rows)
    notes: dict[str, dict[str, list[str]]] = {}
    for row in comparison.rows:
        if row.note:
            notes.setdefault(note_text(row.note), {}).setdefault(label(comparison, row), []).append(row.workload)
        elif row.sustained_note:
            note = f"sustained times not compared: {row.sustained_note}"
            notes.setdefault(note, {}).setdefault(label(comparison, row), []).append(row.workload)
    for note, by_variant in notes.items():
        variants = [
            who
            if len(names) == rows_of[who]
            else f"{who} at {', '.join(names) if len(names) < 3 else len(names)} of {rows_of[who]}"
            for who, names in by_variant.items()
        ]
        yield f"{note}: {', '.join(variants)}."


def _ms(time: float) -> str:
    return number(time, 4) if time >= 0.1 else f"{time:.4f}"


def _with_ends(change: Change, places: int = 4) -> str:
    ratio, low, high = (ratio_text(value, places) for value in (change.ratio, change.low, change.high))
    return f"{ratio} [{low}, {high}]"


def _shown(change: Change) -> list[str]:
    return [_with_ends(change), change.verdict.value, percent_text(change.minimum_detectable_change)]
