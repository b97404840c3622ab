"""What workers saw, and how it becomes a record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fluxbench import statistics
from fluxbench.cell import Cell
from fluxbench.hardware import Device
from fluxbench.records import Correctness, Kernel, Record, Sentinel, Status, Telemetry, Timing
from fluxbench.telemetry import Reading, summarize
from fluxbench.workloads import Workload

Pair = tuple[str, str]  # variant, workload


@dataclass(frozen=True, kw_only=True)
class Block:
    """The samples that one process took of one workload."""

    reference: str
    samples_ms: Mapping[str, list[float]]
    began: float  # monotonic seconds
    ended: float


@dataclass
class Observations:
    """What has been seen so far of a cell's variants and workloads."""

    checked: dict[Pair, dict[str, Any]] = field(default_factory=dict)
    failed: dict[Pair, tuple[Status, str, dict[str, Any] | None]] = field(default_factory=dict)
    blocks: dict[str, list[Block]] = field(default_factory=dict)  # by workload, one a process
    readings: list[Reading] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    sentinel: str | None = None  # what it is, where the device has one
    ceilings: list[dict[str, float]] = field(default_factory=list)  # one a process; see `fluxbench.ceilings`

    def fail(
        self, variant: str, workload: str, status: Status, reason: str, correctness: dict[str, Any] | None = None
    ) -> None:
        """Note that a pair failed; the first failure of a pair stands."""
        self.failed.setdefault((variant, workload), (status, reason, correctness))

    def add(self, event: dict[str, Any]) -> None:
        """Take in one event of a worker; see `fluxbench.worker` for what they are."""
        match event["event"]:
            case "ready":
                self.versions = event["versions"]
            case "sentinel":
                self.sentinel = (
                    event.get("description") or self.sentinel
                )  # one process without it costs its own samples
            case "ceilings":
                self.ceilings.append({key: value for key, value in event.items() if key != "event"})
            case "checked":
                self.checked.setdefault((event["variant"], event["workload"]), event)
            case "failed":
                status = Status(event["status"])
                self.fail(event["variant"], event["workload"], status, event["reason"], event.get("correctness"))
            case "timed":
                block = Block(
                    reference=event["reference"],
                    samples_ms=event["samples_ms"],
                    began=event["began"],
                    ended=event["ended"],
                )
                self.blocks.setdefault(event["workload"], []).append(block)

    def rounds(self) -> dict[str, dict[str, int]]:
        """Return how many samples the first process took, by workload and variant."""
        return {
            workload: {name: len(samples) for name, samples in blocks[0].samples_ms.items()}
            for workload, blocks in self.blocks.items()
        }


def to_sentinel(observed: Observations) -> Sentinel | None:
    """Return the times of the sentinel at every workload that was timed; None where the device has none."""
    if observed.sentinel is None:
        return None
    return Sentinel(
        kernel=observed.sentinel,
        samples_ms={
            workload: tuple(
                tuple(round(sample, 6) for sample in block.samples_ms.get("sentinel", ())) for block in blocks
            )
            for workload, blocks in observed.blocks.items()
        },
    )


def to_record(
    observed: Observations,
    this: Cell,
    variant: str,
    workload: Workload,
    *,
    fingerprint: Mapping[str, Any],
    measured_at: str,
    processes: int,
    device: Device,
) -> Record:
    """Return the record of one variant at one workload. PASSED needs samples from every process."""
    pair = (variant, workload.name)
    seen = observed.checked.get(pair, {})
    errors = seen.get("correctness")
    blocks = [block for block in observed.blocks.get(workload.name, []) if variant in block.samples_ms]
    status, reason = Status.PASSED, None
    if pair in observed.failed:
        status, reason, failed_errors = observed.failed[pair]
        errors = failed_errors or errors
    elif len(blocks) < processes:
        status = Status.ERROR
        reason = f"timed in {len(blocks)} of {processes} processes; the reference variant failed in the others"
    passed = status is Status.PASSED
    versions = dict(observed.versions)
    if versions and device.driver:
        versions["driver"] = device.driver
    return Record(
        notebook=this.notebook,
        cell=this.id,
        variant=variant,
        workload=workload,
        status=status,
        reason=reason,
        measured_at=measured_at,
        correctness=Correctness(**errors) if errors else None,
        timing=_timing(variant, blocks) if passed else None,
        telemetry=_telemetry(observed.readings, blocks) if passed else None,
        peak_memory_bytes=seen.get("peak_memory_bytes"),
        compile_s=seen.get("compile_s"),
        graph_breaks=seen.get("graph_breaks"),
        kernels=tuple(Kernel(**kernel) for kernel in seen.get("kernels", [])),
        versions=versions,
        fingerprint=fingerprint,
    )


def _timing(variant: str, blocks: list[Block]) -> Timing:
    samples = [block.samples_ms[variant] for block in blocks]
    reference = blocks[0].reference
    middle = statistics.median(samples)
    ratio = statistics.ratio(samples, [block.samples_ms[reference] for block in blocks])
    if variant == reference:
        ratio = statistics.Estimate(1.0, 1.0, 1.0)
    return Timing(
        regime="sustained",
        median_ms=middle.value,
        ci95_ms=(middle.low, middle.high),
        processes=len(blocks),
        samples_ms=tuple(round(sample, 6) for part in samples for sample in part),
        reference_variant=reference,
        ratio=ratio.value,
        ratio_ci95=(ratio.low, ratio.high),
    )


def _telemetry(readings: list[Reading], blocks: list[Block]) -> Telemetry:
    return summarize(r for r in readings if any(block.began <= r.time_s <= block.ended for block in blocks))
