"""When a worker waits for the device with patience: where it has had its turn, as at its begin and after a trial."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fluxbench.core.device_lock import DeviceLock
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
