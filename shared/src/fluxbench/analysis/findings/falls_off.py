"""Lengths at which a kernel takes longer per operation than at the neighbouring ones.

All lengths of a variant share a block on a GPU, so the state of the device cancels within each process. The reference
takes no part: its own time per operation goes up and down with the length, and would show in every ratio.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from fluxbench.analysis.findings.evidence import believed, process_logs, significant, weight
from fluxbench.analysis.findings.finding import Case, Finding, Kind, finding
from fluxbench.analysis.groups import Group, timing_of
from fluxbench.operations.workload import Workload
from fluxbench.records.schema import Record
from fluxbench.stats import variances
from fluxbench.stats.pooling import Levels, spread
from fluxbench.stats.significance import Effect, chance_over, estimate
from fluxbench.stats.variances import Variance

# Kernels work in tiles and waves of tiles, so the time per operation of each goes up and down by a few percent.
_LEAST = math.log(1.05)
_Run = tuple[int, int]  # the first and the last of neighbouring lengths, by place; the ends of the curve are in none
_Pair = tuple[int, int]  # a length and one that it is compared with, by place


def find(group: Group, level: float) -> list[Finding]:
    """Return where variants fall off, one finding for all that run the same kernel and do so at the same lengths."""
    levels, inner = _levels(group), range(1, len(group.workloads) - 1)
    scatter = _scatter(levels)
    runs = [(first, last) for first in inner for last in inner if first <= last]
    chances = {
        (variant, run): max(chance_over(_effect(own, [pair], scatter[variant]), _LEAST) for pair in _pairs(run))
        for variant, own in levels.items()
        for run in runs
    }
    rejected: dict[str, list[_Run]] = {}
    for variant, run in significant(chances, level):
        rejected.setdefault(variant, []).append(run)
    together: dict[tuple[tuple[_Run, ...], str], list[Case]] = {}
    for variant, own in rejected.items():
        widest = _widest(own)
        effect = _effect(levels[variant], [pair for run in widest for pair in _pairs(run)], scatter[variant])
        case = _case(group, variant, widest, effect)
        together.setdefault((widest, _kernel(group.records_at[case.workloads[0].name][variant])), []).append(case)
    return [
        finding(Kind.FALLS_OFF, cases, "latency", multiple=_multiple(group.workloads, cases[0].workloads))
        for cases in together.values()
    ]


def _levels(group: Group) -> dict[str, Levels]:
    """Return by variant, length and process the logarithm of the time per operation.

    Of variants that were measured at every length, in the same number of processes, at least two.
    """
    curves: dict[str, list[list[float]]] = {}
    for workload in group.workloads:
        for record in believed(group, workload) if workload.cost.flops else ():
            per_operation = [log - math.log(workload.cost.flops) for log in process_logs(timing_of(record))]
            curves.setdefault(record.variant, []).append(per_operation)
    count = len(group.workloads)
    return {
        variant: np.array(own)
        for variant, own in curves.items()
        if len(own) == count and {len(own[0])} == set(map(len, own)) and len(own[0]) > 1
    }


def _scatter(levels: Mapping[str, Levels]) -> dict[str, Variance]:
    """Return by variant the variance of one process's level at one length, but for what a process has at all lengths.

    Variants share what they have in common, as in `stats.ordering`.
    """
    own = {variant: spread([of])[1] for variant, of in levels.items()}
    common = variances.middle(list(own.values()))
    return {variant: variances.at_least(common, one) for variant, one in own.items()}


def _pairs(run: _Run) -> list[_Pair]:
    """Return the pairs of a length of a run and one of the two next to the run."""
    return [(inside, beside) for inside in range(run[0], run[1] + 1) for beside in (run[0] - 1, run[1] + 1)]


def _effect(levels: Levels, pairs: Sequence[_Pair], scatter: Variance) -> Effect:
    """Return how much longer an operation takes at the first lengths of pairs than at the second, on average."""
    weights = np.zeros(len(levels))
    for slow, beside in pairs:
        weights[slow] += 1 / len(pairs)
        weights[beside] -= 1 / len(pairs)
    error = math.sqrt(scatter.value * float(weights @ weights) / levels.shape[1])
    return Effect(float(weights @ levels.mean(axis=1)), error, scatter.df)


def _widest(runs: Sequence[_Run]) -> tuple[_Run, ...]:
    """Return the runs that lie in no other."""
    wider = {run for run in runs for other in runs if run != other and other[0] <= run[0] <= run[1] <= other[1]}
    return tuple(sorted(set(runs) - wider))


def _case(group: Group, variant: str, runs: Sequence[_Run], effect: Effect) -> Case:
    slow = tuple(group.workloads[place] for first, last in runs for place in range(first, last + 1))
    value = estimate(effect)
    return Case(variant=variant, workloads=slow, value=value, weight=weight(group, variant, value))


def _kernel(record: Record) -> str:
    """Return the name of a call's largest kernel; the variant's where none was seen."""
    largest = max(record.kernels, key=lambda kernel: kernel.share, default=None)
    return largest.name if largest else record.variant


def _multiple(workloads: Sequence[Workload], slow: Sequence[Workload]) -> int | None:
    """Return the least power of two that divides the tokens of all other lengths and of none of the slow ones."""
    tokens = [(workload.shape.get("seq_len_k"), workload in slow) for workload in workloads]
    lengths = [(count, is_slow) for count, is_slow in tokens if type(count) is int]
    if len(lengths) < len(workloads):
        return None
    powers = (2**power for power in range(1, max(count for count, _ in lengths).bit_length()))
    separating = (power for power in powers if all(bool(count % power) == is_slow for count, is_slow in lengths))
    return next(separating, None)
