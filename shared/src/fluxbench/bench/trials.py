"""The certificate's trials: runs of kernels that are slower on purpose, each as a measuring cell takes them.

Nothing is judged here. Which runs are compared, and what is found, is drawn from `trials.json` by the certificate.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fluxbench import studies
from fluxbench.bench import dependencies, samples, series
from fluxbench.bench.collected import Collected
from fluxbench.bench.measuring import PROCESSES, deadline_of, measure
from fluxbench.core import progress
from fluxbench.core.files import write_text
from fluxbench.core.settings import Settings
from fluxbench.device import detect
from fluxbench.environments.cell import Cell
from fluxbench.records.schema import SCHEMA, Record
from fluxbench.records.status import Status
from fluxbench.variants import slowed

FULL = 2  # runs, the first, in which slowed forms are measured too
_PERCENT = (0.0, 1.0)  # the forms that take part; a form costs 2 s of the device in each process
_PROCESSES = 8  # of a run on a GPU: three do not find a sustained change of 1%, see `docs/methodology.md`
FILE = "trials.json"


def measure_trials(cell: Cell, settings: Settings, started: float) -> None:
    """Measure the forms of a cell's variants in several runs of fresh processes, and write `trials.json`.

    The slowed ones take part in the first `FULL` runs, the unslowed ones in all; pairs of runs that share none are the
    independent tables.

    A run is one of `measuring.measure`, of which there are fewer where the cell's time would not suffice. The file
    holds the fingerprint, what each variant is, and by run: the records less the fingerprint, the control kernel's
    times, and what `places` yields.
    """
    device = detect.detect()
    names = [
        name
        for name in dependencies.measured_variants(cell)
        if _form(name)["percent"] in _PERCENT and not _form(name)["twin"]
    ]
    workloads = studies.find(cell.study).workloads_on(device, settings)
    deadline = deadline_of(started, settings)
    unslowed = [name for name in names if not _form(name)["percent"]]
    orders = [*_rotated(names, FULL), *_rotated(unslowed, max(0, settings.runs - FULL))][: settings.runs]
    processes = settings.processes or (PROCESSES if device.worker_kind == "cpu" else _PROCESSES)
    progress.say(steps=processes * len(workloads) * sum(map(len, orders)))
    runs: list[dict[str, Any]] = []
    seconds, late = 0.0, False
    for number, order in enumerate(orders):
        began = time.monotonic()
        if began + seconds > min(deadline, settings.until):
            late = settings.until < deadline
            break
        collected = Collected()
        found = measure(cell, order, device, settings, deadline, collected, (processes, processes))
        seconds = time.monotonic() - began
        runs.append(_run(found, collected, seconds))
        passed = sum(record.status is Status.PASSED for record in found)
        print(f"run {number + 1} of {settings.runs}: {seconds:.0f} s, {passed} of {len(found)} records PASSED")
        for reason in dict.fromkeys(f"{record.status}: {record.reason}" for record in found if record.reason):
            print(f"  {reason}")
        late = time.monotonic() >= settings.until and any(each.status is Status.TIMEOUT for each in found)
        if not passed or late:
            break
    lines = ",\n".join(json.dumps(run, allow_nan=False) for run in runs)
    head = {
        "schema": SCHEMA,
        "asked": settings.runs,
        "device": device.name,
        "fingerprint": dict(dependencies.of(cell, device, settings)),
        "variants": {name: _form(name) for name in names},
    }
    if not any(record["status"] == Status.PASSED for run in runs for record in run["records"]):
        head["reason"] = "no slowed variant ran"
    if late:
        head["reason"] = (
            f"the build's time was up in run {max(1, len(runs))} of {settings.runs}; another build measures it"
        )
    write_text(Path(FILE), f'{json.dumps(head)[:-1]}, "runs": [\n{lines}\n]}}\n')


def _rotated(names: Sequence[str], runs: int) -> list[list[str]]:
    """Return an order for each run: each variant comes early in some runs and late in others."""
    starts = (run * len(names) // runs for run in range(runs))
    return [[*names[start:], *names[:start]] for start in starts]


def _form(name: str) -> dict[str, str | float | bool]:
    """Return what a slowed variant is: of which base, slower by how much in percent, and whether it is the twin."""
    base, _, form = name.partition("_plus_")
    return {"base": base, "percent": slowed.FORMS[f"plus_{form}"], "twin": form.endswith("_twin")}


def _run(found: list[Record], collected: Collected, seconds: float) -> dict[str, Any]:
    control = samples.control_times(collected)
    return {
        "seconds": round(seconds, 1),
        "others": collected.others,
        "records": [_without_fingerprint(record) for record in found],
        "control": json.loads(control.to_json()) if control else None,
        "places": list(places(collected)),
    }


def _without_fingerprint(record: Record) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(record.to_json())
    return {key: value for key, value in fields.items() if key != "fingerprint"}


def places(collected: Collected) -> Iterator[dict[str, Any]]:
    """Yield the ranked burst samples of each trial and workload with where they were taken.

    `trial` of `trials` is the position of the variant in its process, `places` of `of` those of the samples in their
    rounds, all from 0. The reference's own trials are left out: they are always first.
    """
    taken = [trial for trial in collected.trials if trial.timed.burst and not trial.is_reference]
    taken.sort(key=lambda trial: trial.timed.began)
    for trial in taken:
        rounds = trial.rounds
        own = [each for each in taken if each.timed.process == trial.timed.process]
        calls = 2 * len(rounds.samples_ms) + bool(rounds.control_ms)
        for workload in trial.timed.workloads:
            found = series.burst(trial, workload, collected.log)
            ranked = [index for index, counts in enumerate(found.counts) if counts]
            yield {
                "process": trial.timed.process,
                "variant": trial.timed.variant,
                "workload": workload,
                "trial": own.index(trial),
                "trials": len(own),
                "places": [rounds.places[workload][index] for index in ranked],
                "of": calls,
                "samples_ms": [round(found.samples_ms[index], 6) for index in ranked],
            }
