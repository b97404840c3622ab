"""Intel's discrete GPUs, by their PCI devices and drivers."""

from __future__ import annotations

from fluxbench.device import system
from fluxbench.device.model import Detected, Device

_DRIVERS = ("i915", "xe")
_INTEGRATED_SLOT = ":00:02.0"  # where every integrated Intel GPU sits


def find() -> Detected:
    """Return the first discrete GPU that has its driver."""
    displays = system.pci_displays("0x8086")
    discrete = [card for card in displays if not card.name.endswith(_INTEGRATED_SLOT)]
    usable = [card for card in discrete if (card / "driver").resolve().name in _DRIVERS]
    if not usable:
        why = "an Intel GPU is present, integrated or without its driver, and not used"
        return None, why if displays else None
    name = f"Intel GPU {system.read(usable[0] / 'device').removeprefix('0x')}"
    return Device(kind="xpu", name=name, driver=(usable[0] / "driver").resolve().name, count=len(usable)), None
