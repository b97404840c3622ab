"""Two regimes of calls on a clock that a test moves by hand: no test here waits, and none depends on the machine."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from workers import LikeAGPU

from fluxbench.operations import inputs
from fluxbench.operations.inputs import Fresh, Inputs
from fluxbench.operations.workloads import Workload
from fluxbench.timing import regimes as timing
from fluxbench.timing import stopwatch
from fluxbench.timing.regimes import Block, Burst, Plan, burst, repeated_over_new, sustain
from fluxbench.timing.stopwatch import Stopwatch

SMALL = Workload(name="small", seq_len=4, heads=2, head_dim=8)
SMALLER = Workload(name="smaller", seq_len=3, heads=2, head_dim=8)


PLAN = Plan(
    most_rounds=15,
    least_rounds=6,
    burst_budget_s=0.06,
    first_rest_s=0.5,
    rest_s=0.01,
    chunk_s=0.01,
    lead_s=0.1,
    most_lead_s=0.5,
    least_s=0.4,
    most_s=1.0,
    stretch_s=0.05,
    settled_within=0.01,
    sample_s=0.02,
)


class Clock:
    """Time that passes where a test says so."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def read(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def call(self, seconds: float | Iterator[float], seen: list[Any] | None = None) -> Callable[[Any], torch.Tensor]:
        """Return a callable that takes so long, or that long at each call, and notes what it gets."""
        durations = itertools.repeat(seconds) if isinstance(seconds, float) else seconds

        def called(given: Any) -> torch.Tensor:
            if seen is not None:
                seen.append(tuple(x.clone() for x in given) if isinstance(given, tuple) else given)
            self.now += next(durations)
            return torch.zeros(1)

        return called


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    fake = SimpleNamespace(monotonic=found.read, perf_counter=found.read, sleep=found.sleep)
    for module in (timing, stopwatch):
        monkeypatch.setattr(module, "time", fake)
    monkeypatch.setattr(stopwatch, "last_level_cache_bytes", lambda device: 64)
    return found


def on_cpu() -> Stopwatch:
    return Stopwatch(torch.device("cpu"))


def fresh(*workloads: Workload) -> dict[str, Fresh]:
    return {each.name: Fresh(inputs.make(each, "normal", 0, "cpu"), 0) for each in workloads}


# Burst.

KEYS = [("flex", "small"), ("torch_flash", "small"), ("flex", "smaller"), ("torch_flash", "smaller")]


def rounds(
    clock: Clock,
    *,
    count: int = 6,
    stopwatch: Stopwatch | None = None,
    seed: int = 0,
    seen: dict[Any, list[Any]] | None = None,
) -> Burst:
    """Return what `count` rounds give of callables that take 1, 2, 3 and 4 ms, and of one without inputs of 5 ms."""
    keys = [*KEYS, ("sentinel", "")]
    if seen is not None:
        seen.update({key: [] for key in keys})
    calls = {key: clock.call(1e-3 * (i + 1), seen[key] if seen else None) for i, key in enumerate(keys)}
    return burst(stopwatch or on_cpu(), calls, count, fresh(SMALL, SMALLER), random.Random(seed), PLAN)


def test_every_callable_is_timed_once_a_round(clock: Clock) -> None:
    found = rounds(clock)
    assert {key: [round(ms, 6) for ms in its] for key, its in found.samples_ms.items()} == {
        key: [i + 1.0] * 6 for i, key in enumerate([*KEYS, ("sentinel", "")])
    }
    assert found.launch_ms["flex", "smaller"] == pytest.approx(3.0)  # a CPU's host is all of it


def test_each_round_has_its_own_order_and_says_the_place_of_every_sample(clock: Clock) -> None:
    places = list(zip(*rounds(clock).places.values(), strict=True))
    assert all(sorted(its) == [0, 1, 2, 3, 4] for its in places)
    assert len(set(places)) > 1


def test_the_same_seed_gives_the_same_order(clock: Clock) -> None:
    assert rounds(clock, seed=3).places == rounds(clock, seed=3).places


def test_no_callable_sees_the_same_contents_twice(clock: Clock) -> None:
    seen: dict[Any, list[Any]] = {}
    rounds(clock, seen=seen)
    for key in KEYS:
        assert len(seen[key]) == 6
        for one, other in itertools.combinations(seen[key][1:], 2):  # the first two are before the rounds
            assert not any(torch.equal(x, y) for x, y in zip(one, other, strict=True)), key


