"""What a record says of the device while it was measured, and what was not as it should be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median

import msgspec

from fluxbench.bench.collected import Collected, Pair
from fluxbench.bench.events import BurstSamples, Checked
from fluxbench.bench.series import ProcessSeries, against_one
from fluxbench.device.model import Device
from fluxbench.records.schema import (
    BURST,
    CUPTI_AGREES_WITHIN,
    SHORT_MS,
    SUSTAINED,
    Cupti,
    Flag,
    KernelShare,
    Record,
)
from fluxbench.records.status import FlagKind
from fluxbench.timing.telemetry import summarize

_SLEPT_S = 0.1


def with_state(
    record: Record,
    collected: Collected,
    taken: Sequence[ProcessSeries],
    checked: Checked | None,
    powers: Mapping[Pair, tuple[float, float]],
    device: Device,
    *,
    early: bool,
) -> Record:
    """Return a PASSED record with what the device was doing while it was measured, and its flags.

    `early`: what the profiler tells at the end of a process is still to come.
    """
    log, name = collected.log, record.workload.name
    loaded = [each.sustained for each in taken if each.sustained]
    telemetry = {BURST: summarize(reading for each in taken for reading in each.burst.readings(log))}
    if loaded:
        telemetry[SUSTAINED] = summarize(reading for each in loaded for reading in each.readings(log))
    energy_mj = energy_ci95_mj = None
    if record.sustained and (power := powers.get((record.variant, name))):
        watts, half = power
        call_ms = record.sustained.median_ms
        state = telemetry[SUSTAINED]
        telemetry[SUSTAINED] = msgspec.structs.replace(state, power_w=watts)  # NVML's is a mean over the second before
        energy_mj = watts * call_ms
        energy_ci95_mj = (max(0.0, watts - half) * call_ms, (watts + half) * call_ms)
    cupti = _cupti(checked, name, taken[0])
    on_gpu = device.kind != "cpu"
    launch_ms = median(each.trial.rounds.launch_ms[name] for each in taken) if on_gpu else None
    record = msgspec.structs.replace(
        record,
        telemetry=telemetry,
        energy_mj=energy_mj,
        energy_ci95_mj=energy_ci95_mj,
        launch_ms=launch_ms,
        cupti=cupti,
        device_s=round(_device_s(collected, taken), 3),
    )
    of_profiler = () if early else _of_profiler(record, taken, on_gpu)
    return msgspec.structs.replace(record, flags=(*of_profiler, *_flags(record, collected, taken, on_gpu)))


def _device_s(collected: Collected, taken: Sequence[ProcessSeries]) -> float:
    """Return what one workload's share of these trials took of the device, with that of the reference's own trials."""
    found = 0.0
    for each in taken:
        timed = each.trial.timed
        same = (each.trial.worker, timed.reference)
        of_worker = [other for other in collected.trials if (other.worker, other.timed.reference) == same]
        found += timed.took_s / len(timed.workloads)
        if not each.trial.is_reference:
            anchors_s = sum(other.timed.took_s for other in of_worker if other.is_reference)
            measured = {other.timed.variant for other in of_worker}
            found += anchors_s / len(timed.workloads) / max(1, len(measured) - 1)
    return found


def kernels_of(checked: Checked | None, workload: str, taken: Sequence[ProcessSeries]) -> tuple[KernelShare, ...]:
    """Return the largest kernels of a call: of several that had the device alone, or else of one.

    Of one that did not, a kernel that was interrupted seems to take up to half of a call, and may push others out of
    the largest. Of the first process in which the profiler saw any; of a CPU torch's operators in the check.
    """
    every = [found for each in taken if (found := each.trial.timed.profiled.get(workload)) and found.kernels]
    if every:
        return every[0].times[-1] if every[0].times else every[0].kernels
    return checked.kernels if checked else ()


def _cupti(checked: Checked | None, workload: str, first: ProcessSeries) -> Cupti | None:
    if checked and checked.clocks:  # of a CPU: one call by both
        wall_ms, profiler_ms = checked.clocks
        return Cupti(events_ms=wall_ms, kernels_ms=profiler_ms, span_ms=profiler_ms) if profiler_ms else None
    profiled = first.trial.timed.profiled.get(workload)
    if profiled is None or profiled.times is None:
        return None
    kernels_ms, span_ms, parts_ms, _ = profiled.times
    events_ms = median(first.trial.rounds.samples_ms[workload])
    return Cupti(events_ms=events_ms, kernels_ms=kernels_ms, span_ms=span_ms, parts_ms=parts_ms)


def _seemed_long(samples: BurstSamples, workload: str) -> bool:
    """Whether short calls were timed singly, though other workloads' were in rows: the first ones seemed to be long."""
    return bool(samples.calls) and workload not in samples.calls and median(samples.samples_ms[workload]) < SHORT_MS


