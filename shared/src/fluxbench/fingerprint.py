"""What a result depends on, as a flat object, and in what two of them differ."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from fluxbench.hardware import Device

Fingerprint = Mapping[str, str | int | float | bool | None]

# A change to one of these can change a number. What only shows numbers is not here.
MEASURING = (
    "bench", "ceilings", "correctness", "inputs", "observations", "processes", "profiling", "reference", "requests",
    "statistics", "telemetry", "timing", "worker", "workloads", "variants", "kernels",
)  # fmt: skip


def of(
    device: Device,
    *,
    cell_sha256: str,
    packages: Iterable[str],
    environment: str,
    workloads: Iterable[str],
    left_out: Iterable[str] = (),
) -> Fingerprint:
    """Return what a measurement of a cell on this device would depend on, without touching the device."""
    capability = device.compute_capability
    return {
        "device": device.name,
        "device_kind": device.kind,
        "compute_capability": f"{capability[0]}.{capability[1]}" if capability else None,
        "driver": device.driver,
        "cuda_driver": device.cuda,
        "power_limit_w": device.power_limit_w,
        "compute_mode": device.compute_mode,
        "mig": device.mig,
        "ecc": device.ecc,
        "cpu": device.cpu,
        "cpu_cores": device.cores,
        "packages": " ".join(sorted(packages)),
        "environment": environment,
        "workloads": " ".join(workloads),
        "left_out": " ".join(left_out),
        "cell_sha256": cell_sha256,
        "measuring_sha256": measuring_sha256(),
    }


def measuring_sha256() -> str:
    """Return the hash of fluxbench's own measuring modules."""
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for name in MEASURING:
        path = package / name
        for file in sorted(path.glob("*.py")) if path.is_dir() else [path.with_suffix(".py")]:
            digest.update(file.relative_to(package).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def differences(before: Fingerprint, now: Fingerprint) -> list[str]:
    """Return what differs, one line each: `driver 580.65.06 -> 580.159.04`. Empty: the result is fresh."""
    return [
        f"{key} {before.get(key)} -> {now.get(key)}" for key in {**before, **now} if before.get(key) != now.get(key)
    ]