def test_in_a_round_all_get_the_same_contents_at_the_same_addresses(clock: Clock) -> None:
    its = fresh(SMALL)
    addresses: set[tuple[int, ...]] = set()
    contents: list[tuple[torch.Tensor, ...]] = []

    def remember(given: Inputs) -> torch.Tensor:
        addresses.add(tuple(x.data_ptr() for x in given))
        contents.append(tuple(x.clone() for x in given))
        return torch.zeros(1)

    burst(on_cpu(), {("a", "small"): remember, ("b", "small"): remember}, 3, its, random.Random(0), PLAN)
    assert len(addresses) == 1
    for first, second in zip(contents[::2], contents[1::2], strict=True):
        assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))


def test_there_is_a_rest_before_every_round(clock: Clock) -> None:
    found = rounds(clock, count=3)
    assert clock.slept == [PLAN.first_rest_s, PLAN.rest_s, PLAN.rest_s]
    assert [begin - end for (_, end), (begin, _) in itertools.pairwise(found.times)] == pytest.approx([0.01, 0.01])
    assert [end - begin for begin, end in found.times] == pytest.approx([0.015] * 3)


def test_a_callable_without_inputs_gets_none_and_its_output_has_no_change(clock: Clock) -> None:
    seen: dict[Any, list[Any]] = {}
    found = rounds(clock, seen=seen)
    assert seen["sentinel", ""] == [None] * 6
    assert found.outputs["sentinel", ""][1] is None


@pytest.mark.parametrize("seed", range(5))
def test_the_output_that_is_kept_goes_with_the_change_of_its_inputs(clock: Clock, seed: int) -> None:
    its = fresh(SMALL)
    first = its["small"].inputs[2].clone()
    calls = {("copy", "small"): lambda given: given[2].clone()}
    out, change = burst(on_cpu(), calls, 5, its, random.Random(seed), PLAN).outputs["copy", "small"]
    assert change is not None
    rolled = {round(float(x), 6) for x in (first * change.factors).flatten()}  # v's tokens move, its values go along
    assert {round(float(x), 6) for x in out.flatten()} == rolled


def test_an_output_is_copied_before_anything_else_runs(clock: Clock) -> None:
    shared = torch.zeros(1)

    def counts(given: Inputs) -> torch.Tensor:
        return shared.add_(1)

    found = burst(on_cpu(), {("a", "small"): counts}, 4, fresh(SMALL), random.Random(1), PLAN)
    assert 1 <= float(found.outputs["a", "small"][0]) <= 4
    assert found.outputs["a", "small"][0] is not shared
    shared.fill_(-1)
    assert float(found.outputs["a", "small"][0]) >= 1


# Burst as on a GPU.


def test_on_a_gpu_the_host_gets_ahead_and_the_first_key_runs_untimed_before_the_others(clock: Clock) -> None:
    stopwatch = LikeAGPU()
    seen: dict[Any, list[Any]] = {}
    found = rounds(clock, count=4, stopwatch=stopwatch, seen=seen)
    assert [len(seen[key]) for key in (*KEYS, ("sentinel", ""))] == [10, 6, 6, 6, 6]  # two each before the rounds
    assert {len(its) for its in found.samples_ms.values()} == {4}
    assert stopwatch.done == ["wait", ("hold", 10), *["clear"] * 10, *["wait", ("hold", 6), *["clear"] * 6] * 4]


def test_on_a_gpu_the_head_start_is_that_of_a_whole_round(clock: Clock) -> None:
    stopwatch = LikeAGPU()
    calls = {("a", "small"): clock.call(0.02), ("b", "small"): clock.call(0.03)}
    burst(stopwatch, calls, 3, fresh(SMALL), random.Random(0), PLAN)
    assert stopwatch.held == [0.0, *[pytest.approx(0.05)] * 3]


def test_on_a_gpu_only_the_first_key_sees_contents_twice(clock: Clock) -> None:
    seen: dict[Any, list[Any]] = {}
    rounds(clock, count=4, stopwatch=LikeAGPU(), seen=seen)
    for key in KEYS[1:]:
        for one, other in itertools.combinations(seen[key][1:], 2):  # the first two are before the rounds
            assert not any(torch.equal(x, y) for x, y in zip(one, other, strict=True)), key


def test_on_a_gpu_a_rest_is_a_quarter_of_the_round_before_it(clock: Clock) -> None:
    for call_s in (0.02, 0.04):
        burst(LikeAGPU(), {("a", "small"): clock.call(call_s)}, 3, fresh(SMALL), random.Random(0), PLAN)
    first, second = clock.slept[1], clock.slept[4]  # of rounds of a call that is timed and one that is not
    assert first == pytest.approx(0.25 * 2 * 0.02, rel=0.1)
    assert second == pytest.approx(2 * first)
    assert clock.slept == pytest.approx([PLAN.first_rest_s, first, first, PLAN.first_rest_s, second, second])


