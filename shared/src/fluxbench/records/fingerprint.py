"""What a result depends on, as a flat object, in what two of them differ, and which times may be compared."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fluxbench.device.model import Device
from fluxbench.records import method

Value = str | int | float | bool | None
Fingerprint = Mapping[str, Value]

# A change to one of these can change a number: folders of this package, or files in it.
MEASURING = (
    *("correctness", "timing", "worker", "bench", "core/device_lock.py", "device/peaks.py"),
    *("stats/bootstrap.py", "stats/converged.py", "stats/intervals.py", "stats/student.py", "stats/variances.py"),
    *("operations/protocol.py", "operations/roofline.py", "operations/workload.py", "variants/_base.py"),
    *("variants/forms.py", "kernels/control.fatbin"),
)
# A change to one of these can change a page.
SHOWING = (
    *("core", "device", "device/peaks.toml", "operations", "variants", "records", "stats", "studies", "analysis"),
    *("report", "report/usage/torch.toml", "report/usage/libraries.toml", "show.py", "audit.py"),
    *("assets/published/measurements.csv", "assets/published/sources.toml"),
)

CODE, PACKAGE = "code.", "package."
_DEVICE_KEYS = {
    *("device", "device_kind", "compute_capability", "mig", "card", "driver", "cuda_driver", "power_limit_w"),
    *("compute_mode", "ecc", "cpu", "cpu_cores", "instruction_sets", "peak"),
}
_LOCKS = ("lock", "library_lock")
_ROOT = Path(__file__).parents[1]
_NAMES = {
    "card": "card of this model",
    "cuda_driver": "CUDA of the driver",
    "power_limit_w": "power limit in W",
    "compute_mode": "compute mode",
    "ecc": "ECC",
    "cpu": "CPU",
    "cpu_cores": "CPU cores",
    "instruction_sets": "instruction sets",
    "python": "Python",
    "way": "environment by",
    "hub": "revisions of the hub's kernels",
    "left_out": "excluded variants",
    "shapes": "shapes of the workloads",
    "peak": "peak rates of the device",
    "references": "references of ratios",
    "processes": "fresh processes asked for",
    "other_results": "results of other notebooks",
}


@dataclass(frozen=True)
class Difference:
    """One key in which two fingerprints differ.

    `key` is "device" where the model of device is another, and "code" where one is of a fluxbench with other keys.
    """

    key: str
    before: Value
    now: Value

    def __str__(self) -> str:
        """Return it as a phrase: `driver 580.65.06 -> 580.159.04`, `timing changed`."""
        if self.key == "device":
            return f"measured on another device: {_shown(self.before)} -> {_shown(self.now)}"
        if self.key == "code":
            return f"measured by {self.before} fluxbench"
        if self.key == "cell":
            return "the cell's source changed"
        if self.key == "published":
            return "the published records that it reads changed"
        if self.key.startswith(CODE):
            how = "changed" if self.before and self.now else "is now used" if self.now else "is no longer used"
            return f"{self.key.removeprefix(CODE)} {how}"
        if self.key in _LOCKS:
            was, now = (_shown(value).split()[0] for value in (self.before, self.now))  # without the hash
            return f"lock {was} changed" if was == now else f"lock {was} -> {now}"
        name = self.key.removeprefix(PACKAGE)
        return f"{_NAMES.get(name, name)} {_shown(self.before)} -> {_shown(self.now)}"


def of_device(device: Device) -> Fingerprint:
    """Return what any result on this device depends on, without touching it."""
    capability = device.compute_capability
    # Two CPUs may report one name and differ in these, and so by several times in speed.
    instructions = {"instruction_sets": " ".join(device.instruction_sets)} if device.kind == "cpu" else {}
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
        **instructions,
    }


def device_of(own: Fingerprint) -> Device:
    """Return the device that a fingerprint names, without clocks: its data sheet's limits count."""
    return _device(str(own.get("device_kind")), str(own.get("device")), mig=bool(own.get("mig")))


