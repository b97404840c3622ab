"""What a trial finds out about a variant while it is timed."""

from __future__ import annotations

import dataclasses
import itertools
import random
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from clocks import ON_CPU, Clock, LikeAGPU, small_cache
from fakes import tokens
from workers import QUICK, honest, variant

from fluxbench import operations
from fluxbench.correctness.case import Case
from fluxbench.operations.protocol import Bound, Tensors
from fluxbench.operations.workload import Workload
from fluxbench.records.status import FlagKind, Status
from fluxbench.timing.control_kernel import ControlKernel
from fluxbench.timing.plan import Plan
from fluxbench.timing.stopwatch import Stopwatch
from fluxbench.variants.forms import EAGER, FormedVariant
from fluxbench.worker import trial as trials
from fluxbench.worker.prepared import SEEDS_PER_PROCESS, PreparedWorkload
from fluxbench.worker.trial import Trial, Wrong

SMALL, SMALLER = tokens("small", 48), tokens("smaller", 33)
BACKWARD = tokens("backward", 24, "attention_backward")
VARIANT = variant("flex")


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    small_cache(monkeypatch)
    monkeypatch.chdir(tmp_path)
    with torch.inference_mode():
        yield


def prepared(workload: Workload = SMALL, count: int = 3) -> PreparedWorkload:
    """Return a workload with so many sets of inputs in rotation, of which the last is checked."""
    operation = operations.find(workload.operation)
    rotation = [operation.inputs(workload.shape, "normal", seed, ON_CPU) for seed in range(count)]
    return PreparedWorkload(workload, rotation, Case.of(operation, workload, rotation[-1]), 0, (), {})


def bound(workload: Workload = SMALL) -> Bound:
    """Return an honest call."""
    return operations.find(workload.operation).bind(FormedVariant(variant("right", honest), EAGER), workload.shape)


HONEST = bound()


def paced(clock: Clock, seconds: float | Iterator[float], inner: Bound = HONEST) -> Bound:
    """Return an honest call that takes so long, or that long at each call."""
    durations = itertools.repeat(seconds) if isinstance(seconds, float) else seconds

    def call(prepared: Any) -> Mapping[str, object]:
        clock.now += next(durations)
        return inner.call(prepared)

    return Bound(call, inner.prepare)


def trial(
    workloads: Mapping[str, PreparedWorkload],
    calls: Bound | Mapping[str, Bound] | None,
    *,
    reference: Bound = HONEST,
    control: ControlKernel | None = None,
    seed: int = 0,
    anchor: Trial | None = None,
    stopwatch: Stopwatch | None = None,
    plan: Plan = QUICK,
) -> Trial:
    """Return the trial of a variant beside a reference; None: that of the reference."""
    by_workload = calls if isinstance(calls, Mapping) else dict.fromkeys(workloads, calls or reference)
    return Trial(
        "flex" if calls else "torch_flash", VARIANT, by_workload,
        ("torch_flash", dict.fromkeys(workloads, reference)),
        workloads, control, stopwatch or Stopwatch(ON_CPU), plan, random.Random(seed), anchor,
    )  # fmt: skip


def through(one: Trial) -> dict[str, Wrong]:
    """Return what disqualifies a variant after both regimes."""
    one.burst()
    one.sustain()
    one.check()
    return one.wrong


def test_an_honest_kernel_goes_through_both_regimes_and_leaves_its_inputs_as_they_were() -> None:
    workloads = {each.name: prepared(each) for each in (SMALL, SMALLER)}
    before = [{name: x.clone() for name, x in each.items()} for each in workloads["small"].rotation]
    one = trial(workloads, {each.name: bound(each) for each in (SMALL, SMALLER)})
    burst, block = one.burst(), one.sustain()
    one.check()
    assert one.wrong == {}
    for name in workloads:
        assert len(burst["samples_ms"][name]) == len(burst["reference_ms"][name]) == len(burst["times"]) == 2
        assert len(block["samples_ms"][name]) == len(block["windows"]) == block["warm_up"] + 2
    assert (burst["control_ms"], one.cupti(), one.repeat()) == ([], {}, {})  # on a CPU no profiler is asked
    for inputs, kept in zip(workloads["small"].rotation, before, strict=True):
        assert all(torch.equal(inputs[name], kept[name]) for name in kept)
    reference = trial(workloads, None)
    burst = reference.burst()
    assert burst["samples_ms"] == burst["reference_ms"]  # in its own trial it is beside itself
    assert set(through(trial(workloads, {"small": HONEST, "smaller": Bound(zeros)}))) == {"smaller"}


