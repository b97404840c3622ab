"""The history table: sustained time at the longest workload of each group, by driver and library versions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fluxbench.analysis import history
from fluxbench.analysis.groups import ranking_regime
from fluxbench.analysis.history import Timeline
from fluxbench.core.formatting import plus_minus
from fluxbench.records.schema import BURST, SUSTAINED, Record
from fluxbench.report.blocks import Block, Column, Fold, Paragraph, Row, Table
from fluxbench.report.legend import explained, name, of_time
from fluxbench.report.results import Results

_LINE = "95% intervals in brackets, or half of one after ±. -: not measured."
_CHANGE = (
    "Change: of the time since the revision before, where both are of one card and may be compared. `fluxbench diff` "
    "says which changes are significant."
)
_REVISION = (
    "A revision is one driver and one set of libraries on this model of device, in order of time, dated by its newest "
    "record (UTC). It has a second column where another revision was measured on the card, and by the method, of its "
    "earlier records."
)


def blocks(results: Results) -> list[Block]:
    """Return a table for each group, what must not be compared in it, and what was excluded."""
    past = history.of(results.records, results.device, results.earlier)
    parts = [block for timeline in past.timelines for block in _blocks(timeline)]
    shown = (record for timeline in past.timelines for by_time in timeline.records.values() for record in by_time)
    symbols = "".join(_symbols(record) for record in shown if record and record.timing)
    return [*parts, *explained(symbols), *map(Paragraph, past.notes)] or [Paragraph("There are no records.")]


def _blocks(timeline: Timeline) -> list[Block]:
    if not timeline.points:
        return [Paragraph(f"{timeline.where}: nothing passed so far.")]
    parts: list[Block] = []
    if len(timeline.revisions) == 1:
        parts.append(
            Paragraph(
                f"One measurement so far: {timeline.label(0)}. After a change of driver or libraries, "
                "`fluxbench rerun` and `make publish` add to it."
            )
        )
    never = [variant for variant in timeline.records if variant not in timeline.points]
    warnings = [*timeline.break_sentences(), *timeline.machine_sentences()]
    parts += [Paragraph(sentence, kind="note") for sentence in warnings]
    changed = _changed(timeline)
    notes = [
        _LINE,
        *[_CHANGE] * bool(changed),
        _REVISION,
        f"Without a time in any: {', '.join(never)}." if never else "",
    ]
    count = f"{len(timeline.revisions)} revision{'s' * (len(timeline.revisions) > 1)}"
    table = _table(timeline, changed, list(filter(None, notes)))
    return [*parts, Fold(f"{timeline.where}: times in {count}", [table])]


def _changed(timeline: Timeline) -> list[int]:
    """Return the revisions in which the time of some variant may be compared with that of the one before."""
    return [
        after
        for after in range(1, len(timeline.revisions))
        if any(timeline.change(variant, after) is not None for variant in timeline.points)
    ]


def _table(timeline: Timeline, changed: Sequence[int], notes: list[str]) -> Table:
    columns = [Column("\n".join(timeline.head), left=True)]
    for index, texts in enumerate(zip(*timeline.head.values(), strict=True)):
        columns.append(Column("\n".join(texts)))
        columns += [Column(f"change\n{index} to {index + 1}")] * (index in changed)
    return Table(
        columns=columns,
        rows=[Row((name(variant), *_cells(timeline, variant, changed))) for variant in timeline.points],
        caption=f"{timeline.where}: sustained ms per call",
        notes=notes,
    )


def _cells(timeline: Timeline, variant: str, changed: Sequence[int]) -> Iterator[str]:
    for index, record in enumerate(timeline.records[variant]):
        yield _cell(record)
        if index in changed:
            change = timeline.change(variant, index)
            yield "" if change is None else f"{round(100 * change, 1) + 0.0:+.1f}%"


def _cell(record: Record | None) -> str:
    if record is None:
        return "-"
    if not record.timing:
        return record.status.value
    return plus_minus(record.timing.median_ms, record.timing.ci95_ms) + _symbols(record)


def _symbols(record: Record) -> str:
    return of_time(record, ranking_regime([record]), (BURST, SUSTAINED))
