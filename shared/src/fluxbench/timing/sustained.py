"""Sustained: one variant at a time, back to back, until its speed has settled and is known."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fluxbench.stats.student import critical
from fluxbench.timing.plan import Plan
from fluxbench.timing.stopwatch import Stopwatch

_STALL = 0.25  # of the time of a turn's calls, by which the host took longer than usual to launch them
_CONVERGED_WITHIN = 0.003  # half the 95% interval of a block's mean: no more windows are taken
_BUSY_WITH_ONE = 0.9  # of a replay: the time of the last one alone, less what its launch took
_GRAPH_LAUNCH_S = 2e-3  # at most, of some thousand kernels
_MOST_RESTS = 6  # of a device that is slowed by its heat


class Given(Protocol):
    """What the calls of a block get, as `timing.rotation.Rotation` gives it."""

    def turn(self, calls: int) -> Sequence[Any]:
        """Return what the next calls get, in order."""

    def keep(self, outputs: Any) -> None:
        """Take what the last call of a turn returned, before another call may overwrite it."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """One variant, back to back, its workloads in turn.

    A window is one turn of all workloads, `calls[workload]` calls of each; `samples_ms` are their mean times, one a
    window. The first `warm_up` windows are from before its speed had settled.
    """

    samples_ms: Mapping[str, list[float]]  # by workload
    calls: Mapping[str, int]
    windows: list[tuple[float, float]]  # begin and end of each, monotonic seconds
    warm_up: int
    windows_a_sample: int
    settled: bool
    # For how long the device was still busy when the host had launched a window, median; 0 on a CPU. Where calls begin
    # on an idle device it tells nothing, and is the longest sample; so where long calls are replayed, and it was busy
    # for nearly one of the last workload or longer.
    ahead_ms: float
    led: bool = True  # a call that is not timed is before each window; of a CPU it tells nothing
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


def one_by_one(call: Callable[[Any], Any]) -> Callable[[Sequence[Any]], Any]:
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
    launches: Mapping[str, Callable[[Sequence[Any]], Any]] | None = None,
    *,
    idle: bool = False,
    replays: bool = False,
) -> Block:
    """Load the device with one variant until its speed has settled and is known, or the time cap is reached.

    It is called at all of its workloads in turn, so that each sees the same clocks. Settled is: after `warm_up_s`, two
    stretches in succession whose means agree within `settled_within`. `given` says what is called with. `launches`
    makes the calls of a turn (`one_by_one` where it is not given). `idle`: those of each workload begin on an idle
    device, see `timing.burst.burst`. `replays`: `launches` are graphs of long calls, each of which is replayed for
    `Plan.replay_s` in a window; turns of one replay each are made before the first window, until `warm_up_s` are over.
    Where neither is given, a GPU's window begins with a call that is not timed, as the device waits for the first one.
    Where a device is slowed by its heat in a window, it rests for `Plan.rest_of_hot_s` and its warm-up begins again, to
    which all windows so far belong; up to six times. All durations are those that were measured.
    """
    launches = launches or {workload: one_by_one(call) for workload, call in calls.items()}
    in_turn = {workload: calls_in_a_window(call_s[workload], plan) for workload in calls}
    repeats = _warmed(stopwatch, launches, in_turn, given, plan) if replays else dict.fromkeys(calls, 1)
    counts = {workload: count * repeats[workload] for workload, count in in_turn.items()}
    names, led = list(calls), not (idle or replays)
    warm_up = 0 if replays else None  # None: it is not over
    cool = rests = 0  # `cool`: the first window since the device rested
    means: list[float] = []  # milliseconds of all calls of a window
    samples: dict[str, list[float]] = {workload: [] for workload in calls}
    windows: list[tuple[float, float]] = []
    ahead_s: list[float] = []
    launch_s: dict[str, list[float]] = {workload: [] for workload in calls}
    while True:
        turns = _turns(given, in_turn)
        began = time.monotonic()
        chosen = names[len(windows) % len(names)]
        if led and not stopwatch.on_cpu:
            calls[chosen](turns[chosen][0])
        elif replays:
            stopwatch.spin(_GRAPH_LAUNCH_S, 1)
        for workload, seconds in _launch(stopwatch, launches, turns, given, repeats, idle=idle).items():
            launch_s[workload].append(seconds)
        launched = time.monotonic()
        totals_ms = _totals_ms(stopwatch, launches)
        ahead_s.append(time.monotonic() - launched)
        windows.append((began, time.monotonic()))
        for workload, total in totals_ms.items():
            samples[workload].append(total / counts[workload])
        means.append(sum(totals_ms.values()))
        if plan.rest_of_hot_s and rests < _MOST_RESTS and stopwatch.is_hot():
            warm_up, cool, rests = None, len(means), rests + 1
            time.sleep(plan.rest_of_hot_s)
            continue
        if warm_up is None:
            warm_up = len(means) if sum(means[cool:]) >= 1e3 * plan.warm_up_s else None
            continue
        counted = means[warm_up:]
        stretch = _windows(plan.stretch_s, means)
        if len(counted) < 2 * stretch:
            continue
        if not _agree(counted, stretch, plan) and sum(means[cool : warm_up + 1]) <= 1e3 * plan.max_warm_up_s:
            warm_up += 1  # its speed still moves
            continue
        busy_s = sum(counted) / 1e3
        if busy_s >= plan.max_block_s or (
            busy_s >= plan.min_block_s and _half_interval(counted, _windows(plan.sample_s, means)) <= _CONVERGED_WITHIN
        ):
            break
    ahead_ms = 1e3 * statistics.median(ahead_s[warm_up:])
    last = list(launches)[-1]  # a driver's queue holds replays of this one alone, where calls are long
    if idle or (replays and ahead_ms >= _BUSY_WITH_ONE * statistics.median(samples[last])):
        ahead_ms = max(map(max, samples.values()))
    return Block(
        samples_ms=samples,
        calls=counts,
        windows=windows,
        warm_up=warm_up,
        windows_a_sample=_windows(plan.sample_s, means),
        settled=_agree(means[warm_up:], stretch, plan),
        ahead_ms=0.0 if stopwatch.on_cpu else ahead_ms,
        led=led,
        stalled={
            workload: _stalled(launch_s[workload], counts[workload] * statistics.median(samples[workload]) / 1e3)
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
    turns = _turns(given, counts)
    last = next(reversed(calls))
    calls[last](turns[last][0])
    launches = {workload: one_by_one(call) for workload, call in calls.items()}
    _launch(stopwatch, launches, turns, given, idle=True)
    return {workload: total / counts[workload] for workload, total in _totals_ms(stopwatch, launches).items()}


def _warmed(
    stopwatch: Stopwatch,
    launches: Mapping[str, Callable[[Sequence[Any]], Any]],
    counts: Mapping[str, int],
    given: Mapping[str, Given],
    plan: Plan,
) -> dict[str, int]:
    """Warm up by turns of one replay each; return how often each graph is replayed in a window, by how long it took.

    Windows of long calls are few, and the clock oscillates within a second: one short call of each would tell little.
    """
    busy_ms, totals_ms = 0.0, dict.fromkeys(launches, math.inf)
    while busy_ms < 1e3 * plan.warm_up_s:
        turns = _turns(given, counts)  # contents are put before the spin, which would be over after it
        stopwatch.spin(_GRAPH_LAUNCH_S, 1)
        _launch(stopwatch, launches, turns, given, idle=False)
        totals_ms = _totals_ms(stopwatch, launches)
        busy_ms += sum(totals_ms.values())
    return {workload: max(1, round(1e3 * plan.replay_s / total)) for workload, total in totals_ms.items()}


def _launch(
    stopwatch: Stopwatch,
    launches: Mapping[str, Callable[[Sequence[Any]], Any]],
    turns: Mapping[str, Sequence[Any]],
    given: Mapping[str, Given],
    repeats: Mapping[str, int] | None = None,
    *,
    idle: bool,
) -> dict[str, float]:
    """Launch the calls of a window between events, without the first of each turn; return the host's seconds for it."""
    seconds = {}
    for workload, launch in launches.items():
        turn = turns[workload][1:]
        if idle:
            stopwatch.begin_idle()
        stopwatch.record()
        launching = time.monotonic()
        for _ in range((repeats or {}).get(workload, 1)):
            out = launch(turn)
        seconds[workload] = time.monotonic() - launching
        stopwatch.record()
        given[workload].keep(out)
        del out
    return seconds


def _turns(given: Mapping[str, Given], counts: Mapping[str, int]) -> dict[str, Sequence[Any]]:
    """Return what the calls of a window get, and before them one that is not timed."""
    return {workload: given[workload].turn(1 + count) for workload, count in counts.items()}


def _totals_ms(stopwatch: Stopwatch, launches: Iterable[str]) -> dict[str, float]:
    """Wait for the device, and return the time of each workload's calls in a window, in the order of launching."""
    return dict(zip(launches, stopwatch.between_ms()[::2], strict=True))


def _stalled(launch_s: Sequence[float], turn_s: float) -> list[int]:
    """Return the windows in which the host was held up, so that the device may have waited for it."""
    usual = statistics.median(launch_s)
    return [index for index, seconds in enumerate(launch_s) if seconds > usual + _STALL * turn_s]


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
