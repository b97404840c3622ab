"""A trial of a grid whose memory does not last beside other workers: tried once more, as soon as there is room."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from clocks import LikeAGPU, small_cache, small_control
from fakes import TINIER, TINY
from workers import Load, failures, given, honest, timed, trials

from fluxbench.bench.collected import Collected
from fluxbench.bench.events import Event, Failed, Lacked, Timed, TrialBegan
from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall
from fluxbench.worker import worker
from fluxbench.worker.device_use import DeviceUse
from fluxbench.worker.request import Effort
from fluxbench.worker.shortage import Shortage
from fluxbench.worker.trial import Trial

GRID = Effort(grid=True, one_reference=True, fully=("tiny",))
LACK = (
    "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 79.18 GiB of which 1.18 GiB is "
    "free. Including non-PyTorch memory, this process has 13.85 GiB memory in use."
)
WORDS = "while it was timed: asked for 1.50 GiB with 1.18 of 79.18 GiB free, 13.85 GiB taken by this process"


class Beside:
    """Other workers that take memory; `rooms` has what was waited for, and whether the device was held meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rooms: list[tuple[Shortage | None, bool]] = []

        def make_room(use: DeviceUse, shortage: Shortage | None) -> None:
            self.rooms.append((shortage, use._lock.is_held))

        monkeypatch.setattr(DeviceUse, "shares_memory", property(lambda use: not use._lock.is_held))
        monkeypatch.setattr(DeviceUse, "make_room", make_room)


@pytest.fixture(autouse=True)
def _like_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    small_cache(monkeypatch)
    small_control(monkeypatch)
    monkeypatch.setattr(worker, "Stopwatch", lambda *_: LikeAGPU())


def lacking(monkeypatch: pytest.MonkeyPatch, times: int, step: str = "burst") -> None:
    """Let memory be out in a step of so many trials of the variant."""
    method = getattr(Trial, step)
    left = times

    def lacks(self: Trial, *given: Any) -> Any:
        nonlocal left
        found = method(self, *given)
        if self.name == "made_up" and left:
            left -= 1
            raise torch.OutOfMemoryError(LACK)
        return found

    monkeypatch.setattr(Trial, step, lacks)


def measured(monkeypatch: pytest.MonkeyPatch, folder: Path, load: Load = honest, **more: Any) -> list[Event]:
    asked = {"workloads": (TINIER, TINY), "process": 1, "sustained": False, "lock": str(folder / "lock"), **more}
    return given(monkeypatch, load, **{"effort": GRID, **asked})


@pytest.mark.parametrize("step", ["make_rows", "burst", "check"])
def test_it_is_tried_once_more_without_the_device_and_nothing_of_the_first_time_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, step: str
) -> None:
    beside = Beside(monkeypatch)
    lacking(monkeypatch, 1, step)
    seen = measured(monkeypatch, tmp_path)
    assert failures(seen) == []
    own = [one for one in trials(seen) if one.variant == "made_up"]
    assert [sorted(one.workloads) for one in own] == [["tinier", "tiny"]]
    assert [(one.variant, one.workload, one.reason) for one in seen if isinstance(one, Lacked)] == [
        ("made_up", "tiny", WORDS)
    ]
    [(shortage, is_held)] = beside.rooms
    assert shortage
    assert (shortage.asked_bytes, is_held) == (int(1.5 * 2**30), False)
    collected = Collected()
    for event in seen:
        collected.add(event)
    assert len(collected.taken("made_up", "tiny")) == len(collected.lacked) == 1


def test_what_lacks_memory_again_goes_on_without_its_largest_workload(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    beside = Beside(monkeypatch)
    lacking(monkeypatch, 2)
    seen = measured(monkeypatch, tmp_path)
    assert failures(seen) == [("made_up", "OUT_OF_MEMORY", WORDS)]
    assert [event.workload for event in seen if isinstance(event, Failed)] == ["tiny"]
    assert [one.workloads for one in trials(seen) if one.variant == "made_up"] == [("tinier",)]
    assert len(beside.rooms) == 1
    began = [event.variant for event in seen if isinstance(event, TrialBegan | Timed)]
    assert began.count("made_up") == 4  # three trials, of which one gave times


@pytest.mark.parametrize("lock", [None, "lock"])
def test_it_is_not_tried_again_where_the_device_is_held_or_nobody_else_takes_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lock: str | None
) -> None:
    lacking(monkeypatch, 1)
    more: dict[str, Any] = {"effort": Effort(), "lock": lock and str(tmp_path / lock)}  # a trial is one step
    if lock:
        Beside(monkeypatch)
    seen = measured(monkeypatch, tmp_path, **more)
    assert failures(seen) == [("made_up", "OUT_OF_MEMORY", WORDS)]
    assert not any(isinstance(event, Lacked) for event in seen)


def test_what_was_found_wrong_before_memory_was_out_stays_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It may be right by chance the second time."""
    Beside(monkeypatch)
    lacking(monkeypatch, 1, "check")
    calls = 0

    def load(call: AttentionCall) -> Attention:
        attend = honest(call)

        def wrong_at_first(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            nonlocal calls
            is_timed = calls >= 1
            calls += q.shape[1] == TINY.shape["seq_len_q"]
            return attend(q, k, v) * (2.0 if is_timed and q.shape[1] == TINY.shape["seq_len_q"] else 1.0)

        return wrong_at_first

    seen = measured(monkeypatch, tmp_path, load, process=2)
    assert [(one.workload, one.status) for one in seen if isinstance(one, Failed)] == [("tiny", "INCORRECT")]
    assert [one.workloads for one in trials(seen) if one.variant == "made_up"] == [("tinier",)]
    assert timed(seen) == {"made_up", "torch_math"}
