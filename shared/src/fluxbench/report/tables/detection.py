"""The detection table: how often an injected slowdown is detected, by its size and kernel."""

from __future__ import annotations

import math
from statistics import median

from fluxbench.analysis.certificate.judging import PERCENT, Tally, a_a, detected, injected
from fluxbench.analysis.certificate.trials import Trials
from fluxbench.core.formatting import percent
from fluxbench.records.schema import BURST, SUSTAINED
from fluxbench.report.blocks import Block, Column, Row, Table
from fluxbench.report.certificate_inputs import NO_TRIALS, coverage, half_width, missing, trials_of
from fluxbench.report.results import Results
from fluxbench.stats.significance import Verdict

_NUMBERS = ("true ratio", "standard error", "compared", "detected", "faster", "CI coverage", "CI half-width")


def blocks(results: Results) -> list[Block]:
    """Return the verdicts on each slowdown, with what a comparison is and the truth that it rests on, by regime."""
    trials = trials_of(results)
    if trials is None:
        return NO_TRIALS
    sustained = any(record.sustained for record in trials.records)
    return [_table(trials, regime) for regime in (BURST, SUSTAINED)[: 1 + sustained]]


def _table(trials: Trials, regime: str) -> Table:
    rows, unmeasured = [], ""
    for level in PERCENT:
        slowdown = detected(trials, level, regime)
        if not slowdown.by_base:
            continue
        for base, of_base in slowdown.by_base.items():
            truth, error = slowdown.truth.get(base), slowdown.truth_error[base]
            known = "-" if truth is None else f"{truth:.4f}", percent(error, 2) if math.isfinite(error) else "-"
            rows.append(Row((f"{level:g}%", base, *known, *_cells(of_base))))
        rows.append(Row((f"{level:g}%", "all", "", "", *_cells(slowdown.total))))
        unmeasured = unmeasured or missing(slowdown.total)
    columns = [Column("injected", left=True), Column("kernel", left=True), *map(Column, _NUMBERS)]
    return Table(columns, rows, notes=list(filter(None, [*_notes(trials, regime), unmeasured])))


def _notes(trials: Trials, regime: str) -> list[str]:
    rows = max((len(comparison.rows) for comparison in a_a(trials)), default=0)
    twins = [
        f"{base} {median(ratios):.4f}"
        for base in trials.bases
        if (ratios := injected(trials, base, 0.0, twin=True, regime=regime))
    ]
    return [
        f"{regime.capitalize()} times; detected: the verdict on the slowed kernel is slower.",
        "A comparison: one run before, another after; after, one kernel of the table is slower, and all others are as "
        "they were. The slowdown is detected where the verdict on that kernel at one workload is slower. "
        f"{len(trials.runs)} runs ({trials.processes} fresh processes), each before and after each other: comparisons "
        f"share runs. A table has {rows} rows; in a longer one, a single change must be clearer to be significant.",
        "The true ratio is that of the slowed form to `plus_0` within a process, the median over all: not what was "
        "asked for, but what was injected. Its standard error is that of a median over processes; CI coverage takes it "
        "as exact.",
        f"The same of the twin, which is not slowed: {', '.join(twins)}." if twins else "",
    ]


def _cells(of: Tally) -> tuple[str, ...]:
    rate = of.rate(Verdict.SLOWER)
    share = "-" if rate is None else percent(rate)
    return f"{of.count}", share, f"{of.verdicts[Verdict.FASTER]}", coverage(of), half_width(of)
