"""Series of one variant to its records, all workloads in one pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from fluxbench import variants
from fluxbench.bench import believing, series
from fluxbench.bench.collected import Collected
from fluxbench.bench.series import ProcessSeries, Series, reference_of
from fluxbench.bench.state import with_state
from fluxbench.device.model import Device
from fluxbench.environments.cell import Cell
from fluxbench.operations.roofline import faster_than_possible
from fluxbench.operations.workload import Workload
from fluxbench.records.fingerprint import Fingerprint
from fluxbench.records.method import METHOD_VERSION
from fluxbench.records.schema import BURST, MEDIAN_WITHIN, RATIO_WITHIN, SUSTAINED, Flag, Record, Timing
from fluxbench.records.status import FlagKind, Status
from fluxbench.stats.intervals import Estimate, mean, mean_ratio, medians, quotients


@dataclass(frozen=True, kw_only=True)
class Context:
    """What all records of a cell have in common."""

    cell: Cell
    device: Device
    processes: int  # of which each must have measured what is PASSED
    fingerprint: Fingerprint
    measured_at: str  # UTC, ISO 8601
    powers: Mapping[str, tuple[float, float]]  # W by variant, and half its 95% interval; see `timing.energy`


def of_variant(collected: Collected, variant: str, workloads: Sequence[Workload], context: Context) -> Iterator[Record]:
    """Yield the record of a variant at each workload. PASSED needs samples of every process, and possible times."""
    taken = {workload.name: series.of(collected, variant, workload.name) for workload in workloads}
    timings = timings_of(variant, {name: its for name, its in taken.items() if len(its) == context.processes})
    for workload in workloads:
        its = taken[workload.name]
        found = timings.get(workload.name, {})
        failure = _failure(collected, variant, workload, its, found, context)
        yield _record(collected, variant, workload, its, {} if failure else found, failure, context)


@dataclass(frozen=True)
class _Failure:
    status: Status
    reason: str
    flag: Flag | None = None


def _failure(
    collected: Collected,
    variant: str,
    workload: Workload,
    taken: Sequence[ProcessSeries],
    timings: Mapping[str, Timing],
    context: Context,
) -> _Failure | None:
    """Return why a variant has no time at a workload, or None."""
    if failed := collected.failed.get((variant, workload.name)):
        return _Failure(failed.status, failed.reason)
    if len(taken) < context.processes:
        reason = f"timed in {len(taken)} of {context.processes} processes; the reference variant failed in the others"
        return _Failure(Status.ERROR, reason)
    kind = variants.find(variant).variant.precision_class
    for regime, timing in timings.items():
        if impossible := faster_than_possible(timing.median_ms, workload, context.device, kind):
            flag = Flag(kind=FlagKind.FASTER_THAN_ROOFLINE, regime=regime, value=timing.median_ms)
            return _Failure(Status.ERROR, f"{regime}: {impossible}", flag)
    if doubt := believing.doubt(collected, taken, workload.name, on_gpu=context.device.kind != "cpu"):
        return _Failure(Status.ERROR, doubt.reason, doubt.flag)
    return None


def _record(
    collected: Collected,
    variant: str,
    workload: Workload,
    taken: Sequence[ProcessSeries],
    timings: dict[str, Timing],
    failure: _Failure | None,
    context: Context,
) -> Record:
    formed = variants.find(variant)
    checked = collected.checked.get((variant, workload.name))
    failed = collected.failed.get((variant, workload.name))
    versions = dict(collected.versions)
    if versions and context.device.driver:
        versions["driver"] = context.device.driver
    record = Record(
        notebook=context.cell.notebook,
        cell=context.cell.id,
        variant=variant,
        kernel=formed.variant.name,
        form=formed.form.name,
        precision_class=formed.variant.precision_class,
        workload=workload,
        status=failure.status if failure else Status.PASSED,
        reason=failure.reason if failure else None,
        measured_at=context.measured_at,
        method_version=METHOD_VERSION,
        errors=(failed and failed.errors) or (checked.errors if checked else {}),
        timings=timings,
        flags=(failure.flag,) if failure and failure.flag else (),
        peak_memory_bytes=checked.peak_memory_bytes if checked else None,
        compile_s=checked.compile_s if checked else None,
        graph_breaks=checked.graph_breaks if checked else None,
        kernels=checked.kernels if checked else (),
        detail=checked.detail if checked else None,
        versions=versions,
        fingerprint=dict(context.fingerprint),
    )
    return record if failure else with_state(record, collected, taken, checked, context.powers, context.device)


def timings_of(variant: str, taken: Mapping[str, Sequence[ProcessSeries]]) -> dict[str, dict[str, Timing]]:
    """Return a variant's timings by workload and regime, each from the samples that its record holds."""
    found: dict[str, dict[str, Timing]] = {name: {} for name in taken}
    in_burst = {name: [(each.burst, each.burst.ranked(each.beside_ms)) for each in its] for name, its in taken.items()}
    for name, timing in _by_rounds(variant, taken, in_burst):
        found[name][BURST] = timing
    under_load = {
        name: [(each.sustained, each.anchor.ranked()) for each in its if each.sustained and each.anchor]
        for name, its in taken.items()
    }
    under_load = {name: sides for name, sides in under_load.items() if len(sides) == len(taken[name])}
    in_rounds = {name: sides for name, sides in under_load.items() if all(each.paired for each in taken[name])}
    for name, timing in _by_rounds(variant, taken, in_rounds):
        found[name][SUSTAINED] = timing
    for name, sides in under_load.items():
        if name not in in_rounds:
            own, beside, reference = _samples(taken[name], sides)
            series = [each for each, _ in sides]
            timing = _timing(variant, reference, series, own, beside, mean(own), mean_ratio(own, beside))
            found[name][SUSTAINED] = msgspec.structs.replace(timing, statistic="mean")
    return found