def test_times_are_those_of_the_variant_the_reference_and_the_control_kernel(clock: Clock) -> None:
    def fixed() -> torch.Tensor:
        clock.now += 0.004
        return torch.ones(1)

    def control(right: bool) -> ControlKernel:
        return ControlKernel(description="made up", call=fixed, is_right=lambda out: right)

    wrong = trial({"small": prepared()}, paced(clock, 0.001), control=control(False))
    assert (wrong.burst()["control_ms"], through(wrong)) == ([], {})
    workloads = {each.name: prepared(each) for each in (SMALL, SMALLER)}
    one = trial(workloads, {"small": paced(clock, 0.001), "smaller": paced(clock, 0.002)}, control=control(True))
    one.reference_calls = {"small": paced(clock, 0.003), "smaller": paced(clock, 0.005)}
    burst = one.burst()
    assert burst["samples_ms"] == {"small": pytest.approx([1.0] * 2), "smaller": pytest.approx([2.0] * 2)}
    assert burst["reference_ms"] == {"small": pytest.approx([3.0] * 2), "smaller": pytest.approx([5.0] * 2)}
    assert burst["control_ms"] == pytest.approx([4.0] * 2)
    assert burst["launch_ms"] == {"small": pytest.approx(1.0), "smaller": pytest.approx(2.0)}
    assert one.sustain()["samples_ms"] == {"small": pytest.approx([1.0] * 3), "smaller": pytest.approx([2.0] * 3)}


def test_the_longest_workload_decides_how_many_rounds_there_are(clock: Clock) -> None:
    plan = dataclasses.replace(QUICK, max_rounds=9, burst_budget_s=0.012)
    workloads = {each.name: prepared(each) for each in (SMALLER, SMALL)}
    one = trial(workloads, {"small": paced(clock, 0.003), "smaller": paced(clock, 0.001)}, plan=plan)
    assert {name: len(times) for name, times in one.burst()["samples_ms"].items()} == {"small": 4, "smaller": 4}


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
    assert len(forwards) - of_burst == 4  # of each of the rotation, and of the call that is judged after the block


def test_the_output_that_is_judged_after_a_block_is_of_contents_that_are_new() -> None:
    seen: list[Tensors] = []

    def remembers(inputs: Tensors) -> Mapping[str, object]:
        seen.append({name: x.clone() for name, x in inputs.items()})
        return HONEST(inputs)

    one = trial({"small": prepared()}, Bound(remembers))
    one.burst()
    one.sustain()
    assert not any(torch.equal(seen[-1][name], earlier[name]) for earlier in seen[:-1] for name in "qkv")


def zeros(inputs: Tensors) -> Mapping[str, object]:
    return {"out": torch.zeros_like(inputs["q"])}


def when(chosen: Callable[[int], bool], otherwise: Callable[[Tensors], Mapping[str, object]]) -> Bound:
    """Return an honest call that is another one at the calls of these numbers, from 0."""
    count = itertools.count()
    return Bound(lambda inputs: otherwise(inputs) if chosen(next(count)) else HONEST(inputs))