@pytest.mark.parametrize(("call_s", "rest_s"), [(4.0, 1.0), (1e-6, PLAN.rest_s)])
def test_on_a_gpu_a_rest_is_within_bounds(clock: Clock, call_s: float, rest_s: float) -> None:
    burst(LikeAGPU(), {("a", "small"): clock.call(call_s)}, 3, fresh(SMALL), random.Random(0), PLAN)
    assert clock.slept == [PLAN.first_rest_s, rest_s, rest_s]


@pytest.mark.parametrize(("call_s", "times"), [(0.001, 5), (0.1, 3), (9.0, 3)])
def test_a_call_that_takes_long_is_repeated_less_often(clock: Clock, call_s: float, times: int) -> None:
    seen: list[Any] = []
    calls, its = {"small": clock.call(call_s, seen)}, fresh(SMALL)
    found = repeated_over_new(LikeAGPU(), calls, its, {"small": [its["small"].inputs]}, call_s)
    assert found == {"small": pytest.approx(1.0)}
    assert len(seen) == 3 * times  # one untimed, one on new contents, one on them again


@pytest.mark.parametrize(
    ("clock_mhz", "launch_s", "calls", "cycles"),
    [
        (2000, 0.01, 5, 25_000_000),  # a quarter longer than the host needs
        (2000, 0.0001, 5, 1_000_000),  # 0.1 ms a call
        (None, 0.01, 5, 37_500_000),  # a card that does not tell its clock has none above 3 GHz
    ],
)
def test_a_head_start_lasts_for_as_long_as_the_host_needs_at_the_highest_clock(
    monkeypatch: pytest.MonkeyPatch, clock_mhz: int | None, launch_s: float, calls: int, cycles: int
) -> None:
    held: list[int] = []
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(L2_cache_size=1024))
    monkeypatch.setattr(torch.cuda, "_sleep", held.append)
    monkeypatch.setattr(torch, "empty", lambda *_, **__: None)
    Stopwatch(torch.device("cuda"), clock_mhz).hold(launch_s, calls)
    assert held == [cycles]


# Sustained.


def block(
    clock: Clock,
    durations: Callable[[int], float],
    *,
    plan: Plan = PLAN,
    call_s: float = 0.001,
    most_s: float | None = None,
) -> Block:
    """Return what a block gives of one workload whose call number i takes `durations(i)` seconds."""
    call = clock.call(durations(i) for i in itertools.count())
    return sustain(on_cpu(), {"small": call}, {"small": call_s}, {"small": [0, 1]}, plan, most_s)


def held_s(found: Block) -> float:
    """Return for how long the device was held after the lead, at the one workload."""
    return sum(found.samples_ms["small"][found.lead :]) * found.calls["small"] / 1e3


def test_a_chunk_holds_the_calls_that_fill_it_and_a_sample_is_their_mean(clock: Clock) -> None:
    calls = {"small": clock.call(0.001), "smaller": clock.call(0.004), "large": clock.call(0.05)}
    seconds = {"small": 0.001, "smaller": 0.004, "large": 0.05}
    found = sustain(on_cpu(), calls, seconds, {name: [None] for name in calls}, PLAN)
    assert found.calls == {"small": 10, "smaller": 2, "large": 1}
    assert {name: round(its[-1], 6) for name, its in found.samples_ms.items()} == {
        "small": 1.0,
        "smaller": 4.0,
        "large": 50.0,
    }


def test_the_workloads_take_turns_chunk_by_chunk(clock: Clock) -> None:
    seen: list[Any] = []
    calls = {name: clock.call(0.005, seen) for name in ("small", "smaller")}
    rotation = {name: [f"{name} {index}" for index in range(3)] for name in calls}
    found = sustain(on_cpu(), calls, dict.fromkeys(calls, 0.005), rotation, PLAN)
    chunks = [{name.split()[0] for name in seen[start : start + 2]} for start in range(0, len(seen), 2)]
    assert chunks == [{"small"}, {"smaller"}] * len(found.windows)
    assert {len(its) for its in found.samples_ms.values()} == {len(found.windows)}


def test_inputs_rotate(clock: Clock) -> None:
    seen: list[Any] = []
    sustain(on_cpu(), {"small": clock.call(0.001, seen)}, {"small": 0.001}, {"small": [0, 1, 2]}, PLAN)
    assert all((one + 1) % 3 == other for one, other in itertools.pairwise(seen))


def test_a_speed_that_never_moves_has_the_least_lead_and_the_least_length(clock: Clock) -> None:
    found = block(clock, lambda i: 0.001)
    assert (found.lead, len(found.windows), found.stretch, found.settled) == (10, 50, 2, True)  # windows of 10 ms
    assert found.windows[0][0] == 100.0
    assert [end - begin for begin, end in found.windows] == pytest.approx([0.01] * 50)


