"""What a group of records shows beyond its ranking, where the intervals support it: a module for each kind.

To add a kind: a module here, its name in `TESTED` or `FLAGGED`, and its sentence in `report.findings`. The kinds that
test share the level of 5% evenly (Bonferroni). Each uses its part for all that it tests, by Holm's procedure (1979). So
the chance of any false finding in a group is at most 5%.
"""

from __future__ import annotations

from fluxbench.analysis.findings import copies, energy, falls_off, launch_bound, quantizing, regimes, slower_compiled
from fluxbench.analysis.findings.finding import Finding, Kind
from fluxbench.analysis.groups import Group
from fluxbench.stats.significance import LEVEL

TESTED = {
    Kind.FALLS_OFF: falls_off.find,
    Kind.SLOWER_COMPILED: slower_compiled.find,
    Kind.COPIES: copies.find,
    Kind.REGIMES: regimes.find,
    Kind.QUANTIZING: quantizing.find,
    Kind.ENERGY: energy.find,
}
FLAGGED = {Kind.LAUNCH_BOUND: launch_bound.find}  # what the measuring process saw, without a test
KINDS = (*TESTED, *FLAGGED)


def of_group(group: Group) -> list[Finding]:
    """Return the findings of a group, those first that matter most to a reader."""
    tested = [finding for find in TESTED.values() for finding in find(group, LEVEL / len(TESTED))]
    flagged = [finding for find in FLAGGED.values() for finding in find(group)]
    return sorted([*tested, *flagged], key=lambda finding: -finding.weight)
