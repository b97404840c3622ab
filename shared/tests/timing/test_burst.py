"""Burst samples on a clock that a test moves by hand: no test here waits, and none depends on the machine."""

from __future__ import annotations

import dataclasses
import itertools
import random
import threading
import time
from typing import Any

import pytest
import torch
from clocks import ON_CPU, PLAN, WORKLOADS, Ahead, Clock, LikeAGPU, Queue, content_of, contents

from fluxbench.correctness.contents import Contents
from fluxbench.operations.protocol import Bound, Tensors
from fluxbench.timing.burst import Burst, burst
from fluxbench.timing.stopwatch import Stopwatch

KEYS = [("flex", "small"), ("torch_flash", "small"), ("flex", "smaller"), ("torch_flash", "smaller")]
ALL = [*KEYS, ("control_kernel", "")]


def ignored(*_: object) -> None:
    """Keep nothing of what a call returned."""


def rounds(
    clock: Clock, *, count: int = 6, stopwatch: Stopwatch | None = None, seed: int = 0
) -> tuple[Burst, dict[Any, list[Any]]]:
    """Return what rounds give of calls that take 1, 2, 3 and 4 ms and one without inputs of 5 ms, and what they got."""
    seen: dict[Any, list[Any]] = {key: [] for key in ALL}
    calls = {key: clock.bound(1e-3 * (i + 1), seen[key]) for i, key in enumerate(ALL)}
    taken = burst(stopwatch or Stopwatch(ON_CPU), calls, count, contents(), random.Random(seed), PLAN, ignored)
    return taken, seen


def one(clock: Clock, bound: Bound, *, stopwatch: Stopwatch | None = None, count: int = 3, seed: int = 0) -> Burst:
    """Return what rounds of a single call give."""
    calls = {("a", "small"): bound}
    return burst(stopwatch or Stopwatch(ON_CPU), calls, count, contents(), random.Random(seed), PLAN, ignored)


def all_new(contents: list[Tensors]) -> bool:
    """Whether no tensor of any contents equals that of another."""
    pairs = itertools.combinations(contents, 2)
    return not any(torch.equal(first[name], second[name]) for first, second in pairs for name in first)


def test_every_callable_is_timed_once_a_round_in_an_order_of_its_own(clock: Clock) -> None:
    taken, _ = rounds(clock)
    assert {key: [round(ms, 6) for ms in samples] for key, samples in taken.samples_ms.items()} == {
        key: [i + 1.0] * 6 for i, key in enumerate(ALL)
    }
    places = list(zip(*taken.places.values(), strict=True))
    assert all(sorted(of_round) == [0, 1, 2, 3, 4] for of_round in places)
    assert len(set(places)) > 1
    assert rounds(clock, seed=3)[0].places == rounds(clock, seed=3)[0].places != taken.places


def test_no_callable_gets_the_same_contents_twice_and_every_output_is_kept_with_its_contents(clock: Clock) -> None:
    _, seen = rounds(clock)
    assert all(len(seen[key]) == 6 and all_new(seen[key]) for key in KEYS)
    assert seen["control_kernel", ""] == [{}] * 6
    kept: list[tuple[Any, Any, Any]] = []
    twice = {("a", "small"): Bound(lambda given: {"out": given["v"].clone()}), ("b", ""): Bound(lambda _: {"out": 0})}
    took = burst(
        Stopwatch(ON_CPU), twice, 8, contents(), random.Random(0), PLAN, lambda *given: kept.append(given)
    )  # fmt: skip
    assert [len(kept), took.launch_ms["a", "small"]] == [16, [0.0] * 8]
    for key, outputs, content in kept:
        if key == ("b", ""):
            assert (outputs, content) == ({"out": 0}, None)
        else:
            assert torch.equal(outputs["out"], content.inputs["v"])


