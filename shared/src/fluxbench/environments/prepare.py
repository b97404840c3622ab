"""A set of packages to an interpreter that holds them: built by uv from a lock, or one that is already provisioned."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from fluxbench.core.errors import SetupError
from fluxbench.core.settings import Settings
from fluxbench.device.targets import Target
from fluxbench.environments import ambient, locks, uv
from fluxbench.environments.locks import Locks

# Libraries that pick or make kernels: a result depends on them, whoever required them.
_KERNEL_LIBRARIES = r"nvidia-cu(dnn|blas).*|(pytorch-)?triton"


@dataclass(frozen=True, kw_only=True)
class Environment:
    """An interpreter that is ready to run a worker."""

    python: str
    variables: dict[str, str] = field(default_factory=dict)  # to add to the worker's environment


def prepare(packages: tuple[str, ...], target: Target, settings: Settings, library: str | None = None) -> Environment:
    """Return an environment with these packages, each `name==version`, and all that the library's own lock holds.

    Where the settings name a torch, its lock replaces the pins of what it holds. With an ambient interpreter its own
    versions are used as they are, and only what is missing is brought. Raises `SetupError` where it cannot be had here.
    """
    packages, locked = _chosen(packages, target, library, settings)
    if problem := _problem(packages, locked, settings):
        raise SetupError(problem)
    if settings.python:
        return Environment(python=ambient.complete(settings.python, packages, locked, settings))
    folder = _folder(locked, settings)
    with uv.venv(folder, getattr(sys, "_base_executable", sys.executable), packages, settings) as python:
        if python:
            uv.install(python, locked.files, settings)
    if names := _hidden(folder, os.environ.get("PYTHONPATH", "")):
        raise SetupError(
            f"PYTHONPATH must hold nothing that the measured environment has, got {', '.join(names)}: that would be "
            "imported in its place; unset PYTHONPATH, or leave out that folder"
        )
    return Environment(python=str(folder / "bin" / "python"))


def lacking(packages: tuple[str, ...], target: Target, settings: Settings, library: str | None = None) -> str | None:
    """Return why `prepare` would fail, as far as that is known without building anything; else None."""
    try:
        return _problem(*_chosen(packages, target, library, settings), settings)
    except SetupError as error:
        return str(error)


def describe(
    packages: tuple[str, ...], target: Target, settings: Settings, library: str | None = None
) -> dict[str, str]:
    """Return what `prepare` would give, without building anything: part of what a result depends on.

    `way` ("uv" or "ambient"), `python`, `package.<name>` for each package, what the library's own lock holds and the
    libraries that pick kernels; `library_lock`, its name and hash, and on the uv way `lock`, torch's. Raises
    `SetupError` as `prepare` does.
    """
    packages, locked = _chosen(packages, target, library, settings)
    wanted = {**dict(package.split("==") for package in packages), **locked.library_pins()}
    if settings.python:
        interpreter = ambient.inspect(settings.python)
        facts = {"way": "ambient", "python": interpreter.version}
        available = interpreter.packages
        held = {name: version for name in wanted if (version := interpreter.version_of(name))}
    else:
        facts = {"way": "uv", "python": _python_version(), "lock": locks.name_and_hash(locked.torch)}
        available = locked.pins()
        held = {name: available[name] for name in wanted if name in available}
    below = {name: available[name] for name in sorted(available) if re.fullmatch(_KERNEL_LIBRARIES, name)}
    if locked.library:
        facts["library_lock"] = locks.name_and_hash(locked.library)
    return {**facts, **{f"package.{name}": version for name, version in {**below, **wanted, **held}.items()}}


def _problem(packages: tuple[str, ...], locked: Locks, settings: Settings) -> str | None:
    if settings.python:
        return ambient.problem(settings.python, packages, locked, settings.wheels)
    if (wrong := locked.wrong(packages)) or not settings.wheels or (_folder(locked, settings) / "ready").is_file():
        return wrong
    library = (f"{name}=={version}" for name, version in locked.library_pins().items())
    absent = locks.not_offered(dict.fromkeys((*packages, *library)), settings.wheels)
    return absent and (
        f"{absent} must be a wheel in the folder of FLUXBENCH_WHEELS; gather it with `make wheelhouse`, or "
        "name an interpreter that holds torch in FLUXBENCH_PYTHON"
    )


def _hidden(folder: Path, pythonpath: str) -> list[str]:
    """Return the packages and modules of a venv that are in a folder of PYTHONPATH too, of which that one is imported.

    Where it has no metadata, a record would name the version of the venv's.
    """

    def names(where: Path) -> set[str]:
        with contextlib.suppress(OSError):
            return {each.name.partition(".")[0] for each in where.iterdir() if _is_imported(each)}
        return set()

    own = {name for packages in folder.glob("lib/python*/site-packages") for name in names(packages)}
    others = [each for each in map(Path, pythonpath.split(os.pathsep)) if each.is_absolute()]  # workers are elsewhere
    return sorted(own & {name for each in others for name in names(each)})


def _is_imported(path: Path) -> bool:
    """Whether a file or folder is a module or a package; a folder without an `__init__.py` comes last in any case."""
    return path.suffix in (".py", ".so") or (path / "__init__.py").is_file()


def _folder(locked: Locks, settings: Settings) -> Path:
    """Return where uv builds the environment of these locks."""
    texts = (_python_version(), *(lock.read_text(encoding="utf-8") for lock in locked.files))
    return settings.cache / "envs" / hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def _chosen(
    packages: tuple[str, ...], target: Target, library: str | None, settings: Settings
) -> tuple[tuple[str, ...], Locks]:
    """Return a cell's packages and its locks; where the settings name a torch, its lock says which version of each."""
    find_links = {**os.environ, **uv.variables(settings)}.get("UV_FIND_LINKS", "")
    locked = locks.of(target, library, settings, find_links)
    return locked.on_torch(packages) if settings.torch else packages, locked


def _python_version() -> str:
    return ".".join(map(str, sys.version_info[:3]))
