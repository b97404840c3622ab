"""Two processes of a grid on a GPU: the second one judges by the first one's yardsticks, on inputs of its own."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from clocks import LikeAGPU, small_cache, small_control
from fakes import TINIER, tokens
from workers import checks, failures, given, honest, timed, wrapped

from fluxbench import operations
from fluxbench.bench.collected import Collected
from fluxbench.bench.events import Event, Rows, Yardstick
from fluxbench.operations import math_attention
from fluxbench.worker import later, worker
from fluxbench.worker.prepared import PreparedWorkload, known_yardsticks
from fluxbench.worker.request import Effort, Request, Told

GRID = Effort(grid=True, one_reference=True, fully=("tiny",), held_bytes=10**9)
TRAINING = tokens("training", 16, "attention_training")
BOTH = {"made_up", "torch_math"}
Load = Any


@pytest.fixture(autouse=True)
def _like_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    small_cache(monkeypatch)
    small_control(monkeypatch)
    monkeypatch.setattr(worker, "Stopwatch", lambda *_: LikeAGPU())
    monkeypatch.setattr(later.ForLater, "kept", lambda self, folder: None)  # a GPU keeps no cases


def process(monkeypatch: pytest.MonkeyPatch, load: Load, collected: Collected, **asked: Any) -> list[Event]:
    """Return the events of the next process, which knows what those before told."""
    with monkeypatch.context() as patch:
        seen = given(
            patch, load, process=collected.workers, sustained=False,
            yardsticks=collected.yardsticks, rows=collected.rows, **{"workloads": (TINIER,), "effort": GRID, **asked},
        )  # fmt: skip
    for event in seen:
        collected.add(event)
    return seen


@pytest.mark.parametrize("workload", [TINIER, TRAINING], ids=lambda workload: workload.name)
def test_a_later_process_computes_its_own_reference_and_no_yardstick(
    monkeypatch: pytest.MonkeyPatch, workload: Any
) -> None:
    computed: list[torch.dtype] = []
    for name in ("forward", "training"):
        reference = getattr(math_attention, name)

        def counted(call: Any, inputs: Any, dtype: torch.dtype, *more: Any, reference: Any = reference) -> Any:
            computed.append(dtype)
            return reference(call, inputs, dtype, *more)

        monkeypatch.setattr(math_attention, name, counted)
    collected, references = Collected(), []
    for number in range(2):
        computed.clear()
        seen = process(monkeypatch, honest, collected, workloads=(workload,))
        assert timed(seen) == BOTH
        references.append(list(computed))
        errors = {name: of.errors for name, of in checks(seen).items()}
        outputs = collected.yardsticks[workload.name]["exact"]["worst"].keys()
        assert {name: of.keys() for name, of in errors.items()} == (
            {} if number else dict.fromkeys(("made_up", "torch_math"), outputs)  # later ones judge timed calls alone
        )
    assert references == [[torch.float64, getattr(torch, workload.dtype)], [torch.float64]]
    assert sum(isinstance(event, Yardstick) for event in seen) == 0


def test_a_kernel_that_is_wrong_in_the_second_process_alone_is_refused_there(monkeypatch: pytest.MonkeyPatch) -> None:
    collected = Collected()
    assert timed(process(monkeypatch, honest, collected)) == BOTH
    seen = process(monkeypatch, wrapped(lambda attend, inputs: 1.01 * attend(*inputs)), collected)
    [(name, status, reason)] = failures(seen)
    assert (name, status) == ("made_up", "INCORRECT")
    assert "is over the budget" in reason
    assert timed(seen) == {"torch_math"}


@pytest.mark.parametrize("workload", [TINIER, TRAINING], ids=lambda workload: workload.name)
def test_a_later_process_that_checks_nothing_before_it_times_has_one_whole_reference(
    monkeypatch: pytest.MonkeyPatch, workload: Any
) -> None:
    computed: list[str] = []
    operation = type(operations.find(workload.operation))
    reference = operation.reference

    def counted(self: Any, shape: Any, inputs: Any, dtype: torch.dtype, *more: Any) -> Any:
        computed.append(str(dtype))
        return reference(self, shape, inputs, dtype, *more)

    monkeypatch.setattr(operation, "reference", counted)
    collected, usual = Collected(), Effort(fully=("tiny",))
    assert timed(process(monkeypatch, honest, collected, workloads=(workload,), effort=usual)) == BOTH
    assert computed.count("torch.float64") == 2  # of the case, and of a content that nobody can know
    computed.clear()
    assert timed(process(monkeypatch, honest, collected, workloads=(workload,), effort=usual)) == BOTH
    assert computed.count("torch.float64") == 1


def test_a_kernel_that_is_wrong_later_is_refused_by_the_contents_of_a_process_that_checks_nothing_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collected, usual = Collected(), Effort(fully=("tiny",))
    assert timed(process(monkeypatch, honest, collected, effort=usual)) == BOTH
    off = wrapped(lambda attend, inputs: 1.01 * attend(*inputs))
    [(name, status, reason)] = failures(process(monkeypatch, off, collected, effort=usual))
    assert (name, status) == ("made_up", "INCORRECT")
    assert reason.startswith("right when checked, wrong when timed: relative L2 error")


@pytest.mark.parametrize("process_of_lie", [0, 1])
def test_one_that_returns_what_was_checked_is_refused_when_it_is_timed(
    monkeypatch: pytest.MonkeyPatch, process_of_lie: int
) -> None:
    """Timed contents follow from the checked case, but are not it, nor like it."""
    kept: list[torch.Tensor] = []

    def first_answer(attend: Any, inputs: Any) -> torch.Tensor:
        kept.append(kept[0] if kept else attend(*inputs))
        return kept[0].clone()

    collected = Collected()
    for number in range(2):
        load = wrapped(first_answer) if number == process_of_lie else honest
        seen = process(monkeypatch, load, collected)
        if number == process_of_lie:
            [(name, status, reason)] = failures(seen)
            assert (name, status) == ("made_up", "INCORRECT")
            assert reason.startswith("right when checked, wrong when timed: relative L2 error")
            return


@pytest.mark.parametrize(
    ("device", "effort", "is_told"),
    [("cuda", Effort(), True), ("cuda", Effort(long=True), False), ("cpu", Effort(), False), ("cpu", GRID, True)],
)
def test_a_gpu_s_yardsticks_are_told_where_no_file_keeps_them(device: str, effort: Effort, is_told: bool) -> None:
    told: list[dict[str, Any]] = []
    asked = Request(device=device, workloads=(TINIER,), variants=(), references=(), effort=effort)
    for_later = later.ForLater(asked, torch.device(device), lambda event, **fields: told.append(fields))
    for_later.say_yardsticks(PreparedWorkload.make(TINIER, torch.device("cpu"), 0))
    assert [(each["workload"], each["precision"]) for each in told] == [("tinier", "exact")] * is_told


def test_of_a_part_only_its_own_outputs_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later process may hold the backward pass without the training step whose reference it shares."""
    told: dict[str, Any] = {}
    both = TRAINING, tokens("backward", 16, "attention_backward")
    asked = Request(device="cuda", workloads=both, variants=(), references=())
    for_later = later.ForLater(
        asked, torch.device("cuda"), lambda event, **fields: told.update({fields["workload"]: fields})
    )
    whole = PreparedWorkload.make(TRAINING, torch.device("cpu"), 0)
    part = PreparedWorkload.part_of(whole, both[1], slots=False)
    for each in (whole, part):
        for_later.say_yardsticks(each)
    assert told["training"]["worst"].keys() == {"out", "dq", "dk", "dv"}
    assert told["backward"]["worst"].keys() == {"dq", "dk", "dv"}


