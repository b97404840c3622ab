"""What a measuring cell's result depends on, here and now: device, packages, workloads, the cell and what measures.

Nothing is built, no worker is started, the device is not touched.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from fluxbench import variants
from fluxbench.core.settings import Settings, SetupError
from fluxbench.device import targets
from fluxbench.device.detection import Device
from fluxbench.environments import prepare as environments
from fluxbench.environments.cell import Cell
from fluxbench.operations import workloads
from fluxbench.operations.workloads import Workload
from fluxbench.records import fingerprint
from fluxbench.records.fingerprint import Fingerprint
from fluxbench.variants import slowed

# What the certificate's trials slow down; a CPU's calls are too long for more than one.
_TRIED = {"cpu": ("torch_flash",)}
_TRIED_ON_GPU = ("torch_flash", "torch_cudnn", "triton_flash")


def default_workloads(device: Device, settings: Settings) -> tuple[Workload, ...]:
    """Return what is measured on a device where nothing else is asked for. Raises `SetupError` for an unknown name."""
    names = settings.workloads or ("flux1-512px" if device.kind == "cpu" else "flux1-1024px",)
    try:
        return workloads.named(*names)
    except KeyError as error:
        raise SetupError(str(error.args[0])) from error


def trials(device: Device, settings: Settings) -> tuple[tuple[str, ...], Settings]:
    """Return what the certificate's trials measure on a device: variants, and settings that ask for their workloads.

    On a GPU these are the shortest, the middle and the longest of the default ones, on a CPU the shortest.
    """
    shapes = sorted(default_workloads(device, settings), key=lambda shape: shape.seq_len)
    chosen = shapes[:1] if device.kind == "cpu" else [shapes[0], shapes[len(shapes) // 2], shapes[-1]]
    bases = _TRIED.get(device.kind, _TRIED_ON_GPU)
    names = tuple(f"{base}_{form}" for form in slowed.FORMS for base in bases)
    return names, dataclasses.replace(settings, workloads=tuple(dict.fromkeys(shape.name for shape in chosen)))


def of(this: Cell, names: Iterable[str], device: Device, settings: Settings) -> Fingerprint:
    """Return what a measurement of these variants by this cell would depend on now.

    No names: a cell that measures the device's own rates. An unknown one is left to the cell, which refuses it. Raises
    `SetupError` for an unknown workload.
    """
    names = tuple(names)
    target = targets.of(device, settings.root)
    try:
        environment = environments.describe(this.packages, target, settings, this.lock)
    except SetupError as error:
        environment = {"way": f"none: {error}"}
    return {
        **fingerprint.of_device(device),
        **environment,
        **_of_hub(names, settings),
        "workloads": " ".join(workload.name for workload in default_workloads(device, settings)),
        "references": " ".join(variants.REFERENCES),
        "left_out": "" if settings.all else " ".join(target.leaves_out),
        "cell": this.source_sha256[:12],
        **fingerprint.of_code((*fingerprint.MEASURING, *_files_of(names))),
    }


def _of_hub(names: tuple[str, ...], settings: Settings) -> dict[str, str]:
    """Return which builds the kernels of the hub would be: the locked revisions, and local copies, both as hashes."""
    if not any("kernels" in variants.find(name)[0].packages for name in set(names) & set(variants.NAMES)):
        return {}
    lock = settings.root / "shared" / "kernels.lock"
    revisions = lock.read_bytes() if lock.is_file() else b""
    copies = os.environ.get("LOCAL_KERNELS", "").encode()
    return {"hub": " ".join(hashlib.sha256(each).hexdigest()[:8] for each in (revisions, copies))}


def _files_of(names: tuple[str, ...]) -> list[str]:
    """Return the files of this package that hold these variants, the references of ratios, and their kernels."""
    if not names:
        return ["timing/device_rates.py"]
    modules = [module for module in vars(variants).values() if isinstance(module, ModuleType)]
    found: set[str] = set()
    certified = {variant.name for variant in variants.CERTIFICATE} & set(names)
    if certified:
        found |= {"bench/trials.py", "variants/slowed.py"}
    bases = {name.partition("_plus_")[0] for name in certified}
    for name in {*names, *bases, *variants.REFERENCES} & set(variants.NAMES):
        variant, _ = variants.find(name)
        for module in modules:
            if any(value is variant for value in vars(module).values()):
                path = Path(str(module.__file__))
                found.add(f"variants/{path.name}")
                found |= _kernels_of(path.read_text(encoding="utf-8"))
    return sorted(found)


def _kernels_of(source: str) -> set[str]:
    """Return the files of `fluxbench.kernels` that a variant's source imports."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {f"kernels/{name.split('.')[2]}.py" for name in names if name.startswith("fluxbench.kernels.")}