@functools.lru_cache(maxsize=256)
def _device(kind: str, name: str, *, mig: bool) -> Device:
    return Device(kind=kind, name=name, mig=mig)


def of_code(paths: Iterable[str]) -> Fingerprint:
    """Return the hashes of files and folders of this package, by their path in it: `code.timing`."""
    return {f"{CODE}{path}": hash_of(_ROOT / path) for path in sorted(set(paths))}


def differences(before: Fingerprint, now: Fingerprint) -> list[Difference]:
    """Return in what two fingerprints differ. Of another device nothing else is said of the device."""
    found = []
    if other := another_device(before, now):
        found.append(Difference("device", *other))
    was, is_ = _generation(before), _generation(now)
    if was != is_:
        found.append(Difference("code", *(("an older", "a newer") if was < is_ else ("a newer", "an older"))))
    for key in {**before, **now}:
        if before.get(key) == now.get(key) or (other and key in _DEVICE_KEYS):
            continue
        if was != is_ and (key.startswith(CODE) or key not in before or key not in now):  # one of them has other keys
            continue
        if key == "card" and not (before.get(key) and now.get(key)):  # of results that do not say which
            continue
        found.append(Difference(key, before.get(key), now.get(key)))
    packages = any(each.key.startswith(PACKAGE) for each in found)
    return [each for each in found if not (packages and each.key in _LOCKS)]  # the packages say more than their lock


def another_device(before: Fingerprint, now: Fingerprint) -> tuple[str, str] | None:
    """Return two models of device (or parts of one) where the fingerprints are of different ones, else None."""
    identity = ["device", "device_kind", "compute_capability", "mig"]
    if now.get("device_kind") == "cpu":
        identity += ["cpu_cores", *["instruction_sets"] * ("instruction_sets" in before and "instruction_sets" in now)]
    differing = [key for key in identity if before.get(key) != now.get(key)]
    if not differing:
        return None
    if "device" in differing:
        return _shown(before.get("device")), _shown(now.get("device"))
    sides = (", ".join(f"{key} {_shown(side.get(key))}" for key in differing) for side in (before, now))
    return next(sides), next(sides)


@dataclass(frozen=True)
class Incomparable:
    """Why two times must not be compared: "device", "method", "shape", "regime" or "calls", and both sides of it."""

    why: str
    before: str
    now: str

    def __str__(self) -> str:
        """Return it as a clause."""
        return {
            "device": "they were measured on different devices: {} -> {}",
            "method": "they were not measured in the same way: method version {} and {}",
            "shape": "the workload has another shape",
            "regime": "the regime was {} and is {}",
            "calls": "calls were timed {}, and now {}",
        }[self.why].format(self.before, self.now)


def not_comparable(
    before: tuple[Fingerprint, int], now: tuple[Fingerprint, int], *, burst: bool = False
) -> Incomparable | None:
    """Return why times under two fingerprints, each with its method version, must not be compared, or None.

    `burst`: times of this regime alone, or also sustained ones of which it is known whether they are of CUDA graphs.
    """
    if other := another_device(before[0], now[0]):
        return Incomparable("device", *other)
    was, is_now = (method.of_burst(version) if burst else version for version in (before[1], now[1]))
    if was != is_now or was == method.UNKNOWN:
        return Incomparable("method", method.words(before[1]), method.words(now[1]))
    return None


def _generation(side: Fingerprint) -> int:
    """Return how a fingerprint holds the code: 0 not by file, 1 by file, 2 by folder."""
    code = [key for key in side if key.startswith(CODE)]
    return 2 if any(not key.endswith((".py", ".fatbin")) for key in code) else 1 if code else 0


def _shown(value: object) -> str:
    return "none" if value in (None, "") else str(value)


def hash_of(path: Path) -> str:
    """Return the hash of a file, or of a folder's Python files and machine code by name."""
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    files = sorted(file for pattern in ("*.py", "*.fatbin") for file in path.rglob(pattern))
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.relative_to(path).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]