def test_what_is_told_goes_into_the_next_request() -> None:
    collected = Collected()
    told: Told = {"worst": {"out": [1e-3, 2e-3, 3e-3]}, "bins": {"out": [[0, 0.4, 0.9], [64, 0.5, 1.2]]}}
    collected.add(Yardstick(workload="tinier", precision="exact", **told))
    collected.add(Yardstick(workload="tinier", precision="exact", worst={"out": [1.0, 1.0, 1.0]}))  # the first counts
    collected.add(Rows(calls={"made_up": {"tinier": 50}, "torch_flash": {"tinier": 0}}))
    collected.add(Rows(calls={"made_up": {"tinier": 60, "tiny": 9}}))
    asked = Request(
        device="cuda", workloads=(), variants=(), references=(), yardsticks=collected.yardsticks, rows=collected.rows
    )
    read = Request.from_json(asked.to_json())
    assert read.yardsticks == {"tinier": {"exact": told}}
    assert read.rows == {"made_up": {"tinier": 50, "tiny": 9}, "torch_flash": {"tinier": 0}}


@pytest.mark.parametrize("whole_up_to", [None, 9], ids=["whole", "by rows"])
def test_a_later_process_knows_yardsticks_with_the_bins_of_causal_rows(whole_up_to: int | None) -> None:
    workload, collected = tokens("causal", 96, "attention_training", causal=True), Collected()
    asked = Request(device="cuda", workloads=(workload,), variants=(), references=())

    def tell(event: str, **fields: Any) -> None:
        collected.add(Yardstick(**fields))

    prepared = PreparedWorkload.make(workload, torch.device("cpu"), 0, whole_up_to=whole_up_to)
    prepared.case.yardstick("exact")
    later.ForLater(asked, torch.device("cuda"), tell).say_yardsticks(prepared)
    read = Request.from_json(dataclasses.replace(asked, yardsticks=collected.yardsticks).to_json())
    assert known_yardsticks(read, workload.name) == prepared.case.yardsticks
    assert prepared.case.yardsticks["exact"].bins.keys() == {"out", "dq", "dk", "dv"}
