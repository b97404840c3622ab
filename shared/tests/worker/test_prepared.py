"""Workloads that share inputs and references, in one process."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from clocks import ON_CPU, small_cache, small_control
from fakes import tokens
from models import FLUX1
from workers import QUICK, events_of, given, honest, trials
from wrong.backwards import BACKWARDS

from fluxbench import operations
from fluxbench.bench.events import Failed
from fluxbench.correctness.case import Case
from fluxbench.correctness.content import Content
from fluxbench.correctness.kept import Kept
from fluxbench.operations import math_attention, sets
from fluxbench.operations.model_sets import shared
from fluxbench.operations.model_step import ModelStep
from fluxbench.operations.workload import Workload
from fluxbench.worker.failures import Wrong
from fluxbench.worker.prepared import PreparedWorkload, cheapest, prepare
from fluxbench.worker.request import Request

BOTH = tokens("training", 40, "attention_training"), tokens("backward", 40, "attention_backward")
ASKED: Any = {"workloads": BOTH, "burst_alone": ("backward",)}


def prepared(monkeypatch: pytest.MonkeyPatch, *some: Workload) -> tuple[dict[str, PreparedWorkload], int]:
    """Return the workloads of a process, and how many whole references it computed."""
    whole: list[torch.dtype] = []
    training = math_attention.training

    def counted(*args: Any, **more: Any) -> Any:
        whole.append(args[2])
        return training(*args, **more)

    def fail(workload: Workload, wrong: Wrong) -> None:
        raise AssertionError(wrong)

    monkeypatch.setattr(math_attention, "training", counted)
    asked = Request(device="cpu", variants=(), references=(), burst_alone=("backward",), workloads=some)
    found = prepare(some, asked, torch.device("cpu"), QUICK, lambda folder: None, lambda workload: None, fail)
    return found, whole.count(torch.float64)


def test_a_part_has_the_inputs_and_the_references_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    found, references = prepared(monkeypatch, *BOTH)
    assert references == prepared(monkeypatch, BOTH[0])[1] == prepared(monkeypatch, BOTH[1])[1]
    whole, part = found["training"], found["backward"]
    assert list(part.cases) == list(whole.cases)
    for kind, case in part.cases.items():
        assert list(case.expected) == ["dq", "dk", "dv"]
        assert all(x is whole.cases[kind].inputs[name] for name, x in case.inputs.items())
        assert case.budget("dk") == whole.cases[kind].budget("dk") > 0
        assert whole.cases[kind].budget("out") > 0  # asked for after the part's
    for content, of_whole in zip(part.contents.pool, whole.contents.pool, strict=True):
        assert content.inputs is of_whole.inputs
        assert content.rows.keys() == content.positions.keys() == {"dq", "dk", "dv"}
        assert (content.expected is None) == (of_whole.expected is None)
    assert len(whole.contents.slots) > len(part.contents.slots) == 0
    assert part.contents.inputs["q"].data_ptr() != whole.contents.inputs["q"].data_ptr()


def test_a_part_without_its_whole_or_of_another_shape_has_references_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, _ = prepared(monkeypatch, BOTH[0], tokens("backward", 41, "attention_backward"))
    alone, _ = prepared(monkeypatch, BOTH[1])
    for case in (found["backward"].case, alone["backward"].case):
        expected = Case.make(
            tokens("backward", case.inputs["q"].shape[1], "attention_backward"), "normal", 0, case.inputs["q"].device
        )
        assert all(case.expected[name].equal(x) for name, x in expected.expected.items())


def test_both_are_timed_in_one_process_and_one_of_them_in_burst_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    small_cache(monkeypatch)
    small_control(monkeypatch)
    seen = trials(given(monkeypatch, honest, **ASKED))
    assert [trial.workloads for trial in seen] == [("training", "backward")] * 2
    for trial in seen:
        assert trial.burst is not None
        assert trial.burst.samples_ms.keys() == {"training", "backward"}
        assert [block.samples_ms.keys() for block in trial.blocks] == [{"training"}]
    reference = events_of(Request(device="cpu", variants=("made_up",), references=("torch_math",), **ASKED), QUICK)
    assert [(trial.variant, trial.burst is None) for trial in trials(reference)] == [
        ("torch_math", False),
        ("made_up", False),
    ]


@pytest.mark.parametrize("name", ["dk_and_dv_swapped", "reused", "reused_when_timed", "accumulated_when_timed"])
def test_a_wrong_backward_pass_is_refused_at_both(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    small_cache(monkeypatch)
    small_control(monkeypatch)
    rounds = dataclasses.replace(QUICK, min_rounds=8, max_rounds=8)
    seen = given(monkeypatch, BACKWARDS[name], plan=rounds, **ASKED)
    refused = {event.workload: event.status for event in seen if isinstance(event, Failed)}
    assert refused == dict.fromkeys(("training", "backward"), "INCORRECT")
    assert [trial.variant for trial in trials(seen)] == ["torch_math"]


def test_a_step_alone_and_shared_has_one_case_and_the_same_contents(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("diffusers")
    computed: list[torch.dtype] = []
    reference = ModelStep.reference

    def counted(self: ModelStep, shape: Any, inputs: Any, dtype: torch.dtype, *more: Any) -> Any:
        computed.append(dtype)
        return reference(self, shape, inputs, dtype, *more)

    monkeypatch.setattr(ModelStep, "reference", counted)
    kept = Kept(tmp_path / "kept")
    with torch.inference_mode():
        some = [
            PreparedWorkload.make(each, torch.device("cpu"), 0, cases=kept, contents=kept)
            for each in shared(2, "tiny", FLUX1)
        ]
    assert computed == [torch.float64, torch.bfloat16, torch.float64, torch.float64]  # of the case, and two contents
    first, *others = some
    for name, x in first.contents.pool[0].inputs.items():
        assert all(torch.equal(x, other.contents.pool[0].inputs[name]) for other in others)


def test_a_replay_of_many_layers_may_differ_from_a_call_as_far_as_an_output_may_err() -> None:
    deep, flat = sets.by_name()["decode-model-small-512"], tokens("small", 48)
    with torch.inference_mode():
        made = PreparedWorkload.make(deep, torch.device("cpu"), 0)
        assert made.replays_within == {"logits": made.case.budget("logits"), "kv": 0.01}
        assert made.case.budget("logits") > 0.01 > made.case.budget("kv")
        assert PreparedWorkload.make(flat, torch.device("cpu"), 0).replays_within == {}


def test_the_cheapest_workloads_have_few_operations_together_and_are_one_at_least() -> None:
    short, long, longest = (tokens(f"of-{length}", length, heads=24) for length in (1024, 2048, 4096))
    assert cheapest([longest, short, long]) == ["of-1024", "of-2048"]
    assert cheapest([longest]) == ["of-4096"]


def test_each_process_has_contents_of_its_own_beside_the_case_of_the_first(tmp_path: Path) -> None:
    """On a CPU, where a reference takes seconds."""
    kept = Kept(tmp_path)
    made = [
        PreparedWorkload.make(tokens("small", 48), ON_CPU, process, all_kinds=process == 0, cases=kept, contents=kept)
        for process in (0, 2)
    ]
    assert [list(each.cases) for each in made] == [["normal", "flux", "peaked", "tailed"], ["normal"]]
    assert torch.equal(made[0].case.expected["out"], made[1].case.expected["out"])
    assert torch.equal(made[0].contents.pool[0].inputs["q"], made[1].contents.pool[0].inputs["q"])
    assert not torch.equal(made[0].contents.pool[1].inputs["q"], made[1].contents.pool[1].inputs["q"])


@pytest.mark.parametrize(
    ("seq_len", "free_gib", "share", "rotation", "slots", "pool"),
    [
        (128, 139, 1, 35, 74, 48), (4608, 139, 1, 2, 8, 48), (4608, 20, 1, 2, 8, 42), (16_896, 20, 1, 2, 4, 9),
        (75_600, 8, 1, 2, 3, 2), (4608, 139, 0.2, 2, 6, 14), (75_600, 139, 0.2, 2, 3, 2),
    ],
)  # fmt: skip
def test_contents_of_a_gpu_exceed_twice_its_cache_and_fit_into_a_share_of_its_memory(
    monkeypatch: pytest.MonkeyPatch, seq_len: int, free_gib: int, share: float, rotation: int, slots: int, pool: int
) -> None:
    small = operations.find("attention").inputs(tokens("made-up", 4).shape, "normal", 0, ON_CPU)
    real = {name: torch.empty(1, seq_len, 24, 128, dtype=torch.bfloat16, device="meta") for name in "qkv"}
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: type("", (), {"L2_cache_size": 50 << 20}))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free_gib << 30, free_gib << 30))
    case = Case(operations.find("attention"), {}, small, {}, torch.bfloat16)
    monkeypatch.setattr(Case, "make", lambda *_: case)
    monkeypatch.setattr(
        Content, "make", lambda *_, whole: Content(real, {"out": torch.zeros(8)}, {}, {} if whole else None)
    )
    workload = tokens("made-up", seq_len, heads=24, head_dim_qk=128, head_dim_v=128)
    made = PreparedWorkload.make(workload, torch.device("cuda"), 1, most=48, share=share).contents
    assert (made.rotation, len(made.slots), len(made.pool)) == (rotation, slots, pool)
    assert (rotation - 1) * workload.cost.min_bytes >= 100 << 20  # between two calls on the same ones
