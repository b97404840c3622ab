"""What workers saw of one variant at one workload -> its record."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from statistics import median, mode
from typing import Any

from fluxbench.bench import series as samples
from fluxbench.bench.observations import Observations
from fluxbench.bench.series import Series, Turn
from fluxbench.device.detection import Device
from fluxbench.environments.cell import Cell
from fluxbench.operations.roofline import faster_than_possible
from fluxbench.operations.workloads import Workload
from fluxbench.records.schema import CLOCKS_AGREE, Correctness, Kernel, Record, SecondClock, Status, Timing
from fluxbench.stats import intervals as statistics
from fluxbench.timing.telemetry import summarize

RATIO_WITHIN, MEDIAN_WITHIN = 0.003, 0.005  # half the 95% intervals that are asked for, as shares
SLEPT_S = 0.1


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
    """Return the record of one variant at one workload. PASSED needs samples of every process, and possible times."""
    pair = (variant, workload.name)
    seen = observed.checked.get(pair, {})
    errors = seen.get("correctness")
    taken = observed.taken(variant, workload.name)
    status, reason = Status.PASSED, None
    timings: dict[str, Timing] = {}
    if pair in observed.failed:
        status, reason, failed_errors = observed.failed[pair]
        errors = failed_errors or errors
    elif len(taken) < processes:
        status = Status.ERROR
        reason = f"timed in {len(taken)} of {processes} processes; the reference variant failed in the others"
    else:
        timings = _timings(observed, variant)[workload.name]
        kind = errors["precision_class"] if errors else "exact"
        for regime, timing in timings.items():
            if impossible := faster_than_possible(timing.median_ms, workload, device, kind):
                status, reason = Status.ERROR, f"{regime}: {impossible}"
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
        timing=(timings.get("sustained") or timings["burst"]) if passed else None,
        burst=timings["burst"] if passed else None,
        **(_state(observed, variant, workload, taken, timings, device) if passed else {}),
        peak_memory_bytes=seen.get("peak_memory_bytes"),
        compile_s=seen.get("compile_s"),
        graph_breaks=seen.get("graph_breaks"),
        kernels=tuple(Kernel(**kernel) for kernel in seen.get("kernels", [])),
        detail=seen.get("detail"),
        versions=versions,
        fingerprint=fingerprint,
    )


def _timings(observed: Observations, variant: str) -> dict[str, dict[str, Timing]]:
    """Return a variant's timings by workload and regime, found once for the records of all workloads."""
    if observed.timings.get(variant, (0, {}))[0] != len(observed.turns):
        observed.timings[variant] = len(observed.turns), _timings_of(observed, variant)
    return observed.timings[variant][1]


def _timings_of(observed: Observations, variant: str) -> dict[str, dict[str, Timing]]:
    names = dict.fromkeys(name for turn in observed.turns if turn.variant == variant for name in turn.workloads)
    taken = {name: observed.taken(variant, name) for name in names}
    found: dict[str, dict[str, Timing]] = {name: {} for name in names}
    its = {name: [samples.burst(turn, name, observed.log) for turn in turns] for name, turns in taken.items()}
    # Each sample over that of the reference in the same round, which shares its clock.
    quotients = [
        [
            [one / other for one, other in zip(each.ranked(), each.ranked(_beside_ms(turn, name)), strict=True)]
            for each, turn in zip(its[name], turns, strict=True)
            if turn.reference == _against(turns)
        ]
        for name, turns in taken.items()
    ]
    _add(found, "burst", its, statistics.medians(quotients), taken)
    taken = {name: turns for name, turns in taken.items() if all(turn.block for turn in turns)}
    anchors = {
        name: [
            samples.sustained(samples.beside(observed.of_worker(turn.worker), turn, name), name, observed.log)
            for turn in turns
        ]
        for name, turns in taken.items()
    }
    its = {
        name: [samples.sustained(_own(observed, turn, name), name, observed.log) for turn in turns]
        for name, turns in taken.items()
    }
    pairs = []
    for name, turns in taken.items():
        comparable = [turn.reference == _against(turns) for turn in turns]
        sides = [
            [each.ranked() for each, counts in zip(side, comparable, strict=True) if counts]
            for side in (its[name], anchors[name])
        ]
        pairs.append((sides[0], sides[1]))
    _add(found, "sustained", its, statistics.ratios(pairs), taken)
    return found


