"""A set of packages to an interpreter that holds them: built by uv from a lock, or one that is already provisioned."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fluxbench.core import progress
from fluxbench.core.errors import SetupError
from fluxbench.core.settings import Settings
from fluxbench.device.targets import Target
from fluxbench.environments import locks
from fluxbench.environments.locks import Locks

_BELOW = r"nvidia-cu(dnn|blas).*|(pytorch-)?triton"  # the libraries that pick or make kernels, whoever asked for them


@dataclass(frozen=True, kw_only=True)
class Environment:
    """An interpreter that is ready to run a worker."""

    python: str
    variables: dict[str, str] = field(default_factory=dict)  # to add to the worker's environment


def prepare(packages: tuple[str, ...], target: Target, settings: Settings, library: str | None = None) -> Environment:
    """Return an environment with these packages, each `name==version`, and all that the library's own lock holds.

    With an ambient interpreter its own versions are used as they are, and only what is missing is brought.
    Raises `SetupError` where it cannot be had here.
    """
    locked = _locks(target, library, settings)
    if why := _lacking(packages, locked, settings):
        raise SetupError(why)
    if settings.python:
        return _ambient(settings.python, packages, locked, settings)
    return _with_uv(packages, locked, settings)


def lacking(packages: tuple[str, ...], target: Target, settings: Settings, library: str | None = None) -> str | None:
    """Say why `prepare` would give nothing, as far as that is known without building anything."""
    try:
        return _lacking(packages, _locks(target, library, settings), settings)
    except SetupError as error:
        return str(error)


def _lacking(packages: tuple[str, ...], locked: Locks, settings: Settings) -> str | None:
    if not settings.python:
        return locked.wrong(packages)
    absent = _missing(packages, locked, _asked(settings.python))
    if unlocked := locked.wrong(absent):
        return unlocked
    absent = tuple(each for each in absent if not _is_offered(each, settings.wheels))
    if not absent:
        return None
    more = f" and {len(absent) - 3} more" if len(absent) > 4 else ""
    named = ", ".join(absent[:3]) + more if more else " and ".join(absent)
    return (
        f"{named} must be installed for FLUXBENCH_PYTHON, or lie as a wheel in the folder that FLUXBENCH_WHEELS names"
    )


def uv() -> str:
    """Return the path of uv: the one that runs us, beside us, or on PATH. Raises `SetupError` where there is none."""
    beside = Path(sys.executable).with_name("uv")
    found = os.environ.get("UV") or (str(beside) if beside.is_file() else shutil.which("uv"))
    if not found or not Path(found).is_file():
        raise SetupError(
            f"uv must be on PATH to build the measured environment, got {found or 'none'}; run `make setup`"
        )
    return found


def uv_variables(settings: Settings) -> dict[str, str]:
    """Return the environment variables under which uv finds what pip was told of, and keeps one cache for all."""
    variables = {}
    if "UV_CACHE_DIR" not in os.environ:
        # Inside a cell, uvnote has replaced HOME: keep to the cache that this very interpreter was installed from.
        parts = Path(sys.prefix).parts
        if "environments-v2" in parts:
            variables["UV_CACHE_DIR"] = str(Path(*parts[: parts.index("environments-v2")]))
    if settings.wheels:
        variables |= {"UV_FIND_LINKS": str(settings.wheels), "UV_NO_INDEX": "1", "UV_OFFLINE": "1"}
    elif offered := os.environ.get("PIP_FIND_LINKS"):
        variables.setdefault("UV_FIND_LINKS", os.environ.get("UV_FIND_LINKS") or ",".join(offered.split()))
    return variables


def _locks(target: Target, library: str | None, settings: Settings) -> Locks:
    variables = {**os.environ, **uv_variables(settings)}
    return locks.of(target, library, settings, variables.get("UV_FIND_LINKS", ""))


def _with_uv(packages: tuple[str, ...], locked: Locks, settings: Settings) -> Environment:
    texts = [lock.read_text(encoding="utf-8") for lock in locked.files]
    folder = settings.cache / "envs" / hashlib.sha256("\n".join((_python_version(), *texts)).encode()).hexdigest()[:16]
    base = getattr(sys, "_base_executable", sys.executable)
    with _made(folder, base, packages, settings) as python:
        if python:
            _install(python, locked.files, settings)
    return Environment(python=str(folder / "bin" / "python"))


def _ambient(python: str, packages: tuple[str, ...], locked: Locks, settings: Settings) -> Environment:
    """Use the interpreter as it is, and lay what it lacks over it from the folder of wheels.

    That is a venv of the same Python, in which `.pth` files work and several wheels may share a folder. After what it
    holds itself, it sees what the interpreter sees.
    """
    ambient = _asked(python)
    missing = _missing(packages, locked, ambient)
    if not missing:
        return Environment(python=python)
    requirements = locked.requirements()
    text = "".join(requirements[package.partition("==")[0]] for package in missing)
    key = hashlib.sha256("\n".join((python, ambient.version, *ambient.folders, text)).encode()).hexdigest()
    folder = settings.cache / "overlays" / key[:16]
    with _made(folder, python, missing, settings) as own:
        if own:
            file = folder / "requirements.txt"
            file.write_text(text, encoding="utf-8")
            _install(own, (file,), settings)
            seen = "; ".join(f"site.addsitedir({each!r})" for each in ambient.folders)
            # The last by name, so that a folder which a package's own .pth file adds comes before the interpreter's.
            for site in folder.glob("lib/python*/site-packages"):
                (site / "zzz_ambient.pth").write_text(f"import site; {seen}\n", encoding="utf-8")
    return Environment(python=str(folder / "bin" / "python"))


@contextmanager
def _made(folder: Path, base: str, packages: tuple[str, ...], settings: Settings) -> Iterator[Path | None]:
    """Give the Python of a fresh venv to install into, or None where it is ready: once such a block has ended well."""
    with _locked(folder):
        if (folder / "ready").is_file():
            yield None
            return
        progress.say(step=f"building the environment of {' '.join(packages)}")
        _run_uv(["venv", "--quiet", "--clear", "--python", base, str(folder)], uv_variables(settings))
        yield folder / "bin" / "python"
        (folder / "ready").touch()


def _install(python: Path, files: tuple[Path, ...], settings: Settings) -> None:
    """Install what these files name and nothing else, by their hashes, from wheels alone."""
    only = ["--quiet", "--require-hashes", "--no-deps", "--no-build", "--python", str(python)]
    if settings.wheels:  # uv 0.13.8 heeds no UV_NO_INDEX, and would take what its cache knows of a registry
        only.append("--no-index")
    named = [argument for file in files for argument in ("--requirements", str(file))]
    _run_uv(["pip", "install", *only, *named], uv_variables(settings))


def describe(
    packages: tuple[str, ...], target: Target, settings: Settings, library: str | None = None
) -> dict[str, str]:
    """Return what `prepare` would give, without building anything: part of what a result depends on.

    `way` ("uv" or "ambient"), `python`, `package.<name>` for each package, what the library's own lock holds and the
    libraries that pick kernels; `library_lock`, its name and hash, and on the uv way `lock`, torch's. Raises
    `SetupError` as `prepare` does.
    """
    locked = _locks(target, library, settings)
    pins = locked.pins()
    asked = dict(package.split("==") for package in packages)
    if settings.python:
        ambient = _asked(settings.python)
        found = {"way": "ambient", "python": ambient.version}
        have = {name: it for name in (*asked, *locked.library_pins()) if (it := ambient.have.get(_canonical(name)))}
        below = {name: version for name, version in sorted(ambient.have.items()) if re.fullmatch(_BELOW, name)}
        wanted = {**asked, **locked.library_pins()}
    else:
        found = {"way": "uv", "python": _python_version(), "lock": locks.name_and_hash(locked.torch)}
        have = {}
        below = {name: pins[name] for name in sorted(pins) if re.fullmatch(_BELOW, name)}
        wanted = {**asked, **{name: pins[name] for name in asked if name in pins}, **locked.library_pins()}
    if locked.library:
        found["library_lock"] = locks.name_and_hash(locked.library)
    return {**found, **{f"package.{name}": version for name, version in {**below, **wanted, **have}.items()}}


@dataclass(frozen=True, kw_only=True)
class Ambient:
    """An interpreter that is there already: its version, its packages by canonical name, the folders they lie in."""

    version: str
    have: dict[str, str]
    folders: tuple[str, ...]


def _missing(packages: tuple[str, ...], locked: Locks, ambient: Ambient) -> tuple[str, ...]:
    """Return what an interpreter lacks of a cell's packages and of the library's own lock, each `name==version`."""
    wanted = dict(package.split("==") for package in packages) | locked.library_pins()
    return tuple(f"{name}=={version}" for name, version in wanted.items() if _canonical(name) not in ambient.have)


def _is_offered(pin: str, wheels: Path | None) -> bool:
    stem = pin.replace("-", "_").replace("==", "-").lower()
    names = (wheel.name.lower() for wheel in wheels.glob("*.whl")) if wheels else ()
    return any(name.startswith((f"{stem}-", f"{stem}+")) for name in names)


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@functools.cache  # an interpreter's packages stay as they are while we run, and several cells ask
def _asked(python: str) -> Ambient:
    """Ask an interpreter what it has."""
    code = (
        "import importlib.metadata as m, json, os, platform, re, sys, sysconfig\n"
        "have = {re.sub('[-_.]+', '-', d.metadata['Name']).lower(): d.version for d in m.distributions()}\n"
        "std = {os.path.realpath(sysconfig.get_path(n)) for n in ('stdlib', 'platstdlib')}\n"
        "std |= {os.path.join(s, 'lib-dynload') for s in std}\n"
        "folders = [p for p in sys.path if os.path.isdir(p) and os.path.realpath(p) not in std]\n"
        "print(json.dumps({'version': platform.python_version(), 'have': have, 'folders': folders}))"
    )
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, timeout=60)
        said = json.loads(done.stdout)
        return Ambient(version=said["version"], have=said["have"], folders=tuple(said["folders"]))
    except (OSError, subprocess.SubprocessError, ValueError, TypeError, KeyError) as error:
        raise SetupError(f"FLUXBENCH_PYTHON must be a working Python 3.11 or newer, got {python}: {error}") from error


def _python_version() -> str:
    return ".".join(map(str, sys.version_info[:3]))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock while a folder is made, so that two builds at once do not make it together."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run_uv(arguments: list[str], variables: dict[str, str]) -> None:
    done = subprocess.run([uv(), *arguments], env={**os.environ, **variables}, capture_output=True, text=True)
    if done.returncode:
        cause = explain(done.stderr) or f"it ended with exit code {done.returncode} and said nothing; run it again"
        raise SetupError(f"uv could not build the measured environment: {cause}")


def explain(stderr: str) -> str:
    """Return what uv says went wrong, from its stderr, as one sentence with the advice that fits."""
    text = " ".join(line.strip(" ×╰─▶│├·⏵") for line in stderr.splitlines() if line.strip()).partition("hint:")[0]
    text = re.sub(r"https?://[^\s`)]+", "the registry", text).removeprefix("error: ").strip(" .")
    text = text if len(text) <= 300 else f"{text[:299]}…"
    for pattern, advice in (
        (r"(?i)no space left", "free some disk space and run it again"),
        (r"(?i)hash", "the lock does not know this file: name a folder without it in UV_FIND_LINKS, or lock it anew"),
        (
            r"(?i)no usable wheels",
            "no registry has this wheel: build it as environment/locks/*.in say, and name its folder in UV_FIND_LINKS",
        ),
        (
            r"(?i)not found in the cache|no wheels|not found in the provided",
            "bring a wheel that fits, or allow the network",
        ),
        (r"(?i)dns|connect|network|timed out|tcp", "check the network, or name a folder of wheels in FLUXBENCH_WHEELS"),
        (r"(?i)no solution|incompatible|not compatible", "bring a wheel that fits this Python and platform"),
    ):
        if re.search(pattern, text):
            return f"{text}; {advice}"
    return text