# Of a trial with `QUICK`: a warm call, two rounds of burst, three windows of the block, one call that is judged.
@pytest.mark.parametrize(
    "chosen",
    [lambda index: True, lambda index: index in (1, 2), lambda index: index >= 6, lambda index: 3 <= index < 6],
    ids=["always", "in burst", "after the block", "in the block"],
)
def test_a_wrong_output_in_either_regime_is_found(chosen: Callable[[int], bool]) -> None:
    wrong = through(trial({"small": prepared()}, when(chosen, zeros)))["small"]
    assert wrong.status is Status.INCORRECT
    assert wrong.reason.startswith("right when checked, wrong when timed: relative L2 error")
    assert wrong.flag is None


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_inputs_that_are_changed_while_timed_are_found_and_put_back(name: str) -> None:
    workloads = {"small": prepared()}
    unjudged = workloads["small"].rotation[0]
    first = unjudged[name].clone()

    def spoils(inputs: Tensors) -> Mapping[str, object]:
        out = HONEST(inputs)
        if inputs["q"] is unjudged["q"]:
            inputs[name].mul_(2)
        return out

    wrong = through(trial(workloads, Bound(spoils)))["small"]
    reason = f"right when checked, wrong when timed: the kernel changes its inputs: {name}"
    assert (wrong.status, wrong.reason) == (Status.INCORRECT, reason)
    assert torch.equal(unjudged[name], first)
    assert through(trial(workloads, HONEST)) == {}


# Kernels that skip work on what they have seen.

Times = tuple[float, float]  # of a call on new inputs and on repeated ones, ms


def taken(clock: Clock, own: Times, reference: Times | None) -> dict[str, Wrong]:
    """Return what is found of an honest kernel with these times, after a reference with those."""

    def of(times: Times) -> Bound:
        # A warm call and two rounds are on new inputs, and then a block on repeated ones.
        return paced(clock, itertools.chain([times[0] / 1e3] * 3, itertools.repeat(times[1] / 1e3)))

    workloads = {"small": prepared()}
    anchor = trial(workloads, None, reference=of(reference) if reference else HONEST)
    if reference:
        assert through(anchor) == {}
    beside = paced(clock, (reference or own)[0] / 1e3)
    return through(trial(workloads, of(own), reference=beside, anchor=anchor))


@pytest.mark.parametrize("reference", [(8.0, 8.0), (8.0, 16.0), None])
def test_repeated_inputs_that_are_far_faster_than_new_ones(clock: Clock, reference: Times | None) -> None:
    wrong = taken(clock, (10.0, 2.0), reference)["small"]
    skips = "skips work on inputs that it has seen: 2 ms a call on repeated inputs, 10 ms on new ones"
    assert (wrong.status, wrong.reason) == (Status.ERROR, skips)
    assert wrong.flag == {"kind": FlagKind.SKIPS_WORK, "value": pytest.approx(0.2)}


@pytest.mark.parametrize(
    ("own", "reference", "skips"),
    [
        *(((10.0, repeated_ms), (8.0, 8.0), False) for repeated_ms in (2.51, 10.0, 14.0)),
        ((20.0, 4.0), (30.0, 6.0), False),  # the reference is as much faster
        ((20.0, 0.9), (30.0, 6.0), True),
        ((4.9, 0.1), (8.0, 8.0), False),  # so short that other programs on a CPU are what is seen
        ((5.1, 1.2), (8.0, 8.0), True),
    ],
)
def test_repeated_inputs_may_be_as_fast_as_the_reference_s(
    clock: Clock, own: Times, reference: Times, skips: bool
) -> None:
    assert bool(taken(clock, own, reference)) == skips


@pytest.mark.parametrize(("share", "skips"), [(1.0, False), (0.96, False), (0.94, True), (0.5, True)])
def test_side_by_side_a_call_that_is_shorter_on_what_it_knows_is_found(clock: Clock, share: float, skips: bool) -> None:
    known: list[float] = []

    def keeps(inputs: Tensors) -> Mapping[str, object]:
        contents = float(inputs["q"].double().sum())
        clock.now += 0.004 * (share if contents in known else 1)
        known.append(contents)
        return HONEST(inputs)

    one = trial({"small": prepared()}, Bound(keeps), stopwatch=LikeAGPU())
    one.burst()
    assert one.repeat() == {"small": pytest.approx(share)}
    one.check()
    assert set(one.wrong) == ({"small"} if skips else set())
    if skips:
        wrong = one.wrong["small"]
        said = f"skips work on inputs that it has seen: a call on repeated inputs takes {share:.0%} of one on new"
        assert (wrong.status, wrong.reason) == (Status.ERROR, f"{said} inputs")
        assert wrong.flag == {"kind": FlagKind.SKIPS_WORK, "value": pytest.approx(share)}