def _own(observed: Observations, turn: Turn, workload: str) -> list[Turn]:
    """Return the turns whose blocks count for the variant of a turn: of the reference, all of its process."""
    if turn.variant != turn.reference:
        return [turn]
    return samples.beside(observed.of_worker(turn.worker), turn, workload)


def _against(turns: Sequence[Turn]) -> str:
    """Return the reference of ratios: that of the most processes, where it failed in one and another took its place."""
    return mode(turn.reference for turn in turns)


def _beside_ms(turn: Turn, workload: str) -> Sequence[float]:
    assert turn.burst is not None
    found: Sequence[float] = turn.burst["reference_ms"][workload]
    return found


def _add(
    found: dict[str, dict[str, Timing]],
    regime: str,
    its: Mapping[str, Sequence[Series]],
    ratios: Sequence[statistics.Estimate],
    taken: Mapping[str, Sequence[Turn]],
) -> None:
    """Add the timings of one regime, by workload, from the series and the ratio of each."""
    ranked = {name: [each.ranked() for each in its[name]] for name in taken}
    middles = statistics.medians(list(ranked.values()))
    for name, middle, ratio in zip(taken, middles, ratios, strict=True):
        reference = _against(taken[name])
        one = taken[name][0].variant == reference
        found[name][regime] = _timing(
            regime, its[name], ranked[name], middle, statistics.Estimate(1, 1, 1) if one else ratio, reference
        )


def _timing(
    regime: str,
    series: Sequence[Series],
    ranked: Sequence[Sequence[float]],
    middle: statistics.Estimate,
    ratio: statistics.Estimate,
    reference: str,
) -> Timing:
    return Timing(
        regime=regime,
        median_ms=middle.value,
        ci95_ms=(middle.low, middle.high),
        processes=len(ranked),
        samples_ms=tuple(round(sample, 6) for part in ranked for sample in part),
        reference_variant=reference,
        ratio=ratio.value,
        ratio_ci95=(ratio.low, ratio.high),
        split=tuple(len(part) for part in ranked),
        set_aside=sum(len(each.counts) - sum(each.counts) for each in series),
        precise=_within(ratio, RATIO_WITHIN) and _within(middle, MEDIAN_WITHIN),
    )


def _starved(turn: Turn, workload: str) -> bool:
    """Whether the device had less than one call left to do when the host had launched a window of a block."""
    if not turn.block:
        return False
    return bool(turn.block["ahead_ms"] < median(turn.block["samples_ms"][workload]))


def _some(some: int, count: int) -> str:
    return "all processes" if some == count else f"{some} of {count} processes"


def _within(estimate: statistics.Estimate, share: float) -> bool:
    return (estimate.high - estimate.low) / 2 <= share * estimate.value


def _state(
    observed: Observations,
    variant: str,
    workload: Workload,
    taken: Sequence[Turn],
    timings: Mapping[str, Timing],
    device: Device,
) -> dict[str, Any]:
    """Return what a record says of the device while it was measured, beside its times."""
    log, name = observed.log, workload.name
    own = [samples.sustained(_own(observed, turn, name), name, log) for turn in taken if turn.block]
    rounds = [samples.burst(turn, name, log) for turn in taken]
    held = summarize(reading for series in own or rounds for reading in series.readings(log))
    found: dict[str, Any] = {
        "telemetry": held,
        "burst_telemetry": summarize(reading for series in rounds for reading in series.readings(log)),
        "launch_ms": None
        if device.kind == "cpu"
        else median(turn.burst["launch_ms"][name] for turn in taken if turn.burst),
        "second_clock": _second_clock(observed.checked.get((variant, name), {}), name, taken[0]),
        "device_s": round(_device_s(observed, taken), 3),
    }
    if power := observed.powers.get(variant):
        watts, half = power
        call_ms = timings["sustained"].median_ms
        found["telemetry"] = dataclasses.replace(held, power_w=watts)  # NVML's own is a mean over the second before
        found["energy_mj"] = watts * call_ms
        found["energy_ci95_mj"] = (max(0.0, watts - half) * call_ms, (watts + half) * call_ms)
    found["marks"] = tuple(_marks(observed, workload.name, taken, own, rounds, found, device))
    return found


