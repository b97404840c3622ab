"""Sustained windows of long calls, which are replays of CUDA graphs."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
from clocks import PLAN, Clock, InTurn, LikeAGPU

from fluxbench.timing.sustained import sustain


def test_long_calls_are_replayed_for_a_while_in_each_window_and_none_is_made_before(clock: Clock) -> None:
    plan = dataclasses.replace(PLAN, replay_s=0.1, warm_up_s=0.6)
    call_s = {"long": 0.3, "short": 0.02, "shortest": 0.002}
    of_host = {name: 3 * seconds for name, seconds in call_s.items()}  # as launched calls took
    seen: list[Any] = []
    counts = {"long": 1, "short": 1, "shortest": 2}  # in a turn: what fills 10 ms
    launches = {name: clock.call(seconds * counts[name], seen) for name, seconds in call_s.items()}
    given = {name: InTurn(*(f"{name} {index}" for index in range(12))) for name in launches}
    stopwatch, never = LikeAGPU(), dict.fromkeys(launches, pytest.fail)
    taken = sustain(stopwatch, never, of_host, given, plan, launches, replays=True)
    assert (taken.calls, taken.led, taken.warm_up) == ({"long": 1, "short": 5, "shortest": 50}, False, 0)
    assert {name: samples[-1] for name, samples in taken.samples_ms.items()} == {
        name: pytest.approx(1e3 * seconds) for name, seconds in call_s.items()
    }
    warm = 2  # turns of 0.324 s
    assert seen[: 3 * warm + 6] == [
        *(["long 1"], ["short 1"], ["shortest 1", "shortest 2"]),
        *(["long 3"], ["short 3"], ["shortest 4", "shortest 5"]),
        *(["long 5"], *[["short 5"]] * 5),  # a turn is the same in all replays of a window
    ]
    assert stopwatch.done == [("spin", 1)] * (warm + len(taken.windows))
    assert [len(one.kept) for one in given.values()] == [warm + len(taken.windows)] * 3


@pytest.mark.parametrize(("lead_s", "before"), [(0.07, 3), (0.001, 1)])
def test_a_window_of_replays_begins_with_some_that_are_not_timed(clock: Clock, lead_s: float, before: int) -> None:
    """Before it the device waits for the host, and is faster or slower for a while."""
    seen: list[Any] = []
    plan = dataclasses.replace(PLAN, replay_s=0.1, lead_s=lead_s, warm_up_s=0.1, max_warm_up_s=0.1)
    seconds = itertools.chain([0.02], itertools.cycle([0.5] * before + [0.02] * 5))  # one turn is warm-up
    launches = {"short": clock.call(seconds, seen), "long": clock.call(0.1)}
    given = {name: InTurn(name) for name in launches}
    taken = sustain(LikeAGPU(), launches, {"short": 0.02, "long": 0.1}, given, plan, launches, replays=True)
    assert taken.samples_ms["short"] == pytest.approx([20.0] * len(taken.windows))
    assert taken.lead_ms == pytest.approx(20.0 * before)
    assert seen[: 6 + before] == [["short"], *[()] * before, *[["short"]] * 5]
    assert not taken.led


@pytest.mark.parametrize(
    ("seconds", "count"),
    [
        (0.054, 19),  # 1.03 s
        (0.135, 7),  # 0.95 s
        (0.19, 5),
        (0.355, 3),
        (0.5, 2),
        (0.726, 3),  # 2.18 s, and 0.73 and 1.45 are no whole periods
        (0.95, 1),
        (1.35, 3),  # 4.05 s
        (1e-4, 10000),
        (1.45, 2),
        (4.5, 1),  # of so long a call the mean is over whole periods and a rest that hardly counts
        (2.6, 1),  # neither one nor two are: about one period
    ],
)
def test_long_calls_are_replayed_for_nearly_whole_periods_of_the_power_limit(
    clock: Clock, seconds: float, count: int
) -> None:
    plan = dataclasses.replace(PLAN, replay_s=1.0, warm_up_s=0.1)
    launches, given = {"long": clock.call(seconds)}, {"long": InTurn()}
    taken = sustain(LikeAGPU(), launches, {"long": 1.0}, given, plan, launches, replays=True)
    assert taken.calls == {"long": count}


@pytest.mark.parametrize(("ahead_s", "told_ms"), [(0.05, 300.0), (0.0185, 300.0), (0.01, 10.0)])
def test_replays_of_which_the_queue_holds_the_last_alone_are_not_bound_by_launching(
    clock: Clock, ahead_s: float, told_ms: float
) -> None:
    class Ahead(LikeAGPU):
        def between_ms(self) -> list[float]:
            clock.now += ahead_s  # for which the device is still busy
            return super().between_ms()

    launches = {"long": clock.call(0.3), "short": clock.call(0.02)}
    given, call_s = {name: InTurn() for name in launches}, {"long": 0.3, "short": 0.02}
    taken = sustain(Ahead(), launches, call_s, given, PLAN, launches, replays=True)
    assert taken.ahead_ms == pytest.approx(told_ms)
