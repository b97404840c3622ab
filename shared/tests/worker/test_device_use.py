"""When a worker waits for the device with patience: where it has had its turn, as at its begin and after a trial."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fluxbench.core.device_lock import DeviceLock
from fluxbench.worker import device_use
from fluxbench.worker.device_use import DeviceUse
from fluxbench.worker.request import Request


def test_the_first_short_step_and_each_that_follows_a_long_one_are_patient(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[bool, bool]] = []

    @contextlib.contextmanager
    def held(self: DeviceLock, *, short: bool, alone: bool = False, patient: bool = False) -> Iterator[None]:
        asked.append((short, patient))
        yield

    monkeypatch.setattr(DeviceLock, "held", held)
    request = Request(device="cpu", workloads=(), variants=(), references=(), lock=str(tmp_path))
    use = DeviceUse(request, torch.device("cpu"), lambda event, **fields: None)
    for name in ("preparing", "preparing", "checking", "measuring", "checking", "checking", "measuring", "measuring"):
        with use.step(name, short=name != "measuring"):
            pass
    patient = [is_patient for short, is_patient in asked if short]
    assert patient == [True, False, False, True, False]


class Gpu:
    """The memory of a GPU as torch says it, in GiB."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reserved, self.emptied = 0, 0
        self.free = iter([40, 60, 90, 90, 120])
        for name, of in {
            "is_initialized": lambda: True,
            "synchronize": lambda device: None,
            "memory_reserved": lambda device: self.reserved << 30,
            "memory_allocated": lambda device: 1 << 30,
            "mem_get_info": lambda device: (next(self.free) << 30, 140 << 30),
            "empty_cache": self.empty,
        }.items():
            monkeypatch.setattr(torch.cuda, name, of)

    def empty(self) -> None:
        self.emptied += 1


def on_gpu(tmp_path: Path, *, alone: bool = False) -> DeviceUse:
    request = Request(device="cuda", workloads=(), variants=(), references=(), lock=str(tmp_path), alone=alone)
    return DeviceUse(request, torch.device("cuda"), lambda event, **fields: None)


def test_what_torch_keeps_for_later_is_given_back_before_others_use_the_device(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A call of unfused attention leaves tens of GiB, which the checks of other cells need."""
    gpu, use = Gpu(monkeypatch), on_gpu(tmp_path)
    for reserved, emptied in ((2, 0), (3, 1)):  # the first is little, which the next call gets faster
        gpu.reserved = reserved
        with use.step("checking", short=True):
            with use.step("checking", short=True):
                pass
            assert not gpu.emptied
        assert gpu.emptied == emptied


def test_what_a_worker_has_reserved_it_keeps_over_its_steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gpu, use = Gpu(monkeypatch), on_gpu(tmp_path)
    use.reserve(5 << 30)
    for reserved, emptied in ((4, 0), (6, 1)):
        gpu.reserved = reserved
        with use.step("checking", short=True):
            pass
        assert gpu.emptied == emptied
    use.reserve(7 << 30)
    assert gpu.emptied == 1
    use.reserve(3 << 30)  # the next workloads need less
    assert gpu.emptied == 2


def test_what_is_alone_on_the_device_waits_until_what_others_held_is_free(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(device_use, "_FREED_S", 0.0)
    gpu = Gpu(monkeypatch)
    on_gpu(tmp_path).take_memory()
    assert next(gpu.free) == 40  # nobody has asked
    on_gpu(tmp_path, alone=True).take_memory()
    assert next(gpu.free) == 120
