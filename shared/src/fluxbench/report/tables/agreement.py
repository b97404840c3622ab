"""The A/A table: how often a kernel is found different from itself, by kernel and workload."""

from __future__ import annotations

from collections.abc import Sequence

from fluxbench.analysis.certificate.judging import FalsePositive, Tally, a_a, false_positives, tally
from fluxbench.analysis.certificate.trials import Trials
from fluxbench.analysis.comparison.model import Comparison
from fluxbench.core.formatting import percent
from fluxbench.records.schema import BURST, SUSTAINED
from fluxbench.report.blocks import Block, Bullets, Column, Row, Table
from fluxbench.report.certificate_inputs import NO_TRIALS, coverage, half_width, missing, trials_of
from fluxbench.report.results import Results
from fluxbench.stats.significance import Verdict

_NUMBERS = ("compared", "false positives", "undecided", "CI coverage", "CI half-width")


def blocks(results: Results) -> list[Block]:
    """Return the comparisons of each run with each later one, between which nothing changed, by regime."""
    trials = trials_of(results)
    if trials is None:
        return NO_TRIALS
    comparisons = a_a(trials)
    sustained = any(row.sustained for comparison in comparisons for row in comparison.rows)
    shown: list[Block] = []
    for regime in (BURST, SUSTAINED)[: 1 + sustained]:
        shown.append(_table(trials, comparisons, regime))
        if found := false_positives(trials, comparisons, regime):
            shown.append(Bullets("The false positives, by pair of runs:", [(_of_pair(one), "") for one in found]))
    return shown


def _of_pair(one: FalsePositive) -> str:
    ratios = dict.fromkeys(f"{end:.4f}" for end in sorted(change.ratio for change in one.changes))
    ends = " to ".join(list(ratios)[:: max(1, len(ratios) - 1)])
    half = max((change.high - change.low) / 2 for change in one.changes)
    graphs = (
        f"; run {one.replayed[0]} timed CUDA graphs, the other run launched calls" if len(one.replayed) == 1 else ""
    )
    return (
        f"{one.variant}, runs {one.runs[0]} and {one.runs[1]}: {len(one.changes)} of {one.workloads} workloads, "
        f"{ends} times as long (±{percent(half, 2)}){graphs}"
    )


def _table(trials: Trials, comparisons: Sequence[Comparison], regime: str) -> Table:
    compared = [row for comparison in comparisons for row in comparison.rows]
    workloads = dict.fromkeys(row.workload for row in compared)
    rows = []
    for base in trials.bases:
        for workload in workloads:
            case = [row for row in compared if (trials.variants[row.variant].base, row.workload) == (base, workload)]
            rows.append(Row((base, workload, *_cells(tally(case, regime=regime)))))
    total = tally(compared, regime=regime)
    significant = sum(bool(comparison.device and comparison.device.significant) for comparison in comparisons)
    times = "Sustained times" if regime == SUSTAINED else "Burst times, normalized to control"
    notes = [
        f"{times}: {len(comparisons)} pairs of {len(trials.runs)} runs ({trials.processes} fresh processes).",
        f"In each pair are {len(trials.unslowed)} variants that did not change, judged as one table. Pairs share runs, "
        "so the comparisons are not independent; the runs are.",
        f"The control kernel's own change was significant in {significant} of the pairs." if regime == BURST else "",
        missing(total),
    ]
    return Table(
        columns=[Column("kernel", left=True), Column("workload", left=True), *map(Column, _NUMBERS)],
        rows=[*rows, Row(("all", "", *_cells(total)))],
        notes=list(filter(None, notes)),
    )


def _cells(of: Tally) -> tuple[str, ...]:
    undecided = of.verdicts[Verdict.UNDECIDED]
    return f"{of.count}", f"{of.significant}", f"{undecided}", coverage(of), half_width(of)
