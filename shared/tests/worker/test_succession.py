"""Sustained blocks that follow one another: their order, what they need, and what each warms up for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from clocks import Clock, Queue
from fakes import TINY
from sample_trials import HONEST, SMALL, prepared, trial
from successions import NAMES, graphs, like_a_gpu, measured
from workers import QUICK, failures, honest, register, timed, trials, variant

from fluxbench.bench.events import Timed, TrialBegan
from fluxbench.operations.protocol import Bound
from fluxbench.worker import block, succession, worker
from fluxbench.worker.block import TrialBlock
from fluxbench.worker.device_use import DeviceUse
from fluxbench.worker.request import Effort, Request
from fluxbench.worker.succession import Succession
from fluxbench.worker.taking import Taker
from fluxbench.worker.trial import Trial

PLAN = dataclasses.replace(
    QUICK, chunk_s=0.01, warm_up_s=1.05, max_warm_up_s=1.05, min_block_s=1.0, max_block_s=1.0, stretch_s=0.2,
    settled_within=0.02, sample_s=0.1, first_rest_s=0.25,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    like_a_gpu(monkeypatch)


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
    first = steps.index(("measuring", False))
    of_all = [("measuring", False), ("preparing", True), ("measuring", False), ("checking", True)]
    assert steps[first : first + 4] == of_all
    taken = trials(events)
    assert [one.variant for one in taken] == ["torch_math", "one", "two"]
    assert all(one.burst and one.blocks and one.took_s > 0 for one in taken)


@pytest.mark.parametrize(("process", "soon"), [(0, True), (1, False)])
def test_what_the_first_process_of_a_single_variant_gave_is_judged_before_another_worker_has_the_device(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, process: int, soon: bool
) -> None:
    steps: list[str] = []
    step = DeviceUse.step

    def noting(self: DeviceUse, name: str, **more: Any) -> Any:
        steps.append(name)
        return step(self, name, **more)

    monkeypatch.setattr(DeviceUse, "step", noting)
    events = measured(monkeypatch, variants=("one",), lock=str(tmp_path / "lock"), process=process)
    assert failures(events) == []
    first = steps.index("measuring")
    assert steps[first : first + 3] == ["measuring", "preparing", "measuring"]
    assert (steps[first + 3 : first + 4] == ["checking"]) != soon
    assert [one.variant for one in trials(events) if one.burst] == ["one"] if process else ["torch_math", "one"]


@pytest.mark.parametrize(
    "effort", [Effort(long=True), Effort(held_bytes=1, one_reference=True), Effort(grid=True), Effort(replayed=True)]
)
def test_calls_that_need_much_memory_and_grids_are_measured_one_after_the_other(effort: Effort) -> None:
    asked: Any = {"device": "cuda", "workloads": (TINY,), "variants": NAMES, "references": ("torch_math",)}
    assert Request(**asked).in_succession
    assert not Request(**asked, effort=effort).in_succession
    assert not Request(**asked, sustained=False).in_succession


def test_graphs_that_were_captured_before_another_block_get_new_contents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another kernel may have written to the slots since, of which the one that replays is not guilty."""
    monkeypatch.setattr(block, "captured_by_name", graphs)
    prepare = TrialBlock.prepare

    def prepares(self: TrialBlock, *pool: Any, **how: Any) -> None:
        prepare(self, *pool, **how)
        for given in self._given.values():
            for slot in given._contents.slots:
                slot["k"].zero_()

    monkeypatch.setattr(TrialBlock, "prepare", prepares)
    events = measured(monkeypatch, replays={key: {"tiny": True, "tinier": True} for key in NAMES})
    assert failures(events) == []
    assert {one.variant for one in trials(events) if one.blocks and one.blocks[0].replayed} == set(NAMES)


def test_a_block_may_be_of_fewer_workloads_than_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block, "captured_by_name", graphs)
    events = measured(monkeypatch, burst_alone=("tiny",))
    assert failures(events) == []
    taken = {one.variant: [(list(block.samples_ms), block.replayed) for block in one.blocks] for one in trials(events)}
    assert taken == {name: [(["tinier"], True)] for name in NAMES}


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


def test_a_page_that_waits_for_times_is_told_before_the_second_variant_s(monkeypatch: pytest.MonkeyPatch) -> None:
    last = [(type(one), one.variant) for one in measured(monkeypatch) if isinstance(one, TrialBegan | Timed)][-6:]
    assert last == [(kind, name) for name in ("torch_math", "one", "two") for kind in (TrialBegan, Timed)]


@pytest.fixture
def ticking(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    for module in (succession, block):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock.read))
    with torch.inference_mode():
        yield clock


def warm_up_s(taken: Any) -> float:
    [its] = taken["blocks"]
    calls = its["calls"]["small"] + 1  # with the one that is not timed
    return float(sum(its["samples_ms"]["small"][: its["warm_up"]]) * calls / 1e3)


@pytest.mark.parametrize(("waits", "shorter"), [(False, True), (True, False)])
def test_a_block_right_after_one_that_loaded_the_device_has_a_shorter_warm_up(
    ticking: Clock, monkeypatch: pytest.MonkeyPatch, *, waits: bool, shorter: bool
) -> None:
    """Not so after one in which the device waited for the host."""
    workloads = {SMALL.name: prepared(SMALL)}
    device = Queue(ticking)

    def bound(seconds: float, launch_s: float) -> Bound:
        return Bound(device.call(seconds, launch_s=launch_s, also=HONEST.call), HONEST.prepare)

    call = bound(0.002, 1e-5)
    first = bound(0.001, 0.002) if waits else call
    told: list[dict[str, Any]] = []

    def tell(self: Taker, trial: Trial, taken: dict[str, Any], among: Any) -> list[str]:
        told.append(taken)
        return [*trial.calls]

    monkeypatch.setattr(Taker, "tell", tell)
    monkeypatch.setattr(block, "captured_by_name", lambda *_, **__: pytest.fail("it was captured"))
    request = Request(
        device="cpu", workloads=(SMALL,), variants=("flex",), references=("torch_flash",), process=2,
        replays={"flex": {"small": False}},
    )  # fmt: skip
    emit: Callable[..., None] = lambda *_, **__: None  # noqa: E731
    use = DeviceUse(request, torch.device("cpu"), emit)
    taker = Taker(request, torch.device("cpu"), use, *[emit] * 4)
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