def test_work_of_other_threads_is_known_where_it_was_done(clock: Clock) -> None:
    """One multiplies where contents change; the call itself has processor time of all threads."""
    aside: list[threading.Thread] = []

    def work() -> None:
        until = time.process_time() + 0.05
        while time.process_time() < until:
            pass

    class Watched(Contents):
        def put(self, *given: Any) -> Tensors:
            aside.append(threading.Thread(target=work))
            aside[-1].start()
            aside[-1].join()
            return super().put(*given)

    watched = {"small": Watched(contents()["small"].pool, 2, 0)}
    calls = {("a", "small"): Bound(lambda given: work() or {"out": given["q"]})}  # type: ignore[func-returns-value]
    taken = burst(Stopwatch(ON_CPU), calls, 3, watched, random.Random(0), PLAN, ignored)
    assert all(ms > 40 for ms in taken.others_ms["a", "small"] + taken.call_cpu_ms["a", "small"])
    assert all(ms < 20 for ms in taken.resting_ms)
    quiet = one(clock, clock.bound(0.001))
    assert max(quiet.others_ms["a", "small"]) < 20


def test_there_is_a_rest_before_every_round(clock: Clock) -> None:
    taken, _ = rounds(clock, count=3)
    assert clock.slept == [0.5, 0.01, 0.01]
    assert [begin - end for (_, end), (begin, _) in itertools.pairwise(taken.times)] == pytest.approx([0.01, 0.01])
    assert [end - begin for begin, end in taken.times] == pytest.approx([0.015] * 3)


@pytest.mark.parametrize("on_cpu", [True, False])
def test_preparing_is_not_timed_and_comes_before_the_cache_is_cleared(clock: Clock, on_cpu: bool) -> None:
    stopwatch = LikeAGPU()
    stopwatch.on_cpu = on_cpu

    def prepare(inputs: Tensors) -> torch.Tensor:
        stopwatch.done.append("prepare")
        clock.now += 0.007
        return inputs["q"] + 1

    def call(prepared: torch.Tensor) -> dict[str, torch.Tensor]:
        stopwatch.done.append("call")
        clock.now += 0.001
        return {"out": prepared}

    taken = one(clock, Bound(call, prepare), stopwatch=stopwatch)
    assert taken.samples_ms["a", "small"] == pytest.approx([1.0] * 3)
    assert taken.launch_ms["a", "small"] == pytest.approx([1.0] * 3)
    assert stopwatch.done[-3:] == ["prepare", "clear", "call"]


def test_on_a_gpu_the_host_gets_ahead_and_the_first_key_runs_untimed_before_the_others(clock: Clock) -> None:
    stopwatch = LikeAGPU()
    taken, seen = rounds(clock, count=4, stopwatch=stopwatch)
    assert [len(seen[key]) for key in ALL] == [10, 6, 6, 6, 6]  # two each before the rounds
    assert {len(samples) for samples in taken.samples_ms.values()} == {4}
    before = ["wait", ("spin", 5), *["clear"] * 5] * 2
    assert stopwatch.done == [*before, *["wait", ("spin", 6), *["clear"] * 6] * 4]
    assert all(all_new(seen[key][2:]) for key in KEYS[1:])  # the first two are before the rounds


