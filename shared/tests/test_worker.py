"""What becomes of a variant that fails, and whose turn it is when, in a real worker on the CPU."""

from __future__ import annotations

import gc
import io
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
import workers
from fakes import TINIER, TINY, clean
from workers import failures, given, timed, turns
from wrong import right

from fluxbench import variants
from fluxbench.operations.workloads import Workload
from fluxbench.timing.stopwatch import Stopwatch
from fluxbench.variants._base import Attention, Variant
from fluxbench.worker import __main__ as worker
from fluxbench.worker.__main__ import REFERENCE_EVERY, standby, versions
from fluxbench.worker.request import Request


@pytest.fixture(autouse=True)
def _at_home_nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean(monkeypatch)
    workers.hurry(monkeypatch)
    monkeypatch.chdir(tmp_path)


def raising(error: Exception) -> Callable[[], Attention]:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        raise error

    return lambda: attend


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (RuntimeError("shape mismatch\nmore"), "ERROR", "RuntimeError: shape mismatch"),
        (ModuleNotFoundError("No module named 'x'"), "UNAVAILABLE", "No module named 'x'; install what is missing"),
        (torch.OutOfMemoryError("tried to allocate 25 GiB"), "OUT_OF_MEMORY", "tried to allocate 25 GiB"),
        (RuntimeError("No available kernel. Aborting execution."), "UNSUPPORTED", "torch refuses this backend here"),
        (RuntimeError("CUDA error: no kernel image is available"), "UNSUPPORTED", "too old or too new"),
        (RuntimeError("No working C++ compiler found"), "UNAVAILABLE", "install g++"),
    ],
)
def test_a_variant_that_raises_costs_one_status_and_the_others_are_timed(
    monkeypatch: pytest.MonkeyPatch, error: Exception, status: str, reason: str
) -> None:
    events = given(monkeypatch, raising(error))
    [(name, got, said)] = failures(events)
    assert (name, got) == ("made_up", status)
    assert reason in said
    assert timed(events) == {"torch_math"}


def test_a_library_that_is_not_installed_makes_its_variant_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    def load() -> Attention:
        import a_library_that_nobody_has  # type: ignore[import-not-found]  # noqa: F401

        return right.load()

    [(_, status, reason)] = failures(given(monkeypatch, load))
    assert (status, reason) == (
        "UNAVAILABLE",
        "No module named 'a_library_that_nobody_has'; install what is missing",
    )


def test_without_a_reference_that_runs_nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    events = given(monkeypatch, raising(RuntimeError("no")), references=("made_up",))
    assert timed(events) == set()


def test_a_reference_that_was_not_asked_for_is_measured_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    events = given(monkeypatch, right.load, variants=("made_up",))
    assert timed(events) == {"made_up", "torch_math"}


def test_only_the_first_reference_that_runs_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    events = given(monkeypatch, right.load, variants=("made_up",), references=("torch_math", "torch_native"))
    assert timed(events) == {"made_up", "torch_math"}


def test_what_failed_in_an_earlier_process_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    events = given(monkeypatch, raising(RuntimeError("no")), skip=(("made_up", "tiny"),))
    assert failures(events) == []
    assert timed(events) == {"torch_math"}


def test_a_reference_that_fails_gives_its_place_to_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    events = given(monkeypatch, right.load, references=("torch_math", "torch_native"), skip=(("torch_math", "tiny"),))
    assert {turn.reference for turn in turns(events)} == {"torch_native"}


def test_the_reference_is_the_one_that_is_right_at_the_most_workloads(monkeypatch: pytest.MonkeyPatch) -> None:
    events = given(
        monkeypatch,
        right.load,
        workloads=(TINY, TINIER),
        references=("torch_math", "torch_native"),
        skip=(("torch_math", "tiny"),),
    )
    assert {turn.reference for turn in turns(events)} == {"torch_native"}
    assert {turn.variant: turn.workloads for turn in turns(events)} == {
        "torch_native": ["tiny", "tinier"],
        "torch_math": ["tinier"],
        "made_up": ["tiny", "tinier"],
    }


SIX = tuple(f"right_{index}" for index in range(6))


