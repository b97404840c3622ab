"""Burst samples on a clock that a test moves by hand: no test here waits, and none depends on the machine."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import torch
from clocks import ON_CPU, PLAN, Clock, LikeAGPU
from fakes import tokens

from fluxbench import operations
from fluxbench.correctness.perturbing import PerturbedInputs
from fluxbench.operations.protocol import Bound, Tensors
from fluxbench.timing.burst import Burst, burst, repeated_over_new
from fluxbench.timing.stopwatch import Stopwatch

WORKLOADS = [tokens("small", 4, head_dim_qk=8, head_dim_v=8), tokens("smaller", 3, head_dim_qk=8, head_dim_v=8)]
KEYS = [("flex", "small"), ("torch_flash", "small"), ("flex", "smaller"), ("torch_flash", "smaller")]
ALL = [*KEYS, ("control_kernel", "")]


def perturbed() -> dict[str, PerturbedInputs]:
    inputs = operations.find("attention").inputs
    return {each.name: PerturbedInputs(each, inputs(each.shape, "normal", 0, "cpu"), seed=0) for each in WORKLOADS}


def rounds(
    clock: Clock, *, count: int = 6, stopwatch: Stopwatch | None = None, seed: int = 0
) -> tuple[Burst, dict[Any, list[Any]]]:
    """Return what rounds give of calls that take 1, 2, 3 and 4 ms and one without inputs of 5 ms, and what they got."""
    seen: dict[Any, list[Any]] = {key: [] for key in ALL}
    calls = {key: clock.bound(1e-3 * (i + 1), seen[key]) for i, key in enumerate(ALL)}
    return burst(stopwatch or Stopwatch(ON_CPU), calls, count, perturbed(), random.Random(seed), PLAN), seen


def one(clock: Clock, bound: Bound, *, stopwatch: Stopwatch | None = None, count: int = 3, seed: int = 0) -> Burst:
    """Return what rounds of a single call give."""
    calls = {("a", "small"): bound}
    return burst(stopwatch or Stopwatch(ON_CPU), calls, count, perturbed(), random.Random(seed), PLAN)


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


def test_the_launch_time_is_the_median_of_the_host(clock: Clock) -> None:
    taken = one(clock, clock.bound(iter([0.001, 0.009, 0.002, 0.009, 0.001])), count=5)
    assert taken.launch_ms["a", "small"] == pytest.approx(2.0)


def test_no_callable_gets_the_same_contents_twice_and_all_of_a_round_get_the_same(clock: Clock) -> None:
    taken, seen = rounds(clock)
    assert all(len(seen[key]) == 6 and all_new(seen[key]) for key in KEYS)
    for workload in ("small", "smaller"):
        for mine, reference in zip(seen["flex", workload], seen["torch_flash", workload], strict=True):
            assert all(torch.equal(mine[name], reference[name]) for name in "qkv")
    assert seen["control_kernel", ""] == [{}] * 6
    assert taken.outputs["control_kernel", ""].expected is None


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
    assert taken.launch_ms["a", "small"] == pytest.approx(1.0)
    assert stopwatch.done[-3:] == ["prepare", "clear", "call"]
    inputs, contents = perturbed()["small"], []
    for _ in range(3):
        inputs.perturb()
        contents.append(inputs.inputs["q"] + 1)
    assert any(torch.equal(taken.outputs["a", "small"].outputs["out"], each) for each in contents)


def test_the_output_that_is_kept_cannot_be_foreseen(clock: Clock) -> None:
    first, shared, kept_rounds = perturbed()["small"].inputs["v"], torch.zeros(1), set()
    for seed in range(8):
        shared.zero_()
        taken = one(clock, Bound(lambda given: {"out": given["v"], "count": shared.add_(1)}), count=4, seed=seed)
        shared.fill_(-1)
        kept = taken.outputs["a", "small"]
        assert kept.expected is not None
        out, expected = kept.outputs["out"], kept.expected({"out": first})["out"]
        # The tokens of v are rolled by another number than those of the output; each has its signs and scale.
        assert sorted(map(float, out.flatten())) == sorted(map(float, expected.flatten()))  # type: ignore[attr-defined]
        kept_rounds.add(float(kept.outputs["count"]))  # type: ignore[arg-type]
    assert 1 < len(kept_rounds) <= len({1.0, 2.0, 3.0, 4.0} | kept_rounds) == 4


def test_on_a_gpu_the_host_gets_ahead_and_the_first_key_runs_untimed_before_the_others(clock: Clock) -> None:
    stopwatch = LikeAGPU()
    taken, seen = rounds(clock, count=4, stopwatch=stopwatch)
    assert [len(seen[key]) for key in ALL] == [10, 6, 6, 6, 6]  # two each before the rounds
    assert {len(samples) for samples in taken.samples_ms.values()} == {4}
    assert stopwatch.done == ["wait", ("spin", 10), *["clear"] * 10, *["wait", ("spin", 6), *["clear"] * 6] * 4]
    assert all(all_new(seen[key][1:]) for key in KEYS[1:])  # the first two are before the rounds


def test_on_a_gpu_the_spin_lasts_for_the_shorter_of_two_untimed_rounds(clock: Clock) -> None:
    stopwatch = LikeAGPU()
    durations = itertools.chain([0.09], itertools.repeat(0.02))  # the first call wakes the host up
    calls = {("a", "small"): clock.bound(durations), ("b", "small"): clock.bound(0.03)}
    burst(stopwatch, calls, 3, perturbed(), random.Random(0), PLAN)
    assert stopwatch.spins == [0.0, *[pytest.approx(0.05)] * 3]


def test_on_a_gpu_a_rest_is_a_quarter_of_the_round_before_it(clock: Clock) -> None:
    for call_s, rest_s in ((0.1, 0.05), (0.4, 0.2), (4.0, 1.0), (1e-6, PLAN.min_rest_s)):
        clock.slept.clear()
        one(clock, clock.bound(call_s), stopwatch=LikeAGPU())  # a round is a call that is timed and one that is not
        assert clock.slept == pytest.approx([PLAN.first_rest_s, rest_s, rest_s])


def test_on_repeated_contents_a_call_is_compared_with_that_before_it_on_new_ones(clock: Clock) -> None:
    """Of five rounds the median counts; the untimed call before the two is on other inputs."""
    stopwatch, other, seen = LikeAGPU(), {"q": torch.zeros(1)}, list[Any]()

    def slowly(given: Tensors) -> Tensors:
        clock.now += 0.003
        return given

    def repeating(*repeated_s: float) -> Bound:
        durations = (seconds for last in repeated_s for seconds in (0.01, 0.010, last))
        return Bound(clock.call(durations, seen), slowly)

    calls = {"small": repeating(0.005, 0.006, 0.004, 0.02, 0.02), "smaller": repeating(*[0.01] * 5)}
    rotation = {name: [other] for name in calls}
    quotients = repeated_over_new(stopwatch, calls, perturbed(), rotation, 0.01)
    assert quotients == {"small": pytest.approx(0.6), "smaller": pytest.approx(1.0)}
    assert [torch.equal(given["q"], other["q"]) for given in seen] == [True, False, False] * 10
    assert all(torch.equal(seen[i]["q"], seen[i + 1]["q"]) for i in range(1, 30, 3))
    assert all_new(seen[1::6])
    assert stopwatch.done == ["wait", ("spin", 10), *["clear"] * 4] * 5
    assert stopwatch.spins == pytest.approx([0.03] * 5)
    for call_s, times in ((0.001, 5), (0.05, 4), (9.0, 3)):  # a call that takes long is repeated less often
        seen.clear()
        repeated_over_new(stopwatch, {"small": clock.bound(call_s, seen)}, perturbed(), {"small": [{}]}, call_s)
        assert len(seen) == 3 * times
