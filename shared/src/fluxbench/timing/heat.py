"""Whether a GPU is slowed by its own heat, asked of NVML by the process that measures.

The measured environment holds no package for NVML, which is why its library is called directly.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import torch

# nvmlClocksEventReasonSwThermalSlowdown and HwThermalSlowdown of nvml.h: against these a rest helps.
_OF_HEAT = 0x20 | 0x40


def by_driver(device: torch.device) -> Callable[[], bool]:
    """Return what tells whether the driver slows a GPU because of its heat; always False where it does not say."""
    if device.type != "cuda" or (nvml := _library()) is None:
        return lambda: False
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    gpu = ctypes.c_void_p()
    if uuid is None or nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode(), ctypes.byref(gpu)):
        return lambda: False
    # The older name is that of drivers before 535.
    names = "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"
    ask = next((getattr(nvml, name) for name in names if hasattr(nvml, name)), None)

    def is_hot() -> bool:
        reasons = ctypes.c_ulonglong()
        return bool(ask and ask(gpu, ctypes.byref(reasons)) == 0 and reasons.value & _OF_HEAT)

    return is_hot


@functools.cache
def _library() -> ctypes.CDLL | None:
    """Return NVML, once a process; None without a driver that has it."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return None if nvml.nvmlInit_v2() else nvml
