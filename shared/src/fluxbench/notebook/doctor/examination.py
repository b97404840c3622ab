"""One look at this machine, from the device to each variant."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fluxbench import variants
from fluxbench.core.settings import Settings
from fluxbench.device import detect, nvidia, targets
from fluxbench.device.model import Device
from fluxbench.device.targets import Target
from fluxbench.environments import prepare
from fluxbench.notebook.doctor import disk, notebooks, text
from fluxbench.notebook.doctor.disk import Place
from fluxbench.notebook.doctor.notebooks import Measuring, Packages
from fluxbench.notebook.doctor.tools import Tool, tools
from fluxbench.notebook.doctor.variants import needs_compiler, uncompiled, unfit, unsupported
from fluxbench.operations.workload import Workload

_NOT_OURS = ("CUDA_VISIBLE_DEVICES", "PIP_FIND_LINKS", "UV_FIND_LINKS", "UV_CACHE_DIR")  # settings beside our own


@dataclass(frozen=True, kw_only=True)
class VariantHere:
    """A variant, the notebooks that name it, whether it must be PASSED here, and why it will not run, or None."""

    variant: str
    notebooks: tuple[str, ...]
    is_required: bool
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class Examination:
    """What a machine has and lacks. Each of `remarks` and `lacking` is a sentence; a remark stops nothing."""

    device: Device
    other_processes: tuple[str, ...]
    target: str
    target_is_named: bool  # in environment/targets.toml
    tools: tuple[Tool, ...]
    way: str  # "uv" or "ambient"
    lock: str | None  # its name and hash
    packages: Packages
    cells: Mapping[str, tuple[str, ...]]  # what each measuring cell pins
    environments: int  # that are ready in the cache
    places: tuple[Place, ...]
    settings: Mapping[str, str]  # those that are set
    workloads: tuple[str, ...]
    variants: tuple[VariantHere, ...]
    remarks: tuple[str, ...]
    lacking: tuple[str, ...]  # what a page without problems needs
    by_notebook: Mapping[str, tuple[VariantHere, ...]]  # the variants of each, at its workloads and with its packages

    def to_json(self) -> str:
        """Return it as JSON."""
        facts = dataclasses.asdict(self)
        del facts["by_notebook"]
        return json.dumps({**facts, "well": not self.lacking}, indent=1)

    def text(self, *, detailed: bool = False) -> str:
        """Return it for a person; `detailed` with all workloads, pins, tools and folders."""
        return text.of(self, detailed=detailed)


def examine(settings: Settings, notebook: Path | None = None) -> Examination:
    """Look at this machine for one notebook, or for all; what is wrong with it is in what is returned."""
    device = detect.detect()
    target = targets.of(device, settings.root)
    uv, uvnote, _, compiler, git = programs = tuple(tools(device, settings.root))
    paths = [notebook] if notebook else sorted((settings.root / "notebooks").glob("*.md"))
    cells, broken = notebooks.measuring_cells(paths)
    lock, packages, no_packages = notebooks.packages(cells, target, settings)
    workloads, no_workloads = notebooks.workloads(cells, device, settings)
    # These keep every variant from running.
    stops = [stop for stop in (uv.problem, uvnote.problem, no_workloads, no_packages, unfit(device, packages)) if stop]

    def look(cells: Iterable[Measuring], workloads: Sequence[Workload]) -> Iterator[VariantHere]:
        for name in variants.NAMES:
            naming = [measuring for measuring in cells if name in measuring.cell.variants]
            reasons = (
                unsupported(name, device, workloads),
                None if settings.all else target.excluded(name),
                None if naming else "no notebook names it",
                *stops,
                *(prepare.lacking(by.cell.packages, target, settings, by.cell.lock) for by in naming),
                uncompiled(name, device, compiler, packages),
            )
            yield VariantHere(
                variant=name,
                notebooks=tuple(dict.fromkeys(by.notebook for by in naming)),
                is_required=any(target.requires(name, by.cell.notebook) for by in naming),
                reason=next(filter(None, reasons), None),
            )

    here = tuple(look(cells, workloads))
    by_notebook = {}
    for path in paths:
        if own := [measuring for measuring in cells if measuring.notebook == path.name]:
            looked = look(own, notebooks.workloads(own, device, settings)[0])
            by_notebook[path.name] = tuple(found for found in looked if found.notebooks)
    ready = len(list((settings.cache / "envs").glob("*/ready")))
    brings_cuda = sys.platform == "linux" and any(name.startswith("nvidia-") for name in packages)
    installs_cuda = lock and brings_cuda and not ready
    places = tuple(disk.places(settings, uv.path, disk.TORCH_GB if installs_cuda else disk.SOME_GB))
    missed = _missed(here, stops)
    others = nvidia.other_processes(device)
    remarks = [device.note, *(broken if cells else ()), git.problem]
    remarks += [f"another process is on the device, so times may be too long: {other}" for other in others]
    compiling = [name for name in variants.NAMES if needs_compiler(name) and not unsupported(name, device, workloads)]
    if compiler.problem and compiler.problem not in missed and compiling:
        remarks.append(f"{compiler.problem}; these need it: {', '.join(compiling)}")
    if lock and installs_cuda and cells:
        remarks.append(_useless_cuda(lock, device, target, settings))
    nothing = [] if notebook else [f"a notebook of {settings.root / 'notebooks'} must measure something, got none"]
    tables = tomllib.loads((settings.root / "environment" / "targets.toml").read_text(encoding="utf-8"))
    return Examination(
        device=device,
        other_processes=others,
        target=target.name,
        target_is_named=target.name in tables,
        tools=programs,
        way="ambient" if settings.python else "uv",
        lock=lock,
        packages=packages,
        cells={f"{by.notebook}/{by.cell.id}": by.cell.packages for by in cells},
        environments=ready,
        places=places,
        settings=_in_force(),
        workloads=tuple(workload.name for workload in workloads),
        variants=here,
        remarks=tuple(remark for remark in remarks if remark),
        lacking=(
            *stops,
            *(f"{', '.join(names)} must run here, and will not: {reason}" for reason, names in missed.items()),
            *(() if cells else broken or nothing),
            *disk.lacking(places),
        ),
        by_notebook=by_notebook,
    )


def _useless_cuda(lock: str, device: Device, target: Target, settings: Settings) -> str | None:
    """Return that a lock brings CUDA to a CPU, and which one would not; None where none of its target would be used."""
    of_cpu = next((file for file in target.locks if "+cpu" in file), None)
    is_gpu = device.worker_kind != "cpu" or device.note  # one whose driver is silent, which is to be mended
    if is_gpu or settings.torch or not of_cpu:
        return None
    return (
        f"{lock.split()[0]} brings CUDA, gigabytes that a CPU has no use for; {of_cpu} is used where a folder that "
        "PIP_FIND_LINKS names has its wheel, see environment/README.md"
    )


def _missed(here: Iterable[VariantHere], stops: Iterable[str]) -> dict[str, list[str]]:
    """Return the required variants that a notebook names and that will not run, by the reason of their own."""
    missed: dict[str, list[str]] = {}
    for variant in here:
        if variant.is_required and variant.notebooks and variant.reason and variant.reason not in stops:
            missed.setdefault(variant.reason, []).append(variant.variant)
    return missed


def _in_force() -> dict[str, str]:
    """Return the settings that are set, without the password that an address may hold."""
    names = sorted(name for name in os.environ if name.startswith("FLUXBENCH_") or name in _NOT_OURS)
    return {name: re.sub(r"//[^/@\s]+@", "//", os.environ[name]) for name in names if os.environ[name]}
