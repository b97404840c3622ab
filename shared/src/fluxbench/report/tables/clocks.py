"""The clocks table: how far events and the profiler's times of the same calls differ, by kernel."""

from __future__ import annotations

from statistics import median

from fluxbench.analysis.certificate.judging import cupti_differences
from fluxbench.core.formatting import percent
from fluxbench.report.blocks import Block, Column, Paragraph, Row, Table
from fluxbench.report.certificate_inputs import NO_TRIALS, trials_of
from fluxbench.report.results import Results


def blocks(results: Results) -> list[Block]:
    """Return the CUPTI cross-check of the trials."""
    trials = trials_of(results)
    if trials is None:
        return NO_TRIALS
    differences = cupti_differences(trials)
    rows = []
    for base in trials.bases:
        shares = [abs(share) for record, share in differences if trials.variants[record.variant].base == base]
        if shares:
            rows.append(Row((base, f"{len(shares)}", percent(median(shares), 2), percent(max(shares), 2))))
    if not rows:
        return [Paragraph("No record has a CUPTI cross-check: the profiler recorded no kernels.")]
    columns = [Column("kernel", left=True), *map(Column, ("records", "median difference", "largest"))]
    notes = [
        "Events (on a CPU: the monotonic clock) against the profiler's times of the kernels in the same call.",
        "The time "
        "between two events must lie between the sum of the kernels' times and the span from the first one's begin to "
        "the last one's end; a difference is how far it lies outside. Burst, the first process of each run.",
    ]
    return [Table(columns, rows, notes=notes)]
