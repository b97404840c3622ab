"""One variant at one workload: built, called on each kind of inputs, and found right or not."""

from __future__ import annotations

import functools
import io
import sys
import time
from typing import Any

import pytest
import torch
from clocks import ON_CPU
from fakes import tokens
from workers import honest, register, variant, wrapped
from wrong.right import weighted

from fluxbench import variants
from fluxbench.correctness.case import Case
from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall
from fluxbench.operations.workload import Workload
from fluxbench.timing import profiler
from fluxbench.variants import forms
from fluxbench.variants._base import Variant
from fluxbench.variants.forms import FormedVariant
from fluxbench.worker import checking
from fluxbench.worker.__main__ import load_early, refuse_other_variables, standby
from fluxbench.worker.checking import Checked, Failed, check
from fluxbench.worker.ragged import ragged_shape

SMALL = tokens("small", 48)
GPU = torch.device("cuda")


def found(
    made: Variant, *, workload: Workload = SMALL, device: torch.device = ON_CPU, kinds: str = "normal flux", **more: Any
) -> Checked | Failed:
    cases = {kind: Case.make(workload, kind, 0, ON_CPU) for kind in kinds.split()}
    with torch.no_grad():
        return check(FormedVariant(made, forms.EAGER), workload, device, cases, **more)


def right(made: Variant, **options: Any) -> Checked:
    checked = found(made, **options)
    assert isinstance(checked, Checked)
    return checked


def test_the_errors_are_those_of_the_kind_of_inputs_that_takes_most_of_its_budget() -> None:
    """By its share: the budget of another kind may be wider."""
    seen = right(variant("a")).seen["errors"]["out"]
    shares = {}
    for kind in ("normal", "flux"):
        single = right(variant("a"), kinds=kind).seen["errors"]["out"]
        shares[kind] = single["rel_l2"] / single["budget_rel_l2"]
        assert seen["rel_l2_by_inputs"][kind] == single["rel_l2"]
    assert seen["rel_l2"] / seen["budget_rel_l2"] == pytest.approx(max(shares.values()))


def test_a_quantized_variant_has_its_own_budget_and_what_it_says_decides_nothing() -> None:
    coarse = wrapped(lambda attend, inputs: attend(*inputs) * 1.05)
    assert isinstance(found(variant("a", coarse)), Failed)
    options = {"precision_class": "quantized", "quantized_budget_rel_l2": 0.06}
    assert right(variant("a", coarse, **options)).seen["errors"]["out"]["budget_rel_l2"] == 0.06
    assert isinstance(found(variant("a", wrapped(lambda attend, inputs: attend(*inputs) * 1.07), **options)), Failed)

    def broken() -> str:
        raise AttributeError("no private name")

    assert right(variant("a", detail=lambda: "plan 7")).seen["detail"] == "plan 7"
    assert right(variant("a", detail=broken)).seen["detail"] is None


def test_what_replays_graphs_of_its_own_is_never_part_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "compile_for_many_lengths", lambda function, **_: function)
    inputs = Case.make(SMALL, "normal", 0, ON_CPU).inputs
    captured = {}
    for form in forms.EVERY_FORM:
        bound = checking.make(FormedVariant(variant("a"), form), SMALL, inputs)
        captured[form.name] = bound.can_be_captured
    assert captured == {"eager": True, "copy": True, "compile_d": True, "compile_ma": False}


def test_a_kernel_that_changes_its_inputs_is_wrong_and_they_are_put_back() -> None:
    spoils = wrapped(lambda attend, inputs: attend(*inputs) + 0 * inputs[1].mul_(2))
    cases = {"normal": Case.make(SMALL, "normal", 0, ON_CPU)}
    first = cases["normal"].inputs["k"].clone()
    failed = check(FormedVariant(variant("a", spoils), forms.EAGER), SMALL, ON_CPU, cases)
    assert isinstance(failed, Failed)
    assert failed.reason == "the kernel changes its inputs: k"
    assert torch.equal(cases["normal"].inputs["k"], first)


