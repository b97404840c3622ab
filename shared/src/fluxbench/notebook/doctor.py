"""What this machine has and lacks: device, tools, packages, disk, and which variants will run here and why others not.

Imports no torch, starts nothing on the device, builds and downloads nothing. Past 300 lines because it looks at
everything that a build depends on, and each look is short.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TypeVar

from fluxbench import cell, dependencies, environments, hardware, targets, variants
from fluxbench.cell import Cell
from fluxbench.hardware import Device
from fluxbench.settings import Settings, SetupError
from fluxbench.targets import Target
from fluxbench.workloads import Workload

_WALK_S = 0.3  # for the sizes of all folders together
_GB = 10**9
# What must be free for records and pages; for packages; and for torch with CUDA, roughly: it unpacks to about 6 GB, and
# its wheels pass through uv's cache.
_LITTLE_GB, _SOME_GB, _TORCH_GB = 0.1, 1, 12
_ABSENT = "absent"  # asked for as a version, it comes back of a package that neither lock nor interpreter holds
# torch.compile makes calls of a ready kernel of these, and no code (tried: torch 2.13 on a CPU, 2.11 on an H200).
_CALLS_ALONE = ("torch_flash", "torch_cudnn", "torch_efficient", "torch_native")
_BESIDE = ("CUDA_VISIBLE_DEVICES", "PIP_FIND_LINKS", "UV_FIND_LINKS", "UV_CACHE_DIR")  # settings that are not our own

Measuring = tuple[str, Cell, tuple[str, ...]]  # the notebook of a measuring cell, the cell, the variants that it names
Packages = Mapping[str, str | None]  # Python and what is measured with, in which version; None: not there
Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A program or a package. `problem` says what is wrong with it and what to do."""

    name: str
    version: str | None = None
    path: str | None = None
    problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class Place:
    """A folder that a build writes into. Where `is_more`, `size_bytes` is what was counted before time was up."""

    name: str
    path: str
    free_bytes: int
    needed_bytes: int
    size_bytes: int | None
    is_more: bool


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
        pins = _grouped((" ".join(packages), name) for name, packages in self.cells.items())
        lines += [f"  pinned: {packages} by {', '.join(names)}" for packages, names in pins.items()]
        kept = f" in {self.environments} environment{'' if self.environments == 1 else 's'}"
        lines += _rows("Disk", {at.name: _held(at) + (kept if at.name == "cache" else "") for at in self.places})
        lines += _rows("Settings in force", self.settings)
        lines += ["", f"Variants at {', '.join(self.workloads) or 'no workload'}"]
        reasons = _grouped((each.reason or "", each.variant) for each in self.variants)
        lines += [f"  {', '.join(reasons[why])}: {why or 'will run'}" for why in sorted(reasons, key=bool)]
        named = _grouped((notebook, each.variant) for each in self.variants for notebook in each.notebooks)
        lines += [f"  {notebook} names {len(names)} of {len(self.variants)}" for notebook, names in named.items()]
        for title, sentences in (("Remarks:", self.remarks), ("What is lacking:", self.lacking)):
            lines += ["", title, *(f"  - {each}" for each in sentences)] if sentences else []
        return "\n".join(_wrapped(line) for line in [*lines, *([] if self.lacking else ["", "Nothing is lacking."])])


