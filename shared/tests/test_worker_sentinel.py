"""The sentinel beside the variants, in a real worker on the CPU: what becomes of it, and that it costs no variant."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import workers
from fakes import TINIER, TINY, clean
from workers import failures, given, turns
from wrong import right

from fluxbench.timing import control_kernel as sentinel
from fluxbench.variants._base import Attention


@pytest.fixture(autouse=True)
def _at_home_nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean(monkeypatch)
    workers.hurry(monkeypatch)
    monkeypatch.chdir(tmp_path)


def beside(events: list[dict[str, Any]]) -> dict[str, int]:
    """Return how many samples of the sentinel each variant has, by its name."""
    return {turn.variant: len(turn.burst["sentinel_ms"]) for turn in turns(events) if turn.burst}


def raising(error: Exception) -> Callable[[], Attention]:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        raise error

    return lambda: attend


def said_of_it(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["event"] == "sentinel"]


def test_the_sentinel_is_named_once_and_timed_beside_the_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    events = given(monkeypatch, right.load, workloads=(TINY, TINIER))
    assert said_of_it(events) == [
        {"event": "sentinel", "description": sentinel.load(torch.device("cpu")).description},
    ]
    assert beside(events) == {"made_up": 2, "torch_math": 2}
    assert all(sample > 0 for turn in turns(events) if turn.burst for sample in turn.burst["sentinel_ms"])


def test_the_sentinel_is_checked_before_any_variant_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    events = given(monkeypatch, raising(RuntimeError("no")))
    assert [event["event"] for event in events[:3]] == ["ready", "sentinel", "begin"]


def turning_wrong(after: int) -> Callable[[torch.device], sentinel.Sentinel]:
    """Return a loader of sentinels that give the right answer this often, and then another one."""
    calls = itertools.count(1)

    def call() -> torch.Tensor:
        return torch.tensor(next(calls) <= after)

    return lambda device: sentinel.Sentinel(description="made up", call=call, is_right=lambda out: bool(out))


def test_a_sentinel_that_turns_wrong_loses_its_samples_and_no_variant_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentinel, "load", turning_wrong(after=3))  # two rounds of the reference, one of the variant
    events = given(monkeypatch, right.load)
    found = beside(events)
    assert found["torch_math"] == 2
    assert found["made_up"] in (0, 2)  # the output of one of its two rounds is looked at
    assert failures(events) == []


def test_a_sentinel_that_is_wrong_whenever_it_is_timed_has_no_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentinel, "load", turning_wrong(after=0))
    events = given(monkeypatch, right.load)
    assert beside(events) == {"made_up": 0, "torch_math": 0}
    assert failures(events) == []


def test_a_sentinel_that_stays_right_keeps_its_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentinel, "load", turning_wrong(after=1_000_000))
    assert beside(given(monkeypatch, right.load)) == {"made_up": 2, "torch_math": 2}


def refusing(error: Exception) -> Callable[[torch.device], sentinel.Sentinel]:
    def load(device: torch.device) -> sentinel.Sentinel:
        raise error

    return load


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("the CUDA driver refused the sentinel: cuModuleLoadData returned 200"), "cuModuleLoadData"),
        (torch.OutOfMemoryError("tried to allocate 64 MiB"), "tried to allocate 64 MiB"),
        (OSError("libcuda.so.1: cannot open shared object file"), "libcuda.so.1"),
        (FileNotFoundError(2, "No such file or directory", "sentinel.fatbin"), "sentinel.fatbin"),
    ],
)
def test_a_sentinel_that_cannot_load_costs_no_variant(
    monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    monkeypatch.setattr(sentinel, "load", refusing(error))
    events = given(monkeypatch, right.load)
    [said] = said_of_it(events)
    assert reason in said["reason"]
    assert "description" not in said
    assert failures(events) == []
    assert beside(events) == {"made_up": 0, "torch_math": 0}


def test_a_machine_that_computes_the_sentinel_wrong_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    correct = hashlib.sha256
    monkeypatch.setattr(hashlib, "sha256", lambda text: correct(text[:-1]))
    events = given(monkeypatch, right.load)
    assert said_of_it(events) == [
        {"event": "sentinel", "reason": "the sentinel computed a wrong result on this device"},
    ]
    assert beside(events) == {"made_up": 0, "torch_math": 0}


def test_where_only_the_device_s_own_rates_are_asked_for_no_sentinel_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said_of_it(given(monkeypatch, right.load, workloads=())) == []


@pytest.mark.gpu
def test_on_a_gpu_the_sentinel_is_timed_beside_the_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    events = given(monkeypatch, right.load, device="cuda", references=("torch_math",))
    [said] = said_of_it(events)
    assert said["description"].startswith("bfloat16 products of 128 x 64 tiles")
    assert beside(events) == {"made_up": 2, "torch_math": 2}
