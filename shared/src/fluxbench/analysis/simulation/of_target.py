"""The simulation of one target, from what is published of it."""

from __future__ import annotations

from pathlib import Path

from fluxbench.analysis.simulation.components import published
from fluxbench.analysis.simulation.pages import Simulation, simulate
from fluxbench.device import targets

PAGES = 200  # of each scenario, on a certificate's page: a rate of 5% has a standard error of 1.5%


def of_target(root: Path, target: str, notebook: str, pages: int | None = None) -> Simulation | None:
    """Return the outcome of so many simulated pages, `PAGES` by default.

    None where no page of the notebook with burst times is published.
    """
    components = published(root, target, notebook)
    if components is None:
        return None
    configured = targets.named(target, root)
    return simulate(components, configured.runs, configured.cards, pages or PAGES)