def test_what_comes_before_two_stretches_agree_is_set_aside(clock: Clock) -> None:
    found = block(clock, lambda i: 0.001 * (1 + 0.001 * min(i, 300)))  # a clock that falls by 1% a window, up to 30
    assert 25 <= found.lead <= 30
    assert found.settled
    assert found.samples_ms["small"][found.lead :] == pytest.approx([1.3] * (len(found.windows) - found.lead), rel=0.05)
    assert held_s(found) >= 0.4


def test_a_speed_that_always_moves_is_taken_at_the_cap_and_said_not_to_have_settled(clock: Clock) -> None:
    found = block(clock, lambda i: 0.001 * 1.001**i)
    assert not found.settled
    assert sum(found.samples_ms["small"][: found.lead]) * 10 == pytest.approx(
        500, rel=0.05
    )  # the most that a lead may be
    assert 1.0 <= held_s(found) < 1.02  # the time cap


def test_a_speed_that_is_not_known_precisely_is_measured_up_to_the_cap(clock: Clock) -> None:
    noise = random.Random(0)
    found = block(clock, lambda i: 0.001 * noise.uniform(0.8, 1.2), plan=dataclasses.replace(PLAN, settled_within=0.5))
    assert found.settled
    assert 0.4 < held_s(found) < 1.02


def test_a_block_may_have_a_cap_of_its_own(clock: Clock) -> None:
    found = block(clock, lambda i: 0.001 * 1.001**i, most_s=0.6)
    assert 0.6 <= held_s(found) < 0.62


def test_a_few_stretches_that_happen_to_agree_are_no_precision(clock: Clock) -> None:
    plan = dataclasses.replace(PLAN, least_s=0.02, settled_within=0.5)
    noise = itertools.cycle([*[0.00102] * 20, *[0.00098] * 20])  # two samples of 2%, by halves
    found = block(clock, lambda i: next(noise), plan=plan)
    assert held_s(found) >= 1.0


def test_limits_are_of_the_time_that_calls_take_not_of_what_was_expected(clock: Clock) -> None:
    found = block(clock, lambda i: 0.002, call_s=0.001)  # twice as slow as in burst
    assert sum(found.samples_ms["small"][: found.lead]) * 10 / 1e3 == pytest.approx(0.11, abs=0.011)
    assert held_s(found) == pytest.approx(0.41, abs=0.011)


def test_a_call_longer_than_all_limits_has_two_samples_after_the_lead(clock: Clock) -> None:
    found = block(clock, lambda i: 20.0, call_s=20.0)
    assert (found.calls, found.lead, found.stretch, len(found.windows)) == ({"small": 1}, 1, 1, 3)


def test_on_a_gpu_the_first_call_of_a_window_is_not_timed(clock: Clock) -> None:
    calls = {"small": clock.call(itertools.cycle([0.5, 0.01]))}  # the device waits in every first one
    found = sustain(LikeAGPU(), calls, {"small": 0.01}, {"small": [0, 1]}, PLAN)
    assert found.calls == {"small": 1}
    assert found.samples_ms["small"] == pytest.approx([10.0] * len(found.windows))


def test_on_a_gpu_a_block_knows_how_far_the_host_was_ahead(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    stopwatch = LikeAGPU()
    between_ms = stopwatch.between_ms

    def waits() -> list[float]:
        clock.now += 0.007
        return between_ms()

    monkeypatch.setattr(stopwatch, "between_ms", waits)
    found = sustain(stopwatch, {"small": clock.call(0.01)}, {"small": 0.01}, {"small": [0, 1]}, PLAN)
    assert found.ahead_ms == pytest.approx(7.0)
    assert block(clock, lambda i: 0.001).ahead_ms == 0.0


# Plans.


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize("call_s", [1e-6, 1e-3, 0.01, 0.1, 10.0])
def test_a_longer_call_has_fewer_rounds_within_its_bounds(kind: str, call_s: float) -> None:
    plan = Plan.on(torch.device(kind))
    assert plan.least_rounds <= plan.rounds(2 * call_s) <= plan.rounds(call_s) <= plan.most_rounds


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_a_plan_can_be_carried_out(kind: str) -> None:
    plan = Plan.on(torch.device(kind))
    assert plan.lead_s <= plan.most_lead_s
    assert plan.least_s <= plan.most_s
    assert 2 * plan.stretch_s <= plan.most_s


def test_a_cpu_s_stopwatch_gives_the_times_between_marks_once(clock: Clock) -> None:
    stopwatch = on_cpu()
    for step_s in (0.25, 0.5, 0.0):
        stopwatch.mark()
        clock.now += step_s
    assert stopwatch.between_ms() == [250.0, 500.0]
    assert stopwatch.between_ms() == []