@pytest.fixture
def six(monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Six right variants."""
    monkeypatch.setattr(
        variants, "REGISTRY", (*variants.REGISTRY, *(Variant(name=name, load=right.load) for name in SIX))
    )
    return SIX


def order(process: int, names: tuple[str, ...]) -> list[str]:
    """Return whose turn it was in a process, the reference's as a dot, in small letters where it had no burst."""
    asked = Request(
        device="cpu", workloads=(TINIER,), variants=names, references=("torch_math",), process=process, sustained=True
    )
    return ["." if not turn.burst else turn.variant for turn in turns(workers.events_of(asked))]


def test_the_reference_has_a_turn_first_and_after_every_few_and_last(six: tuple[str, ...]) -> None:
    assert order(0, six) == [".", *six[:REFERENCE_EVERY], ".", *six[REFERENCE_EVERY:], "."]
    assert order(0, six[:REFERENCE_EVERY]) == [".", *six[:REFERENCE_EVERY], "."]


def test_beside_a_single_variant_the_reference_has_one_turn(six: tuple[str, ...]) -> None:
    assert order(0, six[:1]) == [".", six[0]]
    assert order(0, six[:2]) == [".", *six[:2], "."]


def test_the_reference_has_burst_rounds_of_its_own_only_where_its_record_is_asked_for(six: tuple[str, ...]) -> None:
    assert order(0, ("torch_math", *six[:2])) == ["torch_math", *six[:2], "."]


def test_no_variant_has_the_same_place_in_every_process(six: tuple[str, ...]) -> None:
    found = [[name for name in order(process, six[:3]) if name in six] for process in range(3)]
    assert all(sorted(names) == list(six[:3]) for names in found)
    for names in zip(*found, strict=True):
        assert len(set(names)) > 1


def test_a_turn_has_both_regimes_and_the_reference_beside_the_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    events = given(monkeypatch, right.load, variants=("made_up",), workloads=(TINY, TINIER))
    [first, own] = turns(events)
    assert [each.variant for each in (first, own)] == ["torch_math", "made_up"]
    assert own.burst is not None
    assert own.block is not None
    for name in ("tiny", "tinier"):
        assert len(own.burst["samples_ms"][name]) == len(own.burst["reference_ms"][name]) == workers.QUICK.most_rounds
        assert len(own.block["samples_ms"][name]) == len(own.block["windows"])
    assert (first.burst, first.block is None) == (None, False)
    assert first.began < first.ended <= own.began < own.ended


def test_without_sustained_there_are_burst_samples_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    found = turns(given(monkeypatch, right.load, sustained=False))
    assert {turn.block for turn in found} == {None}
    assert any(turn.burst for turn in found if turn.variant == "made_up")


def test_only_the_first_process_checks_on_both_kinds_of_inputs_and_looks_at_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for process, kernels in ((0, True), (1, False)):
        events = given(monkeypatch, right.load, process=process)
        checked = [event for event in events if event["event"] == "checked"]
        assert {event["variant"]: bool(event["kernels"]) for event in checked} == {
            "made_up": kernels,
            "torch_math": kernels,
        }
        for event in checked:
            errors = event["correctness"]
            assert list(errors["rel_l2_by_inputs"]) == ["normal", "flux"][: 2 if kernels else 1]
            assert errors["rel_l2"] in errors["rel_l2_by_inputs"].values()


def test_what_is_wrong_on_the_harder_inputs_alone_says_both_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    def load() -> Attention:
        return lambda q, k, v: right.attention_of(q, k, v) * (1.1 if k.abs().max() > 6 else 1)

    [event] = [event for event in given(monkeypatch, load) if event["event"] == "failed"]
    assert event["status"] == "INCORRECT"
    by_inputs = event["correctness"]["rel_l2_by_inputs"]
    assert list(by_inputs) == ["normal", "flux"]
    assert by_inputs["normal"] < 0.01 < by_inputs["flux"] == event["correctness"]["rel_l2"]


def test_a_turn_is_announced_before_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    events = given(monkeypatch, right.load, variants=("made_up",))
    said = [(event["event"], event["variant"]) for event in events if event["event"] in ("turn", "timed")]
    assert said == [(kind, name) for name in ("torch_math", "made_up") for kind in ("turn", "timed")]


# What happens while a variant is timed.


def test_no_garbage_is_collected_while_a_variant_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def load() -> Attention:
        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            seen.append(gc.isenabled())
            return right.attention_of(q, k, v)

        return attend

    given(monkeypatch, load, variants=("made_up",))
    assert seen[:2] == [True, True]  # checked
    assert set(seen[2:]) == {False}
    assert gc.isenabled()
    given(monkeypatch, failing_from(4, RuntimeError("out")), name="failing", variants=("failing",))
    assert gc.isenabled()


def failing_from(call: int, error: Exception) -> Callable[[], Attention]:
    """Return a loader of a right kernel that raises from a call on, counted from 1; two calls check it."""

    def load() -> Attention:
        count = itertools.count(1)

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            if next(count) >= call:
                raise error
            return right.attention_of(q, k, v)

        return attend

    return load


@pytest.mark.parametrize(
    "call", [3, 4, 5, 6, 8, 9]
)  # the warm call, both rounds, two windows, the call that is checked
@pytest.mark.parametrize(
    ("error", "status", "sentence"),
    [
        (RuntimeError("no\nmore"), "ERROR", "RuntimeError: no"),
        (torch.OutOfMemoryError("tried to allocate 25 GiB"), "OUT_OF_MEMORY", "tried to allocate 25 GiB"),
    ],
)
def test_a_variant_that_raises_while_it_is_timed_costs_no_other(
    monkeypatch: pytest.MonkeyPatch, error: Exception, status: str, sentence: str, call: int
) -> None:
    events = given(monkeypatch, failing_from(call, error))
    assert failures(events) == [("made_up", status, f"while it was timed: {sentence}")]
    assert timed(events) == {"torch_math"}


def test_a_variant_after_one_that_raised_while_it_was_timed_gets_the_inputs_as_they_were(
    monkeypatch: pytest.MonkeyPatch, six: tuple[str, ...]
) -> None:
    load = failing_from(5, RuntimeError("no"))
    events = given(monkeypatch, load, variants=("made_up", *six[:2]), workloads=(TINY, TINIER))
    assert {name for name, _, _ in failures(events)} == {"made_up"}
    assert timed(events) == {"torch_math", *six[:2]}


def test_the_reference_is_timed_after_a_variant_that_raised_while_it_was_timed(
    monkeypatch: pytest.MonkeyPatch, six: tuple[str, ...]
) -> None:
    forgotten: list[int] = []

    class Counts(Stopwatch):
        def forget(self) -> None:
            forgotten.append(len(self._marks))
            super().forget()

    monkeypatch.setattr(worker, "Stopwatch", Counts)
    load = failing_from(3, RuntimeError("no"))  # between two marks
    events = given(monkeypatch, load, variants=(*six[:2], "made_up"), workloads=(TINY, TINIER))
    assert {name for name, _, _ in failures(events)} == {"made_up"}
    assert timed(events) == {"torch_math", *six[:2]}
    assert [event["variant"] for event in events if event["event"] == "timed"][-1] == "torch_math"
    assert max(forgotten) == 1


def test_an_error_after_which_the_device_is_lost_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="CUDA error"):
        given(monkeypatch, failing_from(5, RuntimeError("CUDA error: an illegal memory access was encountered")))


