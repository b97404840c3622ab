"""The looks of `doctor` at a machine: tools, notebooks, packages, workloads, disk, and settings in force.

Imports no torch, starts nothing on the device, builds and downloads nothing.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TypeVar

from fluxbench import variants
from fluxbench.bench import dependencies
from fluxbench.core.errors import SetupError
from fluxbench.core.settings import Settings
from fluxbench.device.model import Device
from fluxbench.device.targets import Target
from fluxbench.environments import cell
from fluxbench.environments import prepare as environments
from fluxbench.environments.cell import Cell
from fluxbench.operations.workloads import Workload

_WALK_S = 0.3  # for the sizes of all folders together
_GB = 10**9
# What must be free for records and pages; for packages; and for torch with CUDA, roughly: it unpacks to about 6 GB, and
# its wheels pass through uv's cache.
_LITTLE_GB, SOME_GB, TORCH_GB = 0.1, 1, 12
_ABSENT = "absent"  # asked for as a version, it comes back of a package that neither lock nor interpreter holds
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


def tools(device: Device) -> Iterator[Tool]:
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


def notebooks(folder: Path) -> tuple[list[Measuring], list[str]]:
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


def packages(cells: Iterable[Measuring], target: Target, settings: Settings) -> tuple[str | None, Packages, str | None]:
    """Return the lock, what the measured packages are, and why they cannot be had."""
    alike = [this for _, this, _ in cells if not this.lock]  # the others have environments of their own
    names = {"torch", "triton", *(pin.split("==")[0] for this in alike for pin in this.packages)}
    try:
        found = environments.describe(tuple(f"{name}=={_ABSENT}" for name in sorted(names)), target, settings)
    except SetupError as error:
        return None, {}, str(error)
    versions = {key.removeprefix("package."): value for key, value in found.items() if key not in ("way", "lock")}
    return found.get("lock"), {name: None if it == _ABSENT else it for name, it in versions.items()}, None


def shapes(device: Device, settings: Settings) -> tuple[tuple[Workload, ...], str | None]:
    """Return the workloads that are measured here, and why there are none."""
    try:
        return dependencies.default_workloads(device, settings), None
    except SetupError as error:
        return (), str(error)


def places(settings: Settings, uv: str | None, packages_gb: float) -> Iterator[Place]:
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


def no_space(places: Iterable[Place]) -> Iterator[str]:
    """Yield a sentence for the folders that have less free than a build needs."""
    short = (place for place in places if place.free_bytes < place.needed_bytes)
    for (needed, free), of in grouped(((place.needed_bytes, place.free_bytes), place) for place in short).items():
        where = ", ".join(f"{place.name} ({place.path})" for place in of)
        why = ", roughly, to install torch with CUDA" if needed == TORCH_GB * _GB else ""
        yield (
            f"{needed / _GB:g} GB must be free{why} for {where}, got {_bytes(free)}; free some, or name other "
            "folders in FLUXBENCH_CACHE, UV_CACHE_DIR and TMPDIR"
        )


def in_force() -> dict[str, str]:
    """Return the settings that are set."""
    names = sorted(name for name in os.environ if name.startswith("FLUXBENCH_") or name in _BESIDE)
    # Whatever password an address holds is not shown.
    return {name: re.sub(r"//[^/@\s]+@", "//", os.environ[name]) for name in names if os.environ[name]}


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return the values of each key, both in the order in which they came."""
    found: dict[Key, list[Value]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def held(at: Place) -> str:
    """Return where a folder is, what is free there, and its size."""
    size = "" if at.size_bytes is None else f", {'more than ' if at.is_more else ''}{_bytes(at.size_bytes)}"
    return f"{at.path}: {_bytes(at.free_bytes)} free{size}"


def _bytes(count: int) -> str:
    return f"{count / _GB:,.1f} GB" if count >= _GB / 10 else f"{count / 10**6:,.1f} MB"
