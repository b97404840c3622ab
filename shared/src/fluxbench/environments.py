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

from fluxbench import progress
from fluxbench.settings import Settings, SetupError
from fluxbench.targets import Target

_BELOW = r"nvidia-cu(dnn|blas).*|(pytorch-)?triton"  # the libraries that pick or make kernels, whoever asked for them


@dataclass(frozen=True, kw_only=True)
class Environment:
    """An interpreter that is ready to run a worker."""

    python: str
    variables: dict[str, str] = field(default_factory=dict)  # to add to the worker's environment


def prepare(packages: tuple[str, ...], target: Target, settings: Settings) -> Environment:
    """Return an environment with these packages, each `name==version`.

    With an ambient interpreter its own versions are used as they are, and only what is missing is brought.
    Raises `SetupError` where it cannot be had here.
    """
    if settings.python:
        return _ambient(settings.python, packages, settings)
    return _with_uv(packages, target, settings)


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


def _with_uv(packages: tuple[str, ...], target: Target, settings: Settings) -> Environment:
    variables = uv_variables(settings)
    lock = _lock(target, settings, {**os.environ, **variables})
    key = hashlib.sha256(
        "\n".join((*sorted(packages), _python_version(), lock.read_text(encoding="utf-8"))).encode()
    ).hexdigest()
    folder = settings.cache / "envs" / key[:16]
    python = folder / "bin" / "python"
    with _locked(folder):
        if not (folder / "ready").is_file():
            progress.say(step=f"building the environment of {' '.join(packages)}")
            requirements = folder.with_suffix(".txt")
            requirements.write_text("\n".join(_locked_pins(packages, lock)) + "\n", encoding="utf-8")
            base = getattr(sys, "_base_executable", sys.executable)
            _run_uv(["venv", "--quiet", "--clear", "--python", base, str(folder)], variables)
            install = ["pip", "install", "--quiet", "--require-hashes", "--python", str(python)]
            _run_uv([*install, "--constraints", str(lock), "--requirements", str(requirements)], variables)
            (folder / "ready").touch()
    return Environment(python=str(python))


def _lock(target: Target, settings: Settings, variables: dict[str, str]) -> Path:
    """Return the first lock of the target whose local builds (`torch==2.13.0+cpu`) are all offered here.

    A registry holds no local builds: they come from the folders that `UV_FIND_LINKS` names.
    """
    folders = [Path(folder) for folder in variables.get("UV_FIND_LINKS", "").split(",") if folder]
    offered = [wheel.name for folder in folders if folder.is_dir() for wheel in folder.glob("*.whl")]
    for file in target.locks:
        lock = settings.root / "environment" / "locks" / file
        local = re.findall(r"(?m)^([\w.-]+)==([\w.]+\+[\w.]+)", lock.read_text(encoding="utf-8"))
        tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
        if all(any(wheel.startswith(f"{name}-{version}-{tag}-") for wheel in offered) for name, version in local):
            return lock
    raise SetupError(
        f"the locks of target {target.name!r} need wheels that no folder offers; name their folder in UV_FIND_LINKS"
    )


def _locked_pins(packages: tuple[str, ...], lock: Path) -> list[str]:
    """Return the packages with the lock's own versions, which may be local builds of the pinned ones."""
    pins = _pins(lock)
    found = []
    for package in packages:
        name, version = package.split("==")
        if pins.get(name, "").split("+")[0] != version:
            raise SetupError(
                f"{lock.name} must lock {package}, got {pins.get(name, 'nothing')}; lock it anew with `make lock`"
            )
        found.append(f"{name}=={pins[name]}")
    return found


def _pins(lock: Path) -> dict[str, str]:
    return dict(re.findall(r"(?m)^([\w.-]+)==([^\s;\\]+)", lock.read_text(encoding="utf-8")))


