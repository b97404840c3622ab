"""Quantized kernels whose gain is spent on quantizing q, k and v within the call."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fluxbench.analysis.findings.evidence import LEAST, believed, part_of, plain, significant, weight
from fluxbench.analysis.findings.finding import Case, Finding, Kind, Part, finding
from fluxbench.analysis.groups import Group
from fluxbench.analysis.ranking import order
from fluxbench.operations.workload import Workload
from fluxbench.records.schema import Record
from fluxbench.stats.significance import Effect, chance_over, estimate

_PART = "quantization"
_Place = tuple[str, Workload]  # a quantized variant, and where


def find(group: Group, level: float) -> list[Finding]:
    """Return the quantized variants that quantizing leaves no faster than the fastest exact one, a finding each.

    That is the fastest in burst, so that it is not chosen by the times that are tested. The quantized variant is not
    measurably faster; without quantizing it would measurably be; of what it would gain, more than two thirds are
    measurably gone; and quantizing is the largest part of its call beside the attention. Where it is measurably slower,
    its case says so: these tests are of the same family as those of the findings.
    """
    compared: dict[_Place, tuple[Record, Part, Effect]] = {}
    for workload in group.workloads:
        records, times = plain(believed(group, workload)), order(group, workload)
        exact = [record for record in records if record.precision_class == "exact" and record.burst]
        if not exact:
            continue
        best = min(exact, key=lambda record: record.burst.median_ms if record.burst else math.inf)
        for record in records:
            if record.precision_class == "quantized" and (part := _largest(record)):
                compared[record.variant, workload] = (best, part, times.difference(record, best))
    chances: dict[tuple[_Place, bool], float] = {}  # that it spends its gain, and (True) that it is slower
    for place, (_, part, slower) in compared.items():
        chances[place, False] = _chance(slower, -math.log1p(-part.share))
        chances[place, True] = chance_over(slower, 0.0)
    found = dict.fromkeys(significant(chances, level))
    together: dict[str, list[Case]] = {}
    for variant, workload in [place for place, is_slower in found if not is_slower]:
        best, part, slower = compared[variant, workload]
        own = group.records_at[workload.name][variant]
        if estimate(slower).high >= 1:  # not faster by its own interval, which is shown
            is_slower = ((variant, workload), True) in found
            together.setdefault(variant, []).append(_case(group, own, best, part, slower, is_slower=is_slower))
    return [finding(Kind.QUANTIZING, cases, _cell(group, cases)) for cases in together.values()]


def _cell(group: Group, cases: Sequence[Case]) -> str:
    """Return where it shows: parts are shown at the longest workload alone."""
    return "parts" if any(group.longest in case.workloads for case in cases) else "latency"


def _largest(record: Record) -> Part | None:
    """Return the quantizing of a profiled call, where no other part beside the attention is larger."""
    part = part_of(record, _PART)
    others = record.cupti.parts_ms.items() if record.cupti else ()
    if part is None or part.ms < max((ms for name, ms in others if name != "attention"), default=0.0):
        return None
    return part if 0 < part.share < 1 else None


def _chance(slower: Effect, spent: float) -> float:
    """Return the larger of two p-values: of being faster without what is spent, and of having lost most of that.

    `spent` is the logarithm of the call's time over that without quantizing. The gain is -slower, and without
    quantizing it is spent more: to have lost two thirds of it is to have a gain under half of what is spent.
    """
    without = Effect(spent - slower.log_ratio, slower.se, slower.df)
    return max(chance_over(without, LEAST), chance_over(slower, -spent / 2))


def _case(group: Group, record: Record, best: Record, part: Part, slower: Effect, *, is_slower: bool) -> Case:
    spent = estimate(Effect(-math.log1p(-part.share), 0.0, slower.df))
    return Case(
        variant=record.variant,
        against=best.variant,
        workloads=(record.workload,),
        value=estimate(slower),
        part=part,
        slower=is_slower,
        weight=weight(group, record.variant, spent),
    )
