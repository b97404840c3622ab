"""A fake of NVML's Python module. A handle is the fake GPU itself, and a field that is None is "Not Supported"."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

MIB = 2**20
_FIELDS = {
    "Name": "name",
    "UUID": "uuid",
    "CudaComputeCapability": "capability",
    "EnforcedPowerLimit": "limit_mw",
    "PowerManagementDefaultLimit": "default_mw",
    "EccMode": "ecc",
    "MigMode": "mig",
    "ComputeMode": "mode",
    "ComputeRunningProcesses": "processes",
    "PowerUsage": "power_mw",
    "Temperature": "temperature_c",
    "CurrentClocksEventReasons": "reasons",
    "CurrentClocksThrottleReasons": "older_reasons",
    "TotalEnergyConsumption": "energy_mj",
}


class NVMLError(Exception):
    """What NVML raises."""


class LibraryNotFound(NVMLError):
    """No driver is installed."""


def gpu(**changes: Any) -> SimpleNamespace:
    """Return an H200 with some fields changed."""
    return SimpleNamespace(
        **{
            "name": "NVIDIA H200", "uuid": "GPU-aaaa-1", "capability": (9, 0), "memory_mib": 143771, "sm_mhz": 1980,
            "memory_mhz": 3201, "limit_mw": 650_000, "default_mw": 700_000, "ecc": [1, 0], "mig": [0, 1],
            "slices": [], "mode": 0, "processes": [], "sm_now_mhz": 1755, "power_mw": 640_000, "temperature_c": 55,
            "reasons": 0, "older_reasons": None, "energy_mj": 5_000_000,
            **changes,
        }
    )  # fmt: skip


def fake_nvml(*gpus: SimpleNamespace | None, init_error: NVMLError | None = None) -> Any:
    """Return a module in place of pynvml; a GPU that is None is lost. `opened` counts how often it is open.

    A field that is a function is called for its value.
    """
    fake: Any = ModuleType("pynvml")
    fake.opened = 0

    def value_of(handle: Any, field: str) -> Any:
        value = getattr(handle, field, None)
        value = value() if callable(value) else value
        if value is None:
            raise NVMLError("Not Supported")
        return value

    def field_of(field: str) -> Callable[..., Any]:
        return lambda handle, *_: value_of(handle, field)

    def opens(step: int) -> None:
        if init_error:
            raise init_error
        fake.opened += step

    def by_index(index: int) -> SimpleNamespace:
        handle = gpus[index]
        if handle is None:
            raise NVMLError("GPU is lost")
        return handle

    def by_uuid(uuid: str) -> Any:
        for part in (part for handle in gpus if handle for part in handle.slices if part):
            if part.uuid == uuid:
                return part
        raise NVMLError("Not Found")

    def slice_of(handle: SimpleNamespace, index: int) -> Any:
        if index >= len(handle.slices) or handle.slices[index] is None:
            raise NVMLError("Not Found")
        return handle.slices[index]

    fake.NVMLError = NVMLError
    fake.NVMLError_LibraryNotFound = LibraryNotFound
    fake.NVMLError_DriverNotLoaded = type("DriverNotLoaded", (NVMLError,), {})
    fake.NVML_CLOCK_SM, fake.NVML_CLOCK_MEM, fake.NVML_TEMPERATURE_GPU = 1, 2, 0
    fake.nvmlInit, fake.nvmlShutdown = lambda: opens(1), lambda: opens(-1)
    fake.nvmlSystemGetDriverVersion = lambda: "580.159.04"
    fake.nvmlSystemGetCudaDriverVersion_v2 = lambda: 13010
    fake.nvmlSystemGetProcessName = lambda pid: "/opt/someone/bin/train"
    fake.nvmlDeviceGetCount = lambda: len(gpus)
    fake.nvmlDeviceGetHandleByIndex = by_index
    fake.nvmlDeviceGetHandleByUUID = by_uuid
    fake.nvmlDeviceGetMigDeviceHandleByIndex = slice_of
    fake.nvmlDeviceGetMaxMigDeviceCount = lambda handle: 7
    fake.nvmlDeviceGetDeviceHandleFromMigDeviceHandle = lambda part: next(g for g in gpus if g and part in g.slices)
    fake.nvmlDeviceGetMaxClockInfo = lambda handle, kind: value_of(handle, {1: "sm_mhz", 2: "memory_mhz"}[kind])
    fake.nvmlDeviceGetClockInfo = lambda handle, kind: value_of(handle, {1: "sm_now_mhz"}[kind])
    fake.nvmlDeviceGetMemoryInfo = lambda handle: SimpleNamespace(total=value_of(handle, "memory_mib") * MIB)
    for call, field in _FIELDS.items():
        setattr(fake, f"nvmlDeviceGet{call}", field_of(field))
    return fake


def write(path: Path, text: str) -> Path:
    """Write a file of a made-up /sys or /proc."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
