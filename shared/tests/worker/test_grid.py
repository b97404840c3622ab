"""A worker that measures many workloads on a GPU: what it leaves out of most of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from clocks import LikeAGPU, small_cache, small_control
from fakes import TINIER, TINY
from workers import given, honest, timed, trials

from fluxbench.bench.events import Event
from fluxbench.core.device_lock import DeviceLock
from fluxbench.worker import device_use, trial, worker
from fluxbench.worker.request import Effort


@pytest.fixture(autouse=True)
def _like_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    small_cache(monkeypatch)
    small_control(monkeypatch)
    monkeypatch.setattr(worker, "Stopwatch", lambda *_: LikeAGPU())


def in_burst(monkeypatch: pytest.MonkeyPatch, effort: Effort, variants: tuple[str, ...], **more: Any) -> list[Event]:
    """Return the events of a second process, which profiles nothing."""
    asked = {"workloads": (TINIER, TINY), "process": 1, "sustained": False, "variants": variants, **more}
    return given(monkeypatch, honest, effort=effort, **asked)


def test_calls_are_repeated_on_the_same_contents_at_the_workloads_that_are_checked_in_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of_some, of_all = (
        trials(in_burst(monkeypatch, effort, ("made_up", "torch_math")))
        for effort in (Effort(fully=("tiny",)), Effort())
    )
    assert [sorted(one.repeated_over_new) for one in of_some] == [["tiny"]] * 2
    assert [sorted(one.repeated_over_new) for one in of_all] == [["tinier", "tiny"]] * 2


@pytest.mark.parametrize("effort", [Effort(grid=True, fully=("tiny",)), Effort()], ids=["of a grid", "of others"])
def test_a_reference_has_a_trial_of_its_own_in_the_cell_that_measures_it_alone(
    monkeypatch: pytest.MonkeyPatch, effort: Effort
) -> None:
    both = ("made_up", "torch_math")
    assert timed(in_burst(monkeypatch, effort, both)) == set(both)
    assert timed(in_burst(monkeypatch, effort, both[:1])) == {"made_up"}


def test_rows_of_a_grid_are_made_and_judged_while_other_workers_use_the_device(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    held: dict[str, list[tuple[bool, bool]]] = {}  # by method, whether the device was held, and by nobody else

    def noted(name: str) -> None:
        method = getattr(trial.Trial, name)

        def noting(self: trial.Trial, *given: Any) -> Any:
            [lock] = locks
            held.setdefault(name, []).append((lock.is_held, lock.is_alone))
            return method(self, *given)

        monkeypatch.setattr(trial.Trial, name, noting)

    def lock(*rest: Any, **more: Any) -> DeviceLock:
        locks.append(DeviceLock(*rest, **more))
        return locks[-1]

    locks: list[DeviceLock] = []
    monkeypatch.setattr(device_use, "DeviceLock", lock)
    for name in ("make_rows", "burst", "check"):
        noted(name)
    in_burst(monkeypatch, Effort(grid=True, fully=("tiny",)), ("made_up",), lock=str(tmp_path / "lock"))
    shared, alone = (True, False), (True, True)
    assert held == {"make_rows": [shared], "burst": [alone], "check": [shared]}