def _device_s(observed: Observations, taken: Sequence[Turn]) -> float:
    """Return what one workload's share of these turns took of the device, with that of the reference's own turns."""
    found = 0.0
    for turn in taken:
        turns = observed.of_worker(turn.worker)
        anchors = [each for each in turns if each.variant == each.reference]
        measured = {each.variant for each in turns}
        found += (turn.ended - turn.began) / len(turn.workloads)
        if turn.variant != turn.reference:
            found += sum(each.ended - each.began for each in anchors) / len(turn.workloads) / max(1, len(measured) - 1)
    return found


def _second_clock(checked: Mapping[str, Any], workload: str, first: Turn) -> SecondClock | None:
    if checked.get("clocks"):  # of a CPU: one call by both
        wall_ms, profiler_ms = checked["clocks"]
        return SecondClock(events_ms=wall_ms, kernels_ms=profiler_ms, span_ms=profiler_ms) if profiler_ms else None
    if workload not in first.clocks or first.burst is None:
        return None
    kernels_ms, span_ms, parts_ms = first.clocks[workload]
    return SecondClock(
        events_ms=median(first.burst["samples_ms"][workload]), kernels_ms=kernels_ms, span_ms=span_ms, parts_ms=parts_ms
    )


def _marks(
    observed: Observations,
    workload: str,
    taken: Sequence[Turn],
    own: Sequence[Series],
    rounds: Sequence[Series],
    found: Mapping[str, Any],
    device: Device,
) -> Iterator[str]:
    """Yield what was not as it should be, or could not be known."""
    count = len(taken)
    if unsettled := sum(not series.settled for series in own):
        yield f"its speed did not settle in {unsettled} of {count} processes"
    for regime, several in (("burst", rounds), ("sustained", own)):
        for kept, what in ((False, "not ranked"), (True, "counted all the same, there were few others")):
            its = [series for series in several if series.off_regime and series.kept_off is kept]
            if its:
                off, total = (sum(counts) for counts in zip(*((s.off_regime, len(s.off)) for s in its), strict=True))
                reasons = ", ".join(sorted({reason for series in its for reason in series.reasons}))
                whose = f"{off} of {total} samples of {_some(len(its), count)}"
                yield f"{regime}: {whose} were out of the regime ({reasons}), {what}"
    if clock := found["second_clock"]:
        if abs(clock.difference) > CLOCKS_AGREE:
            yield f"the two clocks differ by {100 * clock.difference:+.1f}%"
    else:
        yield "no second clock: the profiler recorded no kernels"
    if device.kind != "cpu" and (late := sum(_starved(turn, workload) for turn in taken)):
        yield f"sustained: the host was hardly ahead of the device in {_some(late, count)}: launching is what was timed"
    if others := sum(turn.reference != _against(taken) for turn in taken):
        yield f"its ratio leaves out {others} of {count} processes, in which another variant was the reference"
    if (slept := sum(each.slept_s for turn in taken for each in _own(observed, turn, workload))) > SLEPT_S:
        yield f"the machine slept for {slept:.1f} s while it was measured"
    told = found["telemetry"] if own else found["burst_telemetry"]
    if device.kind != "cpu" and told.sm_clock_mhz is None:
        yield "clock, power and temperature are unknown: the driver does not tell them"
    if device.kind != "cpu" and found.get("energy_mj") is None and own:
        yield "energy is unknown: the driver counts none, or too coarsely"
    if observed.others:
        yield f"another process used the device: {'; '.join(observed.others)}"
