"""Sustained on a CPU: rounds in which calls of a variant and of the reference alternate.

A CPU has no power limit to settle at; other programs disturb it, for as long as they like. Within a round they slow
both sides alike, so ratios are taken within rounds, and more rounds are taken where these ratios scatter.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Any

from fluxbench.stats.student import critical
from fluxbench.timing.plan import Plan
from fluxbench.timing.processor import wait_for_quiet
from fluxbench.timing.stopwatch import Stopwatch
from fluxbench.timing.sustained import Block
from fluxbench.timing.windows import Given

ALTERNATIONS = 4  # of both sides at a workload in a round, where calls are short
LEAST_ROUNDS = 2
LEAST_RATIOS = 6  # of all workloads, by which one is known: two may agree by chance
NARROW, WIDE = 0.05, 0.15  # half the 95% interval of a process's ratio, as a share
FAR = 0.5  # of the distance between the two sides: a ratio far from 1 decides as much with a wider interval
WIDE_FOR = 8  # times as long as others, a ratio may be measured whose interval is wide


@dataclass(frozen=True, kw_only=True)
class Side:
    """A variant or the reference: calls and what they get, by workload."""

    calls: Mapping[str, Callable[[Any], Any]]
    given: Mapping[str, Given]


def interleave(
    stopwatch: Stopwatch,
    sides: Sequence[Side],
    call_s: Mapping[str, float],
    plan: Plan,
    rng: random.Random,
) -> Block:
    """Time a variant beside the reference, the second of `sides`, in rounds over all workloads.

    The reference is by itself: its ratio is 1, and it has two rounds. In a round the two take turns at each workload:
    once where the longer of two calls, which takes `call_s`, fills a chunk, else up to four times with as many calls as
    fit. Before a long call the threads that the last one left spinning come to rest. Who begins is random, and so is
    the order of workloads. A sample is the mean of a round. Rounds end with the first of: a ratio that is known within
    `NARROW`, or `FAR` of its logarithm; `paired_s` in calls where it is known within `WIDE`; eight times `paired_s`.
    """
    split = {name: _split(seconds, plan) for name, seconds in call_s.items()}
    counts = {name: turns * calls for name, (turns, calls) in split.items()}
    samples: list[dict[str, list[float]]] = [{name: [] for name in call_s} for _ in sides]
    rounds: list[tuple[float, float]] = []
    busy_s = 0.0
    order = list(call_s)
    while len(rounds) < LEAST_ROUNDS or not _enough(samples, busy_s, plan):
        given = [{name: side.given[name].turn(counts[name]) for name in order} for side in sides]
        rng.shuffle(order)
        began = time.monotonic()
        for name in order:
            turns, calls = split[name]
            taken = _alternate(stopwatch, sides, [each[name] for each in given], name, turns, calls, rng)
            for into, total_ms in zip(samples, taken, strict=True):
                into[name].append(total_ms / counts[name])
                busy_s += total_ms / 1e3
        rounds.append((began, time.monotonic()))
    return Block(
        samples_ms=samples[0],
        reference_ms=samples[-1],
        calls=counts,
        windows=rounds,
        warm_up=0,
        windows_a_sample=1,
        settled=True,
        ahead_ms=0.0,
    )


def _split(call_s: float, plan: Plan) -> tuple[int, int]:
    """Return how often the sides take turns in a round, and how many calls each then makes."""
    fitting = max(1, round(plan.chunk_s / call_s))
    turns = min(ALTERNATIONS, fitting)
    return turns, fitting // turns


def _alternate(
    stopwatch: Stopwatch,
    sides: Sequence[Side],
    given: Sequence[Any],
    name: str,
    turns: int,
    calls: int,
    rng: random.Random,
) -> list[float]:
    """Return for each side the milliseconds of its calls of a round at one workload."""
    totals_ms = [0.0] * len(sides)
    for turn in range(turns):
        schedule = rng.sample(range(len(sides)), len(sides))
        for place in schedule:
            call = sides[place].calls[name]
            inputs = given[place][turn * calls : (turn + 1) * calls]
            if turns == 1:  # threads spin for milliseconds after each call, too long to wait for before short ones
                wait_for_quiet()
            stopwatch.record()
            for each in inputs:
                out = call(each)
            stopwatch.record()
            if turn == turns - 1:
                sides[place].given[name].keep(out)
            del out
        for place, total_ms in zip(schedule, stopwatch.between_ms()[::2], strict=True):
            totals_ms[place] += total_ms
    return totals_ms


def _enough(samples: list[dict[str, list[float]]], busy_s: float, plan: Plan) -> bool:
    if len(samples) < 2:
        return True
    own, beside = samples
    half = half_interval(own, beside)
    apart = abs(fmean(math.log(fmean(own[name]) / fmean(beside[name])) for name in own))
    if half <= max(NARROW, FAR * apart) and sum(map(len, samples[0].values())) >= LEAST_RATIOS:
        return True
    return busy_s >= plan.paired_s * (1 if half <= WIDE else WIDE_FOR)


def half_interval(own: Mapping[str, list[float]], beside: Mapping[str, list[float]]) -> float:
    """Return half the 95% interval of a workload's mean log ratio; the scatter of rounds is pooled over workloads."""
    logs = [[math.log(one / other) for one, other in zip(own[name], beside[name], strict=True)] for name in own]
    rounds = len(logs[0])
    return critical(0.05, len(logs) * (rounds - 1)) * math.sqrt(fmean(map(variance, logs)) / rounds)
