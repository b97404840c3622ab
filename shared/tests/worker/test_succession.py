"""Sustained blocks that follow one another: their order, what each warms up for, and what fails on the way."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from clocks import Clock, LikeAGPU, small_cache, small_control
from fakes import TINIER, TINY
from sample_trials import HONEST, SMALL, prepared, trial
from workers import QUICK, events_of, failures, honest, raising, register, timed, trials, variant, wrapped

from fluxbench.bench.events import Event, Failed, Timed, TrialBegan
from fluxbench.operations.protocol import Bound
from fluxbench.records.status import Status
from fluxbench.timing.graph import GraphRefused
from fluxbench.worker import block, succession, worker
from fluxbench.worker import trial as of_trial
from fluxbench.worker.block import TrialBlock
from fluxbench.worker.device_use import DeviceUse
from fluxbench.worker.failures import Wrong
from fluxbench.worker.request import Effort, Request
from fluxbench.worker.succession import Succession
from fluxbench.worker.taking import Taker
from fluxbench.worker.trial import Trial

PLAN = dataclasses.replace(
    QUICK, chunk_s=0.01, warm_up_s=1.05, max_warm_up_s=1.05, min_block_s=1.0, max_block_s=1.0, stretch_s=0.2,
    settled_within=0.02, sample_s=0.1, first_rest_s=0.25,
)  # fmt: skip
NAMES = ("one", "two", "torch_math")
LACK = (
    "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 79.18 GiB of which 1.18 GiB is free."
)


@pytest.fixture(autouse=True)
def _on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    small_cache(monkeypatch)
    small_control(monkeypatch)
    monkeypatch.setattr(worker, "Stopwatch", lambda *_: LikeAGPU())
    times = lambda bounds, *_: dict.fromkeys(bounds, (1.0, 1.0, {"attention": 1.0}))  # noqa: E731
    monkeypatch.setattr(of_trial, "times_of_bound", times)


def measured(monkeypatch: pytest.MonkeyPatch, **request: Any) -> list[Event]:
    """Return the events of a worker that measures two variants beside torch_math."""
    loads = {"one": honest, "two": honest, **request.pop("loads", {})}
    register(monkeypatch, *(variant(name, load) for name, load in loads.items()))
    asked = {
        "variants": NAMES,
        "references": ("torch_math",),
        "workloads": (TINIER, TINY),
        "device": "cpu",
        "process": 2,
    }
    return events_of(Request(**{**asked, **request}))


def noted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Return a list that gets each step of a trial or a block with the workloads that it is of."""
    seen: list[tuple[str, int]] = []

    def note(owner: type, name: str) -> None:
        method: Callable[..., Any] = getattr(owner, name)

        def noting(self: Any, *given: Any, **named: Any) -> Any:
            calls = self.calls if isinstance(self, Trial) else self._calls
            seen.append((name, len(calls)))
            return method(self, *given, **named)

        monkeypatch.setattr(owner, name, noting)

    for owner, names in ((Trial, ("burst", "check")), (TrialBlock, ("prepare", "take", "finish"))):
        for name in names:
            note(owner, name)
    return seen


