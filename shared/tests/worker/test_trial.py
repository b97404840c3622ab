"""What a trial finds out about a variant while it is timed."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
from clocks import ON_CPU, Ahead, Clock, LikeAGPU, small_cache
from fakes import tokens
from sample_trials import HONEST, SMALL, SMALLER, bound, paced, prepared, trial
from workers import QUICK

from fluxbench.operations.protocol import Bound, Tensors
from fluxbench.records.status import Status
from fluxbench.timing.control_kernel import ControlKernel
from fluxbench.worker.failures import Wrong
from fluxbench.worker.prepared import PreparedWorkload
from fluxbench.worker.trial import Trial

BACKWARD = tokens("backward", 24, "attention_backward")


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    small_cache(monkeypatch)
    with torch.inference_mode():
        yield


def through(one: Trial) -> dict[str, Wrong]:
    """Return what disqualifies a variant after both regimes."""
    one.burst()
    one.sustain()
    one.check()
    return one.wrong


def test_an_honest_kernel_goes_through_both_regimes() -> None:
    workloads = {each.name: prepared(each) for each in (SMALL, SMALLER)}
    one = trial(workloads, {each.name: bound(each) for each in (SMALL, SMALLER)})
    burst, block = one.burst(), one.sustain()
    one.check()
    assert one.wrong == {}
    for name in workloads:
        assert len(burst["samples_ms"][name]) == len(burst["reference_ms"][name]) == len(burst["times"]) == 2
        assert len(block["samples_ms"][name]) == len(block["windows"]) == block["warm_up"] + 2
    assert (burst["control_ms"], one.repeat()) == ([], {})
    reference = trial(workloads, None)
    burst = reference.burst()
    assert burst["samples_ms"] == burst["reference_ms"]  # in its own trial it is beside itself
    assert set(through(trial(workloads, {"small": HONEST, "smaller": Bound(zeros)}))) == {"smaller"}


def test_on_a_gpu_short_calls_of_a_round_come_before_long_ones(clock: Clock) -> None:
    small, large = tokens("small", 8), tokens("large", 64)
    device = Ahead(clock)
    workloads = {each.name: prepared(each) for each in (large, small)}
    calls = {each.name: device.bound(0.001, bound(each)) for each in (large, small)}
    for seed in range(6):
        one = trial(workloads, calls, stopwatch=device, seed=seed)
        one.reference_calls = calls
        taken = one.burst()
        assert max(taken["places"]["small"]) < min(taken["places"]["large"])
        for (begin, end), small_span, large_span in zip(
            taken["times"], taken["spans"]["small"], taken["spans"]["large"], strict=True
        ):
            assert (begin, end) == (small_span[0], large_span[1])
            assert small_span[1] < large_span[0]  # with a rest


@pytest.mark.parametrize(("late", "samples"), [(("own", 1), [0]), (("reference", 2), [1])])
def test_samples_of_a_late_host_are_those_of_a_call_and_of_the_reference_beside_it(
    clock: Clock, late: tuple[str, int], samples: list[int]
) -> None:
    class Late(Ahead):
        last, seen = "", Counter[str]()

        def named(self, name: str) -> Bound:
            inner = self.bound(0.001, HONEST)

            def call(given: Any) -> Any:
                self.last = name
                return inner.call(given)

            return Bound(call, inner.prepare)

        def host_was_late(self) -> bool:
            self.seen[self.last] += 1
            return (self.last, self.seen[self.last]) == late

    device = Late(clock)
    burst = trial(
        {"small": prepared()}, device.named("own"), reference=device.named("reference"), stopwatch=device
    ).burst()  # fmt: skip
    assert len(burst["samples_ms"]["small"]) == 2
    assert burst["late"] == {"small": samples}
    assert trial({"small": prepared()}, device.named("own"), stopwatch=device).burst()["late"] == {}


def test_times_are_those_of_the_variant_the_reference_and_the_control_kernel(clock: Clock) -> None:
    def fixed() -> torch.Tensor:
        clock.now += 0.004
        return torch.ones(1)

    def control(right: bool) -> ControlKernel:
        return ControlKernel(description="made up", call=fixed, is_right=lambda out: right)

    call = paced(clock, 0.001)
    wrong = trial({"small": prepared()}, call, reference=call, control=control(False))
    assert (wrong.burst()["control_ms"], through(wrong)) == ([], {})
    workloads = {each.name: prepared(each) for each in (SMALL, SMALLER)}
    one = trial(workloads, {"small": paced(clock, 0.001), "smaller": paced(clock, 0.002)}, control=control(True))
    one.reference_calls = {"small": paced(clock, 0.003), "smaller": paced(clock, 0.005)}
    burst = one.burst()
    assert burst["samples_ms"] == {"small": pytest.approx([1.0] * 2), "smaller": pytest.approx([2.0] * 2)}
    assert burst["reference_ms"] == {"small": pytest.approx([3.0] * 2), "smaller": pytest.approx([5.0] * 2)}
    assert burst["control_ms"] == pytest.approx([4.0] * 2)
    assert burst["launch_ms"] == {"small": pytest.approx(1.0), "smaller": pytest.approx(2.0)}
    rounds = one.sustain()
    assert rounds["samples_ms"] == {"small": pytest.approx([1.0] * 2), "smaller": pytest.approx([2.0] * 2)}
    assert rounds["reference_ms"] == {"small": pytest.approx([3.0] * 2), "smaller": pytest.approx([5.0] * 2)}


def test_the_longest_workload_decides_how_many_rounds_there_are(clock: Clock) -> None:
    plan = dataclasses.replace(QUICK, max_rounds=9, burst_budget_s=0.012)
    workloads = {each.name: prepared(each) for each in (SMALLER, SMALL)}
    one = trial(workloads, {"small": paced(clock, 0.003), "smaller": paced(clock, 0.001)}, plan=plan)
    assert {name: len(times) for name, times in one.burst()["samples_ms"].items()} == {"small": 4, "smaller": 4}


def test_on_a_gpu_a_long_call_is_timed_once_after_the_largest_has_taken_its_memory(clock: Clock) -> None:
    """Its first call may be longer: it takes memory from the driver."""
    workloads = {each.name: PreparedWorkload.make(each, ON_CPU, 1, whole_up_to=1) for each in (SMALLER, SMALL)}
    plan = dataclasses.replace(QUICK, max_rounds=4, burst_budget_s=0.02, rounds_of_longest=1)
    lasts = itertools.chain([7.0], itertools.repeat(0.25))
    of_reference = itertools.chain([9.0], itertools.repeat(0.5))
    device, smaller = Ahead(clock), bound(SMALLER)
    calls = {"small": device.bound(lasts, HONEST), "smaller": device.bound(0.001, smaller)}
    one = trial(workloads, calls, plan=plan, stopwatch=device)
    one.reference_calls = {"small": device.bound(of_reference, HONEST), "smaller": device.bound(0.001, smaller)}
    control = ControlKernel(description="made up", call=lambda: torch.ones(1), is_right=lambda out: True)
    one.control = control
    taken = one.burst()
    one.check()
    assert (taken["samples_ms"]["small"], taken["reference_ms"]["small"]) == ([250.0], [500.0])
    assert one.wrong == {}
    few = {name: len(taken[name]["smaller"]) for name in ("samples_ms", "reference_ms", "places")}
    assert set(few.values()) == {len(taken["times"])} == {len(taken["control_ms"])}
    assert taken["rounds"] == {"small": [0]}


@pytest.mark.parametrize("is_reference", [False, True])
def test_a_single_round_times_no_first_call(clock: Clock, is_reference: bool) -> None:
    """A call that needs more memory than any before it is longer: the check before has given all back to the driver."""
    several = {"smaller": prepared(SMALLER), "small": prepared()}
    held = 0

    def lasts(size: int) -> Iterator[float]:
        nonlocal held
        while True:
            is_new, held = size > held, max(size, held)
            yield 7.0 if is_new else 0.25

    calls, reference = (
        {"smaller": paced(clock, lasts(1), bound(SMALLER)), "small": paced(clock, lasts(2))} for _ in range(2)
    )
    plan = dataclasses.replace(QUICK, max_rounds=1, min_rounds=1)
    of = trial(several, None if is_reference else calls, plan=plan)
    of.reference_calls = reference
    of.calls = reference if is_reference else calls
    taken = of.burst()
    assert {ms for of_one in ("samples_ms", "reference_ms") for its in taken[of_one].values() for ms in its} == {250.0}


def test_preparing_is_timed_in_neither_regime(clock: Clock) -> None:
    """It is the forward pass of a gradient; what it returned serves several calls of a block."""
    forwards: list[float] = []
    inner = bound(BACKWARD)
    assert inner.prepare is not None
    before = inner.prepare

    def prepare(inputs: Tensors) -> Any:
        forwards.append(clock.now)
        clock.now += 0.5
        return before(inputs)

    kernel = paced(clock, 0.002, Bound(inner.call, prepare))
    with torch.inference_mode(False), torch.no_grad():
        workloads = {"backward": prepared(BACKWARD)}
        plan = dataclasses.replace(QUICK, chunk_s=0.008, min_block_s=0.08, max_block_s=0.08)
        one = trial(workloads, kernel, reference=kernel, plan=plan)
        burst = one.burst()
        of_burst = len(forwards)
        block = one.sustain()
        one.check()
    assert one.wrong == {}
    assert burst["samples_ms"]["backward"] == pytest.approx([2.0] * 2)
    assert block["calls"] == {"backward": 4}
    assert block["samples_ms"]["backward"] == pytest.approx([2.0] * len(block["windows"]))
    windows = len(block["windows"])
    assert len(forwards) - of_burst == 2 * (3 + windows)  # of both: of each slot, and of a new one a window


def zeros(inputs: Tensors) -> Mapping[str, object]:
    return {"out": torch.zeros_like(inputs["q"])}


def when(chosen: Callable[[int], bool], otherwise: Callable[[Tensors], Mapping[str, object]]) -> Bound:
    """Return an honest call that is another one at the calls of these numbers, from 0."""
    count = itertools.count()
    return Bound(lambda inputs: otherwise(inputs) if chosen(next(count)) else HONEST(inputs))


# Of a trial with `QUICK`: two warm calls, two rounds of burst, two beside the reference.
@pytest.mark.parametrize(
    "chosen",
    [lambda index: True, *(lambda index, wrong=wrong: index == wrong for wrong in range(2, 6))],
    ids=["always", "in burst", "in burst again", "in a round", "in a round again"],
)
def test_a_wrong_output_in_either_regime_is_found(chosen: Callable[[int], bool]) -> None:
    wrong = through(trial({"small": prepared()}, when(chosen, zeros)))["small"]
    assert wrong.status is Status.INCORRECT
    assert wrong.reason.startswith("right when checked, wrong when timed: relative L2 error")


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_inputs_that_are_changed_while_timed_are_found_and_cost_no_other(name: str) -> None:
    workloads = {"small": prepared()}

    def spoils(inputs: Tensors) -> Mapping[str, object]:
        out = HONEST(inputs)
        inputs[name][0, -1, -1] = 0  # of one token and head, after it was read
        return out

    wrong = through(trial(workloads, Bound(spoils)))["small"]
    assert wrong.status is Status.INCORRECT
    assert re.match("right when checked, wrong when timed: (the kernel changes its inputs|relative L2)", wrong.reason)
    assert through(trial(workloads, HONEST)) == {}


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_side_by_side_a_call_that_is_shorter_on_what_it_knows_is_reported(clock: Clock, share: float) -> None:
    known: list[float] = []

    def keeps(inputs: Tensors) -> Mapping[str, object]:
        contents = float(inputs["q"].double().sum())
        clock.now += 0.004 * (share if contents in known else 1)
        known.append(contents)
        return HONEST(inputs)

    one = trial({"small": prepared()}, Bound(keeps), stopwatch=LikeAGPU())
    one.burst()
    assert one.repeat() == {"small": pytest.approx(share)}
    launched = trial({"small": prepared()}, Bound(keeps, idle=True), stopwatch=LikeAGPU())
    launched.burst()
    assert launched.repeat() == {}  # the time is that of the host, which has launched it when the call has ended
    one.check()
    assert one.wrong == {}  # whether it is believed is decided where all processes are known


def test_on_a_gpu_an_output_from_the_midst_of_a_block_is_judged() -> None:
    one = trial({"small": prepared()}, HONEST, stopwatch=LikeAGPU())
    one.burst()
    calls = itertools.count()  # two in each of three windows, and one on contents that are new
    one.calls = {"small": Bound(lambda inputs: zeros(inputs) if next(calls) < 6 else HONEST(inputs))}
    one.sustain()
    one.check()
    assert one.wrong["small"].status is Status.INCORRECT
