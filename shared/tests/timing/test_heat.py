"""Whether NVML's answers are taken for heat, with a library in its place that holds them."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fluxbench.timing import heat

CUDA = torch.device("cuda")
NAME = "nvmlDeviceGetCurrentClocksEventReasons"


class Nvml:
    """NVML with one GPU, whose reasons for a lower clock are `reasons`; None: it does not say."""

    def __init__(self, reasons: int | None, asked_by: str = NAME, uuid: bytes = b"GPU-aaaa-1") -> None:
        self._uuid, self._reasons = uuid, reasons
        setattr(self, asked_by, self._say)

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, handle: Any) -> int:
        ctypes.cast(handle, ctypes.POINTER(ctypes.c_void_p))[0] = 7
        return 0 if uuid == self._uuid else 6

    def _say(self, gpu: ctypes.c_void_p, reasons: Any) -> int:
        assert gpu.value == 7
        ctypes.cast(reasons, ctypes.POINTER(ctypes.c_ulonglong))[0] = self._reasons or 0
        return 3 if self._reasons is None else 0


def is_hot(monkeypatch: pytest.MonkeyPatch, nvml: Nvml | None, **properties: str) -> bool:
    monkeypatch.setattr(heat, "_library", lambda: nvml)
    found = SimpleNamespace(**(properties or {"uuid": "aaaa-1"}))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: found)
    return heat.by_driver(CUDA)()


@pytest.mark.parametrize(
    ("reasons", "expected"), [(0x0, False), (0x1, False), (0x4, False), (0x80, False), (0x24, True), (0x48, True)]
)
@pytest.mark.parametrize("asked_by", [NAME, "nvmlDeviceGetCurrentClocksThrottleReasons"])
def test_heat_is_what_the_driver_calls_a_thermal_slowdown(
    monkeypatch: pytest.MonkeyPatch, reasons: int, expected: bool, asked_by: str
) -> None:
    assert is_hot(monkeypatch, Nvml(reasons, asked_by)) is expected


def test_a_device_of_which_nothing_is_known_is_not_hot(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_hot(monkeypatch, None)  # no driver
    assert not is_hot(monkeypatch, Nvml(None))  # it does not say
    assert not is_hot(monkeypatch, Nvml(0x20, asked_by="other"))
    assert not is_hot(monkeypatch, Nvml(0x20), name="an older torch names no UUID")
    assert not is_hot(monkeypatch, Nvml(0x20), uuid="a part of a GPU")
    assert not heat.by_driver(torch.device("cpu"))()


def test_the_library_of_a_machine_without_a_driver_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> ctypes.CDLL:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert heat._library.__wrapped__() is None