def test_all_bursts_come_before_all_blocks_and_the_device_is_shared_between(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = noted(monkeypatch)
    steps: list[tuple[str, bool]] = []
    step = DeviceUse.step

    def noting(self: DeviceUse, name: str, *, short: bool, **more: Any) -> Any:
        steps.append((name, short))
        return step(self, name, short=short, **more)

    monkeypatch.setattr(DeviceUse, "step", noting)
    events = measured(monkeypatch, lock=str(tmp_path / "lock"))
    assert failures(events) == []
    names = [name for name, _ in seen]
    assert names == ["burst"] * 3 + ["check", "prepare"] * 3 + ["take"] * 3 + ["finish"] * 3 + ["check"] * 3
    assert steps[-4:] == [("measuring", False), ("preparing", True), ("measuring", False), ("checking", True)]
    taken = trials(events)
    assert [one.variant for one in taken] == ["torch_math", "one", "two"]
    assert all(one.burst and one.block and one.took_s > 0 for one in taken)


@pytest.mark.parametrize(
    "effort", [Effort(long=True), Effort(held_bytes=1, one_reference=True), Effort(grid=True), Effort(replayed=True)]
)
def test_calls_that_need_much_memory_and_grids_are_measured_one_after_the_other(effort: Effort) -> None:
    asked: Any = {"device": "cuda", "workloads": (TINY,), "variants": NAMES, "references": ("torch_math",)}
    assert Request(**asked).in_succession
    assert not Request(**asked, effort=effort).in_succession
    assert not Request(**asked, sustained=False).in_succession


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


def test_graphs_that_were_captured_before_another_block_get_new_contents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another kernel may have written to the slots since, of which the one that replays is not guilty."""
    graphs = lambda calls, *_, **__: {name: lambda turn, call=call: call(turn[-1]) for name, call in calls.items()}  # noqa: E731
    monkeypatch.setattr(block, "captured_by_name", graphs)
    prepare = TrialBlock.prepare

    def prepares(self: TrialBlock, **how: Any) -> None:
        prepare(self, **how)
        for given in self._given.values():
            for slot in given._contents.slots:
                slot["k"].zero_()

    monkeypatch.setattr(TrialBlock, "prepare", prepares)
    events = measured(monkeypatch, replays={"one": True, "two": True})
    assert failures(events) == []
    assert {one.variant for one in trials(events) if one.block and one.block.replayed} == set(NAMES)


def test_a_block_of_fewer_workloads_knows_what_launching_their_calls_took_in_burst(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Here launching a call is the call, so graphs are wanted."""
    graphs = lambda calls, *_, **__: {name: lambda turn, call=call: call(turn[-1]) for name, call in calls.items()}  # noqa: E731
    monkeypatch.setattr(block, "captured_by_name", graphs)
    events = measured(monkeypatch, burst_alone=("tiny",))
    assert failures(events) == []
    taken = {one.variant: one.block for one in trials(events) if one.block}
    assert {name: (list(one.samples_ms), one.replayed) for name, one in taken.items()} == dict.fromkeys(
        NAMES, (["tinier"], True)
    )


def test_what_others_compile_may_break_is_compiled_and_measured_by_itself_after_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = noted(monkeypatch)
    forgotten: list[tuple[str, ...]] = []
    monkeypatch.setattr(worker, "forget_compiled", lambda names: forgotten.append(tuple(names)))
    register(monkeypatch, variant("broken", honest, compiles=True, fullgraph=False))
    events = measured(monkeypatch, variants=("broken", *NAMES))
    assert failures(events) == []
    assert [one.variant for one in trials(events)][-1] == "broken"
    assert timed(events) == {"broken", *NAMES}
    steps = [name for name, _ in seen]
    assert steps.count("burst") == 4
    assert steps.index("take") == 9  # after the bursts of three
    assert steps[15:].index("burst") < steps[15:].index("take")  # of the fourth, when the three have been taken
    assert [set(names) for names in forgotten] == [{"one", "two"}, {"broken"}]


def test_whoever_is_at_work_is_named_before_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a process that dies in a block costs the variant whose block it was."""

    def dies(self: TrialBlock, *_: Any) -> Any:
        raise SystemExit

    events: list[Event] = []
    monkeypatch.setattr(TrialBlock, "prepare", lambda self, **_: None)
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

    graphs = lambda calls, *_, **__: {name: lambda turn, call=call: call(turn[-1]) for name, call in calls.items()}  # noqa: E731
    monkeypatch.setattr(block, "captured_by_name", lacks(graphs) if step == "captured" else graphs)
    if step != "captured":
        owner: Any = Trial if step == "burst" else TrialBlock
        monkeypatch.setattr(owner, step, lacks(getattr(owner, step)))
    events = measured(monkeypatch, replays=dict.fromkeys(NAMES, True))
    assert failures(events) == []
    assert [(one.variant, sorted(one.workloads)) for one in trials(events)] == [
        (name, ["tinier", "tiny"])
        for name in (("torch_math", "one", "two") if not number else ("torch_math", "two", "one"))
    ]


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


def test_a_page_that_waits_for_times_is_told_before_the_second_variant_s(monkeypatch: pytest.MonkeyPatch) -> None:
    last = [(type(one), one.variant) for one in measured(monkeypatch) if isinstance(one, TrialBegan | Timed)][-6:]
    assert last == [(kind, name) for name in ("torch_math", "one", "two") for kind in (TrialBegan, Timed)]


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


class Device(LikeAGPU):
    """A device that runs what it was given while the host goes on."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock, self.free, self.events = clock, 0.0, list[float]()

    def call(self, seconds: float, launch_s: float) -> Bound:
        def call(given: Any) -> Any:
            self.clock.now += launch_s
            self.free = max(self.free, self.clock.now) + seconds
            return HONEST.call(given)

        return Bound(call, HONEST.prepare)

    def wait(self) -> None:
        self.clock.now = max(self.clock.now, self.free)

    def record(self) -> None:
        self.events.append(max(self.free, self.clock.now))

    def discard(self) -> None:
        self.events.clear()

    def between_ms(self) -> list[float]:
        self.wait()
        found = [1e3 * (end - begin) for begin, end in itertools.pairwise(self.events)]
        self.events.clear()
        return found


@pytest.fixture
def ticking(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    for module in (succession, block):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock.read))
    with torch.inference_mode():
        yield clock


