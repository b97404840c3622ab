"""Pages of records with planted effects: kernels that are equal but for what a test gives them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
from sample_records import REFERENCE, changed, record

from fluxbench.analysis.groups import Group, groups
from fluxbench.operations import sets
from fluxbench.operations.workload import Workload
from fluxbench.records.schema import BURST, SUSTAINED, Cupti, Record

LENGTHS = sets.sets()["flux1-1024px"]
LONGEST_MS = 0.4  # of every kernel, sustained, at the longest text
PROCESSES, ROUNDS, WINDOWS = 3, 12, 4
# Standard deviations: of a process sustained, at all lengths and at each; of a process in burst; of a sample.
COMMON, OWN, IN_BURST, SAMPLE = 0.003, 0.001, 0.0003, 0.003
EQUAL = (
    "torch_flash",
    "torch_cudnn",
    "torch_efficient",
    "flash_attn_2",
    "flash_attn_3",
    "flash_attn_4",
    "triton_flash",
)
Times = Callable[[Workload], float] | float  # how many times the common time a kernel takes


def at(lengths: Mapping[int, float]) -> Callable[[Workload], float]:
    """Return factors by text tokens, 1 elsewhere."""
    return lambda workload: lengths.get(workload.x, 1.0)


def kernel(
    variant: str,
    sustained: Times = 1.0,
    burst: Times | None = None,
    *,
    parts: Mapping[str, float] | None = None,
    own: float = OWN,
    joules: float | None = 1.0,
    seed: int = 0,
    **fields: Any,
) -> list[Record]:
    """Return a variant's records at all lengths, in burst 0.9 times as long as sustained if nothing else is said.

    `parts` are shares of the profiled call, the rest of it attention. `joules` is its energy over the common one, known
    to 0.5%; None: unknown.
    """
    rng = np.random.default_rng([seed, *variant.encode()])
    common, in_burst = rng.normal(0, COMMON, PROCESSES), rng.normal(0, IN_BURST, PROCESSES)
    records = []
    for workload in LENGTHS:
        base = LONGEST_MS * workload.cost.flops / LENGTHS[-1].cost.flops
        ms, burst_ms = base * _factor(sustained, workload), 0.9 * base * _factor(burst or sustained, workload)
        middles = ms * np.exp(common + rng.normal(0, own, PROCESSES))
        windows = middles[:, None] * np.exp(rng.normal(0, SAMPLE, (PROCESSES, WINDOWS)))
        clock = np.exp(rng.normal(0, SAMPLE, (PROCESSES, ROUNDS)))
        single = burst_ms * clock * np.exp(in_burst[:, None] + rng.normal(0, SAMPLE / 3, clock.shape))
        made = record(variant, workload, ms, burst_ms=burst_ms, **fields)
        beside = 0.9 * base * clock if variant != REFERENCE else ()
        timings = {
            SUSTAINED: _with(made, SUSTAINED, windows, ()),
            BURST: _with(made, BURST, single, beside),
        }
        energy = 250.0 * base * joules if joules else None
        shares = {**(parts or {}), "attention": 1 - math.fsum((parts or {}).values())}
        profiled = {name: share * burst_ms for name, share in shares.items()}
        records.append(
            changed(
                made,
                timings=timings,
                energy_mj=energy,
                energy_ci95_mj=(0.995 * energy, 1.005 * energy) if energy else None,
                cupti=Cupti(events_ms=burst_ms, kernels_ms=burst_ms, span_ms=burst_ms, parts_ms=profiled),
            )
        )
    return records


def page(*planted: list[Record], seed: int = 0, equal: tuple[str, ...] = EQUAL) -> Group:
    """Return the group of planted variants beside equal ones."""
    named = {records[0].variant for records in planted}
    others = [kernel(variant, seed=seed) for variant in equal if variant not in named]
    [group] = groups([record for records in (*others, *planted) for record in records])
    return group


def _factor(times: Times, workload: Workload) -> float:
    return times(workload) if callable(times) else times


def _with(of: Record, regime: str, samples: Any, beside: Any) -> Any:
    rows = tuple(tuple(map(float, row)) for row in samples)
    return msgspec.structs.replace(
        of.timings[regime], samples_ms=rows, reference_ms=tuple(tuple(map(float, row)) for row in beside)
    )
