"""The order table: how far medians depend on a position in an order."""

from __future__ import annotations

from fluxbench.analysis.certificate.position import THIRDS, effects
from fluxbench.core.formatting import percent
from fluxbench.report.blocks import Block, Column, Row, Table
from fluxbench.report.certificate_inputs import NO_TRIALS, trials_of
from fluxbench.report.results import Results


def blocks(results: Results) -> list[Block]:
    """Return both effects of position: of a call in its round, and of a trial in its process."""
    trials = trials_of(results)
    if trials is None:
        return NO_TRIALS
    rows = []
    for effect in effects(trials):
        thirds = ("-" if third is None else f"{100 * third:+.3f}%" for third in effect.thirds)
        rows.append(Row((effect.kind, effect.base, f"{effect.count:,}", *thirds, percent(effect.noise, 3))))
    columns = [Column("position", left=True), Column("kernel", left=True), *map(Column, ("count", *THIRDS, "noise"))]
    notes = [
        "How far the median of each third of an order lies from the median of all.",
        "Of a call in its round: each sample "
        "over the median of its own trial. Of a trial in its process: each trial's median over that of all processes. "
        "All forms and workloads of a kernel are pooled. Noise: the standard error of such a median. Burst.",
    ]
    return [Table(columns, rows, notes=notes)]