def describe(packages: tuple[str, ...], target: Target, settings: Settings) -> dict[str, str]:
    """Return what `prepare` would give, without building anything: part of what a result depends on.

    `way` ("uv" or "ambient"), `python`, `package.<name>` for each package and the libraries that pick its kernels, and
    on the uv way `lock`, its name and hash. Raises `SetupError` as `prepare` does.
    """
    if settings.python:
        have = _versions(settings.python, packages)
        found = {"way": "ambient", "python": have.pop("python")}
        missing = dict(package.split("==") for package in packages if package.split("==")[0] not in have)
    else:
        lock = _lock(target, settings, {**os.environ, **uv_variables(settings)})
        pins = _pins(lock)
        name_and_hash = f"{lock.name} {hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
        found = {"way": "uv", "python": _python_version(), "lock": name_and_hash}
        have = {name: pins[name] for name in sorted(pins) if re.fullmatch(_BELOW, name)}
        missing = {name: pins.get(name, version) for name, version in (each.split("==") for each in packages)}
    return {**found, **{f"package.{name}": version for name, version in {**have, **missing}.items()}}


def _ambient(python: str, packages: tuple[str, ...], settings: Settings) -> Environment:
    """Use the interpreter as it is, and lay what it lacks over it from the folder of wheels."""
    have = _versions(python, packages)
    missing = [package for package in packages if package.split("==")[0] not in have]
    if not missing:
        return Environment(python=python)
    if settings.wheels is None:
        raise SetupError(
            f"{' and '.join(missing)} must be installed for FLUXBENCH_PYTHON, or lie as a wheel in the folder that "
            "FLUXBENCH_WHEELS names"
        )
    wheels = sorted(wheel.name for wheel in settings.wheels.glob("*.whl"))
    key = hashlib.sha256("\n".join((*missing, python, *wheels)).encode()).hexdigest()
    overlay = settings.cache / "overlays" / key[:16]
    with _locked(overlay):
        if not (overlay / "ready").is_file():
            progress.say(step=f"building the environment of {' '.join(missing)}")
            shutil.rmtree(overlay, ignore_errors=True)
            install = ["pip", "install", "--quiet", "--no-deps", "--python", python, "--target", str(overlay)]
            _run_uv([*install, *missing], uv_variables(settings))
            (overlay / "ready").touch()
    return Environment(python=python, variables={"PYTHONPATH": str(overlay)})


def _versions(python: str, packages: tuple[str, ...]) -> dict[str, str]:
    return dict(_asked(python, packages))


@functools.cache  # an interpreter's packages stay as they are while we run, and several cells ask
def _asked(python: str, packages: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of those of the packages that an interpreter has, by name, and what they run on.

    That is Python itself and the libraries that pick or make kernels: a record depends on them, whoever asked for them.
    """
    code = (
        "import importlib.metadata as m, json, platform, re, sys\n"
        "have = {d.metadata['Name'].lower().replace('_', '-'): d.version for d in m.distributions()}\n"
        "asked = {p: have[p.lower().replace('_', '-')] for p in sys.argv[1:] if p.lower().replace('_', '-') in have}\n"
        f"below = {{n: have[n] for n in sorted(have) if re.fullmatch({_BELOW!r}, n)}}\n"
        "print(json.dumps({**asked, **below, 'python': platform.python_version()}))"
    )
    names = [package.split("==")[0] for package in packages]
    try:
        done = subprocess.run([python, "-c", code, *names], capture_output=True, text=True, check=True, timeout=60)
        found: dict[str, str] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, json.JSONDecodeError) as error:
        raise SetupError(f"FLUXBENCH_PYTHON must be a working Python 3.11 or newer, got {python}: {error}") from error
    return found


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
            r"(?i)not found in the cache|no wheels|not found in the provided",
            "bring a wheel that fits, or allow the network",
        ),
        (r"(?i)dns|connect|network|timed out|tcp", "check the network, or name a folder of wheels in FLUXBENCH_WHEELS"),
        (r"(?i)no solution|incompatible|not compatible", "bring a wheel that fits this Python and platform"),
    ):
        if re.search(pattern, text):
            return f"{text}; {advice}"
    return text
