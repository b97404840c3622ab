"""Variants whose calls take the host longer to launch than the device to run, so that the device waits back to back."""

from __future__ import annotations

import math

from fluxbench.analysis import model
from fluxbench.analysis.findings.evidence import LEAST, weight
from fluxbench.analysis.findings.finding import Case, Finding, Kind, finding
from fluxbench.analysis.groups import Group, timing_of
from fluxbench.analysis.launching import held_up_ms, is_launching
from fluxbench.records.schema import Record, Timing
from fluxbench.records.status import FlagKind
from fluxbench.stats.intervals import Estimate


def find(group: Group) -> list[Finding]:
    """Return one finding of all launch-bound variants at the longest workload; none where there is no such variant.

    No test is needed where the device was seen waiting in a process, and launching a call takes longer than the whole
    interval of its time in burst. Where CUDA graphs were timed, the launched call must take longer than the whole
    interval of the replayed one. Of a model's step, of which a process launches one or two, the host must also take
    about as long to launch it.
    """
    cases = [case for record in group.ranked_at(group.longest) if (case := _case(group, record))]
    return [finding(Kind.LAUNCH_BOUND, cases, "kernels")] if cases else []


def _case(group: Group, record: Record) -> Case | None:
    replayed_from, waited = held_up_ms(record), None
    if (flag := record.flagged(FlagKind.LAUNCH_BOUND)) and record.burst and record.launch_ms:
        value = _over(record.launch_ms, record.burst)
        waited = (round(flag.value), timing_of(record).processes) if flag.value else None
        # A wide interval: what is lost is not known, since the wait is not the same in each process.
        lost = _over(timing_of(record).ci95_ms[0], record.burst)
    elif replayed_from and not _is_hidden(record):
        value = lost = _over(replayed_from, timing_of(record))
    else:
        return None
    if math.log(value.low) <= LEAST:
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
