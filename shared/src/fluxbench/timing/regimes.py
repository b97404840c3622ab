"""Callables to samples, in two regimes: what a rested device does, and what it holds under the kernel's own load.

Burst: single calls between two device events, the last-level cache cleared before each, in random order, rests between
rounds. Sustained: one variant at a time, back to back, until its speed has settled.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from fluxbench.operations.inputs import Change, Fresh, Inputs
from fluxbench.stats.intervals import critical
from fluxbench.timing.stopwatch import Stopwatch

Call = Callable[[Inputs], torch.Tensor]
Key = tuple[str, str]  # variant, workload
T = TypeVar("T")

PRECISE_WITHIN = 0.003  # half the 95% interval of a block's mean: no more windows are taken
_REST = 0.25  # of a GPU after a round, over the time of that round
_MOST_REPEATS, _LEAST_REPEATS = 5, 3  # rounds in which a call is repeated on the same contents
_REPEAT_S = 0.5  # after which no further one of these rounds is begun, where they are more than the fewest


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long a process measures each variant."""

    most_rounds: int  # of burst
    least_rounds: int
    burst_budget_s: float  # of burst calls at one workload
    first_rest_s: float  # before the first round: a card that was at its power limit takes so long to its full clock
    rest_s: float  # at least, between two rounds
    chunk_s: float  # of sustained calls at one workload, before the next one's turn
    lead_s: float  # of a block, always set aside
    most_lead_s: float  # after which a speed that has not settled is taken all the same
    least_s: float  # of a block, after the lead
    most_s: float  # the time cap
    stretch_s: float  # two of which in succession tell whether a speed has settled
    settled_within: float  # by which share their means may differ
    sample_s: float  # that a sustained sample is the mean of

    @classmethod
    def on(cls, device: torch.device) -> Plan:
        """Return the plan for a kind of device: a CPU's call is a few hundred times longer than a GPU's."""
        if device.type == "cpu":
            return cls(
                most_rounds=5, least_rounds=2, burst_budget_s=0.05, first_rest_s=0.02, rest_s=0.02, chunk_s=0.005,
                lead_s=0.1, most_lead_s=1.0, least_s=0.4, most_s=0.6, stretch_s=0.02, settled_within=0.05,
                sample_s=0.02,
            )  # fmt: skip
        return cls(
            most_rounds=48, least_rounds=5, burst_budget_s=0.022, first_rest_s=0.25, rest_s=0.003, chunk_s=0.008,
            lead_s=0.4, most_lead_s=0.8, least_s=0.5, most_s=0.8, stretch_s=0.25, settled_within=0.01, sample_s=0.1,
        )  # fmt: skip

    def rounds(self, call_s: float) -> int:
        """Return how many burst samples to take of a call that lasts `call_s` seconds."""
        return max(self.least_rounds, min(self.most_rounds, math.ceil(self.burst_budget_s / call_s)))


@dataclass(frozen=True, kw_only=True)
class Burst:
    """The samples of some rounds: each callable's, one a round."""

    samples_ms: Mapping[Key, list[float]]
    places: Mapping[Key, list[int]]  # of each sample in the order of its round, from 0
    times: list[tuple[float, float]]  # begin and end of each round, monotonic seconds
    launch_ms: Mapping[Key, float]  # median time of the host in a call, while the device is busy
    outputs: Mapping[Key, tuple[torch.Tensor, Change | None]]  # one of each, and how its inputs had changed


