"""The certificate's trials: runs of kernels that are slower on purpose, each as a measuring cell takes them.

Nothing is judged here. Which runs are compared, and what is found, is drawn from `trials.json` by `certificate`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fluxbench.bench import dependencies
from fluxbench.bench import measuring as bench
from fluxbench.bench import series as samples
from fluxbench.bench.observations import Observations, to_sentinel
from fluxbench.core import progress
from fluxbench.core.settings import Settings
from fluxbench.device import detection as hardware
from fluxbench.environments import cell
from fluxbench.records import schema as records
from fluxbench.records.schema import Record, Status
from fluxbench.variants import slowed

RUNS = 6


@bench.one_sentence
def measure() -> None:
    """Measure all slowed variants in several runs of fresh processes, burst samples alone, and write `trials.json`.

    A run is one of `bench.measure_cell`, of which there are fewer where the cell's time would not suffice. The file
    holds the fingerprint, what each variant is, and by run: the records (less the fingerprint, and less the sustained
    timing, which is the burst one), the sentinel's times, and what `places` yields.
    """
    started = time.monotonic()
    settings = Settings.load()
    this = cell.current()
    device = hardware.detect()
    names, chosen = dependencies.trials(device, settings)
    deadline = bench.deadline_of(started, settings)
    progress.say(steps=RUNS * bench.PROCESSES * len(names) * len(chosen.workloads))
    runs: list[dict[str, Any]] = []
    seconds = 0.0
    for number in range(RUNS):
        began = time.monotonic()
        if began + seconds > deadline:
            break
        turned = number * len(names) // RUNS  # each variant comes early in some runs and late in others
        observed = Observations()
        found = bench.measure_cell(
            this, [*names[turned:], *names[:turned]], device, chosen, deadline, observed, sustained=False
        )
        seconds = time.monotonic() - began
        runs.append(_run(found, observed, seconds))
        passed = sum(record.status is Status.PASSED for record in found)
        print(f"run {number + 1} of {RUNS}: {seconds:.0f} s, {passed} of {len(found)} records PASSED")
        for reason in dict.fromkeys(f"{record.status}: {record.reason}" for record in found if record.reason):
            print(f"  {reason}")
        if not passed:
            break
    lines = ",\n".join(json.dumps(run, allow_nan=False) for run in runs)
    head = {
        "schema": 1,
        "asked": RUNS,
        "device": device.name,
        "fingerprint": dict(dependencies.of(this, names, device, chosen)),
        "variants": {name: _form(name) for name in names},
    }
    if not any(record["status"] == Status.PASSED for run in runs for record in run["records"]):
        head["reason"] = "no slowed variant ran"
    records.write_text(Path("trials.json"), f'{json.dumps(head)[:-1]}, "runs": [\n{lines}\n]}}\n')


def _form(name: str) -> dict[str, str | float | bool]:
    """Say what a slowed variant is: of which base, slower by how much in percent, and whether it is the twin."""
    base, _, form = name.partition("_plus_")
    return {"base": base, "percent": slowed.FORMS[f"plus_{form}"], "twin": form.endswith("_twin")}


def _run(found: list[Record], observed: Observations, seconds: float) -> dict[str, Any]:
    sentinel = to_sentinel(observed)
    return {
        "seconds": round(seconds, 1),
        "others": observed.others,
        "records": [_slim(record) for record in found],
        "sentinel": json.loads(sentinel.to_json()) if sentinel else None,
        "places": list(places(observed)),
    }


def _slim(record: Record) -> dict[str, Any]:
    slim: dict[str, Any] = json.loads(record.to_json())
    return {key: value for key, value in slim.items() if key not in ("fingerprint", "timing")}


def places(observed: Observations) -> Iterator[dict[str, Any]]:
    """Yield the ranked burst samples of each turn and workload with where they were taken.

    `turn` of `turns` is the position of the variant in its process, `places` of `of` those of the samples in their
    rounds, all from 0. The reference's own turns are left out: they are always first.
    """
    log = observed.log
    taken = [turn for turn in observed.turns if turn.burst and turn.variant != turn.reference]
    taken.sort(key=lambda turn: turn.began)
    for turn in taken:
        assert turn.burst is not None
        own = [each for each in taken if each.process == turn.process]
        calls = 2 * len(turn.burst["samples_ms"]) + bool(turn.burst["sentinel_ms"])
        for workload in turn.workloads:
            series = samples.burst(turn, workload, log)
            ranked = [at for at, counts in enumerate(series.counts) if counts]
            yield {
                "process": turn.process,
                "variant": turn.variant,
                "workload": workload,
                "turn": own.index(turn),
                "turns": len(own),
                "places": [turn.burst["places"][workload][at] for at in ranked],
                "of": calls,
                "samples_ms": [round(series.samples_ms[at], 6) for at in ranked],
            }