def test_on_a_gpu_long_calls_take_part_in_fewer_rounds_the_reference_beside_them_too(clock: Clock) -> None:
    """By the times of the measured variant in the first round; those with equally many are in the same rounds."""
    times = {"short": (0.001, 0.3), "middle": (0.03, 0.001), "long": (0.2, 0.3), "longer": (0.3, 0.001)}
    device = Ahead(clock)
    own, reference = ({name: device.bound(both[side]) for name, both in times.items()} for side in (0, 1))
    calls = {("b", name): bound for name, bound in reference.items()} | {("a", name): own[name] for name in own}
    pool = contents()["small"].pool
    given = {name: Contents(pool, 2, 0) for name in times}
    plan = dataclasses.replace(PLAN, min_rounds=4, rounds_of_longest=1)

    def taken(rounds: int, seed: int, stopwatch: Stopwatch) -> Burst:
        control = {("control_kernel", ""): device.bound(0.001)}
        some = random.Random(seed)
        return burst(stopwatch, calls | control, rounds, given, some, plan, ignored, measured="a")

    found = taken(6, 0, device)
    places = {key: found.rounds[key] for key in calls}
    assert {name: len(places["a", name]) for name in times} == {"short": 6, "middle": 3, "long": 1, "longer": 1}
    assert all(places["a", name] == places["b", name] for name in times)
    assert places["a", "long"] == places["a", "longer"] == [0]
    assert places["a", "middle"][0] == 0
    assert found.rounds["control_kernel", ""] == places["a", "short"] == [*range(6)]
    assert len(found.times) == 6
    assert all(len(found.samples_ms[key]) == len(found.places[key]) == len(found.rounds[key]) for key in found.rounds)
    assert len({tuple(taken(6, seed, device).rounds["a", "middle"]) for seed in range(9)}) > 2
    assert {len(each) for each in taken(6, 0, Stopwatch(ON_CPU)).rounds.values()} == {6}
    calls["a", "longer"] = clock.bound(0.3)  # which may be a short call whose host waited
    assert [len(taken(6, 0, device).rounds["a", name]) for name in ("long", "longer")] == [1, 3]
    calls = {key: bound for key, bound in calls.items() if key[1] in ("long", "middle")}
    found = taken(6, 0, device)
    assert found.rounds["control_kernel", ""] == found.rounds["a", "middle"] == [0, 1, 2]  # those without are left out


@pytest.mark.parametrize(("late", "count"), [(0, 9), (1, 9), (2, 9), (3, 3)])
def test_on_a_gpu_a_call_whose_host_recorded_a_graph_first_is_in_as_many_rounds_as_others(
    clock: Clock, late: int, count: int
) -> None:
    """A short call counts as long where none of its first three samples says otherwise."""
    kept: list[Any] = []
    by_rows = [dataclasses.replace(content_of(WORKLOADS[0], number), expected=None) for number in range(11)]
    given = {"small": Contents([content_of(WORKLOADS[0], 11), *by_rows], 2, 0)}
    plan = dataclasses.replace(PLAN, min_rounds=4, rounds_of_longest=1)
    device = Ahead(clock)
    recorded_s = iter([*itertools.repeat(0.0, 2 + 1), *itertools.repeat(0.1, late), *itertools.repeat(0.0, 99)])

    def call(inputs: Any) -> Any:
        out = device.bound(0.001).call(inputs)
        clock.now += next(recorded_s)
        return out

    # The reference comes first: it is what is called untimed.
    calls = {("b", "small"): device.bound(0.001), ("a", "small"): Bound(call)}
    next(recorded_s)  # it is not called at the begin of a round
    found = burst(
        device, calls, 9, given, random.Random(late), plan,
        lambda key, outputs, content: kept.append((key[0], content)), measured="a",
    )  # fmt: skip
    assert len(found.samples_ms["a", "small"]) == len(found.samples_ms["b", "small"]) == count
    assert [sample > 50 for sample in found.samples_ms["a", "small"]] == [True] * late + [False] * (count - late)
    own = [content for key, content in kept if key == "a"]
    assert any(content.expected is not None for content in own)
    assert len({id(content) for content in own}) == count


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("call_s", "fewest"), [(0.2, 1), (0.03, 3)])
def test_a_call_in_few_rounds_has_one_with_whole_outputs(clock: Clock, seed: int, call_s: float, fewest: int) -> None:
    kept: list[Any] = []
    by_rows = [dataclasses.replace(content_of(WORKLOADS[0], number), expected=None) for number in range(7)]
    given = {"small": Contents([content_of(WORKLOADS[0], 7), *by_rows], 2, 0)}
    plan = dataclasses.replace(PLAN, min_rounds=4, rounds_of_longest=1)
    burst(
        device := Ahead(clock), {("a", "small"): device.bound(call_s)}, 9, given, random.Random(seed), plan,
        lambda key, outputs, content: kept.append(content), measured="a",
    )  # fmt: skip
    assert len(kept) - fewest <= int(fewest == 1)
    assert [content.expected is not None for content in kept].count(True) == 1
    assert len({id(content) for content in kept}) == len(kept)


