"""Which kernels ran, and what they took: looked at when no more times are taken, at no cost where it fails."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from fakes import TINIER, TINY, tokens
from successions import like_a_gpu
from workers import QUICK, events_of, failures, given, honest, register, trials, variant

from fluxbench.bench.events import Event, Profiled, Profiling, Timed
from fluxbench.operations.protocol import Attention, Bound
from fluxbench.operations.shapes import AttentionCall
from fluxbench.timing import profiler
from fluxbench.timing.profiler import KernelTimes
from fluxbench.variants.forms import FormedVariant
from fluxbench.worker import profiling
from fluxbench.worker.request import Effort, Request
from fluxbench.worker.worker import Worker

BOTH: dict[str, Any] = {"workloads": (TINIER, TINY)}
IN_PARTS: dict[str, Any] = {**BOTH, "effort": Effort(held_bytes=1)}


@pytest.fixture(autouse=True)
def _on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    like_a_gpu(monkeypatch)


def profiled(seen: list[Event]) -> dict[tuple[str, str], Profiled]:
    """Return what was told of kernels, by variant and workload."""
    return {(one.variant, one.workload): one for one in seen if isinstance(one, Profiled)}


@pytest.mark.parametrize("asked", [BOTH, IN_PARTS, {**BOTH, "sustained": False}], ids=["one part", "parts", "burst"])
@pytest.mark.parametrize("process", [0, 1])
def test_no_profiler_runs_in_a_process_before_its_last_time_is_taken(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], process: int
) -> None:
    order: list[str] = []
    emit, profile = Worker.emit, torch.profiler.profile

    def emits(self: Worker, event: str, **fields: Any) -> None:
        order.append(event)
        emit(self, event, **fields)

    def profiles(*given: Any, **named: Any) -> Any:
        order.append("profile")
        return profile(*given, **named)

    monkeypatch.setattr(Worker, "emit", emits)
    monkeypatch.setattr(profiler, "profile", profiles)
    monkeypatch.setattr(Request, "is_thorough", False)  # which on a CPU profiles in its checks
    seen = given(monkeypatch, honest, **asked, process=process, thorough_in=0)
    assert failures(seen) == []
    told = [event for event in order if event in ("timed", "profile", "profiled", "profiling")]
    last = len(told) - 1 - told[::-1].index("timed")
    assert last < told.index("profiling") < told.index("profile") < told.index("profiled")
    assert set(profiled(seen)) == {(name, one.name) for name in ("made_up", "torch_math") for one in BOTH["workloads"]}


@pytest.mark.parametrize("process", [0, 1])
def test_every_process_tells_which_kernels_ran_and_the_first_what_they_took(
    monkeypatch: pytest.MonkeyPatch, process: int
) -> None:
    found = profiled(given(monkeypatch, honest, process=process, thorough_in=0))["made_up", "tiny"]
    assert any("aten::" in name for name in found.names)
    assert [kernel.name for kernel in found.kernels] == found.names[: len(found.kernels)]
    assert found.times == (None if process else (1.0, 1.0, {"attention": 1.0}, ()))


def test_only_what_has_a_record_and_is_checked_in_full_is_profiled(monkeypatch: pytest.MonkeyPatch) -> None:
    effort = Effort(fully=("tiny",))
    seen = given(monkeypatch, honest, **BOTH, effort=effort, variants=("made_up",))
    assert set(profiled(seen)) == {("made_up", "tiny")}
    [timed] = [one for one in trials(seen) if one.variant == "made_up"]
    assert timed.unprofiled == ("tinier",)


def test_of_rows_of_calls_it_is_told_which_kernels_ran_and_not_what_they_took(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def times(bounds: Mapping[str, Bound], *_: Any) -> dict[str, KernelTimes]:
        asked.extend(bounds)
        return {}

    monkeypatch.setattr(profiling, "times_of_bound", times)
    was_timed = profiling.Profiling.was_timed

    def in_a_row(self: profiling.Profiling, name: str, calls: Mapping[str, Bound], _: object) -> None:
        was_timed(self, name, calls, ["tiny"])

    monkeypatch.setattr(profiling.Profiling, "was_timed", in_a_row)
    found = profiled(given(monkeypatch, honest, **BOTH, variants=("made_up",)))
    assert set(found) == {("made_up", "tiny"), ("made_up", "tinier")}
    assert asked == ["tinier"]


@pytest.mark.parametrize(("pattern", "runs"), [("aten::", True), (None, True), ("flash_fwd", False)])
def test_another_kernel_than_a_variant_s_name_promises_is_an_error_though_it_was_timed(
    monkeypatch: pytest.MonkeyPatch, pattern: str | None, runs: bool
) -> None:
    register(monkeypatch, variant("named", kernel_pattern=pattern))
    asked = Request(device="cpu", workloads=(TINY,), variants=("named", "torch_math"), references=("torch_math",))
    seen = events_of(asked)
    assert "named" in {one.variant for one in trials(seen)}
    said = [(name, status, reason[: reason.index(": aten")]) for name, status, reason in failures(seen)]
    assert said == ([] if runs else [("named", "ERROR", "another kernel ran in place of named")])


@pytest.mark.parametrize(("asked", "loads"), [({}, 1), ({"effort": Effort(held_bytes=1)}, 2)])
def test_calls_are_built_again_where_their_process_holds_some_workloads_at_a_time(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], loads: int
) -> None:
    loaded: list[int] = []

    def load(call: AttentionCall) -> Attention:
        loaded.append(call.seq_len_q)
        return honest(call)

    seen = given(monkeypatch, load, **asked, process=1, thorough_in=0)
    assert ("made_up", "tiny") in profiled(seen)
    assert len(loaded) == loads


def test_what_its_first_calls_record_is_not_profiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was compiled for a kept call may be forgotten by then: its first calls would be unlike those that count."""
    made: list[str] = []
    profile_call, emit = profiler.profile_call, Worker.emit

    def load(call: AttentionCall) -> Attention:
        attend = honest(call)

        def noted(*tensors: Any) -> Any:
            made.append("call")
            return attend(*tensors)

        return noted

    def profiles(*given: Any) -> Any:
        made.append("profile")
        return profile_call(*given)

    def emits(self: Worker, event: str, **fields: Any) -> None:
        made.append(event)
        emit(self, event, **fields)

    monkeypatch.setattr(FormedVariant, "first_calls", 3)
    monkeypatch.setattr(profiling, "profile_call", profiles)
    monkeypatch.setattr(Worker, "emit", emits)
    given(monkeypatch, load, variants=("made_up",), process=1, thorough_in=0)
    began = made.index("profiling")
    assert [one for one in made[began : made.index("profile", began)] if one == "call"] == ["call"] * 3


