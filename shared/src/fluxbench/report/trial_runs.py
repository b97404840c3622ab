"""The runs of the certificate's trials, as their measuring cell shows them; what they say is the certificate's."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from fluxbench.analysis.certificate import trials
from fluxbench.core.errors import SetupError
from fluxbench.records.schema import RecordError
from fluxbench.records.status import Status
from fluxbench.report.blocks import Block, Bullets, Column, Paragraph, Row, Table


def blocks(path: Path) -> list[Block]:
    """Return how long each run took and what passed. Raises `SetupError` where the file is missing or damaged."""
    try:
        measured = trials.read_file(path)
    except (OSError, RecordError) as error:
        raise SetupError(f"{path.name} must hold the runs of the trials, got {error}; measure them first") from error
    rows = []
    for number, run in enumerate(measured.runs, start=1):
        passed, count = sum(record.status is Status.PASSED for record in run.records), len(run.records)
        cells = (f"{number} of {measured.asked}", f"{run.seconds:.0f}", f"{passed} of {count}")
        rows.append(Row(cells, failed=passed < count))
    shown: list[Block] = [Table([Column("run", left=True), Column("seconds"), Column("records PASSED")], rows)]
    records = [record for run in measured.runs for record in run.records]
    reasons = Counter(f"{record.status.value}: {record.reason}" for record in records if record.reason)
    if reasons:
        items = [(why, f"{count} record{'s' * (count > 1)}") for why, count in reasons.items()]
        shown.append(Bullets("Did not pass:", items))
    return [*shown, Paragraph(f"{measured.reason}.", kind="note")] if measured.reason else shown
