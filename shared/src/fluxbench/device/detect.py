"""The device that a measurement runs on: the first vendor's that is usable, else the CPU. Imports no torch.

To add a vendor: a module with `find() -> Detected`, and its place in `_FINDERS`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from fluxbench.device import amd, apple, cpu, intel, nvidia
from fluxbench.device.model import Detected, Device

# The first device that one of them finds is used.
_FINDERS: tuple[Callable[[], Detected], ...] = (nvidia.find, amd.find, intel.find, apple.find)


def detect() -> Device:
    """Return the device, with the host's CPU and OS; its note names what is present and cannot be used."""
    notes = []
    for find in _FINDERS:
        device, note = find()
        notes += [note] if note else []
        if device:
            device = dataclasses.replace(device, cpu=cpu.model())
            break
    else:
        device = cpu.find()
    return dataclasses.replace(device, os=cpu.os_name(), note="; ".join(notes) or None)
