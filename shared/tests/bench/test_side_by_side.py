"""Batches of a cell at the same time: nothing of either is lost, and workers are told apart."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from fluxbench.bench.collected import Collected
from fluxbench.bench.events import Ready, Yardstick
from fluxbench.bench.measuring import processes_on_gpu
from fluxbench.bench.side_by_side import measure_all
from fluxbench.records.status import Status
from fluxbench.worker.request import Effort

MEASURED: list[str] = []  # batches, in order


class Pool:
    closed = False

    def close(self) -> None:
        self.closed = True


class Batch:
    """One that waits until as many others measure, where they do so together."""

    def __init__(self, name: str, barrier: threading.Barrier | None) -> None:
        self.name, self.barrier = name, barrier

    def measure(self, collected: Collected, pool: Any, deadline: float) -> None:
        assert ("gone", "everywhere") in collected.failed
        if self.barrier:
            self.barrier.wait(10)
        collected.add(Ready(versions={"torch": "2"}))
        collected.add(Yardstick(workload=self.name, precision="exact", worst={"out": [1.0, 1.0, 1.0]}))
        collected.fail("lost", self.name, Status.ERROR, "made up")
        collected.phases.append((self.name, 0.0, 1.0))
        MEASURED.append(self.name)

    def measure_alone(self, collected: Collected, pool: Any, deadline: float) -> None:
        assert collected.failed["lost", self.name]
        MEASURED.append(f"{self.name} alone")


@pytest.mark.parametrize("together", [True, False])
def test_what_is_measured_together_is_what_is_measured_in_turn(together: bool) -> None:
    collected = Collected()
    collected.fail("gone", "everywhere", Status.UNSUPPORTED, "made up")
    barrier = threading.Barrier(2) if together else None
    batches: Any = [(Batch(name, barrier), Pool()) for name in ("forward", "training")]
    MEASURED.clear()
    measure_all(batches, collected, 1e9, together=together)
    assert sorted(MEASURED[:2]) == ["forward", "training"]  # what is alone may wait for long, after both
    assert sorted(MEASURED[2:]) == ["forward alone", "training alone"]
    assert (collected.workers, collected.versions) == (2, {"torch": "2"})
    assert set(collected.failed) == {("gone", "everywhere"), ("lost", "forward"), ("lost", "training")}
    assert set(collected.yardsticks) == {name for name, *_ in collected.phases} == {"forward", "training"}
    assert all(pool.closed for _, pool in batches)


def test_what_one_of_them_raises_is_raised() -> None:
    class Fails(Batch):
        def measure(self, collected: Collected, pool: Any, deadline: float) -> None:
            raise OSError("made up")

    batches: Any = [(Fails("forward", None), Pool())]
    with pytest.raises(OSError, match="made up"):
        measure_all(batches, Collected(), 1e9, together=True)


def test_an_effort_says_in_how_many_processes_a_gpu_measures() -> None:
    names = ["torch_flash", "flex"]
    given = [processes_on_gpu(effort, names, 3, 5) for effort in (Effort(), Effort(long=True), Effort(most=3))]
    assert given == [(3, 5), (2, 2), (3, 3)]
    assert processes_on_gpu(Effort(long=True), names[:1], 3, 5) == (3, 3)
    assert processes_on_gpu(Effort(most=5), names, 3, 3) == (3, 3)
    asked = [
        processes_on_gpu(effort, names, 4, 5, asked=True) for effort in (Effort(), Effort(long=True), Effort(most=3))
    ]
    assert asked == [(4, 5), (4, 4), (4, 4)]
