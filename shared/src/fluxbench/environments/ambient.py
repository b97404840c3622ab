"""An interpreter as it is: what it holds, what it lacks, and a venv over it with what it lacks."""

from __future__ import annotations

import functools
import hashlib
import json
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fluxbench.core.errors import SetupError
from fluxbench.core.settings import Settings
from fluxbench.environments import uv
from fluxbench.environments.locks import Locks, not_offered

_INSPECT = """\
import importlib.metadata as m, json, os, platform, re, sys, sysconfig
have = {}
for d in m.distributions():  # of two copies Python imports the first
    if name := d.metadata and d.metadata['Name']: have.setdefault(re.sub('[-_.]+', '-', name).lower(), d.version)
std = {os.path.realpath(sysconfig.get_path(n)) for n in ('stdlib', 'platstdlib')}
std |= {os.path.join(s, 'lib-dynload') for s in std}
folders = [p for p in sys.path if os.path.isdir(p) and os.path.realpath(p) not in std]
print(json.dumps({'version': platform.python_version(), 'have': have, 'folders': folders}))
"""


@dataclass(frozen=True, kw_only=True)
class Ambient:
    """An interpreter that exists already."""

    version: str
    packages: dict[str, str]  # canonical name -> version
    folders: tuple[str, ...]  # in which they lie

    def version_of(self, name: str) -> str | None:
        """Return a package's version, whatever its spelling; None where it is not installed."""
        return self.packages.get(_canonical(name))


@functools.cache  # an interpreter's packages stay as they are while we run, and several cells ask
def inspect(python: str) -> Ambient:
    """Return what an interpreter holds. Raises `SetupError` where it does not work."""
    try:
        done = subprocess.run([python, "-c", _INSPECT], capture_output=True, text=True, check=True, timeout=60)
        answer = json.loads(done.stdout)
        return Ambient(version=answer["version"], packages=answer["have"], folders=tuple(answer["folders"]))
    except (OSError, subprocess.SubprocessError, ValueError, TypeError, KeyError) as error:
        raise SetupError(f"FLUXBENCH_PYTHON must be a working Python 3.11 or newer, got {python}: {error}") from error


def missing(python: str, packages: Iterable[str], locks: Locks) -> tuple[str, ...]:
    """Return what an interpreter lacks of a cell's packages and of the library's own lock, each `name==version`."""
    wanted = dict(package.split("==") for package in packages) | locks.library_pins()
    present = inspect(python).packages
    return tuple(f"{name}=={version}" for name, version in wanted.items() if _canonical(name) not in present)


def problem(python: str, packages: Iterable[str], locks: Locks, wheels: Path | None) -> str | None:
    """Return why an interpreter lacks packages that cannot be brought; None where it lacks none of these."""
    absent = missing(python, packages, locks)
    if unlocked := locks.wrong(absent):
        return unlocked
    names = not_offered(absent, wheels)
    return names and (
        f"{names} must be installed for FLUXBENCH_PYTHON, or be a wheel in the folder of FLUXBENCH_WHEELS"
    )


def complete(python: str, packages: Iterable[str], locks: Locks, settings: Settings) -> str:
    """Return an interpreter with these packages: the given one, or a venv over it that holds what it lacks.

    The venv is of the same Python, `.pth` files work in it, and several wheels may share a folder. It sees what the
    interpreter sees after what it holds itself. Raises `SetupError` where uv fails.
    """
    absent = missing(python, packages, locks)
    if not absent:
        return python
    ambient, requirements = inspect(python), locks.requirements()
    text = "".join(requirements[pin.partition("==")[0]] for pin in absent)
    key = hashlib.sha256("\n".join((python, ambient.version, *ambient.folders, text)).encode()).hexdigest()
    folder = settings.cache / "overlays" / key[:16]
    with uv.venv(folder, python, absent, settings) as overlay:
        if overlay:
            file = folder / "requirements.txt"
            file.write_text(text, encoding="utf-8")
            uv.install(overlay, (file,), settings)
            adding = "; ".join(f"site.addsitedir({path!r})" for path in ambient.folders)
            # The last by name, so that a folder which a package's own .pth file adds comes before the interpreter's.
            for site in folder.glob("lib/python*/site-packages"):
                (site / "zzz_ambient.pth").write_text(f"import site; {adding}\n", encoding="utf-8")
    return str(folder / "bin" / "python")


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