def examine(settings: Settings) -> Examination:
    """Look at this machine; what is wrong with it is in what is returned."""
    device = hardware.detect()
    others = hardware.other_processes(device)
    target = targets.of(device, settings.root)
    tools = uv, uvnote, _, compiler, git = tuple(_tools(device))
    cells, broken = _notebooks(settings.root / "notebooks")
    lock, packages, no_packages = _packages(cells, target, settings)
    shapes, no_shapes = _shapes(device, settings)
    # What keeps every variant from running.
    stops = [each for each in (uv.problem, uvnote.problem, no_shapes, no_packages, _unfit(device, packages)) if each]
    found = []
    for name in variants.NAMES:
        naming = [(notebook, this) for notebook, this, names in cells if name in names]
        reasons = (
            _refused(name, device, shapes),
            _left_out(name, target, settings),
            None if naming else "no notebook names it",
            *stops,
            *(_missing(this, lock, packages, settings) for _, this in naming),
            _uncompiled(name, device, compiler, packages),
        )
        notebooks = tuple(dict.fromkeys(notebook for notebook, _ in naming))
        reason = next(filter(None, reasons), None)
        found.append(OfVariant(variant=name, notebooks=notebooks, is_expected=name in target.expects, reason=reason))
    # Whether the ready one is the one that is needed, only `environments` knows.
    ready = len(list((settings.cache / "envs").glob("*/ready")))
    brings_cuda = lock and sys.platform == "linux" and any(name.startswith("nvidia-") for name in packages)
    places = tuple(_places(settings, uv.path, _TORCH_GB if brings_cuda and not ready else _SOME_GB))
    missed = _grouped(
        (each.reason, each.variant)
        for each in found
        if each.is_expected and each.notebooks and each.reason and each.reason not in stops
    )
    lacking = [*stops, *(f"{', '.join(who)} must run here, and will not: {why}" for why, who in missed.items())]
    if not cells:
        lacking += broken or [f"a notebook of {settings.root / 'notebooks'} must measure something, got none"]
    remarks = [device.note, *(broken if cells else ()), git.problem]
    remarks += [f"another process is on the device, so times may be too long: {each}" for each in others]
    idle = [name for name in variants.NAMES if _needs_compiler(name) and not _refused(name, device, shapes)]
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
        settings=_in_force(),
        workloads=tuple(shape.name for shape in shapes),
        variants=tuple(found),
        remarks=tuple(each for each in remarks if each),
        lacking=(*lacking, *_no_space(places)),
    )


# The looks.


def _tools(device: Device) -> Iterator[Tool]:
    """Look at what a build calls: uv, uvnote, Python, a compiler and git, in this order."""
    path = problem = version = None
    try:
        path = environments.uv()
        version = _said(path, "--version").removeprefix("uv ")
    except SetupError as error:
        problem = str(error)
    except (OSError, subprocess.SubprocessError) as error:
        problem = f"uv must start: {str(error).rstrip('.')}; remove .venv and run `make setup`"
    yield Tool(name="uv", version=version, path=path, problem=problem)
    try:
        yield Tool(name="uvnote", version=metadata.version("uvnote"))
    except metadata.PackageNotFoundError:
        yield Tool(name="uvnote", problem="uvnote must be installed beside fluxbench, got none; run `make setup`")
    yield Tool(name="Python", version=platform.python_version(), path=sys.executable)
    yield _compiler(device)
    path = shutil.which("git")
    problem = None if path else "git must be on PATH for `fluxbench diff FOLDER@REVISION`, got none; install it"
    yield Tool(name="git", path=path, problem=problem)


def _compiler(device: Device) -> Tool:
    """Find the compiler that torch.compile takes on a CPU, or that Triton takes on a GPU, as they themselves do."""
    if device.worker_kind == "cpu":
        name, variable, by = "C++ compiler", "CXX", "torch.compile on a CPU"
        usual = ["clang++" if sys.platform == "darwin" else "g++"]
    else:
        name, variable, by, usual = "C compiler", "CC", "Triton", ["gcc", "clang"]
    asked = [os.environ[variable]] if variable in os.environ else usual
    path = next(filter(None, map(shutil.which, asked)), None)
    problem = f"{by} needs a {name}, got no {' or '.join(asked)}; install it, or name another in {variable}"
    return Tool(name=name, path=path, problem=None if path else problem)


