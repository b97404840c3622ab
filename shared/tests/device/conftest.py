"""A machine with nothing in it."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_nvml import LibraryNotFound, NVMLError, fake_nvml

from fluxbench.device import system


@pytest.fixture(autouse=True)
def linux(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A Linux machine with an empty `sys` and `proc` in this folder, and no NVML."""
    monkeypatch.setattr(system, "SYS", tmp_path / "sys")
    monkeypatch.setattr(system, "PROC", tmp_path / "proc")
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(platform, "release", lambda: "6.18.44-generic")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(init_error=LibraryNotFound("NVML Shared Library Not Found")))
    return tmp_path


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put these GPUs into the machine."""

    def install(*gpus: SimpleNamespace | None, init_error: NVMLError | None = None) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(*gpus, init_error=init_error))

    return install
