"""Whether a call's time is that of launching it: the device waits for the host."""

from __future__ import annotations

from collections.abc import Sequence

from fluxbench.analysis.groups import launched_ms, timing_of
from fluxbench.records.schema import Record

LAUNCHING_FROM = 0.85  # of a call's time that the host takes to launch it: the device may wait for it
KERNELS_FROM = 0.85  # of a launched call's time in burst that its kernels take at least where the device does not wait


def is_launching(record: Record) -> bool:
    """Return whether the device waits for the host in a PASSED record's call, so that its time is that of launching.

    By the profiler where it saw a launched call: its kernels take clearly less than the call. Else by the time of the
    host, which may be long as well where it waits for a full queue: about as long as the call, or longer.
    """
    if record.launch_ms is None:
        return False
    if record.cupti and launched_ms(record) is None:
        burst = record.burst or timing_of(record)  # begins on an idle device, as a profiled call does
        return record.cupti.kernels_ms < KERNELS_FROM * burst.median_ms
    return record.launch_ms > LAUNCHING_FROM * timing_of(record).median_ms


def launching_decides(timed: Sequence[Record]) -> bool:
    """Whether times differ by how the host launches the calls, so that their ratio says nothing of the kernels.

    Not of replayed CUDA graphs; but also where some were replayed and others launched.
    """
    replayed = {launched_ms(each) is not None for each in timed}
    return len(replayed) > 1 or (replayed == {False} and any(map(is_launching, timed)))
