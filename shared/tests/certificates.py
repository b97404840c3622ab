"""Made-up runs of the certificate's trials, with a truth that the tests put in."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sample_records import make_record

from fluxbench.analysis.certificate.runs import Form, Run, Trials
from fluxbench.records.schema import Record, SecondClock, Sentinel
from fluxbench.variants import slowed

BASES = ("torch_flash", "triton_flash")
WORKLOADS = {"flux1-1024px-t128": 0.4, "flux1-1024px-t256": 0.42, "flux1-1024px-t512": 0.47}  # ms of a call
PROCESSES, ROUNDS, CALLS = 3, 12, 7
FORMS = {
    f"{base}_{form}": Form(base=base, percent=percent, twin=form.endswith("_twin"))
    for form, percent in slowed.FORMS.items()
    for base in BASES
}
Moves = Callable[[int, float], float]  # place or turn as a share of the order, to a factor


def made_up(
    runs: int = 6,
    *,
    of_process: float = 0.0005,
    of_sample: float = 0.001,
    of_run: float = 0.0,
    works: float = 1.0,
    by_place: Callable[[int], float] = lambda place: 0.0,
    by_turn: Callable[[int], float] = lambda turn: 0.0,
    seed: int = 0,
) -> Trials:
    """Return trials of a harness that errs by these shares: of a variant in a process, of a sample, of it in a run.

    `works` is how much of each slowdown was really put in. `by_place` and `by_turn` move a time by a share that its
    place in the round or its turn in the process sets.
    """
    order = random.Random(seed)
    return Trials(
        runs=tuple(
            _run(number, order, of_process, of_sample, of_run, works, by_place, by_turn) for number in range(runs)
        ),
        forms=FORMS,
        asked=runs,
        device="NVIDIA Made Up",
        fingerprint={"device": "NVIDIA Made Up", "device_kind": "cuda"},
    )


def _run(
    number: int,
    order: random.Random,
    of_process: float,
    of_sample: float,
    of_run: float,
    works: float,
    by_place: Callable[[int], float],
    by_turn: Callable[[int], float],
) -> Run:
    taken: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    beside: dict[str, list[tuple[float, ...]]] = {}
    places: list[dict[str, Any]] = []
    moved = {name: order.gauss(1, of_run) for name in FORMS}
    for process in range(PROCESSES):
        names = list(FORMS)
        order.shuffle(names)
        for turn, name in enumerate(names):
            level = order.gauss(1, of_process) * moved[name] * (1 + works * FORMS[name].percent / 100)
            level *= 1 + by_turn(turn)
            beside.setdefault(name, []).append(tuple(0.4 * order.gauss(1, 0.0003) for _ in range(ROUNDS)))
            for workload, call_ms in WORKLOADS.items():
                at = [order.randrange(CALLS) for _ in range(ROUNDS)]
                times = tuple(call_ms * level * order.gauss(1, of_sample) * (1 + by_place(place)) for place in at)
                taken.setdefault((name, workload), []).append(times)
                places.append({
                    "process": process, "variant": name, "workload": workload, "turn": turn, "turns": len(names),
                    "places": at, "of": CALLS, "samples_ms": list(times),
                })  # fmt: skip
    found = tuple(_record(number, name, workload, parts) for (name, workload), parts in taken.items())
    sentinel = Sentinel(kernel="made up", samples_ms={name: tuple(parts) for name, parts in beside.items()})
    return Run(records=found, sentinel=sentinel, places=tuple(places), seconds=38.0)


def _record(number: int, variant: str, workload: str, parts: list[tuple[float, ...]]) -> Record:
    record = make_record(variant, workload, measured_at=f"2026-01-31T12:{number:02}:00+00:00")
    assert record.burst
    burst = replace(
        record.burst,
        samples_ms=tuple(sample for part in parts for sample in part),
        processes=len(parts),
        split=tuple(map(len, parts)),
    )
    return replace(
        record,
        notebook="certificate",
        cell="trials",
        burst=burst,
        timing=burst,
        fingerprint={"device": "NVIDIA Made Up", "device_kind": "cuda"},
        second_clock=SecondClock(events_ms=1.002, kernels_ms=0.99, span_ms=1.0),
    )
