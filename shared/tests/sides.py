"""Made-up sides of a comparison, with the spread of an H200."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from sample_records import changed, record

from fluxbench.analysis.comparison.model import CellKey, Comparison, Measured, Row
from fluxbench.operations import sets
from fluxbench.records.files import ControlTimes
from fluxbench.records.schema import BURST, SUSTAINED, Record, Timing
from fluxbench.records.status import Status

PROCESS_SD, SAMPLE_SD, SUSTAINED_SD = 0.0012, 0.005, 0.005  # shares: between processes, within one, of sustained times
CELLS = {"sdpa": ("torch_flash", "torch_math"), "flex": ("flex", "flex_compile_d"), "triton": ("triton_flash",)}
WORKLOADS = tuple(workload.name for workload in sets.sets()["flux1-1024px"])
FINGERPRINT = {"device": "NVIDIA H200", "device_kind": "cuda", "card": "a1", "driver": "580", "code.timing": "a"}
KERNEL = "a fixed matrix product"

Factor = Callable[[str], float]
Parts = tuple[tuple[float, ...], ...]


def only(variant: str, factor: float) -> Factor:
    return lambda name: factor if name == variant else 1.0


def draw(rng: np.random.Generator, median_ms: float, spread: float = PROCESS_SD) -> Parts:
    """Return made-up samples of three processes around a time."""
    logs = rng.normal(0, spread, (3, 1)) + rng.normal(0, SAMPLE_SD, (3, 60))
    return tuple(map(tuple, (median_ms * np.exp(logs)).tolist()))


def sampled(timing: Timing, samples: Parts) -> Timing:
    middle = float(np.median(np.concatenate([np.array(part) for part in samples])))
    return msgspec.structs.replace(timing, samples_ms=samples, median_ms=middle, ci95_ms=(middle, middle))


def timed(of: Record, burst: Parts, sustained: Parts | None = None) -> Record:
    """Return a record with these samples; sustained ones are the same where none are given."""
    samples = {BURST: burst, SUSTAINED: sustained or burst}
    return changed(of, timings={regime: sampled(timing, samples[regime]) for regime, timing in of.timings.items()})


def side(
    name: str,
    seed: int,
    variant: Factor = lambda _: 1.0,
    device: float = 1.0,
    *,
    load: Factor = lambda _: 1.0,
    kernel: str | None = KERNEL,
    **fields: Any,
) -> Measured:
    """Return a side on which variants, and the control kernel, take so many times as long; without `kernel` no control.

    Under sustained load a variant takes `load` times as long on top of that. `fields` are of all records.
    """
    rng = np.random.default_rng(seed)
    found: list[Record] = []
    controls: dict[CellKey, ControlTimes] = {}
    for cell, names in CELLS.items():
        for which in names:
            for number, workload in enumerate(WORKLOADS, start=1):
                own: dict[str, Any] = {"cell": cell, "fingerprint": FINGERPRINT, "measured_at": name, **fields}
                burst_ms = 0.5 * number * device * variant(which)
                sustained = draw(rng, 1.1 * load(which) * burst_ms, SUSTAINED_SD)
                found.append(timed(record(which, workload, **own), draw(rng, burst_ms), sustained))
        if kernel:
            controls["flux", cell] = control({which: draw(rng, 0.3 * device) for which in names}, kernel)
    return Measured(name=name, records=tuple(found), controls=controls)


def control(samples: dict[str, Parts], kernel: str = KERNEL) -> ControlTimes:
    return ControlTimes(kernel=kernel, samples_ms=samples)


def edited(whole: Measured, edit: Callable[[Record], Record | None]) -> Measured:
    """Return a side with each record edited, or left out where that gives None."""
    records = tuple(new for old in whole.records if (new := edit(old)))
    return Measured(name=whole.name, records=records, controls=whole.controls)


def with_controls(whole: Measured, controls: dict[CellKey, ControlTimes]) -> Measured:
    return Measured(name=whole.name, records=whole.records, controls=controls)


def before_burst(whole: Measured) -> Measured:
    """Return a side as it was measured before there were burst times."""
    return edited(whole, lambda r: changed(r, timings={SUSTAINED: r.timings[BURST]}))


def failing(of: Record, status: Status = Status.CRASHED) -> Record:
    own = {"measured_at": of.measured_at, "cell": of.cell, "fingerprint": of.fingerprint}
    return record(of.variant, of.workload, status=status, **own)  # type: ignore[arg-type]


def rows_of(comparison: Comparison, variant: str) -> tuple[Row, ...]:
    return tuple(row for row in comparison.rows if row.variant == variant)
