"""A device as rows for a reader."""

from __future__ import annotations

from typing import NamedTuple

from fluxbench.device.model import Device


class Row(NamedTuple):
    """A property of a device."""

    name: str  # "power limit"
    text: str  # "650 W (default 700 W)"; "unknown" where nothing is known, never zero


def describe(device: Device) -> tuple[Row, ...]:
    """Return the rows that fit the kind of device."""
    gpu, cuda = device.kind != "cpu", device.kind == "cuda"
    limits = (_text(watts, " W") for watts in (device.power_limit_w, device.power_limit_default_w))
    rows = (
        (True, "device", device.name),
        (True, "kind", device.kind),
        (cuda, "card", f"{device.card} (by a hash of its identifier)" if device.card else "unknown"),
        (True, "memory", _text(device.memory_bytes and round(device.memory_bytes / 2**30, 1), " GiB")),
        (gpu, "count", _text(device.count)),
        (gpu, "driver", _text(device.driver)),
        (cuda, "CUDA of driver", _text(device.cuda)),
        (cuda, "compute capability", _text(device.compute_capability)),
        (cuda, "SM clock, max", _text(device.sm_clock_max_mhz, " MHz")),
        (cuda, "memory clock, max", _text(device.memory_clock_max_mhz, " MHz")),
        (cuda, "power limit", "{} (default {})".format(*limits)),
        (cuda, "ECC", _text(device.ecc)),
        (cuda, "MIG", _text(device.mig)),
        (cuda, "compute mode", _text(device.compute_mode)),
        (gpu, "CPU", _text(device.cpu)),
        (not gpu, "cores", _text(device.cores)),
        (not gpu, "instruction sets", " ".join(device.instruction_sets) or "unknown"),
        (True, "OS", _text(device.os)),
        (device.note is not None, "note", _text(device.note)),
    )
    return tuple(Row(name, text) for is_shown, name, text in rows if is_shown)


def _text(value: object, unit: str = "") -> str:
    if value is None or isinstance(value, bool):
        return {None: "unknown", True: "on", False: "off"}[value]
    if isinstance(value, tuple):
        return ".".join(map(str, value))
    return f"{value:g}{unit}" if isinstance(value, float) else f"{value}{unit}"
