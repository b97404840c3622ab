"""Find uv, run it, make a venv with it, and turn what it prints on failure into one sentence."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fluxbench.core import progress
from fluxbench.core.errors import SetupError
from fluxbench.core.settings import Settings
from fluxbench.environments import installed

# A pattern of what uv prints -> what to do; the first that matches counts.
_ADVICE = (
    (r"no space left", "free some disk space and run it again"),
    (
        r"\bhash",
        "this file is not in the lock: name a folder without it in UV_FIND_LINKS, or run `make lock`",
    ),
    (
        r"no usable wheels",
        "no registry has this wheel: build it as environment/locks/*.in say, and name its folder in UV_FIND_LINKS",
    ),
    (
        r"not found in the provided",
        "bring its wheel into the folder of FLUXBENCH_WHEELS: `make wheelhouse` gathers them",
    ),
    (r"not found in the cache|no wheels", "bring a wheel that fits, or allow the network"),
    (
        r"there is no version of|not found in the package registry",
        "correct its name or version, or bring a wheel of it",
    ),
    (
        r"\b(dns|connect\w*|network|timed out|tcp)\b",
        "check the network, or name a folder of wheels in FLUXBENCH_WHEELS",
    ),
    (r"requirements are unsatisfiable", "they contradict each other: change one of these versions"),
    (r"no solution|incompatible|not compatible", "bring a wheel that fits this Python and platform"),
)
_LONGEST = 300  # characters of what uv printed
_OF_SCRIPTS = "environments-v2"  # the folder of uv's cache with the environments of scripts
_MENDING, _mended = threading.Lock(), set[Path]()


def find() -> str:
    """Return the path of uv: the one that runs us, beside us, or on PATH. Raises `SetupError` where there is none."""
    beside = Path(sys.executable).with_name("uv")
    path = os.environ.get("UV") or (str(beside) if beside.is_file() else shutil.which("uv"))
    if not path or not Path(path).is_file():
        raise SetupError(
            f"uv must be on PATH to build the measured environment, got {path or 'none'}; run `make setup`"
        )
    return path


def variables(settings: Settings) -> dict[str, str]:
    """Return the environment variables by which uv uses the folders that pip uses, and one cache for everything."""
    added = {}
    if "UV_CACHE_DIR" not in os.environ:
        # Inside a cell, uvnote has replaced HOME: keep to the cache that this very interpreter was installed from.
        parts = Path(sys.prefix).parts
        if _OF_SCRIPTS in parts:
            added["UV_CACHE_DIR"] = str(Path(*parts[: parts.index(_OF_SCRIPTS)]))
    if settings.wheels:
        added |= {"UV_FIND_LINKS": str(settings.wheels), "UV_NO_INDEX": "1", "UV_OFFLINE": "1"}
    elif folders := os.environ.get("PIP_FIND_LINKS"):
        added["UV_FIND_LINKS"] = os.environ.get("UV_FIND_LINKS") or ",".join(folders.split())
    return added


def mend(script: Path, environ: Mapping[str, str]) -> None:
    """Remove the environment in which uv would run a script, where it is not whole.

    uv 0.13.8 that is killed while it makes one leaves it so, and uses it from then on; without one it makes one. Each
    script's is looked at once, before this process lets uv run it. `environ`: the variables with which uv then runs.
    Raises `SetupError` where uv is missing, `OSError`.
    """
    with _MENDING:
        if script in _mended:
            return
        asked = [find(), "python", "find", "--script", str(script)]
        done = subprocess.run(asked, env=dict(environ), capture_output=True, text=True)
        folder = Path(done.stdout.strip()).parent.parent
        is_there = not done.returncode and folder.parent.name == _OF_SCRIPTS
        if is_there and not installed.is_whole(folder):
            shutil.rmtree(folder)
        _mended.add(script)


@contextmanager
def venv(folder: Path, base: str, packages: Iterable[str], settings: Settings) -> Iterator[Path | None]:
    """Give the Python of a fresh venv to install into, or None where the folder is ready.

    It is ready once such a block has ended without an error. Two builds at once do not make one folder together. Raises
    `SetupError` where uv fails.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / "ready").is_file():
            yield None
            return
        progress.say(step=f"building the environment of {' '.join(packages)}")
        _run(["venv", "--quiet", "--clear", "--python", base, str(folder)], settings)
        yield folder / "bin" / "python"
        (folder / "ready").touch()
        progress.say(step="starting workers")


def install(python: Path, files: Iterable[Path], settings: Settings) -> None:
    """Install what these requirement files name and nothing else, by hash and from wheels. Raises `SetupError`."""
    only = ["--quiet", "--require-hashes", "--no-deps", "--no-build", "--python", str(python)]
    if settings.wheels:  # uv 0.13.8 ignores UV_NO_INDEX, and would take what its cache knows of a registry
        only.append("--no-index")
    requirements = [argument for file in files for argument in ("--requirements", str(file))]
    _run(["pip", "install", *only, *requirements], settings)


def explain(stderr: str) -> str:
    """Return the cause that uv prints, as one sentence with the advice that fits; empty where it prints none."""
    text = " ".join(line.strip(" ×╰─▶│├·⏵") for line in stderr.splitlines() if line.strip()).partition("hint:")[0]
    text = re.sub(r"https?://[^\s`)]+", "the registry", text).removeprefix("error: ").strip(" .")
    advice = next((advice for pattern, advice in _ADVICE if re.search(pattern, text, re.IGNORECASE)), None)
    text = re.sub(r"^No solution found when resolving dependencies cause: Because ", "", text)
    text = re.sub(r", (we can conclude that )?your requirements are unsatisfiable$", "", text)
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return f"{text}; {advice}" if advice else text


def _run(arguments: list[str], settings: Settings) -> None:
    environment = {**os.environ, **variables(settings)}
    done = subprocess.run([find(), *arguments], env=environment, capture_output=True, text=True)
    if done.returncode:
        cause = explain(done.stderr) or f"it ended with exit code {done.returncode} and printed nothing; run it again"
        raise SetupError(f"uv could not build the measured environment: {cause}")
