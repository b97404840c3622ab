"""What notebooks measure, with which packages and at which workloads."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fluxbench import studies, variants
from fluxbench.core.errors import SetupError
from fluxbench.core.settings import Settings
from fluxbench.device.model import Device
from fluxbench.device.targets import Target
from fluxbench.environments import cell, prepare
from fluxbench.environments.cell import Cell
from fluxbench.operations.workload import Workload

_ABSENT = "absent"  # asked for as a version, it comes back for a package that neither lock nor interpreter holds

Packages = Mapping[str, str | None]  # Python and what is measured with, in which version; None: not there


@dataclass(frozen=True)
class Measuring:
    """A cell that measures variants, and its notebook."""

    notebook: str
    cell: Cell


def measuring_cells(paths: Iterable[Path]) -> tuple[list[Measuring], list[str]]:
    """Return each cell of notebooks that measures variants, and a sentence for each that cannot be built."""
    cells: list[Measuring] = []
    broken = []
    for path in paths:
        try:
            from fluxbench.notebook.document import load  # which needs uvnote

            document = load(path)
            parsed = [cell.parse(code.code, code.id) for code in document.cells if document.is_measuring(code)]
            of_variants = [this for this in parsed if this.measures == "variants"]
            for name in (name for this in of_variants for name in this.variants):
                variants.find(name)
            cells += [Measuring(path.name, this) for this in of_variants]
        except (SetupError, ValueError, ImportError) as error:
            broken.append(f"{path.name} cannot be built: {error}")
    return cells, broken


def packages(cells: Iterable[Measuring], target: Target, settings: Settings) -> tuple[str | None, Packages, str | None]:
    """Return the lock, what the measured packages are, and why they cannot be had."""
    shared = [
        measuring.cell for measuring in cells if not measuring.cell.lock
    ]  # the others have environments of their own
    names = {"torch", "triton", *(pin.split("==")[0] for this in shared for pin in this.packages)}
    try:
        facts = prepare.describe(tuple(f"{name}=={_ABSENT}" for name in sorted(names)), target, settings)
    except SetupError as error:
        return None, {}, str(error)
    versions = {key.removeprefix("package."): value for key, value in facts.items() if key not in ("way", "lock")}
    held = {name: None if version == _ABSENT else version for name, version in versions.items()}
    return facts.get("lock"), held, None


def workloads(
    cells: Iterable[Measuring], device: Device, settings: Settings
) -> tuple[tuple[Workload, ...], str | None]:
    """Return the workloads at which the cells measure here, and why there are none."""
    try:
        names = dict.fromkeys(measuring.cell.study for measuring in cells)
        of_studies = (studies.find(name).workloads_on(device, settings) for name in names)
        return tuple(dict.fromkeys(itertools.chain(*of_studies))), None
    except SetupError as error:
        return (), str(error)
