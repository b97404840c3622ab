"""Apple's GPUs: one on every Mac with Apple silicon."""

from __future__ import annotations

import platform

from fluxbench.device import cpu
from fluxbench.device.model import Detected, Device


def find() -> Detected:
    """Return the GPU of a Mac with Apple silicon, which shares the CPU's name and memory."""
    if (platform.system(), platform.machine()) != ("Darwin", "arm64"):
        return None, None
    return Device(kind="mps", name=cpu.model() or "Apple GPU", memory_bytes=cpu.memory_bytes()), None