def warm_up_s(taken: Any) -> float:
    its = taken["block"]
    return float(sum(its["samples_ms"]["small"][: its["warm_up"]]) * its["calls"]["small"] / 1e3)


@pytest.mark.parametrize(("waits", "shorter"), [(False, True), (True, False)])
def test_a_block_right_after_one_that_loaded_the_device_has_a_shorter_warm_up(
    ticking: Clock, monkeypatch: pytest.MonkeyPatch, *, waits: bool, shorter: bool
) -> None:
    """Not so after one in which the device waited for the host."""
    workloads = {SMALL.name: prepared(SMALL)}
    device = Device(ticking)
    call = device.call(0.002, 1e-5)
    first = device.call(0.001, 0.002) if waits else call
    told: list[dict[str, Any]] = []

    def tell(self: Taker, trial: Trial, taken: dict[str, Any], among: Any) -> list[str]:
        told.append(taken)
        return [*trial.calls]

    monkeypatch.setattr(Taker, "tell", tell)
    monkeypatch.setattr(block, "captured_by_name", lambda *_, **__: pytest.fail("it was captured"))
    request = Request(
        device="cpu", workloads=(SMALL,), variants=("flex",), references=("torch_flash",), process=2,
        replays={"flex": False},
    )  # fmt: skip
    emit: Callable[..., None] = lambda *_, **__: None  # noqa: E731
    use = DeviceUse(request, torch.device("cpu"), emit)
    taker = Taker(request, torch.device("cpu"), use, emit, emit, emit)
    with_plan: Any = {"plan": PLAN, "stopwatch": device, "replays": False}
    both = [
        trial(workloads, None, reference=first, **with_plan),
        trial(workloads, call, reference=first, **with_plan),
    ]
    reference, one = both
    trials_of = {each.name: each for each in both}
    calls = {each.name: each.calls for each in both}
    taken = Succession(taker, request, torch.device("cpu"), use, emit).take(
        (reference.name, reference.calls), [one.name], lambda name: calls[name], lambda name, _: trials_of[name]
    )
    assert taken == (["small"], [])
    assert warm_up_s(told[0]) == pytest.approx(1.05, abs=0.02)
    assert warm_up_s(told[1]) == pytest.approx(0.3 if shorter else 1.05, abs=0.02)
