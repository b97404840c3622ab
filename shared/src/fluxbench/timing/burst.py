"""Burst: single calls between two device events on a rested device.

The last-level cache is cleared before each call, calls of all callables are interleaved in random order, and the device
rests between rounds.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from fluxbench.correctness.perturbing import Expected, PerturbedInputs
from fluxbench.operations.protocol import Bound, Tensors
from fluxbench.timing.plan import Plan
from fluxbench.timing.stopwatch import Stopwatch

Key = tuple[str, str]  # variant, workload

_REST = 0.25  # of a GPU after a round, over the time of that round
_MAX_REST_S = 1.0
_MAX_REPEATS, _MIN_REPEATS = 5, 3  # rounds in which a call is repeated on the same contents
_REPEAT_S = 0.5  # after which no further one of these rounds is begun, beyond the fewest


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Outputs of a timed call, and what they must be: a function of the right outputs for the first contents."""

    outputs: Mapping[str, object]
    expected: Expected | None


@dataclass(frozen=True, kw_only=True)
class Burst:
    """The samples of some rounds: each callable's, one a round."""

    samples_ms: Mapping[Key, list[float]]
    places: Mapping[Key, list[int]]  # of each sample in the order of its round, from 0
    times: list[tuple[float, float]]  # begin and end of each round, monotonic seconds
    launch_ms: Mapping[Key, float]  # median time of the host in a call, while the device is busy
    outputs: Mapping[Key, Kept]  # of one call each


def burst(
    stopwatch: Stopwatch,
    calls: Mapping[Key, Bound],
    rounds: int,
    perturbed: Mapping[str, PerturbedInputs],
    order: random.Random,
    plan: Plan,
) -> Burst:
    """Time every callable once a round, in random order, with a rest before each round.

    A key is a variant and the workload whose inputs in `perturbed` it gets; a callable of no workload gets none. Their
    contents change before each round, so no callable sees what it has seen before; but the first one is called,
    untimed, at the begin of a round on a GPU. A rest is at least `min_rest_s`, and on a GPU a quarter of the round
    before. Which round's output is kept is random. The host's time for a round, by which it must be ahead of the
    device, is that of one before the first.
    """
    launch_s = 0.0 if stopwatch.on_cpu else _launch_s(stopwatch, calls, perturbed)
    kept_round = {key: order.randrange(rounds) for key in calls}
    samples: dict[Key, list[float]] = {key: [] for key in calls}
    places: dict[Key, list[int]] = {key: [] for key in calls}
    launches: dict[Key, list[float]] = {key: [] for key in calls}
    outputs: dict[Key, Kept] = {}
    times = []
    rest = plan.first_rest_s
    schedule = list(calls)
    first = schedule[0]
    for index in range(rounds):
        order.shuffle(schedule)
        for inputs in perturbed.values():
            inputs.perturb()
        stopwatch.wait()
        time.sleep(rest)
        began = time.monotonic()
        stopwatch.spin(launch_s, len(schedule) + 1)
        if not stopwatch.on_cpu:  # what runs first finds a device that did nothing: cuDNN was 0.6% slower there
            stopwatch.clear_cache()
            calls[first](perturbed[first[1]].inputs)
        for key in schedule:
            changed = perturbed.get(key[1])
            prepared = calls[key].prepared(changed.inputs if changed else {})
            stopwatch.clear_cache()
            stopwatch.record()
            started = time.perf_counter()
            out = calls[key].call(prepared)
            launches[key].append(1e3 * (time.perf_counter() - started))
            stopwatch.record()
            if kept_round[key] == index:
                outputs[key] = Kept(outputs=copies(out), expected=changed.expected if changed else None)
            del out, prepared
        for place, (key, sample) in enumerate(zip(schedule, stopwatch.between_ms()[::2], strict=True)):
            samples[key].append(sample)
            places[key].append(place)
        times.append((began, time.monotonic()))
        of_round = times[-1][1] - began
        rest = plan.min_rest_s if stopwatch.on_cpu else max(plan.min_rest_s, min(_MAX_REST_S, _REST * of_round))
    return Burst(
        samples_ms=samples,
        places=places,
        times=times,
        launch_ms={key: statistics.median(times_ms) for key, times_ms in launches.items()},
        outputs=outputs,
    )


def copies(outputs: Mapping[str, object]) -> dict[str, object]:
    """Return copies of the outputs that are tensors, made in the order of the stream."""
    return {name: out.clone() if isinstance(out, torch.Tensor) else out for name, out in outputs.items()}


def _launch_s(stopwatch: Stopwatch, calls: Mapping[Key, Bound], perturbed: Mapping[str, PerturbedInputs]) -> float:
    """Return how long the host takes to launch a round."""
    stopwatch.wait()
    stopwatch.spin(0.0, 2 * len(calls))
    seconds = []
    for _ in range(2):  # the first one may have to wake the host up
        began = time.perf_counter()
        for (_, workload), bound in calls.items():
            changed = perturbed.get(workload)
            prepared = bound.prepared(changed.inputs if changed else {})
            stopwatch.clear_cache()
            stopwatch.record()
            bound.call(prepared)
            stopwatch.record()
        seconds.append(time.perf_counter() - began)
    stopwatch.between_ms()
    return min(seconds)


def repeated_over_new(
    stopwatch: Stopwatch,
    calls: Mapping[str, Bound],
    perturbed: Mapping[str, PerturbedInputs],
    rotation: Mapping[str, Sequence[Tensors]],
    launch_s: float,
) -> dict[str, float]:
    """Return, by workload, the time of a call on what the call before got over that of one on new contents.

    The median of five rounds, fewer where they take long; the cache is cleared before both calls, and a warm one on
    other inputs that is not timed precedes them. So nothing but what a kernel kept of the earlier call can make the
    second one shorter. `launch_s` is the time that the host takes for one call of each.
    """
    quotients: dict[str, list[float]] = {name: [] for name in calls}
    began = time.monotonic()
    for done in range(_MAX_REPEATS):
        if done >= _MIN_REPEATS and time.monotonic() - began > _REPEAT_S:
            break
        for inputs in perturbed.values():
            inputs.perturb()
        stopwatch.wait()
        stopwatch.spin(3 * launch_s, 5 * len(calls))
        for name, bound in calls.items():
            bound(rotation[name][0])
            for _ in range(2):
                prepared = bound.prepared(perturbed[name].inputs)
                stopwatch.clear_cache()
                stopwatch.record()
                bound.call(prepared)
                stopwatch.record()
        times = stopwatch.between_ms()
        for index, name in enumerate(calls):
            quotients[name].append(times[4 * index + 2] / times[4 * index])
    return {name: statistics.median(values) for name, values in quotients.items()}
