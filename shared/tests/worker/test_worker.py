"""One worker on the CPU: what is checked and timed, in which order, and what a failure costs."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from clocks import small_cache
from fakes import TINIER, TINY, tokens
from workers import checks, events_of, failures, given, honest, raising, register, timed, trials, variant, wrapped

from fluxbench.bench.events import Begin, Checked, ControlKernel, Done, Failed, Probed, Rates, Ready, Timed, TrialBegan
from fluxbench.worker.request import Request
from fluxbench.worker.worker import REFERENCE_EVERY


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    small_cache(monkeypatch)
    monkeypatch.chdir(tmp_path)  # where a worker keeps its cases


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (RuntimeError("shape mismatch\nmore"), "ERROR", "RuntimeError: shape mismatch"),
        (ModuleNotFoundError("No module named 'x'"), "UNAVAILABLE", "No module named 'x'; install what is missing"),
        (torch.OutOfMemoryError("tried to allocate 25 GiB"), "OUT_OF_MEMORY", "tried to allocate 25 GiB"),
    ],
)
def test_a_variant_that_raises_costs_one_status_and_the_others_are_timed(
    monkeypatch: pytest.MonkeyPatch, error: Exception, status: str, reason: str
) -> None:
    seen = given(monkeypatch, raising(error))
    assert failures(seen) == [("made_up", status, reason)]
    assert timed(seen) == {"torch_math"}


def test_a_failure_is_announced_before_it_happens_and_the_control_kernel_comes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = given(monkeypatch, raising(RuntimeError("no")))
    assert [type(event) for event in seen[:3]] == [Ready, ControlKernel, Begin]
    assert seen[2] == Begin(variant=None, workload="tiny")
    [index] = [index for index, event in enumerate(seen) if isinstance(event, Failed)]
    assert seen[index - 1] == Begin(variant="made_up", workload="tiny")


def test_a_trial_is_announced_before_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = given(monkeypatch, honest, variants=("made_up",))
    order = [(type(event), event.variant) for event in seen if isinstance(event, TrialBegan | Timed)]
    assert order == [(kind, name) for name in ("torch_math", "made_up") for kind in (TrialBegan, Timed)]


# References.


def test_without_a_reference_that_runs_nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert timed(given(monkeypatch, raising(RuntimeError("no")), references=("made_up",))) == set()


def test_only_the_first_reference_that_runs_is_measured_though_nobody_asked_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = given(monkeypatch, honest, variants=("made_up",), references=("torch_math", "torch_native"))
    assert timed(seen) == {"made_up", "torch_math"}
    assert {trial.reference for trial in trials(seen)} == {"torch_math"}


def test_what_failed_in_an_earlier_process_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = given(monkeypatch, raising(RuntimeError("no")), skip=(("made_up", "tiny"),))
    assert (failures(seen), timed(seen)) == ([], {"torch_math"})


def test_the_reference_is_the_one_that_is_right_at_the_most_workloads(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = given(
        monkeypatch,
        honest,
        workloads=(TINY, TINIER),
        references=("torch_math", "torch_native"),
        skip=(("torch_math", "tiny"),),
    )
    assert {trial.reference for trial in trials(seen)} == {"torch_native"}
    assert {trial.variant: trial.workloads for trial in trials(seen)} == {
        "torch_native": ("tiny", "tinier"),
        "torch_math": ("tinier",),
        "made_up": ("tiny", "tinier"),
    }


SIX = tuple(f"right_{index}" for index in range(6))


@pytest.fixture
def six(monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Six right variants."""
    register(monkeypatch, *map(variant, SIX))
    return SIX


def order(process: int, names: tuple[str, ...], **request: Any) -> list[str]:
    """Return whose trial it was in a process, a dot for one of the reference without burst."""
    asked = Request(
        device="cpu", workloads=(TINIER,), variants=names, references=("torch_math",), process=process, **request
    )
    return [trial.variant if trial.burst else "." for trial in trials(events_of(asked))]


def test_the_reference_has_a_trial_first_and_after_every_few_and_last(six: tuple[str, ...]) -> None:
    assert order(0, six) == [".", *six[:REFERENCE_EVERY], ".", *six[REFERENCE_EVERY:], "."]
    assert order(0, six[:REFERENCE_EVERY]) == [".", *six[:REFERENCE_EVERY], "."]
    assert order(0, six[:2]) == [".", *six[:2], "."]
    assert order(0, six[:1]) == [".", six[0]]  # beside a single variant, one is enough


def test_the_reference_has_burst_rounds_of_its_own_only_where_its_record_or_nothing_else_is_asked_for(
    six: tuple[str, ...],
) -> None:
    assert order(0, ("torch_math", *six[:2])) == ["torch_math", *six[:2], "."]
    assert order(0, six[:1], sustained=False) == ["torch_math", six[0]]


def test_no_variant_has_the_same_place_in_every_process(six: tuple[str, ...]) -> None:
    places = [[name for name in order(process, six[:3]) if name in six] for process in range(3)]
    assert places == [
        ["right_0", "right_1", "right_2"],
        ["right_0", "right_2", "right_1"],
        ["right_2", "right_0", "right_1"],
    ]