def burst(
    stopwatch: Stopwatch,
    calls: Mapping[Key, Callable[[Any], torch.Tensor]],
    rounds: int,
    fresh: Mapping[str, Fresh],
    order: random.Random,
    plan: Plan,
) -> Burst:
    """Time every callable once a round, in random order, with a rest before each round.

    A key is a variant and the workload whose inputs in `fresh` it gets, None where there are none. Their contents
    change before each round, so no callable sees what it has seen before; but the first one is called, untimed, at the
    begin of a round on a GPU. A rest is at least `rest_s`, and on a GPU a quarter of the round before. Which round's
    output is kept is random. The host's time for a round, by which it must be ahead of the device, is that of one
    before the first.
    """
    launch_s = 0.0 if stopwatch.on_cpu else _launch_s(stopwatch, calls, fresh)
    kept_round = {key: order.randrange(rounds) for key in calls}
    samples: dict[Key, list[float]] = {key: [] for key in calls}
    places: dict[Key, list[int]] = {key: [] for key in calls}
    launches: dict[Key, list[float]] = {key: [] for key in calls}
    outputs = {}
    times = []
    rest = plan.first_rest_s
    schedule = list(calls)
    lead = schedule[0]
    for index in range(rounds):
        order.shuffle(schedule)
        for each in fresh.values():
            each.change()
        stopwatch.wait()
        time.sleep(rest)
        began = time.monotonic()
        stopwatch.hold(launch_s, len(schedule) + 1)
        if not stopwatch.on_cpu:  # what runs first finds a device that did nothing: cuDNN was 0.6% slower there
            stopwatch.clear_cache()
            calls[lead](fresh[lead[1]].inputs)
        for key in schedule:
            its = fresh.get(key[1])
            inputs = its and its.inputs
            stopwatch.clear_cache()
            stopwatch.mark()
            started = time.perf_counter()
            out = calls[key](inputs)
            launches[key].append(1e3 * (time.perf_counter() - started))
            stopwatch.mark()
            if kept_round[key] == index:
                outputs[key] = (out.clone(), its.changed if its else None)
            del out
        for place, (key, sample) in enumerate(zip(schedule, stopwatch.between_ms()[::2], strict=True)):
            samples[key].append(sample)
            places[key].append(place)
        times.append((began, time.monotonic()))
        rest = plan.rest_s if stopwatch.on_cpu else max(plan.rest_s, min(1.0, _REST * (times[-1][1] - began)))
    return Burst(
        samples_ms=samples,
        places=places,
        times=times,
        launch_ms={key: statistics.median(found) for key, found in launches.items()},
        outputs=outputs,
    )


def _launch_s(stopwatch: Stopwatch, calls: Mapping[Key, Callable[[Any], object]], fresh: Mapping[str, Fresh]) -> float:
    """Return how long the host takes to launch a round."""
    stopwatch.wait()
    stopwatch.hold(0.0, 2 * len(calls))
    found = []
    for _ in range(2):  # the first one may have to wake the host up
        began = time.perf_counter()
        for (_, workload), call in calls.items():
            its = fresh.get(workload)
            stopwatch.clear_cache()
            stopwatch.mark()
            call(its and its.inputs)
            stopwatch.mark()
        found.append(time.perf_counter() - began)
    stopwatch.between_ms()  # forgets the marks
    return min(found)


def repeated_over_new(
    stopwatch: Stopwatch,
    calls: Mapping[str, Call],
    fresh: Mapping[str, Fresh],
    rotation: Mapping[str, Sequence[Inputs]],
    launch_s: float,
) -> dict[str, float]:
    """Return, by workload, the time of a call on what the call before got over that of one on new contents.

    The median of five rounds, fewer where they take long; the cache is cleared before both calls, and a warm one on
    other inputs that is not timed precedes them. So nothing but what a kernel kept of the earlier call can make the
    second one shorter. `launch_s` is the time that the host takes for one call of each.
    """
    found: dict[str, list[float]] = {name: [] for name in calls}
    began = time.monotonic()
    for done in range(_MOST_REPEATS):
        if done >= _LEAST_REPEATS and time.monotonic() - began > _REPEAT_S:
            break
        for each in fresh.values():
            each.change()
        stopwatch.wait()
        stopwatch.hold(3 * launch_s, 5 * len(calls))
        for name, call in calls.items():
            call(rotation[name][0])
            for _ in range(2):
                stopwatch.clear_cache()
                stopwatch.mark()
                call(fresh[name].inputs)
                stopwatch.mark()
        times = stopwatch.between_ms()
        for index, name in enumerate(calls):
            found[name].append(times[4 * index + 2] / times[4 * index])
    return {name: statistics.median(quotients) for name, quotients in found.items()}


@dataclass(frozen=True, kw_only=True)
class Block:
    """One variant, back to back, its workloads in turn.

    A window is one turn of all workloads, `calls[workload]` calls of each; `samples_ms` are their mean times, one a
    window. The first `lead` windows are from before its speed had settled.
    """

    samples_ms: Mapping[str, list[float]]  # by workload
    calls: Mapping[str, int]
    windows: list[tuple[float, float]]  # begin and end of each, monotonic seconds
    lead: int
    stretch: int  # windows that a sample is the mean of
    settled: bool
    ahead_ms: float  # for how long the device was still busy when the host had launched a window, median; 0 on a CPU