def test_inputs_are_put_back_where_there_is_no_memory_to_judge_what_it_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(*_: object) -> None:
        raise torch.OutOfMemoryError("made up")

    spoils = wrapped(lambda attend, inputs: attend(*inputs) + 0 * inputs[1].mul_(2))
    cases = {"normal": Case.make(SMALL, "normal", 0, ON_CPU)}
    first = cases["normal"].inputs["k"].clone()
    monkeypatch.setattr(checking, "judgement_on", lacks)
    with pytest.raises(torch.OutOfMemoryError):
        check(FormedVariant(variant("a", spoils), forms.EAGER), SMALL, ON_CPU, cases)
    assert torch.equal(cases["normal"].inputs["k"], first)


def test_a_quantized_variant_is_judged_on_the_inputs_for_which_its_budget_is_declared() -> None:
    def capped(attend: Attention, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
        q, k, v = inputs
        return weighted(q, k, v, lambda scores: 30 * (scores / 30).tanh())

    options = {"precision_class": "quantized", "quantized_budget_rel_l2": 0.06, "kinds": "normal flux peaked tailed"}
    made = {key: options.pop(key) for key in ("precision_class", "quantized_budget_rel_l2")}
    errors = right(variant("a", wrapped(capped), **made), **options).seen["errors"]["out"]
    assert errors["rel_l2_by_inputs"]["peaked"] > 0.5
    assert errors["rel_l2"] < 0.06
    assert 0 < errors["head_budget_share"] < 1
    assert 0 < errors["row_budget_share"] < 1
    failed = found(variant("a", wrapped(capped)), kinds="peaked")
    assert isinstance(failed, Failed)


def test_the_second_shape_has_views_or_contiguous_inputs_and_is_left_out_where_a_variant_does_not_take_it() -> None:
    seen: list[tuple[tuple[int, ...], bool]] = []

    def load(call: AttentionCall, takes_views: bool) -> Attention:
        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            seen.append((tuple(k.shape), k.is_contiguous()))
            if not (takes_views or k.is_contiguous()):
                raise ValueError("k must be contiguous")
            return honest(call)(q, k, v)

        return attend

    for takes_views, expected in ((True, [False, True]), (False, [False, True, True])):
        seen.clear()
        right(variant("a", functools.partial(load, takes_views=takes_views)))
        assert [contiguous for tensor, contiguous in seen if tensor == (2, 333, 2, 64)] == expected
    seen.clear()
    right(
        variant(
            "a",
            functools.partial(load, takes_views=True),
            refuses=lambda device, call: "no" if call.batch > 1 else None,
        )
    )
    assert {tensor for tensor, _ in seen} == {(1, 48, 2, 64)}
    assert ragged_shape({"seq_len_q": 50, "seq_len_k": 99, "heads": 2}) == {
        **{"batch": 2, "seq_len_q": 50, "seq_len_k": 333, "heads": 2}
    }
    assert ragged_shape({"rows": 3}) is None


def test_one_warm_call_is_profiled_where_asked_for_however_many_kinds_there_are() -> None:
    for kinds in ("normal flux", "normal"):
        seen = right(variant("a"), kinds=kinds).seen
        assert any("matmul" in kernel["name"] or "mm" in kernel["name"] for kernel in seen["kernels"])
        assert 0 < seen["clocks"][1] <= seen["clocks"][0]  # of the profiler, of a wall clock
        plain = right(variant("a"), kinds=kinds, thorough=False).seen
        assert (plain["kernels"], plain["clocks"], plain["memory"]) == ([], None, None)


@pytest.mark.parametrize(("pause_s", "jit", "known"), [(0.2, True, True), (0.2, False, False), (0.0, True, False)])
def test_a_first_call_that_is_longer_was_compiled_in(
    monkeypatch: pytest.MonkeyPatch, pause_s: float, jit: bool, known: bool
) -> None:
    now, pauses = [0.0], iter([pause_s])
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def change(attend: Attention, inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> torch.Tensor:
        now[0] += 0.01 + next(pauses, 0.0)
        return attend(*inputs)

    seen = right(variant("a", wrapped(change), jit=jit)).seen
    assert seen["compile_s"] == (pytest.approx(0.2) if known else None)
    assert seen["graph_breaks"] is None


@pytest.mark.parametrize("thorough", [True, False])
def test_on_a_gpu_too_a_warm_call_tells_how_long_the_first_one_compiled(
    monkeypatch: pytest.MonkeyPatch, thorough: bool
) -> None:
    now, pauses = [0.0], iter([0.2])
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)

    def change(attend: Attention, inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> torch.Tensor:
        now[0] += 0.01 + next(pauses, 0.0)
        return attend(*inputs)

    made = right(variant("a", wrapped(change), jit=True), device=GPU, thorough=thorough, memory=False, kinds="normal")
    assert made.seen["compile_s"] == pytest.approx(0.2)


def test_on_a_gpu_calls_have_memory_and_are_not_profiled_before_they_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiler, "profile", lambda **_: pytest.fail("it was profiled"))
    for name in ("synchronize", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda device: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 100)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 350)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: 400)
    seen = right(variant("flash"), device=GPU).seen
    assert (seen["kernels"], seen["clocks"]) == ([], None)
    assert (seen["memory"]["call_bytes"], seen["memory"]["reserved_bytes"]) == (250, 300)
    assert right(variant("flash"), device=GPU, memory=False).seen["memory"] is None