def failing_once(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let a step of the profiling fail the first time."""
    step, calls = getattr(profiling, name), iter([1])

    def fails(*given: Any) -> Any:
        if next(calls, None):
            raise RuntimeError("no memory is left for CUPTI")
        return step(*given)

    monkeypatch.setattr(profiling, name, fails)


@pytest.mark.parametrize("step", ["profile_call", "times_of_bound", "fresh_inputs"])
def test_what_cannot_be_profiled_has_its_times_and_costs_nothing_else(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    failing_once(monkeypatch, step)
    seen = given(monkeypatch, honest, **BOTH)
    assert failures(seen) == []
    assert {one.variant for one in trials(seen) if one.burst} == {"made_up", "torch_math"}
    told = {pair: bool(one.times) for pair, one in profiled(seen).items()}
    first = next(one.variant for one in trials(seen) if one.burst)
    [other] = {"made_up", "torch_math"} - {first}
    pairs = {(first, "tinier"), (first, "tiny"), (other, "tinier"), (other, "tiny")}
    lost = {"profile_call": 1, "times_of_bound": 0, "fresh_inputs": 2}[step]
    assert len(told) == 4 - lost
    assert told.keys() < pairs if lost else told.keys() == pairs
    assert [name for (name, _), timed in told.items() if not timed] == ([first] * 2 if step == "times_of_bound" else [])
    began = next(index for index, one in enumerate(seen) if isinstance(one, Profiling))
    assert not any(isinstance(one, Timed) for one in seen[began:])


def test_a_process_tells_what_is_to_be_profiled_before_it_is_and_one_that_takes_over_does_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first one died after it had timed one variant."""
    died = [one for one in given(monkeypatch, honest, **BOTH) if isinstance(one, Timed) and one.burst]
    assert [set(one.profiles) for one in died] == [{"tinier", "tiny"}] * 2
    left = died[1].variant
    pairs = tuple((died[0].variant, name) for name in died[0].workloads)
    asked: dict[str, Any] = {
        **BOTH,
        "variants": (left,),
        "references": ("torch_math",),
        "rows": {pairs[0][0]: {"tiny": 3}},
    }
    seen = events_of(Request(device="cpu", **asked, done=pairs, untold=pairs))
    found = profiled(seen)
    assert set(found) == {*pairs, (left, "tinier"), (left, "tiny")}
    assert {pair: bool(one.times) for pair, one in found.items() if pair[0] != left} == {
        (pairs[0][0], "tinier"): True, (pairs[0][0], "tiny"): False,
    }  # fmt: skip


def test_the_device_rests_before_kernels_are_timed_as_before_the_first_burst_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others may have loaded it meanwhile."""
    rests: list[float] = []

    def times(bounds: object, inputs: object, watch: object, parts: object, repeats: int, *rest: Any) -> dict[str, Any]:
        rests.append(rest[-1])
        return {}

    monkeypatch.setattr(profiling, "times_of_bound", times)
    given(monkeypatch, honest, plan=dataclasses.replace(QUICK, first_rest_s=0.03))
    assert rests == [0.03, 0.03]


def test_a_backward_pass_has_a_pattern_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    backward = tokens("backward", 33, "attention_backward")
    register(monkeypatch, variant("named", kernel_pattern="flash_fwd", backward_kernel_pattern="aten::"))
    asked = {"workloads": (backward,), "variants": ("named", "torch_math"), "references": ("torch_math",)}
    assert failures(events_of(Request(device="cpu", **asked, sustained=False))) == []  # type: ignore[arg-type]