def _notebooks(folder: Path) -> tuple[list[Measuring], list[str]]:
    """Return every measuring cell, and a sentence for each notebook that cannot be built."""
    cells, broken = [], []
    for path in sorted(folder.glob("*.md")):
        try:
            from fluxbench.notebook.document import load  # which needs uvnote

            document = load(path)
            codes = [code for code in document.cells if document.is_measuring(code)]
            found = [(path.name, cell.parse(each.code, each.id), cell.measured(each.code)) for each in codes]
            for name in (name for _, _, names in found for name in names):
                variants.find(name)
            cells += found
        except (SetupError, KeyError, ImportError) as error:
            broken.append(f"{path.name} cannot be built: {error.args[0]}")
    return cells, broken


def _packages(
    cells: Iterable[Measuring], target: Target, settings: Settings
) -> tuple[str | None, Packages, str | None]:
    """Return the lock, what the measured packages are, and why they cannot be had."""
    names = {"torch", "triton", *(pin.split("==")[0] for _, this, _ in cells for pin in this.packages)}
    try:
        found = environments.describe(tuple(f"{name}=={_ABSENT}" for name in sorted(names)), target, settings)
    except SetupError as error:
        return None, {}, str(error)
    versions = {key.removeprefix("package."): value for key, value in found.items() if key not in ("way", "lock")}
    return found.get("lock"), {name: None if it == _ABSENT else it for name, it in versions.items()}, None


def _shapes(device: Device, settings: Settings) -> tuple[tuple[Workload, ...], str | None]:
    try:
        return dependencies.default_workloads(device, settings), None
    except SetupError as error:
        return (), str(error)


def _places(settings: Settings, uv: str | None, packages_gb: float) -> Iterator[Place]:
    """Look at the folders that a build writes into; uv's cache, the largest, is counted last."""
    try:
        temporary = tempfile.gettempdir()
    except FileNotFoundError:  # a full disk
        temporary = "/tmp"
    folders: list[tuple[str, Path, tuple[str, ...], float]] = [
        ("cache", settings.cache, ("envs", "overlays"), packages_gb),
        ("results", settings.root / "notebooks" / ".uvnote", ("cache",), _LITTLE_GB),
        ("temporary folder", Path(temporary), (), _LITTLE_GB),
    ]
    if uv:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            folders.append(("uv's cache", Path(_said(uv, "cache", "dir")), (".",), packages_gb))
    until = time.monotonic() + _WALK_S
    for name, folder, counted, needed_gb in folders:
        there = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
        size, is_whole = _count((folder / part for part in counted), until)
        yield Place(
            name=name,
            path=str(folder),
            free_bytes=shutil.disk_usage(there).free,
            needed_bytes=int(needed_gb * _GB),
            size_bytes=size if counted else None,
            is_more=not is_whole,
        )