def test_a_worker_that_waits_has_loaded_its_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []

    def load(name: str, call: AttentionCall) -> Attention:
        loaded.append(name)
        if name == "broken":  # which is left for later
            raise ImportError("no")
        torch.set_grad_enabled(False)
        return honest(call)

    register(monkeypatch, *(variant(name, functools.partial(load, name)) for name in ("broken", "made_up")))
    monkeypatch.setattr(sys, "stdin", io.StringIO('["request.json", "events.jsonl"]\n'))
    assert load_early(["broken", "made_up"]) == {"made_up": "changes process-wide state: grad mode True -> False"}
    assert torch.is_grad_enabled()
    assert standby() == ["request.json", "events.jsonl"]
    assert loaded == ["broken", "made_up"]
    with pytest.raises(SystemExit) as caught:
        standby()
    assert caught.value.code == 0


@pytest.mark.parametrize(
    ("form", "calls"), [(forms.EAGER, 1), (forms.COMPILE_DEFAULT, 1), (forms.COMPILE_MAX_AUTOTUNE, 2)]
)
def test_a_later_process_makes_the_calls_that_are_unlike_later_ones_before_any_is_timed(
    monkeypatch: pytest.MonkeyPatch, form: forms.Form, calls: int
) -> None:
    """With CUDA graphs the second call records, which takes ten times as long as what it records."""
    made: list[int] = []

    def count(attend: Attention, inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> torch.Tensor:
        made.append(1)
        return attend(*inputs)

    monkeypatch.setattr(forms, "compile_for_many_lengths", lambda function, **options: function)
    with torch.no_grad():
        checking.make(
            FormedVariant(variant("a", wrapped(count)), form), SMALL, Case.make(SMALL, "normal", 0, ON_CPU).inputs
        )
    assert len(made) == calls


def test_a_process_without_the_variables_of_a_library_refuses_its_variants() -> None:
    own = {name: dict(variants.find(name).variant.variables) for name in ("te_fused", "te_fused_det", "te_flash")}
    assert own["te_fused"].items() < own["te_fused_det"].items()
    for name, variables in own.items():
        refuse_other_variables((name, name), variables)
        for other in {*own, "torch_math"} - {name}:
            with pytest.raises(RuntimeError, match=f"^{other} needs a process with"):
                refuse_other_variables((name, other), variables)
    refuse_other_variables(("torch_math",), {})