def sustain(
    stopwatch: Stopwatch,
    calls: Mapping[str, Callable[[T], Any]],
    call_s: Mapping[str, float],
    rotation: Mapping[str, Sequence[T]],
    plan: Plan,
    most_s: float | None = None,
    outputs: dict[str, torch.Tensor] | None = None,
) -> Block:
    """Load the device with one variant until its speed has settled and is known, or the time cap is reached.

    It is called at all of its workloads in turn, so that each sees the same clocks. Settled is: after `lead_s`, two
    stretches in succession whose means agree within `settled_within`. Inputs rotate; together they exceed the cache.
    `outputs` is given, by workload, what a timed call returned for the last inputs of its rotation. All durations are
    those that were measured.
    """
    counts = {workload: max(1, round(plan.chunk_s / call_s[workload])) for workload in calls}
    names = list(calls)
    most = most_s or plan.most_s
    lead = 0
    means: list[float] = []  # milliseconds of all calls of a window
    samples: dict[str, list[float]] = {workload: [] for workload in calls}
    windows: list[tuple[float, float]] = []
    ahead_s: list[float] = []
    turns = dict.fromkeys(calls, 0)
    while True:
        began = time.monotonic()
        chosen = names[len(windows) % len(names)]
        if not stopwatch.on_cpu:  # the device waits for the first call after a pause, which is not timed
            calls[chosen](rotation[chosen][-1])
        for workload, call in calls.items():
            inputs = rotation[workload]
            stopwatch.mark()
            for _ in range(counts[workload]):
                place = turns[workload] % len(inputs)
                out = call(inputs[place])
                turns[workload] += 1
            stopwatch.mark()
            # Copied before another call may overwrite it. A short block has one turn of each workload.
            if outputs is not None and place == len(inputs) - 1 and (workload == chosen or workload not in outputs):
                outputs[workload] = out.clone()
            del out
        launched = time.monotonic()
        found = stopwatch.between_ms()[::2]
        ahead_s.append(time.monotonic() - launched)
        windows.append((began, time.monotonic()))
        for workload, total in zip(calls, found, strict=True):
            samples[workload].append(total / counts[workload])
        means.append(sum(found))
        if not lead:
            lead = len(means) if sum(means) >= 1e3 * plan.lead_s else 0
            continue
        counted = means[lead:]
        stretch = _windows(plan.stretch_s, means)
        if len(counted) < 2 * stretch:
            continue
        if not _agree(counted, stretch, plan) and sum(means[: lead + 1]) <= 1e3 * plan.most_lead_s:
            lead += 1  # its speed still moves
            continue
        held_s = sum(counted) / 1e3
        known = held_s >= plan.least_s and _half_interval(counted, _windows(plan.sample_s, means)) <= PRECISE_WITHIN
        if known or held_s >= most:
            break
    return Block(
        samples_ms=samples,
        calls=counts,
        windows=windows,
        lead=lead,
        stretch=_windows(plan.sample_s, means),
        settled=_agree(means[lead:], stretch, plan),
        ahead_ms=0.0 if stopwatch.on_cpu else 1e3 * statistics.median(ahead_s[lead:]),
    )


def _windows(seconds: float, means: Sequence[float]) -> int:
    """Return how many windows, of which these are the milliseconds, last about so long."""
    return max(1, round(1e3 * seconds / statistics.fmean(means)))


def _agree(means: Sequence[float], stretch: int, plan: Plan) -> bool:
    first, second = (statistics.fmean(means[start : start + stretch]) for start in (0, stretch))
    return abs(first / second - 1) <= plan.settled_within


def _half_interval(means: Sequence[float], stretch: int) -> float:
    """Return half the 95% interval (Student's t) of the mean of all windows, as a share, from means of stretches."""
    stretches = [
        statistics.fmean(means[start : start + stretch]) for start in range(0, len(means) - stretch + 1, stretch)
    ]
    if len(stretches) < 2:
        return math.inf
    error = statistics.stdev(stretches) / math.sqrt(len(stretches)) / statistics.fmean(stretches)
    return critical(0.05, len(stretches) - 1) * error