def _count(folders: Iterable[Path], until: float) -> tuple[int, bool]:
    """Return how many bytes the files in these folders have, and whether that was all of them."""
    size, ahead = 0, [str(folder) for folder in folders]
    while ahead:
        if time.monotonic() > until:
            return size, False
        with contextlib.suppress(OSError), os.scandir(ahead.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    ahead.append(entry.path)
                else:
                    size += entry.stat(follow_symlinks=False).st_size
    return size, True


def _no_space(places: Iterable[Place]) -> Iterator[str]:
    short = (place for place in places if place.free_bytes < place.needed_bytes)
    for (needed, free), of in _grouped(((place.needed_bytes, place.free_bytes), place) for place in short).items():
        where = ", ".join(f"{place.name} ({place.path})" for place in of)
        why = ", roughly, to install torch with CUDA" if needed == _TORCH_GB * _GB else ""
        yield (
            f"{needed / _GB:g} GB must be free{why} for {where}, got {_bytes(free)}; free some, or name other "
            "folders in FLUXBENCH_CACHE, UV_CACHE_DIR and TMPDIR"
        )


def _in_force() -> dict[str, str]:
    names = sorted(name for name in os.environ if name.startswith("FLUXBENCH_") or name in _BESIDE)
    # Whatever password an address holds is not shown.
    return {name: re.sub(r"//[^/@\s]+@", "//", os.environ[name]) for name in names if os.environ[name]}


# Why a variant will not run, or None.


def _refused(name: str, device: Device, shapes: Sequence[Workload]) -> str | None:
    variant, _ = variants.find(name)
    found = {shape.name: why for shape in shapes if (why := variant.supports(device, shape))}
    where = f", at {', '.join(found)}" if len(found) < len(shapes) else ""
    return next((why + where for why in found.values()), None)


def _left_out(name: str, target: Target, settings: Settings) -> str | None:
    if settings.all or not any(fnmatch.fnmatch(name, pattern) for pattern in target.leaves_out):
        return None
    return f"left out of the page of target {target.name!r} for its time; FLUXBENCH_ALL=1 measures it"


def _unfit(device: Device, packages: Packages) -> str | None:
    """Say why torch cannot use the GPU, as far as versions tell."""
    torch = packages.get("torch") or ""
    if device.kind == "cuda" and torch.endswith("+cpu"):
        return f"torch {torch} was built for CPUs and cannot use this GPU; bring one that was built for CUDA"
    cuda = next((it.split(".")[0] for name, it in packages.items() if it and name.startswith("nvidia-cublas")), None)
    if cuda and device.cuda and int(cuda) > int(device.cuda.split(".")[0]):
        return f"torch brings CUDA {cuda}, and the driver knows {device.cuda} at most; install a newer driver"
    return None


def _missing(this: Cell, lock: str | None, packages: Packages, settings: Settings) -> str | None:
    """Say which of a cell's packages cannot be had, as `environments.prepare` does."""
    missing = []
    for pin in this.packages:
        name, version = pin.split("==")
        have = packages.get(name)
        if lock and (have or "").split("+")[0] != version:
            return f"{lock.split()[0]} must lock {pin}, got {have or 'nothing'}; lock it anew with `make lock`"
        if not have and not _is_offered(pin, settings.wheels):
            missing.append(pin)
    ways = "must be installed for FLUXBENCH_PYTHON, or lie as a wheel in the folder that FLUXBENCH_WHEELS names"
    return f"{' and '.join(missing)} {ways}" if missing else None


def _is_offered(pin: str, wheels: Path | None) -> bool:
    stem = pin.replace("-", "_").replace("==", "-").lower()
    names = (wheel.name.lower() for wheel in wheels.glob("*.whl")) if wheels else ()
    return any(name.startswith((f"{stem}-", f"{stem}+")) for name in names)


def _is_compiled(name: str) -> bool:
    variant, form = variants.find(name)
    return bool(form.compile_mode) or variant.name == "flex"


def _needs_compiler(name: str) -> bool:
    """Whether code is made for a variant: C++ on a CPU, and on a GPU a Triton kernel, whose launcher is C."""
    variant, _ = variants.find(name)
    return variant.name not in _CALLS_ALONE and (_is_compiled(name) or "triton" in variant.packages)


def _uncompiled(name: str, device: Device, compiler: Tool, packages: Packages) -> str | None:
    if device.worker_kind != "cpu" and _is_compiled(name) and not packages.get("triton"):
        return "torch.compile on a GPU needs Triton, got none; install it for FLUXBENCH_PYTHON"
    return compiler.problem if _needs_compiler(name) else None


# Words.


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()


def _grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    found: dict[Key, list[Value]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def _rows(title: str, rows: Mapping[str, str | None]) -> list[str]:
    wide = max(map(len, rows), default=0)
    return ["", title, *(f"  {key:<{wide}}  {value or 'none'}" for key, value in rows.items())] if rows else []


def _held(at: Place) -> str:
    size = "" if at.size_bytes is None else f", {'more than ' if at.is_more else ''}{_bytes(at.size_bytes)}"
    return f"{at.path}: {_bytes(at.free_bytes)} free{size}"


def _bytes(count: int) -> str:
    return f"{count / _GB:,.1f} GB" if count >= _GB / 10 else f"{count / 10**6:,.1f} MB"


def _wrapped(line: str) -> str:
    further = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.fill(line, 118, subsequent_indent=further, break_long_words=False, break_on_hyphens=False)
