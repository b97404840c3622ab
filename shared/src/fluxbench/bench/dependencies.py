"""What a measuring cell's result depends on, here and now: device, packages, workloads, the cell and what measures.

Nothing is built, no worker is started, the device is not touched.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from fluxbench import operations, studies, variants
from fluxbench.core.errors import SetupError
from fluxbench.core.settings import Settings
from fluxbench.device import peaks, targets
from fluxbench.device.model import Device
from fluxbench.environments import prepare as environments
from fluxbench.environments.cell import Cell
from fluxbench.operations.workload import Workload
from fluxbench.records import fingerprint
from fluxbench.records.fingerprint import Fingerprint
from fluxbench.studies.study import Study
from fluxbench.variants import slowed
from fluxbench.variants._base import Variant
from fluxbench.worker.request import USUAL

_PACKAGE = Path(fingerprint.__file__).parents[1]
_HASHED_ALONE = ("operations", "variants", "kernels")  # rooms whose files are hashed where they take part


def measured_variants(cell: Cell) -> tuple[str, ...]:
    """Return the variants that a cell measures; of trials every slowed form of those that it lists."""
    if cell.measures != "trials":
        return cell.variants
    return tuple(f"{name}_{form}" for form in slowed.FORMS for name in cell.variants)


def of(cell: Cell, device: Device, settings: Settings) -> Fingerprint:
    """Return what a measurement by this cell would depend on now.

    An unknown variant is left to the cell, which refuses it. Raises `SetupError` for an unknown study, workload or
    operation.
    """
    study = studies.find(cell.study)
    target = targets.of(device, settings.root, cell.notebook)
    try:
        environment = environments.describe(cell.packages, target, settings, cell.lock)
    except SetupError as error:
        environment = {"way": f"none: {error}"}
    names = measured_variants(cell)
    used = [*_variants((*names, *study.references))] if names else []
    workloads = study.workloads_on(device, settings) if names else ()
    return {
        **fingerprint.of_device(device),
        **environment,
        **_of_hub(used, settings),
        "workloads": " ".join(workload.name for workload in workloads),
        "shapes": _hash_of_shapes(workloads),
        "peak": _hash_of_peak(device),
        "regimes": _how(study, device, workloads) if names else "",
        "references": " ".join(study.references) if names else "",
        **({"gpus": device.count} if any("gpus" in each.shape for each in workloads) else {}),  # that share a step
        **({"whole_up_to": study.whole_up_to} if names and study.whole_up_to else {}),
        **({"processes": settings.processes} if names and settings.processes else {}),
        "left_out": "" if settings.all else " ".join(target.exclude),
        "cell": cell.source_sha256[:12],
        **fingerprint.of_code(fingerprint.MEASURING),
        **_code({each.operation for each in workloads}, used),
    }


def _how(study: Study, device: Device, workloads: Iterable[Workload]) -> str:
    """Return which regimes a study measures at workloads, and with which effort where that is not the usual one."""
    own = study.effort_on(device, workloads)
    alone = f"{', '.join(study.burst_alone)} in burst alone" if study.burst_alone else ""
    effort = "" if own == USUAL else f"effort {hashlib.sha256(repr(own).encode()).hexdigest()[:12]}"
    return " ".join(filter(None, (*study.measures, alone, effort)))


def _variants(names: Iterable[str]) -> Iterator[Variant]:
    """Yield the variants of these names that are registered."""
    for name in dict.fromkeys(names):
        try:
            yield variants.find(name).variant
        except ValueError:
            continue


def _hash_of_shapes(workloads: Iterable[Workload]) -> str:
    """Return a hash of the workloads themselves: a name may stand for another shape one day."""
    facts = [
        (each.operation, each.group, each.x, each.x_unit, each.ranks, sorted(each.shape.items())) for each in workloads
    ]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:8] if facts else ""


def _hash_of_peak(device: Device) -> str:
    """Return a hash of the device's own peak rates, which its times are judged by; "" where it has none."""
    peak = peaks.peak(device)
    return hashlib.sha256(repr(peak).encode()).hexdigest()[:8] if peak else ""


def _of_hub(used: Iterable[Variant], settings: Settings) -> dict[str, str]:
    """Return which builds the kernels of the hub would be: the locked revisions, and local copies, both as hashes."""
    if not any("kernels" in variant.packages for variant in used):
        return {}
    lock = settings.root / "shared" / "kernels.lock"
    revisions = lock.read_bytes() if lock.is_file() else b""
    copies = os.environ.get("LOCAL_KERNELS", "").encode()
    return {"hub": " ".join(hashlib.sha256(each).hexdigest()[:8] for each in (revisions, copies))}


def _code(names_of_operations: Iterable[str], used: Iterable[Variant]) -> Fingerprint:
    """Return the hashes of the files of operations, variants and kernels that take part."""
    modules = []
    for name in names_of_operations:
        try:
            operations.find(name)
        except ValueError as error:
            raise SetupError(str(error)) from error
        modules.append(operations.NAMES.get(name, name).partition(":")[0])
    modules += [each.load.__module__ for variant in used for each in (variant, variant.base) if each]
    inside: set[Path] = set()
    outside: dict[str, Path] = {}
    for module in modules:
        spec = importlib.util.find_spec(module)
        path = Path(spec.origin) if spec and spec.origin else None
        if path and path.is_relative_to(_PACKAGE):
            _close(path, inside)
        elif path:
            outside[module] = path
    return {
        **fingerprint.of_code(path.relative_to(_PACKAGE).as_posix() for path in inside),
        **{f"{fingerprint.CODE}{module}": fingerprint.hash_of(path) for module, path in outside.items()},
    }


def _close(path: Path, found: set[Path]) -> None:
    """Add a file and the files of `_HASHED_ALONE` that it imports, however far down."""
    if path in found:
        return
    found.add(path)
    for name in _imports(path.read_text(encoding="utf-8")):
        parts = name.split(".")
        if len(parts) > 2 and parts[0] == "fluxbench" and parts[1] in _HASHED_ALONE:
            modules = (_PACKAGE.joinpath(*parts[1:end]).with_suffix(".py") for end in range(3, len(parts) + 1))
            if imported := next((module for module in modules if module.is_file()), None):
                _close(imported, found)


@functools.lru_cache(maxsize=256)  # each cell asks for the same few files
def _imports(source: str) -> tuple[str, ...]:
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names += (f"{node.module}.{alias.name}" for alias in node.names)
    return tuple(names)
