"""Kernels that are measurably faster than another and take measurably more energy for a call."""

from __future__ import annotations

import itertools
import math
from statistics import NormalDist

from fluxbench.analysis.findings.evidence import LEAST, believed, plain, significant, weight
from fluxbench.analysis.findings.finding import Case, Finding, Kind, finding
from fluxbench.analysis.groups import Group
from fluxbench.analysis.ranking import order
from fluxbench.records.schema import Record
from fluxbench.stats.intervals import CONFIDENCE, Estimate
from fluxbench.stats.significance import Effect, chance_over, estimate

_HALVES = 2 * NormalDist().inv_cdf((1 + CONFIDENCE) / 2)  # standard errors that a 95% interval is wide, at least


def find(group: Group, level: float) -> list[Finding]:
    """Return where energy and time disagree, a finding for each variant that takes less energy than faster ones.

    Of all precision classes, since a call's energy is a reason to choose between these.
    """
    sustained = order(group, group.longest)
    records = [r for r in plain(believed(group, group.longest)) if r.sustained and r.energy_mj and r.energy_ci95_mj]
    differences = {
        (one.variant, other.variant): (_energy(one, other, time := sustained.difference(one, other)), time)
        for one, other in itertools.permutations(records, 2)
    }
    chances = {
        pair: max(chance_over(energy, LEAST), chance_over(Effect(-time.log_ratio, time.se, time.df), LEAST))
        for pair, (energy, time) in differences.items()
    }
    together: dict[str, list[Case]] = {}
    for pair in significant(chances, level):
        together.setdefault(pair[1], []).append(_case(group, pair, *map(estimate, differences[pair])))
    return [finding(Kind.ENERGY, cases, "energy") for cases in together.values()]


def _case(group: Group, pair: tuple[str, str], energy: Estimate, time: Estimate) -> Case:
    return Case(
        variant=pair[0],
        against=pair[1],
        workloads=(group.longest,),
        value=energy,
        second=time,
        weight=weight(group, pair[0], energy),
    )


def _energy(one: Record, other: Record, time: Effect) -> Effect:
    """Return the logarithm of one energy over another's.

    A record's interval is that of its power, times its mean time. So the error of the times is added to those of both
    powers, as if they were independent: at a power limit they are not, and the sum is less.
    """
    log = math.log((one.energy_mj or 1.0) / (other.energy_mj or 1.0))
    return Effect(log, math.hypot(time.se, _error(one), _error(other)), time.df)


def _error(record: Record) -> float:
    """Return the standard error of the logarithm of a record's power."""
    low, high = record.energy_ci95_mj or (0.0, math.inf)
    return math.log(high / low) / _HALVES if low else math.inf
