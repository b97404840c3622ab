"""Pages with known truth, judged by the code of `fluxbench rerun` and `fluxbench diff`.

Each simulated page compares two runs of all variants of a notebook. Their levels are drawn from normal distributions
with the components of published samples; everything after that is the present code.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from fluxbench.analysis.comparison.page import changes
from fluxbench.analysis.simulation.components import Components
from fluxbench.device.targets import BetweenRuns

PROCESSES, SEED = 3, 15
CHANGE, OUTLYING = 0.01, 0.02  # the injected slowdown, and what an outlying process takes longer; shares
CORRELATION = 0.8


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What is drawn: the truth, and what disturbs it."""

    name: str
    correlation: float | None = None  # between workloads within a process; None: as measured
    other_card: bool = False
    change: float = 0.0  # of one variant, a share
    at_one: bool = False  # at one workload alone
    outlying: float = 0.0  # of one process of one variant, a share
    of_changed: bool = False  # the outlying process is one of the changed variant


SCENARIOS = (
    Scenario(name="nothing changed"),
    Scenario(name=f"nothing changed, correlation {CORRELATION:g}", correlation=CORRELATION),
    Scenario(name=f"nothing changed, one process {OUTLYING:.0%} slow", outlying=OUTLYING),
    Scenario(name=f"one variant {CHANGE:.0%} slower", change=CHANGE),
    Scenario(
        name=f"one variant {CHANGE:.0%} slower, correlation {CORRELATION:g}", change=CHANGE, correlation=CORRELATION
    ),
    Scenario(name=f"one variant {CHANGE:.0%} slower at one workload", change=CHANGE, at_one=True),
    Scenario(
        name=f"one variant {CHANGE:.0%} slower, one process of it {OUTLYING:.0%} slow",
        change=CHANGE,
        outlying=OUTLYING,
        of_changed=True,
    ),
    Scenario(name="another card, nothing changed", other_card=True),
    Scenario(name=f"another card, one variant {2 * CHANGE:.0%} slower", other_card=True, change=2 * CHANGE),
)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the verdicts were over all pages of a scenario."""

    scenario: str
    pages: int
    rows: int  # of all pages
    false_pages: int  # pages with a significant change where nothing changed
    covered: int  # rows whose interval holds the truth
    changed: int  # pages with a changed variant
    found: int  # of these, those where it is significant at all its changed workloads
    outlying: int  # processes that were called outlying


class Simulation(msgspec.Struct, frozen=True, kw_only=True):
    """What `simulation.json` holds: the components, and the verdicts on pages that were drawn with them."""

    runs: tuple[str, ...]
    variants: int
    workloads: int
    process: float  # root mean squares over the variants, shares
    workload: float
    correlation: float
    between: dict[str, BetweenRuns]  # "same card", "another card": what is drawn, and given to the verdicts
    estimated: dict[str, BetweenRuns]  # the same, from what is published now
    outcomes: tuple[Outcome, ...]


def simulate(components: Components, same_card: BetweenRuns, other_card: BetweenRuns, pages: int) -> Simulation:
    """Return the outcome of each scenario over so many pages; the same numbers give the same outcome."""
    return Simulation(
        runs=components.runs,
        variants=len(components.process),
        workloads=components.workloads,
        process=_root_mean_square(components.process),
        workload=_root_mean_square(components.workload),
        correlation=components.correlation,
        between={"same card": same_card, "another card": other_card},
        estimated={
            name: one
            for name, one in (("same card", components.same_card), ("another card", components.other_card))
            if one
        },
        outcomes=tuple(
            outcome(scenario, components, other_card if scenario.other_card else same_card, pages)
            for scenario in SCENARIOS
        ),
    )


def outcome(scenario: Scenario, components: Components, between: BetweenRuns, pages: int) -> Outcome:
    """Return the verdicts on the pages of one scenario."""
    rng = np.random.default_rng(SEED)
    counts = dict.fromkeys(("rows", "false_pages", "covered", "changed", "found", "outlying"), 0)
    for _ in range(pages):
        levels, truth = _draw(scenario, components, between, rng)
        variants, workloads = truth.shape
        places = list(itertools.product(range(variants), range(workloads)))
        rows = {
            ("", "", f"{v}", f"{w}"): (tuple(levels[0, v, w].tolist()), tuple(levels[1, v, w].tolist()))
            for v, w in places
        }
        found, _, outlying = changes(rows, {("", ""): between})
        judged = [(found["", "", f"{v}", f"{w}"], float(truth[v, w])) for v, w in places]
        of_changed = [change.significant for change, true in judged if true]
        counts["rows"] += len(judged)
        counts["false_pages"] += any(change.significant for change, true in judged if not true)
        counts["covered"] += sum(change.low <= math.exp(true) <= change.high for change, true in judged)
        counts["changed"] += bool(of_changed)
        counts["found"] += bool(of_changed) and all(of_changed)
        counts["outlying"] += len(outlying)
    return Outcome(scenario=scenario.name, pages=pages, **counts)


def _draw(
    scenario: Scenario, components: Components, between: BetweenRuns, rng: np.random.Generator
) -> tuple[Any, Any]:
    """Return the levels, [sides, variants, workloads, processes], and the true logarithms, [variants, workloads]."""
    process, workload = (np.array(part)[None, :, None, None] for part in (components.process, components.workload))
    if scenario.correlation is not None:
        whole = np.hypot(process, workload)
        process, workload = (whole * math.sqrt(part) for part in (scenario.correlation, 1 - scenario.correlation))
    variants, workloads = len(components.process), components.workloads
    uncertain = math.sqrt(between.df / rng.chisquare(between.df))  # the true spread, of which an estimate is known
    levels = (
        process * rng.normal(size=(2, variants, 1, PROCESSES))
        + workload * rng.normal(size=(2, variants, workloads, PROCESSES))
        + between.variant * uncertain * rng.normal(size=(2, variants, 1, 1))
        + between.workload * uncertain * rng.normal(size=(2, variants, workloads, 1))
    )
    truth = np.zeros((variants, workloads))
    which, other = rng.integers(variants, size=2)
    if scenario.change:
        truth[which, : 1 if scenario.at_one else None] = math.log1p(scenario.change)
    levels[1] += truth[:, :, None]
    if scenario.outlying:
        slow = which if scenario.of_changed else other
        levels[rng.integers(2), slow, :, rng.integers(PROCESSES)] += math.log1p(scenario.outlying)
    return levels, truth


def _root_mean_square(values: tuple[float, ...]) -> float:
    return math.sqrt(math.fsum(one**2 for one in values) / len(values))
