"""Samples of one process and regime, what the device was doing at each, and which of them are ranked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, mode
from typing import Any

from fluxbench.bench.collected import Collected, Trial
from fluxbench.bench.events import Span
from fluxbench.records.schema import BURST, SUSTAINED
from fluxbench.timing.telemetry import Log, Reading, summarize

# A card at its power limit is what sustained is about; one that is too hot or was slowed from outside is not.
_TROUBLE = {"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"}
HOST_LATE = "the host was late"  # with a call, for which the device may have waited
_FULL_CLOCK = 0.98  # of the highest in the whole cell, below which the device was not at rest before
DIGITS_S = 3  # of a time that is kept, in seconds
DIGITS_MS = 6  # in milliseconds
_UPDATED_S = 0.1  # a driver's readings are that old


@dataclass(frozen=True, kw_only=True)
class Series:
    """Samples of one variant at one workload, in one process and regime; each has its span of time."""

    regime: str
    samples_ms: Sequence[float]
    spans: Sequence[Span]
    states: Sequence[Reading | None]  # what the device was doing
    off: Sequence[bool]  # the device was out of the regime
    reasons: frozenset[str]  # why
    warm_up: int = 0  # samples from before the speed had settled
    settled: bool = True
    calls: int = 1  # that a sample is the mean of
    windows: int = 1  # samples whose mean is ranked
    launch_ms: float | None = None  # of the host for a call, median; of burst

    @property
    def kept_off(self) -> bool:
        """Whether samples count although the device was out of the regime: half or more of them were."""
        counted = self.off[self.warm_up :]
        return 2 * sum(counted) >= len(counted)

    @property
    def off_regime(self) -> int:
        """How many samples were taken out of the regime, after the warm-up."""
        return sum(self.off[self.warm_up :])

    @cached_property
    def counts(self) -> list[bool]:
        """By sample, whether it is ranked."""
        kept = self.kept_off
        return [index >= self.warm_up and (kept or not off) for index, off in enumerate(self.off)]

    def ranked(self, samples_ms: Sequence[float] | None = None) -> list[float]:
        """Return what is ranked of these samples, or of others that were taken in the same spans."""
        found = self.samples_ms if samples_ms is None else samples_ms
        chosen = [sample for sample, counts in zip(found, self.counts, strict=True) if counts]
        if self.windows == 1:
            return chosen
        groups = max(1, len(chosen) // self.windows)  # what is left over joins the last one
        ends = [*(self.windows * index for index in range(1, groups)), len(chosen)]
        return [fmean(chosen[begin:end]) for begin, end in zip([0, *ends], ends, strict=False)]

    def readings(self, log: Log) -> list[Reading]:
        """Return what the device reported while the ranked samples were taken."""
        chosen = [span for span, counts in zip(self.spans, self.counts, strict=True) if counts]
        return [reading for span in chosen for reading in log.between(*span)]

    def to_json(self) -> dict[str, Any]:
        """Return the series as a JSON object: samples, whether they count, and what the device was doing at each."""
        states = self.states
        return {
            "regime": self.regime,
            "calls_per_sample": self.calls,
            "ranked_over": self.windows,
            "samples_ms": [round(sample, DIGITS_MS) for sample in self.samples_ms],
            "ranked": [int(counts) for counts in self.counts],
            "began_s": [round(begin, DIGITS_S) for begin, _ in self.spans],
            "sm_clock_mhz": [state and state.sm_clock_mhz for state in states],
            "power_w": [state and state.power_w for state in states],
            "temperature_c": [state and state.temperature_c for state in states],
            "throttle_reasons": [state and list(state.throttle_reasons) for state in states],
        }


@dataclass(frozen=True, kw_only=True)
class ProcessSeries:
    """What one process took of a variant at a workload, beside the reference."""

    trial: Trial
    own: Sequence[Trial]  # whose blocks count: of the reference, all of its process
    burst: Series
    beside_ms: Sequence[float]  # the reference's burst samples of the same rounds
    sustained: Series | None
    anchor: Series | None  # of the reference: its blocks around it, or where paired its calls of the same rounds
    paired: bool = False  # whether sustained samples are of rounds beside the reference's, as on a CPU


Cell = dict[str, dict[str, list[ProcessSeries]]]  # by variant and workload, one entry for each process


def of(collected: Collected, variant: str, workload: str) -> list[ProcessSeries]:
    """Return the series of a variant at a workload, one entry for each process."""
    log = collected.log
    found = []
    for trial in collected.taken(variant, workload):
        block = next(iter(trial.blocks_at(workload)), None)
        paired = block is not None and bool(block.reference_ms)
        beside = [trial] if paired else collected.beside(trial, workload)
        own = beside if trial.is_reference and beside else [trial]
        found.append(
            ProcessSeries(
                trial=trial,
                own=own,
                burst=burst(trial, workload, log),
                beside_ms=trial.rounds.reference_ms[workload],
                sustained=sustained(own, workload, log) if block else None,
                anchor=sustained(beside, workload, log, of_reference=paired) if block and beside else None,
                paired=paired,
            )
        )
    return found


def of_cell(collected: Collected) -> Cell:
    """Return the series of every variant that was timed, the references included, at every workload."""
    pairs = dict.fromkeys(
        (trial.timed.variant, workload) for trial in collected.trials for workload in trial.timed.workloads
    )
    found: Cell = {}
    for variant, workload in pairs:
        found.setdefault(variant, {})[workload] = of(collected, variant, workload)
    return found


def by_operation(cell: Cell, operations: Mapping[str, str]) -> Iterator[Cell]:
    """Yield the part of a cell of each operation, by that of each workload: each has as many processes as it needs."""
    for operation in dict.fromkeys(operations.get(name, "") for taken in cell.values() for name in taken):
        part = {
            variant: {name: its for name, its in taken.items() if operations.get(name, "") == operation}
            for variant, taken in cell.items()
        }
        yield {variant: taken for variant, taken in part.items() if taken}


def reference_of(taken: Sequence[ProcessSeries]) -> str:
    """Return the reference of ratios: that of the most processes, where it failed in one and another took its place."""
    return mode(each.trial.timed.reference for each in taken)


def against_one(taken: Sequence[ProcessSeries]) -> list[ProcessSeries]:
    """Return the processes whose reference is that of the most."""
    reference = reference_of(taken)
    return [each for each in taken if each.trial.timed.reference == reference]


def burst(trial: Trial, workload: str, log: Log) -> Series:
    """Return burst samples; out of the regime are those of a late host, or of a part of a round at a lower clock."""
    spans = trial.rounds.spans_of(workload)
    states = [_state(log, span) for span in spans]
    late = set(trial.rounds.late.get(workload, ()))
    why = [
        _why_not_burst(state, log.highest_mhz) | ({HOST_LATE} if index in late else frozenset())
        for index, state in enumerate(states)
    ]
    return Series(
        regime=BURST,
        samples_ms=trial.rounds.samples_ms[workload],
        spans=spans,
        states=states,
        off=[bool(each) for each in why],
        reasons=frozenset().union(*why),
        calls=trial.rounds.calls.get(workload, 1),
        launch_ms=round(trial.rounds.launch_ms[workload], DIGITS_MS),
    )


def _why_not_burst(state: Reading | None, full_mhz: float | None) -> frozenset[str]:
    if state is None:
        return frozenset()
    reasons = frozenset(_TROUBLE & set(state.throttle_reasons))
    if full_mhz and state.sm_clock_mhz and state.sm_clock_mhz < _FULL_CLOCK * full_mhz:
        return reasons | {f"an SM clock under {_FULL_CLOCK:.0%} of {full_mhz:,.0f} MHz"}
    return reasons


def sustained(trials: Sequence[Trial], workload: str, log: Log, *, of_reference: bool = False) -> Series:
    """Return the samples of the blocks of these trials of one variant, or those of the reference beside it."""
    samples_ms: list[float] = []
    spans: list[Span] = []
    dropped: list[bool] = []
    stalled: list[bool] = []
    blocks = [block for trial in trials for block in trial.blocks_at(workload)]
    for block in blocks:
        samples_ms += (block.reference_ms if of_reference else block.samples_ms)[workload]
        spans += block.windows
        dropped += [index < block.warm_up for index in range(len(block.windows))]
        late = set(block.stalled.get(workload, ()))
        stalled += [index in late for index in range(len(block.windows))]
    order = sorted(range(len(spans)), key=lambda index: not dropped[index])  # warm-ups first, else as they were taken
    states = [_state(log, spans[index]) for index in order]
    why = [
        (_TROUBLE & set(state.throttle_reasons) if state else set()) | ({HOST_LATE} if stalled[index] else set())
        for index, state in zip(order, states, strict=True)
    ]
    return Series(
        regime=SUSTAINED,
        samples_ms=[samples_ms[index] for index in order],
        spans=[spans[index] for index in order],
        states=states,
        off=[bool(each) for each in why],
        reasons=frozenset().union(*why),
        warm_up=sum(dropped),
        settled=all(block.settled for block in blocks),
        calls=blocks[0].calls[workload],
        windows=blocks[0].windows_a_sample,
    )


def _state(log: Log, span: Span) -> Reading | None:
    """Return what the device was doing in a stretch of time, None where nobody asked it within a tenth of a second."""
    begin, end = span
    within = list(log.between(begin, end))
    if not within:
        near = log.between(begin - _UPDATED_S, end + _UPDATED_S)
        within = sorted(near, key=lambda reading: abs(reading.time_s - (begin + end) / 2))[:1]
    if not within:
        return None
    state = summarize(within)
    return Reading(
        time_s=within[0].time_s,
        sm_clock_mhz=state.sm_clock_mhz,
        power_w=state.power_w,
        temperature_c=state.temperature_c,
        throttle_reasons=state.throttle_reasons,
    )
