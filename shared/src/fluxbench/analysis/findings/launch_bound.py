"""Variants whose calls take longer where the host launches them, back to back, than the device takes for them."""

from __future__ import annotations

import math

from fluxbench.analysis import model
from fluxbench.analysis.findings.evidence import LEAST, weight
from fluxbench.analysis.findings.finding import Case, Finding, Kind, finding
from fluxbench.analysis.groups import Group, is_launch_bound, timing_of
from fluxbench.analysis.launching import SLOWDOWN_FROM, held_up_ms, is_launching
from fluxbench.records.schema import Record, Timing
from fluxbench.records.status import FlagKind
from fluxbench.stats.intervals import Estimate


def find(group: Group) -> list[Finding]:
    """Return what launching costs at the longest workload: a finding of launched calls, and one of CUDA graphs.

    No test is needed where the device was seen waiting in a process, launching a call takes longer than the whole
    interval of its time in burst, and a sustained call takes 1.1 times as long or more. Where CUDA graphs were timed,
    the launched call must take longer than the whole interval of the replayed one (`held_up_ms`); its own time has no
    interval. Of a model's step, of which a process launches one or two, the host must also take about as long to launch
    it.
    """
    cases = [case for record in group.ranked_at(group.longest) if (case := _case(group, record))]
    kinds = [case for case in cases if case.waited], [case for case in cases if not case.waited]  # launched, and graphs
    return [finding(Kind.LAUNCH_BOUND, alike, "kernels") for alike in kinds if alike]


def _case(group: Group, record: Record) -> Case | None:
    launched_ms, waited, timing = held_up_ms(record), None, timing_of(record)
    flag = record.flagged(FlagKind.LAUNCH_BOUND)
    if flag and flag.value and is_launch_bound(record) and record.burst and record.launch_ms:
        ends = (end / device for end, device in zip(timing.ci95_ms, reversed(record.burst.ci95_ms), strict=True))
        value = Estimate(timing.median_ms / record.burst.median_ms, *ends)
        if value.value < SLOWDOWN_FROM:
            return None
        low = _over(record.launch_ms, record.burst).low
        waited = round(flag.value), timing.processes
        # A wide interval: what is lost is not known, since the wait is not the same in each process.
        lost = _over(timing.ci95_ms[0], record.burst)
    elif launched_ms and not _is_hidden(record):
        lost = _over(launched_ms, timing)
        low, value = lost.low, Estimate(lost.value, 0.0, math.inf)
    else:
        return None
    if math.log(low) <= LEAST:
        return None
    return Case(
        variant=record.variant,
        workloads=(group.longest,),
        value=value,
        waited=waited,
        weight=weight(group, record.variant, lost) if lost.value > 1 else 0.0,
    )


def _is_hidden(record: Record) -> bool:
    """Whether the host launches a replayed step in less time than the device takes for it."""
    return record.workload.operation == model.OPERATION and record.launch_ms is not None and not is_launching(record)


def _over(time_ms: float, device: Timing) -> Estimate:
    """Return a time over the device's, with the interval of the latter."""
    low, high = device.ci95_ms
    return Estimate(time_ms / device.median_ms, time_ms / high, time_ms / low)
