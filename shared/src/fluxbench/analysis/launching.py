"""Whether a call's time is that of launching it: the device waits for the host."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from fluxbench.analysis.groups import is_graph, is_replayed, launched_ms, timing_of
from fluxbench.records.schema import BURST, Record
from fluxbench.worker.request import LAUNCHING_FROM

KERNELS_FROM = 0.85  # of a launched call's time in burst that its kernels take at least where the device does not wait
_SEVERAL = 3  # samples of a process, whose median one call that stalled does not move
_LAUNCH_SHARE_FROM = 0.65  # the same of calls back to back, which take less to launch than single ones
# Times a replayed call. On an H200 a call took up to 1.05 times as long that the host launches in a third of its time.
SLOWDOWN_FROM = 1.1


def is_launching(record: Record) -> bool:
    """Return whether the device waits for the host in a PASSED record's call, so that its time is that of launching.

    By the profiler where it saw a launched call: its kernels take clearly less than the call, or than that of the
    slowest process where launching takes about as long as a call. Else by the time of the host, which may be long as
    well where it waits for a full queue: about as long as the call, or longer.
    """
    if record.launch_ms is None:
        return False
    is_long = record.launch_ms > LAUNCHING_FROM * timing_of(record).median_ms
    if record.cupti and not is_graph(record):
        burst = record.burst or timing_of(record)  # begins on an idle device, as a profiled call does
        processes = [median(part) for part in burst.samples_ms if is_long and len(part) >= _SEVERAL]
        return record.cupti.kernels_ms < KERNELS_FROM * max([burst.median_ms, *processes])
    return is_long


def held_up_ms(record: Record) -> float | None:
    """Return the time of a call that the host launches, in ms, where that holds up what was timed as CUDA graphs.

    That time is of a fifth of a second in one process, in which the host may be late and the clock moves. So launching
    must take about as long as the device, and the launched call clearly longer than the replayed one.
    """
    ms, replayed_ms = launched_ms(record), timing_of(record).median_ms
    if ms is None or ms < SLOWDOWN_FROM * replayed_ms:
        return None
    # A row of burst is launched right beside the replayed one.
    holds_up = is_replayed(record, BURST) or (record.launch_ms or 0.0) > _LAUNCH_SHARE_FROM * replayed_ms
    return ms if holds_up else None


def launching_decides(timed: Sequence[Record]) -> bool:
    """Whether times differ by how the host launches the calls, so that their ratio says nothing of the kernels.

    Not of replayed CUDA graphs; but also where some were replayed and others launched.
    """
    replayed = set(map(is_graph, timed))
    return len(replayed) > 1 or (replayed == {False} and any(map(is_launching, timed)))