def test_a_worker_that_waits_ends_where_nobody_needs_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fluxbench.worker", "-", ""]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, cwd=tmp_path, env=here(), capture_output=True, text=True)
    assert (done.returncode, done.stdout, list(tmp_path.iterdir())) == (0, "", [])


def test_a_worker_that_waits_is_told_on_a_line_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text(
        Request(device="cpu", workloads=(), variants=(), references=()).to_json(), encoding="utf-8"
    )
    line = json.dumps([str(tmp_path / "request.json"), str(tmp_path / "events.jsonl")]) + "\n"
    command = [sys.executable, "-m", "fluxbench.worker", "-", ""]
    subprocess.run(command, input=line, cwd=tmp_path, env=here(), check=True, text=True)
    said = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [event["event"] for event in said] == ["ready", "done"]


def test_a_worker_that_waits_has_loaded_its_variants_and_leaves_what_cannot_be_loaded_for_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = []

    def load(name: str) -> Attention:
        loaded.append(name)
        if name == "broken":
            raise ImportError("no")
        return right.load()

    made = tuple(Variant(name=name, load=partial(load, name)) for name in ("broken", "made_up"))
    monkeypatch.setattr(variants, "REGISTRY", (*variants.REGISTRY, *made))
    monkeypatch.setattr(sys, "stdin", io.StringIO('["request.json", "events.jsonl"]\n'))
    assert standby(["broken", "made_up", "nobody"]) == ["request.json", "events.jsonl"]
    assert loaded == ["broken", "made_up"]


def here() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def test_a_variant_is_announced_before_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    events = given(monkeypatch, raising(RuntimeError("no")))
    [index] = [i for i, event in enumerate(events) if event["event"] == "failed"]
    assert events[index - 1] == {"event": "begin", "variant": "made_up", "workload": "tiny"}


def test_the_versions_name_what_takes_part() -> None:
    assert versions(torch.device("cpu"))["torch"] == torch.__version__


def test_a_workload_of_a_request_survives_the_trip_to_the_worker() -> None:
    asked = Request(
        device="cpu",
        workloads=(TINY, Workload(name="b", seq_len=33, heads=4, kv_heads=2, causal=True)),
        variants=("a",),
        references=("b",),
        process=2,
        sustained=False,
        skip=(("a", "tiny"),),
    )
    assert Request.from_json(asked.to_json()) == asked
