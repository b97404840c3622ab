"""Sustained: one variant at a time, back to back, until its speed has settled and is known."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fluxbench.stats.student import critical
from fluxbench.timing.plan import Plan
from fluxbench.timing.stopwatch import Stopwatch
from fluxbench.timing.windows import GRAPH_LAUNCH_S, Given, Launch, Lead, Windows, launch, of_workloads, turns_of

_STALL = 0.25  # of the time of a turn's calls, by which the host took longer than usual to launch them
_CONVERGED_WITHIN = 0.003  # half the 95% interval of a block's mean: no more windows are taken
_BUSY_WITH_ONE = 0.9  # of a replay: the time of the last one alone, less what its launch took
_OF_WHOLE = 0.1  # of a window of replays, by which it may differ from whole periods of the power limit
_MOST_PERIODS = 4.2  # of such a window
_MOST_RESTS = 6  # of a device that is slowed by its heat


@dataclass(frozen=True, kw_only=True)
class Block:
    """One variant, back to back, its workloads in turn.

    A window is one turn of all workloads, `calls[workload]` calls of each; `samples_ms` are their mean times, one a
    window. The first `warm_up` windows are from before its speed had settled.
    """

    samples_ms: Mapping[str, list[float]]  # by workload
    calls: Mapping[str, int]
    windows: list[
        tuple[float, float]
    ]  # begin and end of each, monotonic seconds; in a queue one begins as another ends
    warm_up: int
    windows_a_sample: int
    settled: bool
    # For how long the device was still busy when the host had launched a window, median; 0 on a CPU. Of windows in a
    # queue, with the one before it. Where calls begin on an idle device it tells nothing, and is the longest sample; so
    # where long calls are replayed, and it was busy for nearly one of the last workload or longer.
    ahead_ms: float
    led: bool = True  # a call that is not timed is before each window; of a CPU it tells nothing
    lead_ms: float | None = None  # of what is before each: of another workload, or replays of the first graph
    stalled: Mapping[str, list[int]] = field(default_factory=dict)  # by workload, windows in which the host was late
    reference_ms: Mapping[str, list[float]] = field(default_factory=dict)  # of the same windows, where it was beside

    @property
    def means_ms(self) -> dict[str, float]:
        """The mean time of a call at each workload, after the warm-up."""
        return {workload: statistics.fmean(samples[self.warm_up :]) for workload, samples in self.samples_ms.items()}

    @property
    def loads(self) -> bool:
        """Whether the device was busy throughout: it did not wait for the host to launch calls."""
        return all(self.ahead_ms >= statistics.median(samples) for samples in self.samples_ms.values())


def one_by_one(call: Callable[[Any], Any]) -> Launch:
    """Return what makes the calls of a turn one by one, and returns what the last of them does."""

    def launch(turn: Sequence[Any]) -> Any:
        out = None
        for inputs in turn:
            out = call(inputs)
        return out

    return launch


def sustain(
    stopwatch: Stopwatch,
    calls: Mapping[str, Callable[[Any], Any]],
    call_s: Mapping[str, float],
    given: Mapping[str, Given],
    plan: Plan,
    launches: Mapping[str, Launch] | None = None,
    *,
    idle: bool = False,
    replays: bool = False,
    leads: Sequence[str] = (),
    lead: Lead | None = None,
) -> Block:
    """Load the device with one variant until its speed has settled and is known, or the time cap is reached.

    It is called at all of its workloads in turn, so that each sees the same clocks. Settled is: after `warm_up_s`, two
    stretches in succession whose means agree within `settled_within`. `given` says what is called with. `launches`
    makes the calls of a turn (`one_by_one` where it is not given). `idle`: those of each workload begin on an idle
    device, see `timing.burst.burst`. `replays`: `launches` are graphs of long calls, each of which is replayed in a
    window for nearly once or several times `Plan.replay_s`, after some of the first that are not timed (`Plan.lead_s`);
    turns of one replay each are made before the first window, until `warm_up_s` are over. In either case a window
    begins when the one before it is over. Where neither is given, a GPU's window begins with a call that is not timed,
    in case the device waits for it, and is launched before the one before it is over. `leads`: the workloads of these
    calls, in turn; all where none are given. `lead` is made in place of them: a call of another workload, which needs
    less memory beside the graphs. Where a device is slowed by its heat in a window, it rests for `Plan.rest_of_hot_s`
    and its warm-up begins again, to which all windows so far belong; up to six times. All durations are those that were
    measured, untimed calls included: so a block of long calls holds no part of a period of the power limit either.
    """
    launches = launches or {workload: one_by_one(call) for workload, call in calls.items()}
    in_turn = {workload: calls_in_a_window(call_s[workload], plan) for workload in calls}
    repeats = None
    if replays:
        replay_s = _warmed(stopwatch, launches, in_turn, given, plan)
        repeats = {workload: _replays(seconds, plan.replay_s) for workload, seconds in replay_s.items()}
        lead = _leading(*next(iter(launches.items())), replay_s, plan)
    taken = Windows(
        stopwatch, calls, launches, given, in_turn, repeats, idle=idle, replays=replays, leads=leads, lead=lead
    )
    means, lasted, samples = taken.means_ms, taken.lasted_ms, taken.samples_ms
    warm_up = 0 if replays else None  # None: it is not over
    cool = rests = 0  # `cool`: the first window since the device rested
    while True:
        taken.take()
        if plan.rest_of_hot_s and rests < _MOST_RESTS and stopwatch.is_hot():
            taken.end()
            warm_up, cool, rests = None, len(means), rests + 1
            time.sleep(plan.rest_of_hot_s)
            continue
        if warm_up is None:
            warm_up = len(means) if sum(lasted[cool:]) >= 1e3 * plan.warm_up_s else None
            continue
        counted = means[warm_up:]
        stretch = _windows(plan.stretch_s, lasted)
        if len(counted) < 2 * stretch:
            continue
        if not _agree(counted, stretch, plan) and sum(lasted[cool : warm_up + 1]) <= 1e3 * plan.max_warm_up_s:
            warm_up += 1  # its speed still moves
            continue
        busy_s = sum(lasted[warm_up:]) / 1e3
        if busy_s >= plan.max_block_s or (
            busy_s >= plan.min_block_s and _half_interval(counted, _windows(plan.sample_s, lasted)) <= _CONVERGED_WITHIN
        ):
            break
    taken.end()
    ahead_ms = 1e3 * statistics.median(taken.ahead_s[warm_up:])
    last = list(launches)[-1]  # a driver's queue holds replays of this one alone, where calls are long
    if idle or (replays and ahead_ms >= _BUSY_WITH_ONE * statistics.median(samples[last])):
        ahead_ms = max(map(max, samples.values()))
    return Block(
        samples_ms=samples,
        calls=taken.counts,
        windows=taken.spans,
        warm_up=warm_up,
        windows_a_sample=_windows(plan.sample_s, lasted),
        settled=_agree(means[warm_up:], stretch, plan),
        ahead_ms=0.0 if stopwatch.on_cpu else ahead_ms,
        led=taken.led,
        lead_ms=lead and lead.ms,
        stalled={
            workload: _stalled(taken, workload, taken.counts[workload] * statistics.median(samples[workload]) / 1e3)
            for workload in (() if stopwatch.on_cpu else calls)
        },
    )


def launched_ms(
    stopwatch: Stopwatch,
    calls: dict[str, Callable[[Any], Any]],
    call_s: Mapping[str, float],
    given: Mapping[str, Given],
    plan: Plan,
    *,
    idle: bool = False,
) -> Mapping[str, float]:
    """Return the mean time of a call at each workload where the host launches it, right after a block that replayed.

    Of a short block, or of a single turn where calls begin on an `idle` device, as these take up to a second each. The
    last of `calls` is made once before such a turn, untimed: it takes memory that captures gave back.
    """
    if not idle:
        return sustain(stopwatch, calls, call_s, given, plan.short).means_ms
    counts = {workload: calls_in_a_window(call_s[workload], plan) for workload in calls}
    turns = turns_of(given, counts)
    last = next(reversed(calls))
    calls[last](turns[last][0])
    launches = {workload: one_by_one(call) for workload, call in calls.items()}
    launch(stopwatch, launches, turns, given, idle=True)
    totals_ms = of_workloads(launches, stopwatch.between_ms())
    return {workload: total / counts[workload] for workload, total in totals_ms.items()}


def _warmed(
    stopwatch: Stopwatch,
    launches: Mapping[str, Launch],
    counts: Mapping[str, int],
    given: Mapping[str, Given],
    plan: Plan,
) -> dict[str, float]:
    """Warm up by turns of one replay each; return how many seconds each graph took."""
    busy_ms, totals_ms = 0.0, dict.fromkeys(launches, math.inf)
    while busy_ms < 1e3 * plan.warm_up_s:
        turns = turns_of(given, counts)  # contents are put before the spin, which would be over after it
        stopwatch.spin(GRAPH_LAUNCH_S, 1)
        launch(stopwatch, launches, turns, given, idle=False)
        totals_ms = of_workloads(launches, stopwatch.between_ms())
        busy_ms += sum(totals_ms.values())
    return {workload: total / 1e3 for workload, total in totals_ms.items()}


def _leading(workload: str, launch: Launch, replay_s: Mapping[str, float], plan: Plan) -> Lead | None:
    """Return the replays of the first graph before a window, one at least: the device has just waited for the host."""
    count = max(1, int(plan.lead_s / replay_s[workload])) if plan.lead_s else 0

    def replay() -> None:
        for _ in range(count):
            launch(())

    return Lead(replay, 1e3 * count * replay_s[workload]) if count else None


def _replays(seconds: float, period_s: float) -> int:
    """Return how many replays, each of which takes so long, last nearly whole periods, to a tenth.

    Windows of long calls are few, and the clock oscillates within a second: one short call of each would tell little.
    As many as last about one period, or the fewest more; about one period where that would take over four.
    """
    about = max(1, round(period_s / seconds))
    for count in range(about, int(_MOST_PERIODS * period_s / seconds) + 1):
        lasting_s = count * seconds
        if abs(lasting_s - period_s * max(1, round(lasting_s / period_s))) <= _OF_WHOLE * lasting_s:
            return count
    return about


def _stalled(taken: Windows, workload: str, turn_s: float) -> list[int]:
    """Return the windows in which the host was held up while the device may have waited for it."""
    launch_s = taken.launch_s[workload]
    late_s = statistics.median(launch_s) + _STALL * turn_s
    return [index for index, waited in enumerate(taken.waited) if waited and launch_s[index] > late_s]


def calls_in_a_window(call_s: float, plan: Plan) -> int:
    """Return how many calls of so many seconds a window has at one workload."""
    return max(1, round(plan.chunk_s / call_s))


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
