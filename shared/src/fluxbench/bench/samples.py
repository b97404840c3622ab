"""What is kept beside a cell's records: every sample, ranked or not, the control kernel's, and failed references."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

from fluxbench.bench import series
from fluxbench.bench.collected import Collected, Trial
from fluxbench.bench.events import BurstSamples, Failed
from fluxbench.records.files import ControlTimes
from fluxbench.timing.telemetry import Log


def control_times(collected: Collected) -> ControlTimes | None:
    """Return the control kernel's burst times beside each variant; None where the device has none."""
    if collected.control is None:
        return None
    found: dict[str, dict[int, dict[str, list[float]]]] = {}
    taken = (trial for trial in collected.trials if trial.timed.burst)
    for trial in sorted(taken, key=lambda trial: trial.timed.process):
        first = _first(trial)
        beside = _beside(trial.rounds, first)
        kept = series.burst(trial, first, collected.log).ranked(beside) if beside else []
        # A process has a trial of a variant in each part of the workloads, as it holds them. Where a worker died, the
        # reference has another trial of that part in the one that went on: the later one, as in its record.
        of_parts = found.setdefault(trial.timed.variant, {}).setdefault(trial.timed.process, {})
        of_parts[first] = [round(sample, series.DIGITS_MS) for sample in kept]
    samples_ms = {
        name: tuple(tuple(itertools.chain(*of_parts.values())) for of_parts in of_processes.values())
        for name, of_processes in found.items()
    }
    return ControlTimes(kernel=collected.control, samples_ms=samples_ms)


def to_json(collected: Collected, references_failed: Sequence[Failed] = ()) -> str:
    """Return every sample that was taken, with what the device was doing at each, as JSON.

    `busy_s` of `measuring_s` the device was busy with measured calls of this build; a series stands on a line.
    `references_failed` are failures of references that have no record in this cell, `memory_lacked` what lacked memory
    before it was tried again.
    """
    lines = [
        json.dumps(each, allow_nan=False) for trial in collected.trials for each in _of_trial(trial, collected.log)
    ]
    of_build = [trial.timed for trial in collected.trials if trial.timed.began >= collected.resumed_at]
    measuring_s = sum(timed.took_s for timed in of_build)
    busy_s = sum(timed.busy_s for timed in of_build)
    failed = [
        {name: getattr(each, name) for name in ("variant", "workload", "status", "reason")}
        for each in references_failed
    ]
    lacked = [{name: getattr(each, name) for name in ("variant", "workload", "reason")} for each in collected.lacked]
    head = (
        f'{{"schema": 2, "busy_s": {busy_s:.3f}, "measuring_s": {measuring_s:.3f}, "phases": '
        f"{json.dumps(collected.phases_in_files)},\n"
        f'"references_failed": {json.dumps(failed)},\n"memory_lacked": {json.dumps(lacked)},\n"series": [\n'
    )
    return head + ",\n".join(lines) + "\n]}\n"


def _of_trial(trial: Trial, log: Log) -> Iterator[dict[str, Any]]:
    """Yield all samples of a trial: by workload those of burst and of the block, then the control kernel's."""
    timed = trial.timed
    who = {"process": timed.process, "worker": trial.worker, "variant": timed.variant, "reference": timed.reference}
    for workload in timed.workloads:
        if timed.burst:
            rounds = series.burst(trial, workload, log)
            places = {
                "place_in_round": timed.burst.places[workload],
                "repeated_over_new": timed.repeated_over_new.get(workload),
                "reference_ms": [round(sample, series.DIGITS_MS) for sample in timed.burst.reference_ms[workload]],
                "launch_ms": rounds.launch_ms,
                "kernels": timed.profiled[workload].names if workload in timed.profiled else None,
            }
            if workload in timed.burst.launched_ms:
                places["launched_ms"] = timed.burst.launched_ms[workload]
            yield {**who, "workload": workload, **rounds.to_json(), **places}
        for block in trial.blocks_at(workload):
            state: dict[str, Any] = {
                "settled": block.settled,
                "ahead_ms": round(block.ahead_ms, series.DIGITS_MS),
                "replayed": block.replayed,
                "launched_ms": block.launched_ms.get(workload),
            }
            if block.reference_ms:
                state["reference_ms"] = [round(sample, series.DIGITS_MS) for sample in block.reference_ms[workload]]
            yield {**who, "workload": workload, **series.sustained([trial], workload, log).to_json(), **state}
    if timed.burst and timed.burst.control_ms:
        found = [round(sample, series.DIGITS_MS) for sample in _beside(timed.burst, _first(trial))]
        yield {**who, "variant": "control_kernel", "beside": timed.variant, "regime": "burst", "samples_ms": found}


def _first(trial: Trial) -> str:
    """Return the workload of a trial whose calls are in the first part of the rounds, as the control kernel's are.

    What takes more than 10 ms there is divided; they may then be in another piece than these.
    """
    return min(trial.timed.workloads, key=lambda name: round(trial.rounds.spans_of(name)[0][0], series.DIGITS_S))


def _beside(rounds: BurstSamples, first: str) -> list[float]:
    """Return the control kernel's times of the rounds of a trial's first workload, whose state says which count."""
    return rounds.in_rounds_of(first, rounds.control_ms) if rounds.control_ms else []
