"""The samples of one process in both regimes, what the device was doing at each, and which of them are ranked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from fluxbench.timing.telemetry import Log, Reading, summarize

Span = tuple[float, float]  # begin and end, monotonic seconds
# A card at its power limit is what sustained is about; one that is too hot or was slowed from outside is not.
_TROUBLE = {"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"}
_FULL_CLOCK = 0.98  # of the highest in the whole cell, below which the device was not at rest before
_UPDATED_S = 0.1  # a driver's readings are that old


@dataclass(frozen=True, kw_only=True)
class Turn:
    """What one process took of one variant; an event "timed" of `fluxbench.worker`.

    `burst` holds `samples_ms` and `reference_ms` by workload, one sample a round, `sentinel_ms` (empty where there is
    no sentinel), `places` in the round and `launch_ms` by workload, and the `times` of the rounds. `block` is a
    `timing.Block` as a mapping.
    """

    variant: str
    reference: str
    process: int
    workloads: Sequence[str]  # at which it counts
    burst: Mapping[str, Any] | None  # None: a later turn of the reference
    block: Mapping[str, Any] | None  # None: burst samples alone were asked for
    clocks: Mapping[str, Any]  # by workload, what `profiling.kernel_times` says of a call; first process
    began: float
    ended: float
    slept_s: float
    repeated_over_new: Mapping[str, float]  # by workload, of a call; first process, on a GPU
    worker: int  # which of all processes, those that took over from one that died included

    @classmethod
    def of(cls, event: Mapping[str, Any], worker: int = 0) -> Turn:
        """Return what an event "timed" says."""
        return cls(
            variant=event["variant"],
            reference=event["reference"],
            process=event["process"],
            workloads=event["workloads"],
            burst=event.get("burst"),
            block=event.get("block"),
            clocks=event.get("clocks", {}),
            began=event["began"],
            ended=event["ended"],
            slept_s=event.get("slept_s", 0.0),
            repeated_over_new=event.get("repeated_over_new", {}),
            worker=worker,
        )

    @property
    def busy_s(self) -> float:
        """How long the device was busy with measured calls."""
        found = 0.0
        if self.burst:
            own = 0 if self.variant == self.reference else 1
            found += sum(sum(its) for its in self.burst["samples_ms"].values())
            found += own * sum(sum(its) for its in self.burst["reference_ms"].values()) + sum(self.burst["sentinel_ms"])
        if self.block:
            calls = self.block["calls"]
            found += sum(calls[workload] * sum(its) for workload, its in self.block["samples_ms"].items())
        return found / 1e3


@dataclass(frozen=True, kw_only=True)
class Series:
    """Samples of one variant at one workload, in one process and regime; each has its span of time."""

    regime: str
    samples_ms: Sequence[float]
    spans: Sequence[Span]
    states: Sequence[Reading | None]  # what the device was doing
    lead: int  # samples from before the speed had settled
    off: Sequence[bool]  # the device was out of the regime
    reasons: frozenset[str]  # why
    settled: bool = True
    calls: int = 1  # that a sample is the mean of
    stretch: int = 1  # samples whose mean is ranked

    @property
    def kept_off(self) -> bool:
        """Whether samples count although the device was out of the regime: half or more of them were."""
        counted = self.off[self.lead :]
        return 2 * sum(counted) >= len(counted)

    @property
    def off_regime(self) -> int:
        """How many samples were taken out of the regime, after the lead."""
        return sum(self.off[self.lead :])

    @property
    def counts(self) -> list[bool]:
        """By sample, whether it is ranked."""
        kept = self.kept_off
        return [index >= self.lead and (kept or not off) for index, off in enumerate(self.off)]

    def ranked(self, samples_ms: Sequence[float] | None = None) -> list[float]:
        """Return what is ranked of these samples, or of others that were taken in the same spans."""
        found = self.samples_ms if samples_ms is None else samples_ms
        chosen = [sample for sample, counts in zip(found, self.counts, strict=True) if counts]
        groups = max(1, len(chosen) // self.stretch)  # what is left over joins the last one
        ends = [*(self.stretch * index for index in range(1, groups)), len(chosen)]
        return [fmean(chosen[begin:end]) for begin, end in zip([0, *ends], ends, strict=False)]

    def readings(self, log: Log) -> list[Reading]:
        """Return what the device said while the ranked samples were taken."""
        chosen = [span for span, counts in zip(self.spans, self.counts, strict=True) if counts]
        return [reading for span in chosen for reading in log.between(*span)]

    def to_json(self) -> dict[str, Any]:
        """Return the series as a JSON object: samples, whether they count, and what the device was doing at each."""
        states = self.states
        return {
            "regime": self.regime,
            "calls_per_sample": self.calls,
            "ranked_over": self.stretch,
            "samples_ms": [round(sample, 6) for sample in self.samples_ms],
            "ranked": [int(counts) for counts in self.counts],
            "began_s": [round(begin, 3) for begin, _ in self.spans],
            "sm_clock_mhz": [state and state.sm_clock_mhz for state in states],
            "power_w": [state and state.power_w for state in states],
            "temperature_c": [state and state.temperature_c for state in states],
            "throttle_reasons": [state and list(state.throttle_reasons) for state in states],
        }


def burst(turn: Turn, workload: str, log: Log) -> Series:
    """Return burst samples; those of rounds without the full clock are out of the regime."""
    assert turn.burst is not None
    spans = turn.burst["times"]
    states = [_state(log, span) for span in spans]
    full = log.highest_mhz
    why = [_why_not_burst(state, full) for state in states]
    return Series(
        regime="burst",
        samples_ms=turn.burst["samples_ms"][workload],
        spans=spans,
        states=states,
        lead=0,
        off=[bool(each) for each in why],
        reasons=frozenset().union(*why),
    )


def _why_not_burst(state: Reading | None, full: float | None) -> frozenset[str]:
    if state is None:
        return frozenset()
    reasons = frozenset(_TROUBLE & set(state.throttle_reasons))
    if full and state.sm_clock_mhz and state.sm_clock_mhz < _FULL_CLOCK * full:
        return reasons | {f"an SM clock under {_FULL_CLOCK:.0%} of {full:,.0f} MHz"}
    return reasons


def sustained(turns: Sequence[Turn], workload: str, log: Log) -> Series:
    """Return the samples of the blocks of these turns of one variant."""
    samples_ms: list[float] = []
    spans: list[Span] = []
    dropped: list[bool] = []
    blocks = [turn.block for turn in turns if turn.block]
    for block in blocks:
        samples_ms += block["samples_ms"][workload]
        spans += [(begin, end) for begin, end in block["windows"]]
        dropped += [index < block["lead"] for index in range(len(block["windows"]))]
    order = sorted(range(len(spans)), key=lambda index: not dropped[index])  # leads first, else as they were taken
    states = [_state(log, spans[index]) for index in order]
    why = [_TROUBLE & set(state.throttle_reasons) if state else set() for state in states]
    return Series(
        regime="sustained",
        samples_ms=[samples_ms[index] for index in order],
        spans=[spans[index] for index in order],
        states=states,
        lead=sum(dropped),
        off=[bool(each) for each in why],
        reasons=frozenset().union(*why),
        settled=all(block["settled"] for block in blocks),
        calls=blocks[0]["calls"][workload],
        stretch=blocks[0]["stretch"],
    )


def beside(turns: Sequence[Turn], turn: Turn, workload: str) -> list[Turn]:
    """Return the turns of the reference just before and after one, of all those of its process in order.

    Only those in which it was right at this workload.
    """
    references = [each for each in turns if each.variant == turn.reference and workload in each.workloads]
    if turn.variant == turn.reference:
        return references
    order = [id(each) for each in turns]
    at = order.index(id(turn))
    before = [each for each in references if each.block and order.index(id(each)) < at]
    after = [each for each in references if each.block and order.index(id(each)) > at]
    return [*before[-1:], *after[:1]]


def every(turn: Turn, log: Log) -> Iterator[dict[str, Any]]:
    """Yield all samples of a turn as JSON objects: by workload those of burst and of the block, then the sentinel's."""
    who = {"process": turn.process, "variant": turn.variant}
    for workload in turn.workloads:
        if turn.burst:
            series = burst(turn, workload, log)
            paired = [round(sample, 6) for sample in turn.burst["reference_ms"][workload]]
            places = {
                "place_in_round": turn.burst.get("places", {}).get(workload),
                "repeated_over_new": turn.repeated_over_new.get(workload),
            }
            yield {**who, "workload": workload, **series.to_json(), **places, "reference_ms": paired}
        if turn.block:
            yield {**who, "workload": workload, **sustained([turn], workload, log).to_json()}
    if turn.burst and turn.burst["sentinel_ms"]:
        found = [round(sample, 6) for sample in turn.burst["sentinel_ms"]]
        yield {**who, "variant": "sentinel", "beside": turn.variant, "regime": "burst", "samples_ms": found}


def _state(log: Log, span: Span) -> Reading | None:
    """Return what the device was doing in a stretch of time, None where nobody asked it within a tenth of a second."""
    begin, end = span
    within = list(log.between(begin, end))
    if not within:
        near = log.between(begin - _UPDATED_S, end + _UPDATED_S)
        within = sorted(near, key=lambda reading: abs(reading.time_s - (begin + end) / 2))[:1]
    if not within:
        return None
    told = summarize(within)
    return Reading(
        time_s=within[0].time_s,
        sm_clock_mhz=told.sm_clock_mhz,
        power_w=told.power_w,
        temperature_c=told.temperature_c,
        throttle_reasons=told.throttle_reasons,
    )
