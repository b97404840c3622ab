"""One worker on the CPU: what is checked and timed, in which order, and what a failure costs."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from clocks import small_cache, small_control
from fakes import TINIER, TINY, tokens
from workers import (
    CHECKED,
    QUICK,
    Load,
    checks,
    events_of,
    failures,
    given,
    honest,
    raising,
    register,
    timed,
    trials,
    variant,
    wrapped,
)

from fluxbench.bench.events import Begin, Checked, ControlKernel, Done, Failed, Probed, Rates, Ready, Timed, TrialBegan
from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall
from fluxbench.timing.plan import Plan
from fluxbench.worker.request import Request


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    small_cache(monkeypatch)
    small_control(monkeypatch)


def test_a_failure_is_announced_before_it_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = given(monkeypatch, raising(RuntimeError("no")))
    assert [type(event) for event in seen[:3]] == [Ready, ControlKernel, Begin]
    assert seen[2] == Begin(variant=None, workload="tiny")
    [index] = [index for index, event in enumerate(seen) if isinstance(event, Failed)]
    assert seen[index - 1] == Begin(variant="made_up", workload="tiny")
    assert failures(seen) == [("made_up", "ERROR", "RuntimeError: no")]
    assert timed(seen) == {"torch_math"}
    events = [type(event) for event in seen if isinstance(event, TrialBegan | Timed)]
    assert events == [TrialBegan, Timed] * (len(events) // 2) != []
    skipped = given(monkeypatch, raising(RuntimeError("no")), skip=(("made_up", "tiny"),))
    assert (failures(skipped), timed(skipped)) == ([], {"torch_math"})  # what failed earlier is not tried again
    others = given(monkeypatch, raising(RuntimeError("no")), references=("made_up",))
    assert [(trial.variant, trial.reference) for trial in trials(others)] == [("torch_math", "torch_math")]


def test_the_reference_is_the_first_that_can_be_timed_at_the_most_workloads(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = given(monkeypatch, honest, variants=("made_up",), references=("torch_math", "torch_native"))
    assert timed(seen) == {"made_up", "torch_math"}
    assert {trial.reference for trial in trials(seen)} == {"torch_math"}
    request: Any = {"workloads": (TINY, TINIER), "skip": (("torch_math", "tiny"),)}
    seen = given(monkeypatch, honest, name="right", references=("torch_math", "torch_native"), **request)
    assert {trial.reference for trial in trials(seen)} == {"torch_native"}
    assert {trial.variant: trial.workloads for trial in trials(seen)} == {
        "torch_native": ("tiny", "tinier"),
        "torch_math": ("tinier",),
        "right": ("tiny", "tinier"),
    }


@pytest.fixture
def six(monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Six right variants."""
    names = tuple(f"right_{index}" for index in range(6))
    register(monkeypatch, *map(variant, names))
    return names


def order(process: int, names: tuple[str, ...], plan: Plan = QUICK, **request: Any) -> list[str]:
    """Return whose trial it was in a process, with a dot where it had burst rounds alone."""
    asked = Request(
        device="cpu", workloads=(TINIER,), variants=names, references=("torch_math",), process=process, **request
    )
    return [trial.variant + "." * (not trial.blocks) for trial in trials(events_of(asked, plan))]


def test_the_reference_has_a_trial_first(six: tuple[str, ...]) -> None:
    # On a CPU in burst always: the processor time of the others' is compared with it. It is sustained beside them.
    assert order(0, six) == ["torch_math.", *six]
    assert order(0, ("torch_math", *six[:2])) == ["torch_math", *six[:2]]
    assert order(0, six[:1], sustained=False) == ["torch_math.", f"{six[0]}."]
    places = [[int(name[-1]) for name in order(process, six[:3]) if name in six] for process in range(3)]
    assert places == [[0, 1, 2], [0, 2, 1], [2, 0, 1]]  # no variant has the same place in every process


@pytest.mark.parametrize(("thorough_in", "kinds"), [(0, ["normal", "flux", "peaked", "tailed"]), (1, ["normal"])])
def test_only_the_thorough_process_checks_all(
    monkeypatch: pytest.MonkeyPatch, thorough_in: int, kinds: list[str]
) -> None:
    found = checks(given(monkeypatch, honest, thorough_in=thorough_in))
    assert found.keys() == {"made_up", "torch_math"}
    for event in found.values():
        errors = event.errors["out"]
        assert list(errors.rel_l2_by_inputs) == kinds
        assert errors.rel_l2 in errors.rel_l2_by_inputs.values()
        assert (bool(event.kernels), bool(event.clocks)) == (thorough_in == 0, thorough_in == 0)


