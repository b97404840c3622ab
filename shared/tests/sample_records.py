"""Records of schema 2 for tests and previews; every number is made up."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fluxbench.device.model import Device
from fluxbench.operations import sets
from fluxbench.operations.workload import Workload
from fluxbench.records.method import METHOD_VERSION
from fluxbench.records.schema import BURST, SUSTAINED, Cupti, Errors, Flag, KernelShare, Record, Telemetry, Timing
from fluxbench.records.status import FlagKind, Status
from fluxbench.report.results import Results

REASONS = {
    Status.INCORRECT: "rel_l2 0.21 is over the budget of 0.0061.",
    Status.UNSUPPORTED: "needs compute capability 9.0, this device has 8.0",
    Status.UNAVAILABLE: "no wheel for this Python and CUDA",
    Status.OUT_OF_MEMORY: "asked for 25.4 GiB with 12.1 GiB free",
    Status.TIMEOUT: "no answer within 600 s",
    Status.CRASHED: "the worker ended on signal 11",
    Status.ERROR: "another kernel ran than the one asked for: math instead of flash",
}
H200 = Device(
    kind="cuda", name="NVIDIA H200", driver="580.10", cuda="13.0", compute_capability=(9, 0), power_limit_w=700.0
)
CPU = Device(kind="cpu", name="AMD EPYC 9B14", cores=8)
LAUNCH_BOUND = Flag(kind=FlagKind.LAUNCH_BOUND, regime=SUSTAINED, value=3)
REPLAYED = Flag(kind=FlagKind.REPLAYED, regime=SUSTAINED, value=0.75)
# Of a record some of whose processes replayed calls in a row, and one was refused a CUDA graph.
PARTLY_REPLAYED = (
    Flag(kind=FlagKind.REPLAYED, regime=BURST, value=45.0),
    Flag(kind=FlagKind.NOT_REPLAYED, regime=BURST, value=1, detail="a replay returns another logits than a call"),
)
REFERENCE = "torch_flash"
SAMPLES = 2  # of each process: five, whose means have such intervals
_SUFFIXES = ("_compile_d", "_compile_ma", "_copy", "_blocks")
_OUTPUTS = {"attention_backward": ("dq", "dk", "dv"), "attention_training": ("out", "dq", "dk", "dv")}


def record(
    variant: str = REFERENCE,
    workload: str | Workload = "flux1-1024px-t512",
    sustained_ms: float = 1.0,
    *,
    burst_ms: float | None = None,
    reference_ms: float = 1.0,
    ci: float = 0.005,
    burst_ci: float = 0.001,
    regimes: Sequence[str] = (BURST, SUSTAINED),
    converged: Mapping[str, bool | None] | None = None,
    precision_class: str = "exact",
    rel_l2: float | None = 0.003,
    status: Status = Status.PASSED,
    reason: str | None = None,
    flags: Sequence[Flag] = (),
    measured_at: str = "2026-01-31T12:00:00+00:00",
    **fields: Any,
) -> Record:
    """Return a record of one variant at one workload, of which a workload's name may stand for the workload.

    Its 95% intervals reach `ci` and `burst_ci` (shares) to either side. The reference, torch_flash, takes
    `reference_ms` sustained and 0.9 times that in burst, as everything does where no `burst_ms` is given; ratios follow
    from the times. `converged` is by regime. `fields` are further fields of the record, in place of the made-up ones.
    """
    shape = sets.by_name()[workload] if isinstance(workload, str) else workload
    ms = {BURST: burst_ms or 0.9 * sustained_ms, SUSTAINED: sustained_ms}
    of_reference = {BURST: 0.9 * reference_ms, SUSTAINED: reference_ms}
    shares = {BURST: burst_ci, SUSTAINED: ci}
    passed = status is Status.PASSED
    if status is Status.INCORRECT:
        rel_l2 = 0.21
    found: dict[str, Any] = {
        "notebook": "flux",
        "cell": _kernel(variant),
        "variant": variant,
        "kernel": _kernel(variant),
        "form": variant.removeprefix(_kernel(variant)).removeprefix("_") or "eager",
        "precision_class": precision_class,
        "workload": shape,
        "status": status,
        "reason": None if passed else reason or REASONS[status],
        "measured_at": measured_at,
        "method_version": METHOD_VERSION,
        "flags": tuple(flags),
        "versions": {"torch": "2.9.0", "driver": "580.10", "cuda": "13.0", "cudnn": "9.12"},
    }
    if passed or status is Status.INCORRECT:
        outputs = _OUTPUTS.get(shape.operation, ("out",))
        found["errors"] = {name: errors(rel_l2, 0.0061 if precision_class == "exact" else 0.06) for name in outputs}
    if passed:
        found["timings"] = {
            regime: timing(
                ms[regime],
                variant,
                ratio=ms[regime] / of_reference[regime],
                ci=shares[regime],
                converged=(converged or {}).get(regime),
                statistic="mean" if regime == SUSTAINED else "median",
            )
            for regime in regimes
        }
        found |= {
            "telemetry": {regime: value for regime, value in TELEMETRY.items() if regime in regimes},
            "energy_mj": 250.0 if SUSTAINED in regimes else None,
            "energy_ci95_mj": (247.0, 253.0) if SUSTAINED in regimes else None,
            "launch_ms": 0.06,
            "cupti": Cupti(events_ms=ms[BURST], kernels_ms=ms[BURST] * 0.999, span_ms=ms[BURST]),
            "device_s": 1.1,
            "peak_memory_bytes": 28_311_552,
            "kernels": (KernelShare(name="flash_fwd_kernel", share=0.97, part="attention"),),
        }
    return Record(**(found | fields))


TELEMETRY = {
    BURST: Telemetry(sm_clock_mhz=1980.0, power_w=150.0, temperature_c=41.0),
    SUSTAINED: Telemetry(sm_clock_mhz=1755.0, power_w=640.0, temperature_c=61.0),
}


def errors(rel_l2: float | None = 0.003, budget_rel_l2: float = 0.0061, **fields: Any) -> Errors:
    """Return errors of one output; the Flux-like inputs are the worse ones."""
    found: dict[str, Any] = {
        "rel_l2": rel_l2,
        "max_abs": 0.011,
        "mean_abs": 0.0004,
        "mse": 3.1e-7,
        "cosine": 0.999996,
        "nan_count": 0,
        "budget_rel_l2": budget_rel_l2,
        "rel_l2_by_inputs": {"normal": 0.0023 if rel_l2 is None else min(0.0023, rel_l2), "flux": rel_l2},
    }
    return Errors(**(found | fields))


def timing(
    median_ms: float,
    variant: str,
    *,
    ratio: float = 1.0,
    ci: float = 0.005,
    converged: bool | None = None,
    **fields: Any,
) -> Timing:
    """Return a timing whose interval reaches `ci` (a share) to either side; the reference's ratio is 1 exactly."""
    middle, width = (1.0, 0.0) if variant == REFERENCE else (ratio, ci)
    found: dict[str, Any] = {
        "median_ms": median_ms,
        "ci95_ms": (median_ms * (1 - ci), median_ms * (1 + ci)),
        "samples_ms": tuple((median_ms * math.exp(ci * share),) * SAMPLES for share in (-1, -0.5, 0, 0.5, 1)),
        "reference_variant": REFERENCE,
        "ratio": middle,
        "ratio_ci95": (middle * (1 - width), middle * (1 + width)),
        "converged": converged,
    }
    return Timing(**(found | fields))


def changed(of: Record, **fields: Any) -> Record:
    """Return a record with other values in some fields."""
    return msgspec.structs.replace(of, **fields)


def results(*records: Record, device: Device = H200, **fields: Any) -> Results:
    """Return what a page with these records is drawn from."""
    found: dict[str, Any] = {"notebook": "flux", "device": device, "records": records}
    return Results(**(found | fields))


def _kernel(variant: str) -> str:
    suffix = next((suffix for suffix in _SUFFIXES if variant.endswith(suffix)), "")
    return variant.removesuffix(suffix)
