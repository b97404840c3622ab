"""What a measuring cell's result depends on, here and now: device, packages, workloads, the cell and what measures.

Nothing is built, no worker is started, the device is not touched.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from fluxbench import environments, fingerprint, targets, variants, workloads
from fluxbench.cell import Cell
from fluxbench.fingerprint import Fingerprint
from fluxbench.hardware import Device
from fluxbench.settings import Settings, SetupError
from fluxbench.workloads import Workload


def default_workloads(device: Device, settings: Settings) -> tuple[Workload, ...]:
    """Return what is measured on a device where nothing else is asked for. Raises `SetupError` for an unknown name."""
    names = settings.workloads or ("flux1-512px" if device.kind == "cpu" else "flux1-1024px",)
    try:
        return workloads.named(*names)
    except KeyError as error:
        raise SetupError(str(error.args[0])) from error


def of(this: Cell, names: Iterable[str], device: Device, settings: Settings) -> Fingerprint:
    """Return what a measurement of these variants by this cell would depend on now.

    No names: a cell that measures the device's own rates. An unknown one is left to the cell, which refuses it. Raises
    `SetupError` for an unknown workload.
    """
    target = targets.of(device, settings.root)
    try:
        environment = environments.describe(this.packages, target, settings)
    except SetupError as error:
        environment = {"way": f"none: {error}"}
    return {
        **fingerprint.of_device(device),
        **environment,
        "workloads": " ".join(workload.name for workload in default_workloads(device, settings)),
        "references": " ".join(variants.REFERENCES),
        "left_out": "" if settings.all else " ".join(target.leaves_out),
        "cell": this.source_sha256[:12],
        **fingerprint.of_code((*fingerprint.MEASURING, *_files_of(tuple(names)))),
    }


def _files_of(names: tuple[str, ...]) -> list[str]:
    """Return the files of this package that hold these variants, the references of ratios, and their kernels."""
    if not names:
        return ["ceilings.py"]
    modules = [module for module in vars(variants).values() if isinstance(module, ModuleType)]
    found = set()
    for name in {*names, *variants.REFERENCES} & set(variants.NAMES):
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
