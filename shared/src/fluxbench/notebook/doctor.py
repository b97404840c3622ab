"""What this machine has and lacks: device, tools, packages, disk, and which variants will run here and why others not.

Imports no torch, starts nothing on the device, builds and downloads nothing.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import textwrap
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass

from fluxbench import variants
from fluxbench.core.settings import Settings
from fluxbench.device import detection as hardware
from fluxbench.device import targets
from fluxbench.device.model import Device
from fluxbench.environments import prepare as environments
from fluxbench.notebook import doctor_looks
from fluxbench.notebook.doctor_looks import SOME_GB, TORCH_GB, Packages, Place, Tool, grouped, held
from fluxbench.notebook.doctor_variants import left_out, needs_compiler, refused, uncompiled, unfit


@dataclass(frozen=True, kw_only=True)
class OfVariant:
    """A variant, the notebooks that name it, whether it must be PASSED here, and why it will not run, or None."""

    variant: str
    notebooks: tuple[str, ...]
    is_expected: bool
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class Examination:
    """What was found. Each of `remarks` and `lacking` is a sentence; a remark stops nothing."""

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
    variants: tuple[OfVariant, ...]
    remarks: tuple[str, ...]
    lacking: tuple[str, ...]

    @property
    def is_well(self) -> bool:
        """Whether nothing is lacking that a page without problems needs."""
        return not self.lacking

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps({**dataclasses.asdict(self), "well": self.is_well}, indent=1)

    def text(self) -> str:
        """Return it for a person."""
        table = "a table" if self.target_is_named else "without a table, so [any],"
        lines = [f"Device: target {self.target}, {table} of environment/targets.toml"]
        lines += [f"  {line}" for line in hardware.describe(self.device).splitlines()]
        lines += _rows("Tools", {each.name: " ".join(filter(None, (each.version, each.path))) for each in self.tools})
        source = f"by uv from {self.lock or 'no lock'}" if self.way == "uv" else "as FLUXBENCH_PYTHON has them"
        lines += _rows(f"Measured packages, {source}", self.packages)
        pins = grouped((" ".join(packages), name) for name, packages in self.cells.items())
        lines += [f"  pinned: {packages} by {', '.join(names)}" for packages, names in pins.items()]
        kept = f" in {self.environments} environment{'' if self.environments == 1 else 's'}"
        lines += _rows("Disk", {at.name: held(at) + (kept if at.name == "cache" else "") for at in self.places})
        lines += _rows("Settings in force", self.settings)
        lines += ["", f"Variants at {', '.join(self.workloads) or 'no workload'}"]
        reasons = grouped((each.reason or "", each.variant) for each in self.variants)
        lines += [f"  {', '.join(reasons[why])}: {why or 'will run'}" for why in sorted(reasons, key=bool)]
        named = grouped((notebook, each.variant) for each in self.variants for notebook in each.notebooks)
        lines += [f"  {notebook} names {len(names)} of {len(self.variants)}" for notebook, names in named.items()]
        for title, sentences in (("Remarks:", self.remarks), ("What is lacking:", self.lacking)):
            lines += ["", title, *(f"  - {each}" for each in sentences)] if sentences else []
        return "\n".join(_wrapped(line) for line in [*lines, *([] if self.lacking else ["", "Nothing is lacking."])])


def examine(settings: Settings) -> Examination:
    """Look at this machine; what is wrong with it is in what is returned."""
    device = hardware.detect()
    others = hardware.other_processes(device)
    target = targets.of(device, settings.root)
    tools = uv, uvnote, _, compiler, git = tuple(doctor_looks.tools(device))
    cells, broken = doctor_looks.notebooks(settings.root / "notebooks")
    lock, packages, no_packages = doctor_looks.packages(cells, target, settings)
    shapes, no_shapes = doctor_looks.shapes(device, settings)
    # What keeps every variant from running.
    stops = [each for each in (uv.problem, uvnote.problem, no_shapes, no_packages, unfit(device, packages)) if each]
    found = []
    for name in variants.NAMES:
        naming = [(notebook, this) for notebook, this, names in cells if name in names]
        reasons = (
            refused(name, device, shapes),
            left_out(name, target, settings),
            None if naming else "no notebook names it",
            *stops,
            *(environments.lacking(this.packages, target, settings, this.lock) for _, this in naming),
            uncompiled(name, device, compiler, packages),
        )
        notebooks = tuple(dict.fromkeys(notebook for notebook, _ in naming))
        reason = next(filter(None, reasons), None)
        found.append(OfVariant(variant=name, notebooks=notebooks, is_expected=name in target.expects, reason=reason))
    # Whether the ready one is the one that is needed, only `environments` knows.
    ready = len(list((settings.cache / "envs").glob("*/ready")))
    brings_cuda = lock and sys.platform == "linux" and any(name.startswith("nvidia-") for name in packages)
    places = tuple(doctor_looks.places(settings, uv.path, TORCH_GB if brings_cuda and not ready else SOME_GB))
    missed = grouped(
        (each.reason, each.variant)
        for each in found
        if each.is_expected and each.notebooks and each.reason and each.reason not in stops
    )
    lacking = [*stops, *(f"{', '.join(who)} must run here, and will not: {why}" for why, who in missed.items())]
    if not cells:
        lacking += broken or [f"a notebook of {settings.root / 'notebooks'} must measure something, got none"]
    remarks = [device.note, *(broken if cells else ()), git.problem]
    remarks += [f"another process is on the device, so times may be too long: {each}" for each in others]
    idle = [name for name in variants.NAMES if needs_compiler(name) and not refused(name, device, shapes)]
    if compiler.problem and compiler.problem not in missed and idle:
        remarks.append(f"{compiler.problem}; these need it: {', '.join(idle)}")
    table = tomllib.loads((settings.root / "environment" / "targets.toml").read_text(encoding="utf-8"))
    return Examination(
        device=device,
        other_processes=others,
        target=target.name,
        target_is_named=target.name in table,
        tools=tools,
        way="ambient" if settings.python else "uv",
        lock=lock,
        packages=packages,
        cells={f"{notebook}/{this.id}": this.packages for notebook, this, _ in cells},
        environments=ready,
        places=places,
        settings=doctor_looks.in_force(),
        workloads=tuple(shape.name for shape in shapes),
        variants=tuple(found),
        remarks=tuple(each for each in remarks if each),
        lacking=(*lacking, *doctor_looks.no_space(places)),
    )


def _rows(title: str, rows: Mapping[str, str | None]) -> list[str]:
    wide = max(map(len, rows), default=0)
    return ["", title, *(f"  {key:<{wide}}  {value or 'none'}" for key, value in rows.items())] if rows else []


def _wrapped(line: str) -> str:
    further = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.fill(line, 118, subsequent_indent=further, break_long_words=False, break_on_hyphens=False)