# What a trial holds.


@pytest.mark.parametrize(("process", "kinds"), [(0, ["normal", "flux"]), (1, ["normal"])])
def test_only_the_first_process_checks_on_all_kinds_of_inputs_and_looks_at_kernels(
    monkeypatch: pytest.MonkeyPatch, process: int, kinds: list[str]
) -> None:
    for event in checks(given(monkeypatch, honest, process=process)).values():
        errors = event.errors["out"]
        assert list(errors.rel_l2_by_inputs) == kinds
        assert errors.rel_l2 in errors.rel_l2_by_inputs.values()
        assert (bool(event.kernels), bool(event.clocks)) == (process == 0, process == 0)


# What happens while a variant is timed.


def test_no_garbage_is_collected_while_a_variant_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    enabled: list[bool] = []
    load = wrapped(lambda attend, inputs: enabled.append(gc.isenabled()) or attend(*inputs))  # type: ignore[func-returns-value]
    given(monkeypatch, load, variants=("made_up",))
    assert enabled[:2] == [True, True]  # checked
    assert set(enabled[2:]) == {False}
    assert gc.isenabled()
    given(monkeypatch, raising(RuntimeError("out"), from_call=4), name="failing", variants=("failing",))
    assert gc.isenabled()


@pytest.mark.parametrize("call", [3, 4, 5, 6, 8, 9])  # the warm call, two rounds, two windows, the call that is judged
def test_a_variant_that_raises_while_it_is_timed_costs_no_other(monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    seen = given(monkeypatch, raising(torch.OutOfMemoryError("tried to allocate 25 GiB"), call))
    assert failures(seen) == [("made_up", "OUT_OF_MEMORY", "while it was timed: tried to allocate 25 GiB")]
    assert timed(seen) == {"torch_math"}


@pytest.mark.parametrize("call", [3, 5, 6])  # between two device events; after the inputs were perturbed
def test_after_a_variant_that_raised_the_others_get_inputs_as_they_were(
    monkeypatch: pytest.MonkeyPatch, six: tuple[str, ...], call: int
) -> None:
    workloads = (TINY, TINIER) if call == 3 else (TINY,)
    load = raising(RuntimeError("no"), from_call=call)
    seen = given(monkeypatch, load, variants=("made_up", *six[:2]), workloads=workloads)
    assert {name for name, _, _ in failures(seen)} == {"made_up"}
    assert timed(seen) == {"torch_math", *six[:2]}
    assert [trial.variant for trial in trials(seen)][-1] == "torch_math"


def test_an_error_after_which_the_device_is_lost_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="CUDA error"):
        given(monkeypatch, raising(RuntimeError("CUDA error: an illegal memory access was encountered"), 5))


def test_a_torch_that_cannot_use_the_gpu_fails_every_variant_and_measures_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    seen = given(monkeypatch, honest, device="cuda", references=("torch_flash",), workloads=(TINY, TINIER))
    assert {(name, status) for name, status, _ in failures(seen)} == {
        (name, "UNAVAILABLE") for name in ("torch_flash", "made_up", "torch_math")
    }
    assert len(failures(seen)) == 6
    assert {reason for _, _, reason in failures(seen)} == {
        f"torch {torch.__version__} cannot use this machine's GPU (its CUDA: {torch.version.cuda or 'none'}); "
        "install a torch that was built for CUDA and for this driver"
    }
    assert not any(isinstance(event, ControlKernel | Begin | Checked) for event in seen)


# What else it is asked for.


def test_capabilities_are_tried_where_asked_for_of_what_was_right_in_its_eager_form(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("made_up", "torch_math")
    for probe, probed in ((True, ["torch_math"]), (False, [])):
        seen = given(monkeypatch, raising(RuntimeError("no")), variants=names, probe=probe, workloads=(TINIER,))
        assert [event.variant for event in seen if isinstance(event, Probed)] == probed


def test_where_rates_alone_are_asked_for_nothing_else_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "mm", lambda *_, out: out)
    monkeypatch.setattr(torch, "ones", lambda *_, **__: torch.zeros(1))
    ready, rates, done = events_of(Request(device="cpu", workloads=(), variants=(), references=(), rates=True))
    assert isinstance(rates, Rates)
    assert set(rates.rates) == {"matmul_tflops", "matmul_size", "copy_gb_s", "event_us"}
    assert repr(rates.rates["matmul_size"]) == "2048"
    assert (type(ready), type(done)) == (Ready, Done)


def test_a_request_survives_the_trip_to_the_worker() -> None:
    asked = Request(
        device="cpu",
        workloads=(TINY, tokens("b", 33, heads=4, kv_heads=2, causal=True)),
        variants=("a",),
        references=("b",),
        process=2,
        sustained=False,
        probe=True,
        skip=(("a", "tiny"),),
        clock_mhz=1980,
    )
    assert Request.from_json(asked.to_json()) == asked
