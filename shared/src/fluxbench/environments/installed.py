"""Whether the packages of an environment are all there, file by file.

`make setup` runs this file as a script, before it can know that fluxbench itself can be imported:
`.venv/bin/python -I installed.py LOCK...` prints what is missing and exits with 1.
"""

from __future__ import annotations

import csv
import importlib.util
import re
import sys
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path


def problem(locks: Iterable[Path]) -> str | None:
    """Return which package of the locks is missing, or which file is missing or truncated; None where none is."""
    for lock in locks:
        for name in re.findall(r"(?m)^([\w.-]+)==", lock.read_text(encoding="utf-8")):
            try:
                package = metadata.distribution(name)
            except metadata.PackageNotFoundError:
                return f"{name} is missing"
            if path := _broken(package):
                return f"{path} of {name} is missing or truncated"
    return None


def is_whole(environment: Path) -> bool:
    """Return whether a virtual environment is as an installer left it that was not killed.

    uv 0.13.8 writes pyvenv.cfg after the interpreter's link, and lists INSTALLER among a package's files last.
    """
    try:
        if not (environment / "pyvenv.cfg").read_text(encoding="utf-8"):
            return False
        return all(map(_is_installed, environment.glob("lib/python*/site-packages/*.dist-info")))
    except (OSError, ValueError):
        return False


def _is_installed(facts: Path) -> bool:
    """Return whether an installer has ended with a package, of which this is the folder with its metadata."""
    package = metadata.Distribution.at(facts)
    files = _listed(package) or []
    return any(Path(name).name == "INSTALLER" for name, *_ in files) and not _lost(package, files)


def _listed(package: metadata.Distribution) -> list[list[str]] | None:
    """Return path, hash and size of each file of a package; None where it has no list of them, or half of one.

    `Distribution.files` of Python 3.12 leaves out those that are missing.
    """
    try:
        files = package.read_text("RECORD")
        rows = None if files is None else [*csv.reader(files.splitlines())]
    except (csv.Error, UnicodeDecodeError):
        return None
    return rows if rows and all(len(row) == 3 for row in rows) else None


def _broken(package: metadata.Distribution) -> Path | None:
    """Return a file of a package that is missing or truncated; None where none is."""
    files = _listed(package)
    return Path("RECORD") if files is None else _lost(package, files)


def _lost(package: metadata.Distribution, files: Iterable[Sequence[str]]) -> Path | None:
    """Return one of the listed files of a package that is missing or truncated; None where none is."""
    for name, _, size in files:
        path = Path(str(package.locate_file(name)))
        is_there = path.is_file() and size in ("", str(path.stat().st_size))
        if not is_there and path.suffix != ".pyc":  # which Python makes and drops
            return path
    return None


def _main(locks: list[str]) -> int:
    spec = importlib.util.find_spec("fluxbench")
    here = Path(__file__).resolve().parents[1]
    missing = problem(map(Path, locks))
    if not missing and (not spec or not spec.origin or Path(spec.origin).resolve().parent != here):
        missing = f"fluxbench is not that of {here}"
    if missing:
        print(f"fluxbench: {sys.prefix} is damaged: {missing}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
