"""Windows of a sustained block in the queue of a device that runs what the host launches while the host goes on."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
from clocks import PLAN, Clock, InTurn, Queue

from fluxbench.timing.sustained import sustain
from fluxbench.timing.windows import Lead


class Slow(InTurn):
    """What the host takes some time to choose."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        super().__init__()
        self.clock, self.seconds = clock, seconds

    def turn(self, calls: int) -> list[Any]:
        self.clock.now += self.seconds
        return super().turn(calls)


def test_on_a_gpu_the_next_window_is_in_the_queue_before_one_is_over(clock: Clock) -> None:
    stopwatch = Queue(clock)
    calls = {"small": stopwatch.call(0.01, launch_s=0.0001), "smaller": stopwatch.call(0.02, launch_s=0.0001)}
    given = {"small": Slow(clock, 0.004), "smaller": InTurn()}
    taken = sustain(stopwatch, calls, {"small": 0.01, "smaller": 0.02}, given, PLAN)
    assert stopwatch.idle_s == pytest.approx(0.0)  # although the host takes 4 ms between two windows
    assert {name: samples[-1] for name, samples in taken.samples_ms.items()} == {
        "small": pytest.approx(10.0),
        "smaller": pytest.approx(20.0),
    }
    ends = [end for _, end in taken.windows]
    assert [begin for begin, _ in taken.windows[1:]] == ends[:-1]  # one begins as another ends
    lasted_s = [end - begin for begin, end in taken.windows[2:-1]]
    assert lasted_s == pytest.approx([0.04 if index % 2 else 0.05 for index in range(1, len(lasted_s) + 1)])
    assert taken.loads
    assert {len(samples) for samples in taken.samples_ms.values()} == {len(taken.windows)}
    assert clock.now >= stopwatch.free_at  # nothing is left to do after a block


@pytest.mark.parametrize(("launch_s", "is_bound"), [(0.0099, False), (0.0101, True)])
def test_a_block_is_launch_bound_where_the_host_takes_longer_than_the_device(
    clock: Clock, launch_s: float, is_bound: bool
) -> None:
    stopwatch = Queue(clock)
    calls = {"small": stopwatch.call(0.01, launch_s=launch_s)}
    plan = dataclasses.replace(PLAN, max_warm_up_s=3.6, warm_up_s=3.6, min_block_s=1.0)  # until the host is ahead
    taken = sustain(stopwatch, calls, {"small": 0.002}, {"small": InTurn()}, plan)
    assert taken.loads != is_bound
    assert taken.ahead_ms == pytest.approx(10 if is_bound else 52, abs=1)  # the last call, or most of a window


@pytest.mark.parametrize("call_s", [0.002, 0.02])
def test_a_block_lasts_as_long_as_its_calls_whether_they_are_timed_or_not(clock: Clock, call_s: float) -> None:
    """Of calls longer than `chunk_s` every second one is timed."""
    stopwatch = Queue(clock)
    plan = dataclasses.replace(PLAN, chunk_s=0.01, warm_up_s=0.4, max_warm_up_s=0.4, min_block_s=1.0, max_block_s=1.0)
    calls = {"small": stopwatch.call(call_s, launch_s=1e-5)}
    taken = sustain(stopwatch, calls, {"small": call_s}, {"small": InTurn()}, plan)
    assert taken.calls == {"small": 5 if call_s < 0.01 else 1}
    warm_up, block = taken.windows[: taken.warm_up], taken.windows[taken.warm_up :]
    assert warm_up[-1][1] - warm_up[0][0] == pytest.approx(0.4, abs=0.05)
    assert block[-1][1] - block[0][0] == pytest.approx(1.0, abs=0.1)  # with what is in the queue at its end


def test_a_call_of_another_workload_may_be_before_a_window(clock: Clock) -> None:
    """With as long a one only every second call is timed."""
    stopwatch = Queue(clock)
    plan = dataclasses.replace(PLAN, chunk_s=0.01, warm_up_s=0.4, max_warm_up_s=0.4, min_block_s=1.0, max_block_s=1.0)
    long, short = (stopwatch.call(call_s, launch_s=1e-5) for call_s in (0.02, 0.001))
    lead = Lead(lambda: short(None), 1.0)
    taken = sustain(stopwatch, {"long": long}, {"long": 0.02}, {"long": InTurn()}, plan, lead=lead)
    assert taken.lead_ms == 1.0
    assert sum(taken.samples_ms["long"][taken.warm_up :]) == pytest.approx(1e3 * 20 / 21, abs=45)
    assert taken.windows[-1][1] - taken.windows[taken.warm_up][0] == pytest.approx(1.0, abs=0.045)


def test_a_device_that_is_done_before_the_host_has_launched_a_window_is_ahead_by_nothing(clock: Clock) -> None:
    """By rounding it was less than nothing, which no event of a worker may hold: its process would be lost."""

    class Kept(InTurn):
        def keep(self, outputs: Any) -> None:
            clock.now += 0.03
            super().keep(outputs)

    stopwatch = Queue(clock)
    taken = sustain(stopwatch, {"small": stopwatch.call(1e-4, launch_s=1e-3)}, {"small": 0.01}, {"small": Kept()}, PLAN)
    assert taken.ahead_ms == 0.0
    assert not taken.loads


def test_what_a_block_leaves_on_another_stream_is_in_its_last_window(clock: Clock) -> None:
    class Aside(Queue):
        """Each call leaves 5 ms of work that no event of its stream comes after."""

        aside_s = 0.0

        def wait(self) -> None:
            super().wait()
            clock.now += self.aside_s

    stopwatch = Aside(clock)
    inner = stopwatch.call(0.01, launch_s=0.0001)

    def call(given: Any) -> Any:
        stopwatch.aside_s += 0.005
        return inner(given)

    taken = sustain(stopwatch, {"small": call}, {"small": 0.01}, {"small": InTurn()}, PLAN)
    begin, end = taken.windows[-1]
    assert end - begin == pytest.approx(2 * len(taken.windows) * 0.005 + 0.02, rel=0.05)


@pytest.mark.parametrize(("held_up_s", "waits"), [(0.008, False), (0.05, True)])
def test_a_host_that_is_held_up_counts_where_the_device_waits_for_it(
    clock: Clock, held_up_s: float, waits: bool
) -> None:
    stopwatch = Queue(clock)
    launch_s = itertools.chain([0.0001] * 41, [held_up_s], itertools.repeat(0.0001))  # a window has two calls
    calls = {"small": stopwatch.call(0.01, launch_s=launch_s)}
    taken = sustain(stopwatch, calls, {"small": 0.01}, {"small": InTurn()}, PLAN)
    assert taken.stalled == {"small": [20] if waits else []}
    assert (max(taken.samples_ms["small"]) > 11) == waits


def test_a_rest_is_in_no_window(clock: Clock) -> None:
    class Hot(Queue):
        def is_hot(self) -> bool:
            return not clock.slept

    stopwatch = Hot(clock)
    plan = dataclasses.replace(PLAN, rest_of_hot_s=5.0)
    calls = {"small": stopwatch.call(0.01, launch_s=0.0001)}
    taken = sustain(stopwatch, calls, {"small": 0.01}, {"small": InTurn()}, plan)
    assert clock.slept == [5.0]
    assert max(end - begin for begin, end in taken.windows) < 0.05
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(taken.windows))
