"""Sustained blocks on a clock that a test moves by hand."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from clocks import ON_CPU, PLAN, Clock, InTurn, LikeAGPU

from fluxbench.timing.plan import Plan
from fluxbench.timing.stopwatch import Stopwatch
from fluxbench.timing.sustained import Block, launched_ms, one_by_one, sustain


def block(clock: Clock, durations: Callable[[int], float], *, plan: Plan = PLAN, call_s: float = 0.001) -> Block:
    """Return what a block gives of one workload whose call number i takes `durations(i)` seconds."""
    call = clock.call(durations(i) for i in itertools.count())
    return sustain(Stopwatch(ON_CPU), {"small": call}, {"small": call_s}, {"small": InTurn()}, plan)


def busy_s(taken: Block, begin: int | None = None, end: int | None = None) -> float:
    """Return for how long the device was busy with some windows, those after the warm-up where none are named."""
    windows = slice(taken.warm_up if begin is None and end is None else begin, end)
    return sum(taken.samples_ms["small"][windows]) * taken.calls["small"] / 1e3


def test_a_window_holds_the_calls_that_fill_a_chunk_and_a_sample_is_their_mean(clock: Clock) -> None:
    seconds = {"small": 0.001, "smaller": 0.004, "large": 0.05}
    calls = {name: clock.call(call_s) for name, call_s in seconds.items()}
    taken = sustain(Stopwatch(ON_CPU), calls, seconds, {name: InTurn() for name in calls}, PLAN)
    assert taken.calls == {"small": 10, "smaller": 2, "large": 1}
    last = {name: samples[-1] for name, samples in taken.samples_ms.items()}
    assert last == {name: pytest.approx(1e3 * call_s) for name, call_s in seconds.items()}
    assert {len(samples) for samples in taken.samples_ms.values()} == {len(taken.windows)}
    seen: list[Any] = []
    calls = {name: clock.call(0.005, seen) for name in ("small", "smaller")}
    given = {name: InTurn(*(f"{name} {index}" for index in range(4))) for name in calls}
    taken = sustain(Stopwatch(ON_CPU), calls, dict.fromkeys(calls, 0.005), given, PLAN)
    # The first of a turn is for the call that a GPU does not time.
    assert " ".join(seen[:6]) == "small 1 small 2 smaller 1 smaller 2 small 0 small 1"
    assert len(seen) == 4 * len(taken.windows)


def test_a_speed_that_never_moves_has_the_shortest_warm_up_and_block(clock: Clock) -> None:
    taken = block(clock, lambda i: 0.001)
    assert (taken.warm_up, len(taken.windows), taken.windows_a_sample, taken.settled) == (10, 50, 2, True)
    assert taken.windows[0][0] == 100.0
    assert [end - begin for begin, end in taken.windows] == pytest.approx([0.01] * 50)
    assert taken.ahead_ms == 0.0


def test_what_comes_before_two_stretches_agree_is_warm_up(clock: Clock) -> None:
    taken = block(clock, lambda i: 0.001 * (1 + 0.001 * min(i, 300)))  # a clock that falls by 1% a window, up to 30
    assert 25 <= taken.warm_up <= 30
    assert taken.settled
    measured = taken.samples_ms["small"][taken.warm_up :]
    assert measured == pytest.approx([1.3] * len(measured), rel=0.05)
    assert busy_s(taken) >= 0.4


@pytest.mark.parametrize("growth", [1.001, 0.999])
def test_a_speed_that_always_moves_is_taken_at_the_cap_and_has_not_settled(clock: Clock, growth: float) -> None:
    plan = dataclasses.replace(PLAN, settled_within=0.002)
    taken = block(clock, lambda i: 0.001 * growth ** min(i, 2000), plan=plan)
    assert not taken.settled
    assert busy_s(taken, 0, taken.warm_up) == pytest.approx(0.5, rel=0.05)  # the longest that a warm-up may be
    assert 1.0 <= busy_s(taken) < 1.02  # the time cap


def test_a_speed_that_is_not_known_precisely_is_measured_up_to_the_cap(clock: Clock) -> None:
    plan = dataclasses.replace(PLAN, settled_within=0.5)
    noise = random.Random(0)
    taken = block(clock, lambda i: 0.001 * noise.uniform(0.8, 1.2), plan=plan)
    assert taken.settled
    assert 0.4 < busy_s(taken) < 1.02
    by_halves = itertools.cycle([*[0.00102] * 20, *[0.00098] * 20])  # two samples of 2% that happen to agree
    short = dataclasses.replace(plan, min_block_s=0.02)
    assert busy_s(block(clock, lambda i: next(by_halves), plan=short)) >= 1.0


def test_durations_are_those_that_were_measured_not_those_that_were_expected(clock: Clock) -> None:
    taken = block(clock, lambda i: 0.002, call_s=0.001)  # twice as slow as in burst
    assert taken.calls == {"small": 10}
    assert busy_s(taken, 0, taken.warm_up) == pytest.approx(0.11, abs=0.011)
    assert busy_s(taken) == pytest.approx(0.41, abs=0.011)
    assert taken.windows_a_sample == 1
    taken = block(clock, lambda i: 20.0, call_s=20.0)  # a call longer than all limits has two samples after the warm-up
    assert (taken.calls, taken.warm_up, taken.windows_a_sample, len(taken.windows)) == ({"small": 1}, 1, 1, 3)


def test_what_is_kept_is_what_the_last_call_of_each_window_returned(clock: Clock) -> None:
    def call(number: int) -> int:
        clock.now += 0.0025
        return number

    given = InTurn(*range(500))
    taken = sustain(Stopwatch(ON_CPU), {"a": call}, {"a": 0.0025}, {"a": given}, PLAN)
    assert given.kept == list(range(4, 500, 5))[: len(taken.windows)]


def test_on_a_gpu_the_first_call_of_a_window_is_not_timed(clock: Clock) -> None:
    """The device waits in the first one."""
    seen: list[Any] = []
    calls = {
        "small": clock.call(itertools.cycle([0.5, 0.01, 0.01]), seen),
        "smaller": clock.call(itertools.cycle([0.02, 0.5, 0.02]), seen),
    }
    given = {name: InTurn(f"{name} 0", f"{name} 1") for name in calls}
    taken = sustain(LikeAGPU(), calls, {"small": 0.01, "smaller": 0.02}, given, PLAN)
    assert taken.calls == {"small": 1, "smaller": 1}
    assert taken.samples_ms["small"] == pytest.approx([10.0] * len(taken.windows))
    assert taken.samples_ms["smaller"] == pytest.approx([20.0] * len(taken.windows))
    assert seen[:6] == ["small 0", "small 1", "smaller 1", "smaller 0", "small 1", "smaller 1"]


def test_windows_in_which_the_host_was_held_up_are_known(clock: Clock) -> None:
    durations = itertools.cycle([0.01] * 9 + [0.014, 0.012])  # a call alone is a window
    calls = {"small": clock.call(durations)}
    taken = sustain(LikeAGPU(), calls, {"small": 0.01}, {"small": InTurn()}, PLAN)
    late = [index for index, sample in enumerate(taken.samples_ms["small"]) if sample > 13]
    assert late
    assert taken.stalled == {"small": late}
    assert sustain(Stopwatch(ON_CPU), calls, {"small": 0.01}, {"small": InTurn()}, PLAN).stalled == {}


def test_on_a_gpu_calls_may_begin_on_an_idle_device_each(clock: Clock) -> None:
    stopwatch = LikeAGPU()
    calls = {"small": clock.call(0.5), "smaller": clock.call(0.25)}
    given = {name: InTurn() for name in calls}
    taken = sustain(stopwatch, calls, {"small": 0.5, "smaller": 0.25}, given, PLAN, idle=True)
    assert stopwatch.done == ["wait", ("spin", 1)] * 2 * len(taken.windows)
    assert not taken.led  # each call begins after a wait, so one before it would tell nothing
    assert taken.ahead_ms == pytest.approx(500.0)  # so that nobody takes it for launch-bound


def test_a_launched_call_after_replays_is_of_a_short_block_or_of_one_turn_on_an_idle_device(clock: Clock) -> None:
    seen: dict[str, list[Any]] = {"large": [], "small": []}
    calls = {"small": clock.call(0.002, seen["small"]), "large": clock.call(0.5, seen["large"])}
    call_s, given = {"large": 0.5, "small": 0.002}, {name: InTurn(*range(100)) for name in calls}
    stopwatch = LikeAGPU()
    taken = launched_ms(stopwatch, calls, call_s, given, PLAN, idle=True)
    assert taken == {"large": pytest.approx(500.0), "small": pytest.approx(2.0)}
    assert seen == {"large": [0, 1], "small": [1, 2, 3, 4, 5]}  # the first of the largest is not timed
    assert stopwatch.done == ["wait", ("spin", 1)] * 2
    assert {name: len(one.kept) for name, one in given.items()} == {"large": 1, "small": 1}
    small = {"small": calls["small"]}
    assert launched_ms(stopwatch, small, call_s, given, PLAN) == {"small": pytest.approx(2.0)}
    assert len(seen["small"]) * 0.002 > 0.2  # a block of 0.2 s


def test_on_a_gpu_the_dip_of_the_power_limit_a_second_after_a_step_of_load_is_warm_up(clock: Clock) -> None:
    """As on an H200: 6% fast at first, 8% slow from 0.7 to 1 s, else steady."""
    began = clock.now
    seconds = ((0.1, 0.94e-3), (0.7, 1e-3), (1.0, 1.08e-3), (9.0, 1e-3))

    def call(_: object) -> dict[str, object]:
        clock.now += next(call_s for until, call_s in seconds if clock.now - began < until)
        return {}

    taken = sustain(Stopwatch(ON_CPU), {"a": call}, {"a": 1e-3}, {"a": InTurn()}, Plan.on(torch.device("cuda")))
    assert taken.samples_ms["a"][taken.warm_up :] == pytest.approx([1.0] * 125)  # a second, in windows of 8 ms
    assert taken.settled


@pytest.mark.parametrize("rest_s", [5.0, 0.0])
def test_a_device_that_its_heat_slows_rests_and_warms_up_again(clock: Clock, rest_s: float) -> None:
    class Hot(LikeAGPU):
        """It is 6% slower while it is hot: until it has rested twice."""

        def is_hot(self) -> bool:
            return len(clock.slept) < 2

    def call(_: object) -> dict[str, object]:
        clock.now += 0.105 if len(clock.slept) >= 2 else 0.112
        return {}

    plan = dataclasses.replace(PLAN, rest_of_hot_s=rest_s)
    taken = sustain(Hot(), {"small": call}, {"small": 0.1}, {"small": InTurn()}, plan, idle=True)
    assert clock.slept == ([rest_s, rest_s] if rest_s else [])
    hot = [ms for ms in taken.samples_ms["small"] if ms > 108]
    assert (len(hot), taken.warm_up) == ((2, 3) if rest_s else (len(taken.windows), 1))  # of which the last is cool
    assert len(taken.windows) == taken.warm_up + 4  # as long a block as any


def test_a_device_that_stays_hot_is_measured_all_the_same(clock: Clock) -> None:
    class Hot(LikeAGPU):
        def is_hot(self) -> bool:
            return True

    plan = dataclasses.replace(PLAN, rest_of_hot_s=5.0)
    taken = sustain(Hot(), {"small": clock.call(0.105)}, {"small": 0.1}, {"small": InTurn()}, plan, idle=True)
    assert clock.slept == [5.0] * 6
    assert len(taken.windows) == taken.warm_up + 4


@pytest.mark.parametrize(
    ("kind", "rounds"),
    [("cuda", {1e-6: 24, 0.001: 11, 0.0021: 6, 0.019: 5, 10.0: 3}), ("cpu", {1e-6: 5, 0.015: 4, 10.0: 2})],
)
def test_a_plan_can_be_carried_out_and_gives_longer_calls_fewer_rounds(kind: str, rounds: dict[float, int]) -> None:
    plan = Plan.on(torch.device(kind))
    assert {call_s: plan.rounds(call_s) for call_s in rounds} == rounds
    long = Plan.on(torch.device(kind), long=True)
    assert (long.rounds(0.1) == 1) == (long.lead_s == 0.3) == (kind == "cuda")
    counts = {call_s: plan.rounds_of(call_s, 12) for call_s in (0.002, 0.005, 0.03, 0.1)}
    assert counts == ({0.002: 12, 0.005: 5, 0.03: 3, 0.1: 3} if kind == "cuda" else counts)
    assert (Plan.on(torch.device(kind), alone=True).rounds_of(0.1, 12) == 1) == (kind == "cuda")
    assert plan.warm_up_s <= plan.max_warm_up_s
    assert 2 * plan.stretch_s <= plan.min_block_s <= plan.max_block_s


def test_a_time_is_that_of_its_workload_in_whatever_order_calls_are_launched(clock: Clock) -> None:
    seconds = {"small": 0.001, "smaller": 0.004, "large": 0.05}
    calls = {name: clock.call(call_s) for name, call_s in seconds.items()}
    launches = {name: one_by_one(calls[name]) for name in reversed(seconds)}
    taken = sustain(Stopwatch(ON_CPU), calls, seconds, {name: InTurn() for name in calls}, PLAN, launches)
    last = {name: samples[-1] for name, samples in taken.samples_ms.items()}
    assert last == {name: pytest.approx(1e3 * call_s) for name, call_s in seconds.items()}
