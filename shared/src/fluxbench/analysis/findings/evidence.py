"""What the kinds of findings share: which records take part, what their differences weigh, and what is significant."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from statistics import fmean, median
from typing import TypeVar

from fluxbench.analysis.findings.finding import Part
from fluxbench.analysis.groups import Group, is_launch_bound, timing_of
from fluxbench.operations.workload import Workload
from fluxbench.records.schema import Record, Timing
from fluxbench.stats.intervals import Estimate
from fluxbench.stats.significance import SAME_WITHIN, holm
from fluxbench.variants.forms import EAGER

LEAST = math.log1p(SAME_WITHIN)  # what a difference must exceed: less, and nobody would choose another kernel
EXPLAINS = 0.5  # share of a difference from which on a part of the call is called its cause
_CLEAR = 0.1  # share of a level that is spent on finding what clearly does not hold
_Key = TypeVar("_Key", bound=Hashable)


def believed(group: Group, workload: Workload) -> list[Record]:
    """Return the ranked records at a workload whose time is that of the device and not of launching."""
    return [record for record in group.ranked_at(workload) if not is_launch_bound(record)]


def plain(records: Sequence[Record]) -> list[Record]:
    """Return the records of kernels as they are, neither compiled nor with copies."""
    return [record for record in records if record.form == EAGER.name]


def significant(chances: Mapping[_Key, float], level: float) -> list[_Key]:
    """Return which of a family of one-sided hypotheses hold, by Holm's procedure, those first that are surest.

    As in `stats.ordering`, those that clearly do not hold are not counted: a first test of all at a tenth of the level
    says so (Romano, Shaikh and Wolf, 2014). The chance of any false one is at most `level`.
    """
    possible = {key: p for key, p in chances.items() if 1 - p > _CLEAR * level / len(chances)}
    ordered = sorted(possible, key=lambda key: possible[key])
    return ordered[: holm(list(possible.values()), (1 - _CLEAR) * level)]


def process_logs(timing: Timing) -> list[float]:
    """Return the logarithm of each process's mean or median time in ms, as its timing's statistic says."""
    middle = fmean if timing.statistic == "mean" else median
    return [math.log(middle(samples)) for samples in timing.samples_ms]


def part_of(record: Record, name: str) -> Part | None:
    """Return a part of a profiled call; None where the profiler saw none.

    The profiler's parts can exceed the call by a percent, so the call is at least their sum.
    """
    if record.cupti is None or not record.cupti.parts_ms:
        return None
    call_ms = max(record.cupti.events_ms, math.fsum(record.cupti.parts_ms.values()))
    return Part(name=name, ms=record.cupti.parts_ms.get(name, 0.0), call_ms=call_ms)


def weight(group: Group, variant: str, *effects: Estimate) -> float:
    """Return how much effects, ratios, matter: their sizes at the end that is nearer to none, times the relevance.

    The relevance of a variant is how fast it is, as a share of the fastest exact one at the longest workload.
    """
    sizes = [max(0.0, math.log(one.low) if one.value > 1 else -math.log(one.high)) for one in effects if one.low > 0]
    return math.fsum(sizes) * _relevance(group, variant)


def _relevance(group: Group, variant: str) -> float:
    own = group.find(variant, group.longest)
    exact = [record for record in believed(group, group.longest) if record.precision_class == "exact"]
    if own is None or own.timing is None or not exact:
        return 0.0
    return min(1.0, min(timing_of(record).median_ms for record in exact) / own.timing.median_ms)
