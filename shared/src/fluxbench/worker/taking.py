"""What is taken of a trial on the device: samples, and what tells whether they can be believed."""

from __future__ import annotations

import time
from typing import Any

from fluxbench.timing.stopwatch import slept_s
from fluxbench.worker.request import Request
from fluxbench.worker.trial import Trial

REPEATED_IN = 2  # processes in which calls are also repeated on the same contents: two must agree


def take(trial: Trial, request: Request, *, burst: bool, sustained: bool) -> tuple[dict[str, Any], Trial]:
    """Return fields of the event "timed", and the trial with the sustained calls, which may be of fewer workloads."""
    taken: dict[str, Any] = {"began": time.monotonic()}
    asleep = slept_s()
    if burst:
        taken["burst"] = trial.burst()
    full = [name for name in trial.calls if request.is_full(name)]
    recorded = burst and trial.name in request.variants  # a reference may be here for the others alone
    if recorded and request.process < REPEATED_IN and not trial.plan.row_s:
        taken["repeated_over_new"] = trial.at(full[:1] if request.effort.long else full).repeat()
    if recorded and not request.process:
        rows = taken["burst"]["calls"]  # of which the profiler sees no gaps between calls
        full = [name for name in full if name not in rows]
        taken["cupti"] = trial.at(full).cupti() if full else {}
        taken["unprofiled"] = [name for name in trial.calls if name not in full]
    rest = [name for name in trial.calls if sustained and request.sustains(name)]
    again = trial if len(rest) == len(trial.calls) else trial.at(rest)
    if rest:
        trial.returned.see_changes()
        taken["block"] = again.sustain()
    return {**taken, "ended": time.monotonic(), "slept_s": slept_s() - asleep}, again