_Sides = Sequence[tuple[Series, Sequence[float]]]  # by process: a series, and the reference's ranked samples beside it
_Rounded = list[tuple[float, ...]]


def _by_rounds(
    variant: str, taken: Mapping[str, Sequence[ProcessSeries]], sides: Mapping[str, _Sides]
) -> Iterator[tuple[str, Timing]]:
    """Yield the timing at each workload from rounds that the reference shared: medians, and of ratios in a round."""
    several = {name: _samples(taken[name], its) for name, its in sides.items()}
    middles = medians([own for own, _, _ in several.values()])
    ratios = medians([quotients(own, beside) for own, beside, _ in several.values()])
    for (name, (own, beside, reference)), middle, ratio in zip(several.items(), middles, ratios, strict=True):
        yield name, _timing(variant, reference, [each for each, _ in sides[name]], own, beside, middle, ratio)


def _samples(taken: Sequence[ProcessSeries], sides: _Sides) -> tuple[_Rounded, _Rounded, str]:
    """Return ranked samples, those of the reference in the processes that had the one of ratios, and which it is."""
    reference = reference_of(taken)
    own = [_rounded(series.ranked()) for series, _ in sides]
    against = zip(taken, sides, strict=True)
    beside = [_rounded(its) if each.trial.timed.reference == reference else () for each, (_, its) in against]
    return own, beside, reference


def _rounded(samples_ms: Sequence[float]) -> tuple[float, ...]:
    """Return samples as a record holds them, so that all else of it follows from what it holds."""
    return tuple(round(sample, 6) for sample in samples_ms)


def _timing(
    variant: str,
    reference: str,
    series: Sequence[Series],
    samples_ms: Sequence[tuple[float, ...]],
    reference_ms: Sequence[tuple[float, ...]],
    middle: Estimate,
    ratio: Estimate,
) -> Timing:
    """Return the timing of one regime at a workload; the reference's own ratio is 1, without a width."""
    is_reference = variant == reference
    ratio = Estimate(1, 1, 1) if is_reference else ratio
    return Timing(
        median_ms=middle.value,
        ci95_ms=(middle.low, middle.high),
        samples_ms=tuple(samples_ms),
        reference_ms=() if is_reference else tuple(reference_ms),
        reference_variant=reference,
        ratio=ratio.value,
        ratio_ci95=(ratio.low, ratio.high),
        discarded=sum(len(each.counts) - sum(each.counts) for each in series),
        converged=_within(ratio, RATIO_WITHIN) and _within(middle, MEDIAN_WITHIN),
    )


def _within(estimate: Estimate, share: float) -> bool:
    return (estimate.high - estimate.low) / 2 <= share * estimate.value