def test_on_a_gpu_calls_of_more_launches_than_a_queue_holds_begin_on_an_idle_device_as_do_all_beside_them(
    clock: Clock,
) -> None:
    stopwatch, seen = LikeAGPU(), []  # type: tuple[LikeAGPU, list[Any]]
    calls = {("a", "small"): Bound(clock.call(0.01, seen), idle=True), ("b", "small"): clock.bound(0.02)}
    burst(stopwatch, calls, 2, contents(), random.Random(0), PLAN, ignored)
    each = ["wait", ("spin", 1), "clear"]
    assert stopwatch.done == ["wait", ("spin", 3), "clear", *each, *each] * 2
    assert len(seen) == 4  # no launch times are needed before


def test_on_a_gpu_the_spin_lasts_for_the_shorter_of_two_untimed_rounds(clock: Clock) -> None:
    stopwatch = LikeAGPU()
    durations = itertools.chain([0.09], itertools.repeat(0.02))  # the first call wakes the host up
    calls = {("a", "small"): clock.bound(durations), ("b", "small"): clock.bound(0.03)}
    burst(stopwatch, calls, 3, contents(), random.Random(0), PLAN, ignored)
    assert stopwatch.spins == [0.0, 0.0, *[pytest.approx(0.05)] * 3]


def test_on_a_gpu_the_spin_is_no_longer_than_launches_that_fill_the_queue(clock: Clock) -> None:
    stopwatch, seen = LikeAGPU(), []  # type: tuple[LikeAGPU, list[Any]]
    calls = {("a", "small"): Bound(clock.call(0.7, seen))}  # the host waits for the device's calls
    burst(stopwatch, calls, 3, contents(), random.Random(0), PLAN, ignored)
    assert stopwatch.spins == [0.0, *[pytest.approx(0.1)] * 3]
    assert len(seen) == 1 + 2 * 3  # one before the rounds, and an untimed one in each
    calls = {("a", name): clock.bound(0.01) for name in ("small", "large")}
    burst(stopwatch, calls, 1, contents(), random.Random(0), PLAN, ignored, cheap=["small"])
    assert stopwatch.spins[-1] == pytest.approx(0.02)  # of both, by one


def test_on_a_gpu_a_rest_is_a_quarter_of_the_round_before_it_up_to_half_a_second(clock: Clock) -> None:
    for call_s, rest_s in ((0.1, 0.05), (0.4, 0.2), (4.0, 0.5), (1e-6, PLAN.min_rest_s)):
        clock.slept.clear()
        one(clock, clock.bound(call_s), stopwatch=LikeAGPU())  # a round is a call that is timed and one that is not
        assert clock.slept == pytest.approx([PLAN.first_rest_s, rest_s, rest_s])


class Spinning(Queue):
    """A device that spins for 10 ms when it is asked to."""

    def spin(self, launch_s: float, calls: int) -> None:
        self.free_at = max(self.free_at, self.clock.now) + 0.01


def test_a_call_to_which_the_device_came_before_the_host_had_launched_it_is_known(clock: Clock) -> None:
    """Its sample contains the wait: by its length alone it might as well be a slow call."""
    device = Spinning(clock)
    usual = 1e-4
    launches = itertools.chain([usual] * (2 + 2 + 1), [0.1], itertools.repeat(usual))  # the second timed call's is late
    taken = one(clock, Bound(device.call(0.001, launch_s=launches)), stopwatch=device)
    assert taken.late["a", "small"] == [1]
    assert [round(ms) for ms in taken.samples_ms["a", "small"]] == [1, 90, 1]
    # Launched on an idle device, for longer than it spins.
    idle = Bound(device.call(0.001, launch_s=0.1), idle=True)
    assert one(clock, idle, stopwatch=device).late["a", "small"] == []
