"""Whether the packages of an environment are all there, file by file.

`make setup` runs this file as a script, before it can know that fluxbench itself can be imported:
`.venv/bin/python -I installed.py LOCK...` prints what is missing and exits with 1.
"""

from __future__ import annotations

import csv
import importlib.util
import re
import sys
from collections.abc import Iterable
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


def is_whole(site_packages: Path) -> bool:
    """Return whether a folder has all files of its packages, and nothing else: an installer was not killed there.

    uv 0.13.8 installs over what is left of a package without a list of its files, and keeps folders that it finds.
    """
    packages = [*map(metadata.Distribution.at, site_packages.glob("*.dist-info"))]
    if any(map(_broken, packages)):
        return False
    known = {Path(name).parts[0] for package in packages for name, *_ in _listed(package) or ()}
    names = {path.name for path in site_packages.iterdir()} - {"__pycache__", "_virtualenv.py", "_virtualenv.pth"}
    return names <= known


def _listed(package: metadata.Distribution) -> list[list[str]] | None:
    """Return path, hash and size of each file of a package; None where it has no list of them.

    `Distribution.files` of Python 3.12 leaves out those that are missing.
    """
    files = package.read_text("RECORD")
    return None if files is None else [*csv.reader(files.splitlines())]


def _broken(package: metadata.Distribution) -> Path | None:
    """Return a file of a package that is missing or truncated; None where none is."""
    if (files := _listed(package)) is None:
        return Path("RECORD")
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
