"""Whether the packages that locks name are all there in this interpreter's environment, file by file.

`make setup` runs this file as a script, before it can know that fluxbench itself can be imported:
`.venv/bin/python -I installed.py LOCK...` prints what is missing and exits with 1.
"""

from __future__ import annotations

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
                files = metadata.distribution(name).files or ()
            except metadata.PackageNotFoundError:
                return f"{name} is missing"
            for file in files:
                path = Path(str(file.locate()))
                is_whole = path.is_file() and file.size in (None, path.stat().st_size)
                if not is_whole and path.suffix != ".pyc":  # which Python makes and drops
                    return f"{path} of {name} is missing or truncated"
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
