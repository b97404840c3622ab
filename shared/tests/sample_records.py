"""Synthetic records for tests and previews; every number is made up."""

from __future__ import annotations

import dataclasses

from fluxbench.operations.workloads import BY_NAME, Workload
from fluxbench.records.schema import Correctness, Kernel, Record, SecondClock, Status, Telemetry, Timing

REASONS = {
    Status.INCORRECT: "rel_l2 0.21 is over the budget of 0.0061.",
    Status.UNSUPPORTED: "needs compute capability 9.0, this device has 8.0",
    Status.UNAVAILABLE: "no wheel for this Python and CUDA",
    Status.OUT_OF_MEMORY: "asked for 25.4 GiB with 12.1 GiB free",
    Status.TIMEOUT: "no answer within 600 s",
    Status.CRASHED: "the worker ended on signal 11",
    Status.ERROR: "another kernel ran than the one asked for: math instead of flash",
}
LATE = ("sustained: the host was hardly ahead of the device in all processes: launching is what was timed",)


def make_record(
    variant: str = "torch_flash",
    workload: str | Workload = "flux1-1024px-t512",
    median_ms: float = 1.0,
    *,
    ratio: float | None = None,
    interval: float = 0.005,
    reference_ms: float = 1.0,
    precision_class: str = "exact",
    status: Status = Status.PASSED,
    reason: str | None = None,
    kernel: str = "flash_fwd_kernel",
    compile_s: float | None = None,
    graph_breaks: int | None = None,
    measured_at: str = "2026-01-31T12:00:00Z",
    versions: dict[str, str] | None = None,
) -> Record:
    """Return a record whose 95% intervals reach `interval` (a share) to either side; `ratio` follows from the times."""
    workload = BY_NAME[workload] if isinstance(workload, str) else workload
    passed = status is Status.PASSED
    checked = passed or status is Status.INCORRECT
    middle = median_ms / reference_ms if ratio is None else ratio
    is_reference = variant == "torch_flash"
    return Record(
        notebook="flux",
        cell=variant,
        variant=variant,
        workload=workload,
        status=status,
        reason=None if passed else reason or REASONS[status],
        measured_at=measured_at,
        correctness=Correctness(
            rel_l2=0.003 if passed else 0.21,
            max_abs=0.011,
            mean_abs=0.0004,
            mse=3.1e-7,
            cosine=0.999996,
            nan_count=0,
            budget_rel_l2=0.0061 if precision_class == "exact" else 0.06,
            precision_class=precision_class,
            rel_l2_by_inputs={"normal": 0.0023, "flux": 0.003 if passed else 0.21},
        )
        if checked
        else None,
        timing=Timing(
            regime="sustained",
            median_ms=median_ms,
            ci95_ms=(median_ms * (1 - interval), median_ms * (1 + interval)),
            processes=5,
            samples_ms=(median_ms,) * 10,
            reference_variant="torch_flash",
            ratio=1.0 if is_reference else middle,
            ratio_ci95=(1.0, 1.0) if is_reference else (middle * (1 - interval), middle * (1 + interval)),
        )
        if passed
        else None,
        burst=Timing(
            regime="burst",
            median_ms=median_ms * 0.9,
            ci95_ms=(median_ms * 0.899, median_ms * 0.901),
            processes=5,
            samples_ms=(median_ms * 0.9,) * 10,
            reference_variant="torch_flash",
            ratio=1.0 if is_reference else middle,
            ratio_ci95=(1.0, 1.0) if is_reference else (middle * 0.999, middle * 1.001),
        )
        if passed
        else None,
        telemetry=Telemetry(sm_clock_mhz=1755.0, power_w=640.0, temperature_c=61.0) if passed else None,
        burst_telemetry=Telemetry(sm_clock_mhz=1980.0, power_w=150.0, temperature_c=41.0) if passed else None,
        energy_mj=250.0 if passed else None,
        energy_ci95_mj=(247.0, 253.0) if passed else None,
        launch_ms=0.06 if passed else None,
        second_clock=SecondClock(events_ms=median_ms * 0.9, kernels_ms=median_ms * 0.899, span_ms=median_ms * 0.9)
        if passed
        else None,
        device_s=1.1 if passed else None,
        peak_memory_bytes=28_311_552 if passed else None,
        compile_s=compile_s,
        graph_breaks=graph_breaks,
        kernels=(Kernel(name=kernel, share=0.97),) if passed else (),
        versions=versions or {"torch": "2.9.0", "driver": "580.10", "cuda": "13.0", "cudnn": "9.12"},
    )


def rested(record: Record, burst_ms: float, *, precise: bool | None = None, reference_ms: float = 1.0) -> Record:
    """Return a PASSED record with another burst time, of which the 95% interval reaches 0.1% to either side."""
    assert record.burst
    ratio = record.burst.ratio if record.variant == "torch_flash" else burst_ms / reference_ms
    width = 0.0 if record.variant == "torch_flash" else 0.001
    burst = dataclasses.replace(
        record.burst,
        median_ms=burst_ms,
        ci95_ms=(burst_ms * 0.999, burst_ms * 1.001),
        samples_ms=(burst_ms,) * 10,
        ratio=ratio,
        ratio_ci95=(ratio * (1 - width), ratio * (1 + width)),
        precise=precise,
    )
    return dataclasses.replace(record, burst=burst)


def launched_late(record: Record) -> Record:
    """Return a record as it is where the host launched too slowly."""
    return dataclasses.replace(record, marks=LATE)


def of_old(record: Record) -> Record:
    """Return a record as it was before bursts, energy and the second clock, with the errors of one kind of inputs."""
    absent = ("burst", "burst_telemetry", "energy_mj", "energy_ci95_mj", "launch_ms", "second_clock", "device_s")
    checked = record.correctness and dataclasses.replace(record.correctness, rel_l2_by_inputs={})
    return dataclasses.replace(record, correctness=checked, **dict.fromkeys(absent))  # type: ignore[arg-type]
