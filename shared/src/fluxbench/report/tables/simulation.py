"""The simulation table: how often the verdicts on a whole page are right, with the spreads of published samples."""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec

from fluxbench.analysis.simulation.pages import Outcome, Simulation
from fluxbench.core.formatting import percent
from fluxbench.device.targets import BetweenRuns
from fluxbench.report.blocks import Block, Column, Paragraph, Row, Table
from fluxbench.report.results import SIMULATION, Results
from fluxbench.stats.proportions import upper_bound


def blocks(results: Results) -> list[Block]:
    """Return the rates of each scenario, and the components that the pages were drawn with."""
    if not results.simulation:
        return [Paragraph("Nothing was simulated: no page of this target with burst times is published.")]
    return of_simulation(msgspec.convert(dict(results.simulation), Simulation))


def of_simulation(simulation: Simulation) -> list[Block]:
    """Return the blocks of one simulation."""
    heads = ("pages", "with a false positive", "95% upper limit", "CI coverage", "change found", "outlying processes")
    return [
        Table(
            [Column("simulated", left=True), *map(Column, heads)],
            [Row(_cells(outcome)) for outcome in simulation.outcomes],
            notes=list(_notes(simulation)),
        )
    ]


def files(results: Results) -> dict[str, str]:
    """Return what is published beside the page: `simulation.json`."""
    return {SIMULATION: json.dumps(results.simulation, indent=1) + "\n"}


def _cells(outcome: Outcome) -> tuple[str, ...]:
    found = percent(outcome.found / outcome.changed) if outcome.changed else "-"
    return (
        outcome.scenario,
        f"{outcome.pages:,}",
        percent(outcome.false_pages / outcome.pages),
        percent(upper_bound(outcome.false_pages, outcome.pages)),
        percent(outcome.covered / outcome.rows),
        found,
        f"{outcome.outlying}",
    )


def _notes(simulation: Simulation) -> Iterator[str]:
    yield (
        f"A simulated page: {simulation.variants} variants at {simulation.workloads} workloads, 3 processes a side, "
        "judged by the code of `fluxbench diff`."
    )
    yield (
        "A false positive: a significant change in a row that did not change. "
        "Found: significant at all workloads that changed. Coverage: the share of rows whose 95% interval holds the "
        "truth."
    )
    yield (
        f"Spreads of processes from {'; '.join(simulation.runs)}, normalized to control: "
        f"{percent(simulation.process, 3)} common to a variant's workloads, {percent(simulation.workload, 3)} at each "
        f"(root mean squares; correlation between workloads {simulation.correlation:.2f})."
    )
    for name, used in simulation.between.items():
        estimate = simulation.estimated.get(name)
        again = f"; estimated again from what is published: {_spread(estimate)}" if estimate else ""
        where = {"same card": "one card"}.get(name, name)
        yield f"Runs on {where} differ beyond that by {_spread(used)} ({used.source}){again}."


def _spread(between: BetweenRuns) -> str:
    return (
        f"{percent(between.variant, 3)} of a variant and {percent(between.workload, 3)} of a workload, df {between.df}"
    )
