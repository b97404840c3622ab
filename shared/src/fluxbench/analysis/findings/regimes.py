"""Kernels that change places: measurably faster than another in burst, and measurably slower sustained."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from fluxbench.analysis.findings.evidence import believed, plain, process_logs, significant, weight
from fluxbench.analysis.findings.finding import Case, Finding, Kind, finding
from fluxbench.analysis.groups import Group
from fluxbench.analysis.ranking import order
from fluxbench.operations.workload import Workload
from fluxbench.records.schema import Record, Timing
from fluxbench.stats import ordering
from fluxbench.stats.significance import Effect, chance_over, estimate, levels_beside

# What both differences must exceed: burst ratios of fresh runs on one card differ by up to 0.23% (docs/methodology.md).
_LEAST = math.log(1.0025)
_Pair = tuple[str, str, Workload]  # faster in burst, faster sustained, and where


def find(group: Group, level: float) -> list[Finding]:
    """Return who changes places: a finding for each kernel that gains under load, a case for each other and workload.

    Of all precision classes, since a kernel that draws less power is one that the limit slows less.
    """
    differences: dict[_Pair, tuple[Effect, Effect]] = {}
    for workload in group.workloads:
        records = [record for record in plain(believed(group, workload)) if record.burst and record.sustained]
        sustained, burst = order(group, workload), _levels(records)
        for one, other in itertools.permutations(records, 2):
            effects = [Effect(*ordering.difference(by[one.variant], by[other.variant])) for by in burst]
            in_burst = max(effects, key=lambda effect: chance_over(_reversed(effect), _LEAST))
            differences[one.variant, other.variant, workload] = (in_burst, sustained.difference(one, other))
    chances = {
        pair: max(chance_over(_reversed(in_burst), _LEAST), chance_over(sustained, _LEAST))
        for pair, (in_burst, sustained) in differences.items()
    }
    together: dict[str, list[Case]] = {}
    for pair in significant(chances, level):
        together.setdefault(pair[1], []).append(_case(group, pair, *differences[pair]))
    return [finding(Kind.REGIMES, cases, _cell(group, cases[0])) for cases in together.values()]


def _cell(group: Group, case: Case) -> str:
    """Return the measuring cell of the one that is faster sustained: it alone shows both regimes at all lengths."""
    return group.records_at[case.workloads[0].name][case.against].cell


def _case(group: Group, pair: _Pair, in_burst: Effect, sustained: Effect) -> Case:
    one, other, workload = pair
    values = estimate(in_burst), estimate(sustained)
    return Case(
        variant=one,
        against=other,
        workloads=(workload,),
        value=values[0],
        second=values[1],
        weight=weight(group, other, *values),
    )


def _levels(records: Sequence[Record]) -> list[dict[str, ordering.Level]]:
    """Return burst levels of times, and of ratios to the reference in the same rounds where all have these.

    Both must tell a difference: cells differ in how long the reference takes beside them by more than its processes do.
    """
    timings = {record.variant: record.burst for record in records if record.burst}
    if not timings:
        return []
    every = [[process_logs(timing) for timing in timings.values()]]
    if all(_has_rounds(variant, timing) for variant, timing in timings.items()):
        every.append([_logs(variant, timing) for variant, timing in timings.items()])
    return [dict(zip(timings, ordering.levels(logs), strict=True)) for logs in every]


def _has_rounds(variant: str, timing: Timing) -> bool:
    return variant == timing.reference_variant or bool(timing.reference_ms and all(timing.reference_ms))


def _logs(variant: str, timing: Timing) -> list[float]:
    if variant == timing.reference_variant:
        return [0.0] * timing.processes
    return levels_beside(timing.samples_ms, timing.reference_ms)


def _reversed(effect: Effect) -> Effect:
    return Effect(-effect.log_ratio, effect.se, effect.df)
