"""What the trials would have found with fewer processes: of each run the first few alone, judged as a whole run is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from fluxbench.analysis.certificate import judging
from fluxbench.analysis.certificate.judging import Detected, Tally
from fluxbench.analysis.certificate.trials import Run, Trials
from fluxbench.records.files import ControlTimes
from fluxbench.records.schema import BURST, SUSTAINED, Record

COUNTS = (3, 5)  # of processes, beside all that there are: of most variants of a Flux page, and the most there
PERCENT = 1.0


@dataclass(frozen=True, kw_only=True)
class ByProcesses:
    """A/A and an injected slowdown of 1% in one regime, with so many processes a side."""

    regime: str
    processes: int
    same: Tally
    detected: Detected


def of_trials(trials: Trials) -> list[ByProcesses]:
    """Return the verdicts with the first few processes of each run, and with all, in burst and then sustained.

    Nothing of a regime in which nothing is compared.
    """
    most = trials.most_processes
    found = []
    for count in sorted({*(count for count in COUNTS if count < most), most} - {0}):
        part = with_processes(trials, count)
        rows = [row for one in judging.a_a(part) for row in one.rows]
        for regime in (BURST, SUSTAINED):
            if (same := judging.tally(rows, regime=regime)).count:
                detected = judging.detected(part, PERCENT, regime)
                found.append(ByProcesses(regime=regime, processes=count, same=same, detected=detected))
    return sorted(found, key=lambda one: one.regime == SUSTAINED)


def with_processes(trials: Trials, count: int) -> Trials:
    """Return the trials as their first processes alone have them. Intervals in the records stay those of all."""
    return msgspec.structs.replace(trials, runs=tuple(_run(run, count) for run in trials.runs))


def _run(run: Run, count: int) -> Run:
    return msgspec.structs.replace(
        run,
        records=tuple(_record(record, count) for record in run.records),
        control=_control(run.control, count) if run.control else None,
    )


def _record(record: Record, count: int) -> Record:
    timings = {
        regime: msgspec.structs.replace(
            timing, samples_ms=timing.samples_ms[:count], reference_ms=timing.reference_ms[:count]
        )
        for regime, timing in record.timings.items()
    }
    return msgspec.structs.replace(record, timings=timings)


def _control(control: ControlTimes, count: int) -> ControlTimes:
    times: dict[str, Sequence[tuple[float, ...]]] = {
        variant: samples[:count] for variant, samples in control.samples_ms.items()
    }
    return msgspec.structs.replace(control, samples_ms=times)