def _of_profiler(record: Record, taken: Sequence[ProcessSeries], on_gpu: bool) -> Iterator[Flag]:
    """Yield what the profiler tells that is not as it should be, or what it did not tell."""
    workload = record.workload.name
    if not record.cupti and workload not in taken[0].trial.timed.unprofiled:
        yield Flag(kind=FlagKind.NO_CUPTI, regime=BURST)
    elif record.cupti and abs(record.cupti.difference) > CUPTI_AGREES_WITHIN:
        yield Flag(kind=FlagKind.CUPTI_DIFFERS, regime=BURST, value=round(record.cupti.difference, 4))
    asked = [each.trial.timed.profiled.get(workload) for each in taken if workload in each.trial.timed.profiles]
    if silent := sum(not (found and found.names) for found in asked):
        yield Flag(kind=FlagKind.NOT_PROFILED, value=silent)
    if on_gpu and not record.is_filled and (starved := sum(_starved(each, workload) for each in taken)):
        yield Flag(kind=FlagKind.LAUNCH_BOUND, regime=SUSTAINED, value=starved)


def _flags(record: Record, collected: Collected, taken: Sequence[ProcessSeries], on_gpu: bool) -> Iterator[Flag]:
    """Yield what was not as it should be, or could not be known."""
    workload = record.workload.name
    loaded = [each.sustained for each in taken if each.sustained]
    if unsettled := sum(not each.settled for each in loaded):
        yield Flag(kind=FlagKind.NOT_SETTLED, regime=SUSTAINED, value=unsettled)
    for regime, several in ((BURST, [each.burst for each in taken]), (SUSTAINED, loaded)):
        for kept, kind in ((False, FlagKind.DISCARDED), (True, FlagKind.KEPT_OUT_OF_REGIME)):
            if affected := [each for each in several if each.off_regime and each.kept_off is kept]:
                share = sum(each.off_regime for each in affected) / sum(len(each.off) for each in affected)
                reasons = ", ".join(sorted({reason for each in affected for reason in each.reasons}))
                yield Flag(kind=kind, regime=regime, value=round(share, 4), detail=reasons)
    rounds = [each.trial.rounds for each in taken]
    if in_rows := [one.launched_ms[workload] for one in rounds if workload in one.launched_ms]:
        yield Flag(kind=FlagKind.REPLAYED, regime=BURST, value=round(fmean(in_rows), 6))
    if refused := [one.refused[workload] for one in rounds if workload in one.refused]:
        yield Flag(kind=FlagKind.NOT_REPLAYED, regime=BURST, value=len(refused), detail=refused[0])
    elif singly := sum(_seemed_long(one, workload) for one in rounds):
        yield Flag(kind=FlagKind.NOT_REPLAYED, regime=BURST, value=singly, detail="the first ones seemed to be long")
    blocks = [block for each in taken for block in each.trial.blocks_at(workload)]
    if any(block.replayed for block in blocks):
        launched = [block.launched_ms[workload] for block in blocks if workload in block.launched_ms]
        value = round(fmean(launched), 6) if launched else None
        yield Flag(kind=FlagKind.REPLAYED, regime=SUSTAINED, value=value)
    if why := next((block.refused for block in blocks if block.refused), None):  # of the first one, which decides
        launched_in = sum(any(not block.replayed for block in each.trial.blocks_at(workload)) for each in taken)
        yield Flag(kind=FlagKind.NOT_REPLAYED, regime=SUSTAINED, value=launched_in, detail=why)
    if others := len(taken) - len(against_one(taken)):
        yield Flag(kind=FlagKind.OTHER_REFERENCE, value=others)
    if (slept := sum(trial.timed.slept_s for each in taken for trial in each.own)) > _SLEPT_S:
        yield Flag(kind=FlagKind.SLEPT, value=round(slept, 1))
    state = record.telemetry.get(SUSTAINED) or record.telemetry[BURST]
    if on_gpu and state.sm_clock_mhz is None:
        yield Flag(kind=FlagKind.NO_TELEMETRY)
    if on_gpu and record.energy_mj is None and loaded:
        yield Flag(kind=FlagKind.NO_ENERGY, regime=SUSTAINED)
    if collected.others:
        yield Flag(kind=FlagKind.SHARED_DEVICE, detail="; ".join(collected.others))


def _starved(each: ProcessSeries, workload: str) -> bool:
    """Whether the device had less than one call left to do when the host had launched a window of a block."""
    return any(block.ahead_ms < median(block.samples_ms[workload]) for block in each.trial.blocks_at(workload))
