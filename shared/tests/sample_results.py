"""Results of which every figure draws something."""

from __future__ import annotations

from sample_records import H200, LAUNCH_BOUND, REFERENCE, changed, record, results

from fluxbench.operations import sets
from fluxbench.records import fingerprint
from fluxbench.records.schema import Cupti, Record
from fluxbench.records.status import Status
from fluxbench.report.results import Results

SHORT, LONG = "flux1-1024px-t448", "flux1-1024px-t512"
CUPTI = Cupti(events_ms=0.72, kernels_ms=0.7, span_ms=0.72, parts_ms={"attention": 0.6, "copies": 0.1})
FINGERPRINT = {**fingerprint.of_device(H200)}
# Burst and sustained differ, and would rank the other way round.
SMALL = [
    record(variant, workload, ms * long, burst_ms=burst * long, reference_ms=0.8 * long, cupti=CUPTI)
    for workload, long in ((SHORT, 0.9), (LONG, 1.0))
    for variant, ms, burst in ((REFERENCE, 0.8, 0.72), ("torch_flash_copy", 0.9, 0.8), ("torch_cudnn", 0.4, 0.9))
]


def of_revision(month: int, variant: str, ms: float, *, method_version: int = 6) -> Record:
    """Return a record of a driver and a torch of its own."""
    return record(
        variant,
        LONG,
        ms,
        measured_at=f"2026-0{month}-15T12:00:00+00:00",
        versions={"driver": f"58{month}.10", "torch": f"2.{8 + month}.0"},
        fingerprint=FINGERPRINT,
        method_version=method_version,
    )


def everything() -> Results:
    """Return results of which every figure draws something: forms, classes, endings, revisions, two operations."""
    return results(
        *(changed(one, fingerprint=FINGERPRINT) for one in SMALL),
        *(record("torch_eager", one, 2.0) for one in (SHORT, LONG)),
        record("flash_attn_3_fp8", LONG, 0.3, precision_class="quantized", rel_l2=0.04),
        record("flex", LONG, 0.5, flags=[LAUNCH_BOUND]),
        record("flash_attn_4", LONG, status=Status.UNSUPPORTED),
        record('a<b>&"c]]>\x01', LONG, 2.0, fingerprint=FINGERPRINT),
        *(record(variant, one, status=Status.TIMEOUT) for variant, one in (("b", LONG), ("a", SHORT))),
        *(record(REFERENCE, one, 1.0) for one in sets.named(["llama3-8b-decode", "flux1-512px-backward"])),
        record("flex", "wan-720p", status=Status.CRASHED),
        earlier=tuple(of_revision(1, variant, 1.1) for variant in (REFERENCE, "torch_cudnn")),
        rates={"matmul_tflops": 700.0},
    )
