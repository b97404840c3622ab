"""What a result depends on, as a flat object; in what two of them differ, and whether their times can be compared."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from fluxbench.device.detection import Device

Fingerprint = Mapping[str, str | int | float | bool | None]

# A change to one of these can change a number. What only shows numbers is not here.
MEASURING = (
    "bench/measuring.py", "correctness/capabilities.py", "worker/checking.py", "correctness/judging.py",
    "timing/energy.py", "worker/failures.py", "operations/roofline.py", "operations/inputs.py",
    "bench/observations.py", "device/peaks.py", "bench/processes.py", "timing/profiler.py", "bench/recording.py",
    "correctness/reference.py", "worker/trial.py", "worker/request.py", "bench/series.py", "timing/control_kernel.py",
    "stats/intervals.py", "timing/stopwatch.py", "timing/telemetry.py", "timing/regimes.py", "worker/__main__.py",
    "operations/workloads.py", "kernels/sentinel.fatbin", "variants/_base.py",
)  # fmt: skip
# A change to one of these changes what a time means.
METHOD = (
    "worker/checking.py", "operations/inputs.py", "worker/trial.py", "bench/series.py", "timing/stopwatch.py",
    "timing/regimes.py", "worker/__main__.py",
)  # fmt: skip
_ALIKE: dict[str, str] = {}
_CODE, _PACKAGE = "code.", "package."
_PACKAGE_ROOT = Path(__file__).parents[1]
_WORDS = {
    "driver": "driver",
    "card": "card of this model",
    "cuda_driver": "CUDA of the driver",
    "power_limit_w": "power limit in W",
    "compute_mode": "compute mode",
    "ecc": "ECC",
    "cpu": "CPU",
    "cpu_cores": "CPU cores",
    "python": "Python",
    "way": "environment by",
    "hub": "revisions of the hub's kernels",
    "workloads": "workloads",
    "left_out": "left out",
    "references": "references of ratios",
    "reruns": "runs of flux",
}


def of_device(device: Device) -> Fingerprint:
    """Return what any result on this device depends on, without touching it."""
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
        "card": device.card,
        "ecc": device.ecc,
        "cpu": device.cpu,
        "cpu_cores": device.cores,
    }


def of_code(files: Iterable[str]) -> Fingerprint:
    """Return the hashes of files of this package, by their path in it: `code.timing.py`."""
    return {f"{_CODE}{file}": _hash((_PACKAGE_ROOT / file).read_bytes()) for file in files}


def differences(before: Fingerprint, now: Fingerprint) -> list[str]:
    """Return what differs, a phrase each: `driver 580.65.06 -> 580.159.04`, `timing.py changed`. Empty: nothing.

    Of another device nothing else is said of the device.
    """
    found = []
    device = another_device(before, now)
    if device:
        found.append(f"measured on another device: {device}")
    if not any(key.startswith(_CODE) for key in before) and any(key.startswith(_CODE) for key in now):
        return [*found, "measured by an older fluxbench"]
    of_devices = {"device", "device_kind", "compute_capability", "mig", "card", "driver", "cuda_driver",
                  "power_limit_w", "compute_mode", "ecc", "cpu", "cpu_cores"}  # fmt: skip
    lock = None
    for key in {**before, **now}:
        old, new = before.get(key), now.get(key)
        if old == new or (device and key in of_devices):
            continue
        if key == "card" and not (old and new):  # of results that do not say which
            continue
        if key.startswith(_CODE):
            how = "changed" if old and new else "takes part now" if new else "takes no part any more"
            found.append(f"{key.removeprefix(_CODE)} {how}")
        elif key == "cell":
            found.append("the cell's source changed")
        elif key in ("lock", "library_lock"):
            was, is_now = (_shown(value).split()[0] for value in (old, new))  # without the hash
            lock = f"lock {was} changed" if was == is_now else f"lock {was} -> {is_now}"
        else:
            name = key.removeprefix(_PACKAGE)
            found.append(f"{_WORDS.get(name, name)} {_shown(old)} -> {_shown(new)}")
    if lock and not any(key.startswith(_PACKAGE) and before.get(key) != now.get(key) for key in {**before, **now}):
        found.append(lock)  # of a package that is not named above
    return found


def another_device(before: Fingerprint, now: Fingerprint) -> str | None:
    """Say `A -> B` where two fingerprints are of different models of device (or parts of one), or None."""
    identity = ["device", "device_kind", "compute_capability", "mig"]
    if now.get("device_kind") == "cpu":
        identity.append("cpu_cores")
    if all(before.get(key) == now.get(key) for key in identity):
        return None
    if before.get("device") != now.get("device"):
        return f"{_shown(before.get('device'))} -> {_shown(now.get('device'))}"
    differing = [key for key in identity if before.get(key) != now.get(key)]
    return ", ".join(f"{key} {_shown(before.get(key))} -> {_shown(now.get(key))}" for key in differing)


def not_comparable(before: Fingerprint, now: Fingerprint) -> str | None:
    """Say why times under these two fingerprints must not be compared, or None where they may."""
    if device := another_device(before, now):
        return f"they were measured on different devices: {device}"
    if before.get("measuring_sha256") != now.get("measuring_sha256"):  # of records that were made before November 2026
        return "they were not measured by the same version of fluxbench, and one of them does not say what differs"
    taken = method(now)
    changed = [file for file, content in method(before).items() if content != taken[file]]
    if changed:
        return f"they were not measured in the same way: {' and '.join(changed)} changed between them"
    return None


def method(found: Fingerprint) -> dict[str, object]:
    """Return what stands for the way in which times were taken: of each file of `METHOD` a hash, None where unknown."""
    contents = {file: found.get(_CODE + file) for file in METHOD}
    return {file: _ALIKE.get(str(content), content) for file, content in contents.items()}


def _shown(value: object) -> str:
    return "none" if value in (None, "") else str(value)


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]
