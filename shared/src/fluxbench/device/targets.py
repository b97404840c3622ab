"""The hardware targets of `reports/`: their locks, and what their pages are expected to show. See `environment/`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from fluxbench.device.detection import target_name
from fluxbench.device.model import Device

FALLBACK = "any"


@dataclass(frozen=True, kw_only=True)
class Target:
    """One folder of `reports/`."""

    name: str
    locks: tuple[str, ...]  # files of environment/locks; the first that this machine can use is taken
    leaves_out: tuple[str, ...]  # patterns of variants that are measured only where FLUXBENCH_ALL asks for them
    expects: tuple[str, ...]  # variants that must be PASSED at every workload for a report to be what was asked for


def of(device: Device, root: Path) -> Target:
    """Return the target of a device; a device that `environment/targets.toml` does not name gets its defaults."""
    with (root / "environment" / "targets.toml").open("rb") as file:
        table = tomllib.load(file)
    name = target_name(device)
    entry = {**table[FALLBACK], **table.get(name, {})}
    return Target(name=name, **{key: tuple(entry[key]) for key in ("locks", "leaves_out", "expects")})
