"""The programs that a build calls."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from fluxbench.core.errors import SetupError
from fluxbench.device.model import Device
from fluxbench.environments import installed, uv


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A program or a package. `problem` is a sentence with what is wrong with it and what to do."""

    name: str
    version: str | None = None
    path: str | None = None
    problem: str | None = None


def tools(device: Device, root: Path) -> Iterator[Tool]:
    """Yield uv, uvnote with all that is locked beside it, Python, a compiler and git, in this order."""
    yield _uv()
    if missing := installed.problem([root / "environment" / "locks" / "tools.txt"]):
        yield Tool(
            name="uvnote",
            problem=f"the files that `make setup` installs must be complete, got: {missing}; run it again",
        )
    else:
        yield Tool(name="uvnote", version=metadata.version("uvnote"))
    yield Tool(name="Python", version=platform.python_version(), path=sys.executable)
    yield _compiler(device, root)
    path = shutil.which("git")
    problem = None if path else "git must be on PATH for `fluxbench diff FOLDER@REVISION`, got none; install it"
    yield Tool(name="git", path=path, problem=problem)


def output_of(*command: str) -> str:
    """Return what a program prints. Raises `OSError` or `SubprocessError` where it fails."""
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()


def _uv() -> Tool:
    path = None
    try:
        path = uv.find()
        return Tool(name="uv", version=output_of(path, "--version").removeprefix("uv "), path=path)
    except SetupError as error:
        return Tool(name="uv", problem=str(error))
    except (OSError, subprocess.SubprocessError) as error:
        problem = f"uv must start: {str(error).rstrip('.')}; remove .venv and run `make setup`"
        return Tool(name="uv", path=path, problem=problem)


def _compiler(device: Device, root: Path) -> Tool:
    """Return the compiler that torch.compile takes on a CPU, or that Triton takes on a GPU, found as they find it."""
    if device.worker_kind == "cpu":
        name, variable, by = "C++ compiler", "CXX", "torch.compile on a CPU"
        usual = ["clang++" if sys.platform == "darwin" else "g++"]
    else:
        name, variable, by, usual = "C compiler", "CC", "Triton", ["gcc", "clang"]
    names = [os.environ[variable]] if variable in os.environ else usual
    path = next(filter(None, map(shutil.which, names)), None)
    problem = None
    if not path:
        problem = f"{by} needs a {name}, got no {' or '.join(names)}; install it, or name another in {variable}"
    elif device.worker_kind == "cpu" and any(map(str.isspace, str(root))):  # it gives the compiler unquoted paths
        problem = f"{by} needs a path without spaces, got {root}; move this clone"
    return Tool(name=name, path=path, problem=problem)