def test_a_later_process_calls_a_kernel_once_before_it_is_timed_and_judges_what_it_returns_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called: list[int] = []

    def from_third(attend: Any, inputs: Any) -> torch.Tensor:
        called.append(len(called))
        return attend(*inputs) * (1.0 if len(called) < 3 else 1.5)

    seen = given(monkeypatch, wrapped(from_third), process=1)
    assert checks(seen) == {}
    [(name, status, reason)] = failures(seen)
    assert (name, status) == ("made_up", "INCORRECT")
    assert reason.startswith("right when checked, wrong when timed")


def test_inputs_that_a_kernel_changes_in_a_later_process_are_not_those_of_its_timed_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The call before the timed ones gets tensors that are filled again for each of them."""
    first = True

    def spoils_once(attend: Any, inputs: Any) -> torch.Tensor:
        nonlocal first
        out = attend(*inputs)
        if first:
            inputs[0].zero_()
        first = False
        return out

    seen = given(monkeypatch, wrapped(spoils_once), process=1)
    assert failures(seen) == []
    assert timed(seen) == {"made_up", "torch_math"}


def test_the_ragged_shape_of_all_lengths_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[int] = []
    load = wrapped(lambda attend, inputs: batches.append(len(inputs[0])) or attend(*inputs))  # type: ignore[func-returns-value]
    assert timed(given(monkeypatch, load, workloads=(TINY, TINIER))) == {"made_up", "torch_math"}
    assert batches.count(2) == 2
    wrong = wrapped(lambda attend, inputs: attend(*inputs) * (1 if len(inputs[0]) == 1 else 2))
    seen = given(monkeypatch, wrong, name="wrong", workloads=(TINY, TINIER))
    assert [(name, status) for name, status, _ in failures(seen)] == [("wrong", "INCORRECT")] * 2


def test_no_garbage_is_collected_while_a_variant_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    enabled: list[bool] = []
    load = wrapped(lambda attend, inputs: enabled.append(gc.isenabled()) or attend(*inputs))  # type: ignore[func-returns-value]
    given(monkeypatch, load, variants=("made_up",))
    assert enabled[:CHECKED] == [True] * CHECKED
    assert set(enabled[CHECKED:]) == {False}
    assert gc.isenabled()
    given(monkeypatch, raising(RuntimeError("out"), from_call=CHECKED + 2), name="failing", variants=("failing",))
    assert gc.isenabled()


@pytest.mark.parametrize(
    "call", [CHECKED + 1, CHECKED + 2, CHECKED + 3, CHECKED + 4, CHECKED + 5]
)  # the warm call, two rounds of burst, two beside the reference
def test_a_variant_that_raises_while_it_is_timed_costs_no_other(monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    seen = given(monkeypatch, raising(torch.OutOfMemoryError("tried to allocate 25 GiB"), call))
    assert failures(seen) == [("made_up", "OUT_OF_MEMORY", "while it was timed: asked for 25.00 GiB")]
    assert timed(seen) == {"torch_math"}


@pytest.mark.parametrize("operation", ["attention_backward", "attention_training"])
@pytest.mark.parametrize(("allowed", "when"), [(0, ""), (6, "while it was timed: ")])
def test_memory_that_is_out_in_a_backward_pass_costs_one_workload_and_no_forward_pass(
    monkeypatch: pytest.MonkeyPatch, operation: str, allowed: int, when: str
) -> None:
    longer, shorter = tokens("longer", 96, operation), tokens("shorter", 33, operation)
    load = out_of_memory_from(allowed, 96)
    seen = given(monkeypatch, load, workloads=(longer, shorter), sustained=True)
    failed = [event for event in seen if isinstance(event, Failed)]
    assert [(event.variant, event.workload, event.status) for event in failed] == [
        ("made_up", "longer", "OUT_OF_MEMORY")
    ]
    assert failed[0].reason == f"{when}asked for 25.00 GiB"
    assert {trial.variant: set(trial.workloads) for trial in trials(seen)} == {
        "made_up": {"shorter"}, "torch_math": {"longer", "shorter"}
    }  # fmt: skip
    assert timed(given(monkeypatch, load)) == {"made_up", "torch_math"}  # in a forward pass there is memory


def out_of_memory_from(allowed: int, seq_len: int) -> Load:
    """Return the load of an honest kernel whose backward pass at a length runs so often before memory is out."""

    def load(call: AttentionCall) -> Attention:
        passes = itertools.count()

        def check(gradient: torch.Tensor) -> None:
            if gradient.shape[1] == seq_len and next(passes) >= allowed:
                raise torch.OutOfMemoryError("tried to allocate 25 GiB")

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            out = honest(call)(q, k, v)
            if out.requires_grad:
                out.register_hook(check)
            return out

        return attend

    return load


@pytest.mark.parametrize(
    "call", [CHECKED + 1, CHECKED + 3, CHECKED + 4]
)  # between two device events; after the inputs were perturbed
def test_after_a_variant_that_raised_the_others_get_inputs_as_they_were(
    monkeypatch: pytest.MonkeyPatch, six: tuple[str, ...], call: int
) -> None:
    workloads = (TINY, TINIER) if call == CHECKED + 1 else (TINY,)
    load = raising(RuntimeError("no"), from_call=call)
    seen = given(monkeypatch, load, variants=("made_up", *six[:2]), workloads=workloads)
    assert {name for name, _, _ in failures(seen)} == {"made_up"}
    assert [trial.variant for trial in trials(seen)] == ["torch_math", *six[:2]]


def test_an_error_after_which_the_device_is_lost_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="CUDA error"):
        given(monkeypatch, raising(RuntimeError("CUDA error: an illegal memory access was encountered"), CHECKED + 3))


def test_a_torch_that_cannot_use_the_gpu_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    seen = given(monkeypatch, honest, device="cuda", references=("torch_flash",), workloads=(TINY, TINIER))
    assert sorted((name, status) for name, status, _ in failures(seen)) == [
        (name, "UNAVAILABLE") for name in ("made_up", "torch_flash", "torch_math") for _ in range(2)
    ]
    assert failures(seen)[0][2].startswith(
        f"torch {torch.__version__} (its CUDA: none) cannot use this GPU with no NVIDIA driver"
    )
    assert not any(isinstance(event, ControlKernel | Begin | Checked) for event in seen)


def test_capabilities_are_tried_of_what_was_right(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("made_up", "torch_math")
    for variants, probe, probed in (
        (names, names, ["torch_math"]),
        (names, (), []),
        (names[:1], names, ["torch_math"]),  # which was right in another process
    ):
        seen = given(monkeypatch, raising(RuntimeError("no")), variants=variants, probe=probe, workloads=(TINIER,))
        assert [event.variant for event in seen if isinstance(event, Probed)] == probed


def test_rates_alone_are_measured_and_a_request_survives_its_trip(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch, "mm", lambda *_, out: out)
    monkeypatch.setattr(torch, "ones", lambda *_, **__: torch.zeros(1))
    ready, rates, done = events_of(Request(device="cpu", workloads=(), variants=(), references=(), rates=True))
    assert isinstance(rates, Rates)
    assert set(rates.rates) == {"matmul_tflops", "matmul_size", "copy_gb_s", "event_us"}
    assert repr(rates.rates["matmul_size"]) == "1024"
    assert (type(ready), type(done)) == (Ready, Done)
    asked = Request(
        device="cpu", workloads=(TINY, tokens("b", 33, heads=4, kv_heads=2, causal=True)), variants=("a",),
        references=("b",), process=2, sustained=False, probe=("a",), skip=(("a", "tiny"),), clock_mhz=1980,
    )  # fmt: skip
    assert Request.from_json(asked.to_json()) == asked


_TRIED = """
import fcntl, sys
try:
    fcntl.lockf(open(sys.argv[1], "w"), fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    sys.exit("held")
"""


def test_a_worker_uses_the_device_only_while_it_holds_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def is_held() -> bool:
        return subprocess.run([sys.executable, "-I", "-S", "-c", _TRIED, tmp_path / "device"]).returncode == 1

    held: list[bool] = []

    def change(attend: Attention, inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> torch.Tensor:
        held.append(is_held())
        return attend(*inputs)

    seen = given(monkeypatch, wrapped(change), lock=str(tmp_path), workloads=(TINIER,))
    assert timed(seen) == {"made_up", "torch_math"}
    assert held == [True] * len(held)
    assert not is_held()
