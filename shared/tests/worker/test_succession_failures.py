"""What fails in a process whose blocks follow one another, and whom it costs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from successions import NAMES, graphs, like_a_gpu, measured
from workers import failures, raising, timed, trials, wrapped

from fluxbench.bench.events import Event, Failed, TrialBegan
from fluxbench.records.status import Status
from fluxbench.timing.graph import GraphRefused
from fluxbench.worker import block, worker
from fluxbench.worker.block import TrialBlock
from fluxbench.worker.failures import Wrong
from fluxbench.worker.trial import Trial

LACK = (
    "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 79.18 GiB of which 1.18 GiB is free."
)


@pytest.fixture(autouse=True)
def _on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    like_a_gpu(monkeypatch)


def test_what_is_wrong_costs_its_own_trial_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It raises in burst, returns something else in its block, or changes the process."""
    calls = itertools.count()

    def wrong_later(attend: Any, inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return attend(*inputs) * (1.0 if next(calls) < 9 else 1.5)

    for loads, status, reason in (
        ({"one": raising(RuntimeError("no such luck"), from_call=4)}, "ERROR", "while it was timed: "),
        ({"one": wrapped(wrong_later)}, "INCORRECT", "right when checked, wrong when timed: "),
    ):
        with monkeypatch.context() as patched:
            events = measured(patched, loads=loads)
        assert {name for name, _, _ in failures(events)} == {"one"}
        assert {(its, why.startswith(reason)) for _, its, why in failures(events)} == {(status, True)}
        assert timed(events) == {"torch_math", "two"}


@pytest.mark.parametrize("process", [2, 3])  # in which it comes before and after the other one
def test_a_kernel_that_changes_what_it_gets_in_its_block_is_found_and_no_other_is_blamed(
    monkeypatch: pytest.MonkeyPatch, process: int
) -> None:
    """Its block is followed by others' before what it returned is judged, and all get the same tensors in turn."""
    is_in_block = False
    take = TrialBlock.take

    def taking(self: TrialBlock, *given: Any) -> Any:
        nonlocal is_in_block
        is_in_block = True
        try:
            return take(self, *given)
        finally:
            is_in_block = False

    def changes(attend: Any, inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> torch.Tensor:
        out: torch.Tensor = attend(*inputs)
        if is_in_block:
            inputs[1].add_(1.0)
        return out

    monkeypatch.setattr(TrialBlock, "take", taking)
    events = measured(monkeypatch, loads={"one": wrapped(changes)}, process=process)
    assert {(name, status) for name, status, _ in failures(events)} == {("one", "INCORRECT")}
    assert timed(events) == {"torch_math", "two"}


def test_whoever_is_at_work_is_named_before_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a process that dies in a block costs the variant whose block it was."""

    def dies(self: TrialBlock, *_: Any) -> Any:
        raise SystemExit

    events: list[Event] = []
    monkeypatch.setattr(TrialBlock, "prepare", lambda *_, **__: None)
    taken = itertools.count()
    take = TrialBlock.take
    monkeypatch.setattr(TrialBlock, "take", lambda self, *given: (take if next(taken) < 2 else dies)(self, *given))
    emit = worker.Worker.emit

    def noting(self: worker.Worker, event: str, **fields: Any) -> None:
        if event == "trial":
            events.append(TrialBegan(variant=fields["variant"]))
        emit(self, event, **fields)

    monkeypatch.setattr(worker.Worker, "emit", noting)
    with pytest.raises(SystemExit):
        measured(monkeypatch)
    assert events[-1] == TrialBegan(variant="two")


@pytest.mark.parametrize(  # of the reference, 0, or of the first one beside it
    ("step", "number"), [("burst", 0), ("captured", 0), ("captured", 1), ("prepare", 1), ("take", 1), ("finish", 1)]
)
def test_what_lacks_memory_beside_the_others_is_measured_by_itself_after_them(
    monkeypatch: pytest.MonkeyPatch, step: str, number: int
) -> None:
    before = itertools.count()

    def lacks(method: Callable[..., Any]) -> Callable[..., Any]:
        def lacking(*given: Any, **named: Any) -> Any:
            if next(before) == number:
                lack = torch.OutOfMemoryError(LACK)
                raise (GraphRefused("OutOfMemoryError") if step == "captured" else lack) from lack
            return method(*given, **named)

        return lacking

    monkeypatch.setattr(block, "captured_by_name", lacks(graphs) if step == "captured" else graphs)
    if step != "captured":
        owner: Any = Trial if step == "burst" else TrialBlock
        monkeypatch.setattr(owner, step, lacks(getattr(owner, step)))
    events = measured(monkeypatch, replays={key: {"tiny": True, "tinier": True} for key in NAMES})
    assert failures(events) == []
    assert [(one.variant, sorted(one.workloads)) for one in trials(events)] == [
        (name, ["tinier", "tiny"])
        for name in (("torch_math", "one", "two") if not number else ("torch_math", "two", "one"))
    ]


@pytest.mark.parametrize("replays", [{}, {key: {"tiny": True, "tinier": True} for key in NAMES}])
def test_a_graph_that_lacks_memory_by_itself_costs_the_largest_workload_alone(
    monkeypatch: pytest.MonkeyPatch, replays: dict[str, dict[str, bool]]
) -> None:
    """Launched calls instead would be another time than that of the other kernels."""
    captures = itertools.count()

    def lacking(calls: Any, *given: Any, **named: Any) -> Any:
        if next(captures) and "tiny" in calls:  # all but the reference's
            raise GraphRefused("OutOfMemoryError") from torch.OutOfMemoryError(LACK)
        return graphs(calls, *given, **named)

    monkeypatch.setattr(block, "captured_by_name", lacking)
    events = measured(monkeypatch, replays=replays)
    failed = {(event.variant, event.workload, event.status) for event in events if isinstance(event, Failed)}
    assert failed == {(name, "tiny", Status.OUT_OF_MEMORY) for name in ("one", "two")}
    assert {one.variant: sorted(one.workloads) for one in trials(events)} == {
        "torch_math": ["tinier", "tiny"],
        "one": ["tinier"],
        "two": ["tinier"],
    }
    assert all(one.blocks and one.blocks[0].replayed for one in trials(events))


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_reference_that_cannot_be_timed_fails_no_other(monkeypatch: pytest.MonkeyPatch, *, is_recorded: bool) -> None:
    """All burst rounds hold its calls; another process may have another reference."""
    own, name = (Trial.burst, "burst") if is_recorded else (Trial.block, "block")

    def fails(self: Trial, *given: Any) -> Any:
        if self.name == "torch_math":
            raise RuntimeError("no such luck")
        return own(self, *given)

    monkeypatch.setattr(Trial, name, fails)
    events = measured(monkeypatch, variants=NAMES if is_recorded else NAMES[:2])
    assert {variant for variant, _, _ in failures(events)} == {"torch_math"}
    assert trials(events) == []


def test_a_reference_that_was_wrong_and_then_fails_is_no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    check, finish = Trial.check, TrialBlock.finish
    finished = itertools.count()

    def wrong(self: Trial) -> None:
        check(self)
        if self.name == "torch_math":
            self.wrong.setdefault("tiny", Wrong(Status.INCORRECT, "right when checked, wrong when timed"))

    def fails(self: TrialBlock) -> Any:
        if not next(finished):
            raise RuntimeError("no such luck")
        return finish(self)

    monkeypatch.setattr(Trial, "check", wrong)
    monkeypatch.setattr(TrialBlock, "finish", fails)
    events = measured(monkeypatch)
    assert {(variant, status) for variant, status, _ in failures(events)} == {("torch_math", "ERROR")}
    assert trials(events) == []


def test_nothing_counts_where_the_reference_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    check = Trial.check

    def fails_at_tiny(self: Trial) -> None:
        check(self)
        if self.name == "torch_math":
            self.wrong.setdefault("tiny", Wrong(Status.ERROR, "it was held up"))

    monkeypatch.setattr(Trial, "check", fails_at_tiny)
    events = measured(monkeypatch)
    assert [(one.variant, one.workload) for one in events if isinstance(one, Failed)] == [("torch_math", "tiny")]
    assert {one.variant: one.workloads for one in trials(events)} == dict.fromkeys(NAMES, ("tinier",))