def test_on_a_gpu_an_output_from_the_midst_of_a_block_is_judged() -> None:
    one = trial({"small": prepared()}, HONEST, stopwatch=LikeAGPU())
    one.burst()
    calls = itertools.count()  # two in each of three windows, and one on contents that are new
    one.calls = {"small": Bound(lambda inputs: zeros(inputs) if next(calls) < 6 else HONEST(inputs))}
    one.sustain()
    one.check()
    assert one.wrong["small"].status is Status.INCORRECT


def test_on_a_gpu_the_block_of_the_reference_is_shorter(clock: Clock) -> None:
    """There are several of it, beside several variants."""

    call = paced(clock, 0.0625)
    plan = dataclasses.replace(QUICK, min_block_s=5.0, max_block_s=2.0, warm_up_s=0.01)
    lengths = {}
    for name, calls in (("torch_flash", None), ("flex", call)):
        one = trial({"small": prepared()}, calls, reference=call, stopwatch=LikeAGPU(), plan=plan)
        one.burst()
        block = one.sustain()
        lengths[name] = sum(block["samples_ms"]["small"][block["warm_up"] :]) / 1e3
    assert lengths == {"torch_flash": 0.625, "flex": 2.0}  # 0.6 s, in whole windows


def test_each_process_has_inputs_of_its_own_beside_the_case_of_the_first() -> None:
    """On a CPU, where a reference takes seconds."""
    inputs = operations.find("attention").inputs
    made = [PreparedWorkload.make(SMALL, ON_CPU, process) for process in (0, 2)]
    assert [list(each.cases) for each in made] == [["normal", "flux", "peaked", "tailed"], ["normal"]]
    for each, process in zip(made, (0, 2), strict=True):
        own = inputs(SMALL.shape, "normal", SEEDS_PER_PROCESS * process, ON_CPU)
        assert all(torch.equal(each.rotation[0][name], own[name]) for name in own)
        assert each.case.inputs is each.rotation[-1]
        assert torch.equal(each.case.expected["out"], made[0].case.expected["out"])
        assert torch.equal(each.rotation[1]["q"], inputs(SMALL.shape, "normal", 1, ON_CPU)["q"])


@pytest.mark.parametrize(("seq_len", "count"), [(128, 35), (4608, 2), (16_896, 2)])
def test_the_inputs_of_a_gpu_exceed_twice_its_cache(monkeypatch: pytest.MonkeyPatch, seq_len: int, count: int) -> None:
    made: list[int] = []

    class Counts(type(operations.find("attention"))):  # type: ignore[misc]
        def inputs(self, shape: Any, kind: str, seed: int, device: Any) -> Tensors:
            made.append(seed)
            return super().inputs({**shape, "seq_len_q": 4, "seq_len_k": 4}, kind, seed, ON_CPU)  # type: ignore[no-any-return]

    monkeypatch.setattr(operations, "find", lambda name: Counts())
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: type("", (), {"L2_cache_size": 50 << 20}))
    workload = tokens("made-up", seq_len, heads=24, head_dim_qk=128, head_dim_v=128)
    rotation = PreparedWorkload.make(workload, torch.device("cuda"), 1).rotation
    assert len(rotation) == len(made) == count
    assert (count - 1) * workload.cost.min_bytes >= 100 << 20  # between two calls on the same ones


def test_a_machine_that_slept_knows_for_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = {time.CLOCK_BOOTTIME: 1000.0, time.CLOCK_MONOTONIC: 940.0}
    monkeypatch.setattr(time, "clock_gettime", lambda clock: readings[clock])
    assert trials.slept_s() == 60.0
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    assert trials.slept_s() == 0.0
