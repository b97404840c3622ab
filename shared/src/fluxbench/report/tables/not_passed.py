"""What did not pass and why: once on a page, and below the times of one cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from fluxbench.analysis.failures import failures
from fluxbench.analysis.groups import Group, groups
from fluxbench.records.schema import Record
from fluxbench.records.status import Status
from fluxbench.report.blocks import Block, Column, Fold, Heading, Paragraph, Row, Table
from fluxbench.report.results import Results
from fluxbench.report.sentences import title, where

_HEADS = ("variants", "where, and why")
_NO_RANK = (
    "A variant that is INCORRECT at any workload, or whose time there cannot be believed, has no rank at the others."
)


def blocks(results: Results) -> list[Block]:
    """Return how many records did not pass, and a fold with the reasons."""
    if not results.records:
        return [Paragraph("There are no records.")]
    return not_passed(results.records) or [Paragraph(f"All {len(results.records):,} rows passed.")]


def not_passed(records: Sequence[Record]) -> list[Block]:
    """Return what did not pass, by status, a row per reason, in a fold; nothing where all passed."""
    of_records = groups(records)
    every = [record for group in of_records for record in group.records]
    failed = [record for record in every if record.status is not Status.PASSED]
    if not failed:
        return []
    rows: list[Row | Heading] = []
    for status, count in Counter(record.status for record in failed).most_common():
        rows.append(Heading(f"{status.value}: {count:,} row{'s' * (count > 1)}"))
        rows += [row for group in of_records for row in _rows(group, status, several=len(of_records) > 1)]
    distrusted = any(group.curve(variant) for group in of_records for variant in group.distrusted)
    table = Table([Column(head, left=True) for head in _HEADS], rows, notes=[_NO_RANK] if distrusted else [])
    return [Fold(f"{_counted(failed, len(every))}. Which, and why", [table])]


def _counted(failed: Sequence[Record], of: int) -> str:
    """Return how many rows did not pass, apart from those that cannot run here or are excluded."""
    unsupported = sum(record.status is Status.UNSUPPORTED for record in failed)
    if unsupported == len(failed):
        return f"{unsupported:,} of {of:,} rows {'are' if unsupported > 1 else 'is'} UNSUPPORTED here"
    others = f", {unsupported:,} more {'are' if unsupported > 1 else 'is'} UNSUPPORTED here" if unsupported else ""
    return f"{len(failed) - unsupported:,} of {of:,} rows did not pass{others}"


def _rows(group: Group, status: Status, *, several: bool) -> Iterator[Row]:
    of_group = f"{title(group)}, " if several else ""
    for failure in failures(group):
        if failure.status is status:
            at = of_group + where(group, failure.workloads)
            yield Row((", ".join(failure.variants), f"{at}: {failure.reason}"))
