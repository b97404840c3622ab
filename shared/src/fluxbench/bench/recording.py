"""Series of a cell to its records: all variants and workloads in one pass, since intervals are of the whole cell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from fluxbench import studies, variants
from fluxbench.bench import believing, series
from fluxbench.bench.collected import Collected, Pair
from fluxbench.bench.series import ProcessSeries
from fluxbench.bench.state import kernels_of, with_state
from fluxbench.bench.timings import LEAST, is_slow, timings_of
from fluxbench.device.model import Device
from fluxbench.environments.cell import Cell
from fluxbench.operations import whole_of
from fluxbench.operations.roofline import faster_than_possible
from fluxbench.operations.workload import Workload
from fluxbench.records import method
from fluxbench.records.fingerprint import Fingerprint
from fluxbench.records.schema import SUSTAINED, Flag, Record, Timing
from fluxbench.records.status import FlagKind, Status


@dataclass(frozen=True, kw_only=True)
class Context:
    """What all records of a cell have in common."""

    cell: Cell
    device: Device
    processes: int  # at least, that must have measured what is PASSED
    fingerprint: Fingerprint
    measured_at: str  # UTC, ISO 8601
    early: bool = False  # the cell goes on: not all has been checked
    powers: Mapping[Pair, tuple[float, float]]  # W, and half its 95% interval; see `timing.energy`


def of_cell(
    collected: Collected, names: Iterable[str], workloads: Sequence[Workload], context: Context
) -> Iterator[Record]:
    """Yield the record of each variant at each workload.

    PASSED needs possible times, and samples of three processes: of two where the variant is far slower than the
    reference at all workloads of the operation, and of those that share its processes. More of them may have measured
    other workloads: a process in which a reference fails at one costs no row.
    """
    cell = series.of_cell(collected)
    timings = timings_of(cell, {workload.name: workload.operation for workload in workloads})
    wholes = {workload.name: whole_of(workload.operation) for workload in workloads}
    study = studies.find(context.cell.study)
    apart = study.unlike_lengths or any(len(trial.timed.blocks) > 1 for trial in collected.trials)
    version = method.present(on_gpu=context.device.kind == "cuda", apart=apart)
    for variant in names:
        taken, found_of = cell.get(variant, {}), timings.get(variant, {})
        needed = {
            whole: _needed([found_of.get(name, {}) for name in wholes if wholes[name] == whole], context)
            for whole in set(wholes.values())
        }
        for workload in workloads:
            its = taken.get(workload.name, [])
            found = found_of.get(workload.name, {}) if its else {}
            failure = _failure(collected, variant, workload, its, found, context, needed[wholes[workload.name]])
            record = _record(collected, variant, workload, its, {} if failure else found, failure, context, version)
            if context.early:
                record = msgspec.structs.replace(record, flags=(*record.flags, Flag(kind=FlagKind.EARLY)))
            yield record


def _needed(timings: Iterable[Mapping[str, Timing]], context: Context) -> int:
    """Return how many processes must have measured a variant at each of the workloads of which these are timings."""
    sustained = [its[SUSTAINED].ratio for its in timings if SUSTAINED in its]
    return min(LEAST, context.processes) if is_slow(sustained) else context.processes


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
    needed: int,
) -> _Failure | None:
    """Return why a variant has no time at a workload, or None."""
    if failed := collected.failed.get((variant, workload.name)):
        return _Failure(failed.status, failed.reason)
    if taken and (changed := _changed_versions(collected)):
        return _Failure(Status.ERROR, f"packages have changed while it was measured: {changed}")
    checked = collected.checked.get((variant, workload.name))
    if taken and not context.early and not (checked and checked.thorough):
        return _Failure(Status.ERROR, "it was not checked on all kinds of inputs")
    kernels = kernels_of(checked, workload.name, taken)
    for each in taken:
        profiled = each.trial.timed.profiled.get(workload.name)
        if profiled and (other := believing.another_kernel(kernels, profiled.names)):
            return _Failure(Status.ERROR, f"{other} in process {each.trial.timed.process + 1}")
    if len(taken) < needed:
        reason = f"timed in {len(taken)} of {needed} processes; the reference variant failed in the others"
        return _Failure(Status.ERROR, reason)
    if taken and not timings:
        reason = f"timed in {len(taken)} processes; its other workloads in more, so it cannot share their intervals"
        return _Failure(Status.ERROR, reason)
    kind = variants.find(variant).variant.precision_class
    for regime, timing in timings.items():
        if impossible := faster_than_possible(timing.median_ms, workload, context.device, kind):
            flag = Flag(kind=FlagKind.FASTER_THAN_ROOFLINE, regime=regime, value=timing.median_ms)
            return _Failure(Status.ERROR, f"{regime}: {impossible}", flag)
    if doubt := believing.doubt(collected, taken, workload.name, on_gpu=context.device.kind != "cpu"):
        beside = f" ({'; '.join(collected.others)} used the device too)" if collected.others else ""
        return _Failure(Status.ERROR, doubt.reason + beside, doubt.flag)
    return None


def _changed_versions(collected: Collected) -> str:
    """Return in what the versions of two workers differ; "" where all have the same."""
    one, other = collected.versions, collected.others_versions
    keys = sorted(key for key in one.keys() | other.keys() if other and one.get(key) != other.get(key))
    return ", ".join(f"{key} {one.get(key, 'none')} and {other.get(key, 'none')}" for key in keys)


def _record(
    collected: Collected,
    variant: str,
    workload: Workload,
    taken: Sequence[ProcessSeries],
    timings: dict[str, Timing],
    failure: _Failure | None,
    context: Context,
    version: int,
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
        method_version=version,
        errors=(failed and failed.errors) or (checked.errors if checked else {}),
        timings=timings,
        flags=(failure.flag,) if failure and failure.flag else (),
        peak_memory_bytes=checked.memory.call_bytes if checked and checked.memory else None,
        memory=checked.memory if checked else None,
        shortage=failed.shortage if failed else None,
        compile_s=checked.compile_s if checked else None,
        graph_breaks=checked.graph_breaks if checked else None,
        kernels=kernels_of(checked, workload.name, taken),
        detail=checked.detail if checked else None,
        versions=versions,
        fingerprint=dict(context.fingerprint),
    )
    return record if failure else with_state(
        record, collected, taken, checked, context.powers, context.device, early=context.early
    )  # fmt: skip
