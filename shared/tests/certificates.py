"""Made-up trials of the certificate, with a truth that the tests set; and `trials.json` as measuring writes it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from sample_records import record, results, timing
from tabled import cells, rows_of, table_of

from fluxbench.analysis.certificate.trials import Form, Place, Run, Trials
from fluxbench.records.files import ControlTimes
from fluxbench.records.schema import BURST, SUSTAINED, Cupti, Record, Telemetry
from fluxbench.report import tables
from fluxbench.report.blocks import Block
from fluxbench.report.results import Results
from fluxbench.variants import slowed

BASES = ("torch_flash", "triton_flash")
WORKLOADS = {"flux1-1024px-t128": 0.4, "flux1-1024px-t256": 0.42, "flux1-1024px-t512": 0.47}  # ms of a call
PROCESSES, ROUNDS, CALLS = 3, 12, 7
FINGERPRINT = {"device": "NVIDIA H200", "device_kind": "cuda", "card": "a1"}
FORMS = {
    f"{base}_{form}": Form(base=base, percent=percent, twin=form.endswith("_twin"))
    for form, percent in slowed.FORMS.items()
    for base in BASES
}
UNSLOWED = [name for name, form in FORMS.items() if not form.percent]
# How far fresh runs of a notebook differ, as `reruns.json` has it.
AGAIN: dict[str, Any] = {
    "notebook": "flux",
    "runs": 3,
    "once": ["te", "flex"],
    "cells": {"sdpa": ["2026-01-31T12:02:00+00:00", "2026-01-31T12:01:00+00:00"]},
    "at_once": False,
    "fast_ms": 2.0,
    "clocks": [{"variant": "flex", "workload": "w", "difference": -0.004}],
    "burst_faster": {"max": 0.0021, "median": 0.001, "variant": "flex", "workload": "w", "ratios": [1.0], "count": 40},
    "sustained_slower": {"max": 0.03, "median": 0.02, "variant": "te", "workload": "v", "ratios": [1.0], "count": 7},
    "late": 2,
    "compared": {"pairs": 3, "rows": 9, "called": 1, "undecided": 2, "called_sustained": 4, "device_moved": 5},
    "reason": None,
}
Parts = tuple[tuple[float, ...], ...]


def made_up(
    runs: int = 6,
    *,
    of_process: float = 0.0005,
    of_sample: float = 0.001,
    of_run: float = 0.0,
    works: float = 1.0,
    by_place: Callable[[int], float] = lambda place: 0.0,
    by_trial: Callable[[int], float] = lambda trial: 0.0,
    sustained: bool = False,
    processes: int = PROCESSES,
    **fields: Any,
) -> Trials:
    """Return trials of a harness that errs by these shares: of a variant in a process, of a sample, of it in a run.

    `works` is how much of each slowdown is really injected. `by_place` and `by_trial` move a time by a share that its
    place in the round or its trial in the process sets. Sustained times are those of burst.
    """
    rng = random.Random(0)
    errors = (of_process, of_sample, of_run)
    made = [_run(n, rng, errors, works, by_place, by_trial, sustained, processes) for n in range(runs)]
    whole: dict[str, Any] = {"asked": runs, "device": "NVIDIA H200", "fingerprint": FINGERPRINT, "variants": FORMS}
    return Trials(runs=tuple(made), **(whole | fields))


def _run(
    number: int,
    rng: random.Random,
    errors: tuple[float, float, float],
    works: float,
    by_place: Callable[[int], float],
    by_trial: Callable[[int], float],
    sustained: bool,
    processes: int,
) -> Run:
    of_process, of_sample, of_run = errors
    samples: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    control: dict[str, list[tuple[float, ...]]] = {}
    places: list[Place] = []
    moved = {name: rng.gauss(1, of_run) for name in FORMS}
    for process in range(processes):
        names = list(FORMS)
        rng.shuffle(names)
        for trial, name in enumerate(names):
            level = rng.gauss(1, of_process) * moved[name] * (1 + works * FORMS[name].percent / 100)
            level *= 1 + by_trial(trial)
            control.setdefault(name, []).append(tuple(0.4 * rng.gauss(1, 0.0003) for _ in range(ROUNDS)))
            for workload, call_ms in WORKLOADS.items():
                at = tuple(rng.randrange(CALLS) for _ in range(ROUNDS))
                times = tuple(call_ms * level * rng.gauss(1, of_sample) * (1 + by_place(place)) for place in at)
                samples.setdefault((name, workload), []).append(times)
                places.append(
                    Place(process=process, variant=name, workload=workload, trial=trial, trials=len(names), places=at,
                          of=CALLS, samples_ms=times)
                )  # fmt: skip
    return Run(
        records=tuple(_record(number, *key, tuple(parts), sustained) for key, parts in samples.items()),
        control=ControlTimes(kernel="made up", samples_ms={name: tuple(parts) for name, parts in control.items()}),
        places=tuple(places),
        seconds=38.0,
    )


def _record(number: int, variant: str, workload: str, parts: Parts, sustained: bool) -> Record:
    middle = float(np.median(parts))
    taken = timing(middle, variant, ratio=middle / WORKLOADS[workload], samples_ms=parts)
    return record(
        variant,
        workload,
        timings={BURST: taken, SUSTAINED: taken} if sustained else {BURST: taken},
        telemetry={BURST: Telemetry(sm_clock_mhz=1980.0, power_w=150.0 + number, temperature_c=41.0)},
        cupti=Cupti(events_ms=1.002, kernels_ms=0.99, span_ms=1.0),
        energy_mj=None,
        energy_ci95_mj=None,
        notebook="certificate",
        cell="trials",
        fingerprint=FINGERPRINT,
        measured_at=f"2026-01-31T12:{number:02}:00+00:00",
    )


def with_forms(trials: Trials, forms: dict[str, Form]) -> Trials:
    """Return trials that have measured these forms alone."""
    runs = tuple(
        msgspec.structs.replace(
            run,
            records=tuple(one for one in run.records if one.variant in forms),
            places=tuple(one for one in run.places if one.variant in forms),
        )
        for run in trials.runs
    )
    return msgspec.structs.replace(trials, runs=runs, variants=forms)


def as_json(trials: Trials) -> dict[str, Any]:
    """Return `trials.json` as `bench.trials` writes it: records without the fingerprint, which the file holds once."""

    def of_record(one: Record) -> dict[str, Any]:
        fields: dict[str, Any] = json.loads(one.to_json())
        return {key: value for key, value in fields.items() if key != "fingerprint"}

    runs = [
        {
            "seconds": run.seconds,
            "others": list(run.others),
            "records": [of_record(one) for one in run.records],
            "control": json.loads(run.control.to_json()) if run.control else None,
            "places": [{key: getattr(place, key) for key in Place.__struct_fields__} for place in run.places],
        }
        for run in trials.runs
    ]
    forms = {name: {"base": f.base, "percent": f.percent, "twin": f.twin} for name, f in trials.variants.items()}
    head = {"schema": 2, "asked": trials.asked, "device": trials.device, "fingerprint": trials.fingerprint}
    reason = {"reason": trials.reason} if trials.reason else {}
    found: dict[str, Any] = json.loads(json.dumps({**head, "variants": forms, **reason, "runs": runs}))
    return found


def results_of(
    trials: Trials | None, again: dict[str, Any] | None = None, rates: dict[str, Any] | None = None
) -> Results:
    """Return what the certificate's tables are drawn from."""
    return results(
        notebook="certificate",
        trials=as_json(trials) if trials else {},
        reruns=AGAIN if again is None else again,
        rates={"event_us": 1.6} if rates is None else rates,
    )


def shown(name: str, *arguments: Any) -> list[Block]:
    """Return a table's blocks, of what `results_of` takes."""
    return tables.find(name).blocks(results_of(*arguments))


def with_fields(trials: Trials, **fields: Any) -> Trials:
    """Return trials whose records have other values in some fields, and another process beside each run."""
    replace = msgspec.structs.replace
    runs = [replace(run, records=tuple(replace(one, **fields) for one in run.records)) for run in trials.runs]
    return replace(trials, runs=tuple(replace(run, others=("python 12",)) for run in runs))


def answers(found: list[Block]) -> dict[str, dict[str, str]]:
    """Return the rows of the certificate's table by question, each by column."""
    table = table_of(found)
    return {row[0]: cells(table, row[0]) for row in rows_of(table)}
