"""The processes table: what trials with fewer processes a side would have found."""

from __future__ import annotations

from fluxbench.analysis.certificate.by_processes import PERCENT, ByProcesses, of_trials
from fluxbench.core.formatting import percent
from fluxbench.report.blocks import Block, Column, Row, Table
from fluxbench.report.certificate_inputs import NO_TRIALS, coverage, half_width, trials_of
from fluxbench.report.results import Results

_NUMBERS = ("processes a side", "A/A: false positives", f"{PERCENT:g}% detected", "CI coverage", "CI half-width")


def blocks(results: Results) -> list[Block]:
    """Return A/A and the detection of a slowdown, by regime and the number of processes a side."""
    trials = trials_of(results)
    if trials is None:
        return NO_TRIALS
    rows = [Row((one.regime, *_cells(one))) for one in of_trials(trials)]
    return [Table([Column("regime", left=True), *map(Column, _NUMBERS)], rows)]


def _cells(one: ByProcesses) -> tuple[str, ...]:
    rate, compared = one.detected.rate, one.detected.total.count
    return (
        f"{one.processes}",
        f"{one.same.significant} of {one.same.count}",
        "-" if rate is None else f"{percent(rate)} of {compared}",
        coverage(one.detected.total),
        half_width(one.detected.total),
    )
