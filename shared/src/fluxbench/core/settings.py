"""What a user may set, in environment variables and never in a notebook.

| variable | meaning |
|---|---|
| `FLUXBENCH_PYTHON` | full path of an interpreter that holds torch: measure with it as it is (the ambient way) |
| `FLUXBENCH_TORCH` | a version of torch that `environment/locks` holds: measure with it, whatever the cells pin |
| `FLUXBENCH_WHEELS` | a folder of wheels, the only source of what is missing there; no network is asked |
| `FLUXBENCH_WORKLOADS` | sets or workloads to measure in place of the device's default, separated by commas |
| `FLUXBENCH_ALL` | `1`: measure also what the target leaves out by default, see `environment/targets.toml` |
| `FLUXBENCH_CELL_LIMIT_S` | how many seconds a cell may take, 1800 by default (under plain uvnote its own 300) |
| `FLUXBENCH_LIMIT_S` | how many seconds a build may take: it then draws what it has measured; no limit by default |
| `FLUXBENCH_PROCESSES` | in how many fresh processes a cell measures its variants at least, from 3 |
| `FLUXBENCH_RUNS` | how many runs the certificate's trials have, 10 by default |
| `FLUXBENCH_CACHE` | folder of environments and of what cells keep for later; `.cache/` of the repository by default |
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path

from fluxbench.core.errors import SetupError

UNTIL = "FLUXBENCH_UNTIL"  # in which a build tells its cells when it stops measuring
CONTENTS = "FLUXBENCH_CONTENTS"  # in which it names them a folder for contents that they share


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings, from the environment variables."""

    root: Path  # of the repository
    cache: Path
    python: str | None = None
    torch: str | None = None
    wheels: Path | None = None
    workloads: tuple[str, ...] = ()
    all: bool = False
    cell_limit_s: float | None = None
    limit_s: float | None = None  # of a build
    until: float = math.inf  # when the build that runs a cell stops measuring, monotonic seconds
    contents: str = ""  # the folder of a build for contents of timed calls that its cells share; empty: none
    runs: int = 10
    processes: int | None = None  # of a measuring cell at least; None: as many as its study and device need

    @classmethod
    def load(cls) -> Settings:
        """Read the settings. Raises `SetupError` where one names what does not exist."""
        root = Path(__file__).resolve().parents[4]
        if not (root / "environment" / "targets.toml").is_file():
            raise SetupError(f"fluxbench must be imported from its repository, got {root}; run `make setup` there")
        if "\n" in str(root):  # scripts and .pth files of environments name it
            raise SetupError(f"the path of this clone must be one line, got {root}; move it to another folder")
        wheels = os.environ.get("FLUXBENCH_WHEELS")
        if wheels and not Path(wheels).is_dir():
            raise SetupError(f"FLUXBENCH_WHEELS must be a folder of wheels, got {wheels!r}")
        python = os.environ.get("FLUXBENCH_PYTHON") or None
        if python and not os.access(python, os.X_OK):  # a bare name would be looked for in the cell's own environment
            raise SetupError(f"FLUXBENCH_PYTHON must be the full path of an interpreter, got {python!r}")
        runs = os.environ.get("FLUXBENCH_RUNS")
        if runs and not re.fullmatch(r"[1-9]\d{0,3}", runs):
            raise SetupError(f"FLUXBENCH_RUNS must be a whole number of runs, got {runs!r}")
        processes = os.environ.get("FLUXBENCH_PROCESSES")
        if processes and not re.fullmatch(r"[3-9]|[1-9]\d", processes):
            raise SetupError(f"PROCESSES (FLUXBENCH_PROCESSES) must be a whole number from 3 to 99, got {processes!r}")
        return cls(
            runs=int(runs) if runs else cls.runs,
            processes=int(processes) if processes else None,
            root=root,
            cache=Path(os.environ.get("FLUXBENCH_CACHE") or root / ".cache"),
            python=python,
            torch=_torch(root, python),
            wheels=Path(wheels).resolve() if wheels else None,
            cell_limit_s=_seconds("FLUXBENCH_CELL_LIMIT_S"),
            limit_s=_seconds("FLUXBENCH_LIMIT_S", of_make="LIMIT"),
            until=float(os.environ.get(UNTIL) or math.inf),
            contents=os.environ.get(CONTENTS, ""),
            all=os.environ.get("FLUXBENCH_ALL", "") not in ("", "0"),
            workloads=tuple(
                name.strip() for name in os.environ.get("FLUXBENCH_WORKLOADS", "").split(",") if name.strip()
            ),
        )

    def unfinished(self, notebook: str, cell: str) -> Path:
        """Return the folder of what builds that were stopped had measured of a cell."""
        return self.cache / "unfinished" / f"{notebook}-{cell}"


def _seconds(variable: str, of_make: str = "") -> float | None:
    """Return a setting in seconds, which `make` may call otherwise.

    Raises `SetupError` where it is no positive whole number of them.
    """
    value = os.environ.get(variable)
    if value and not re.fullmatch(r"[1-9]\d*", value):
        name = f"{of_make} ({variable})" if of_make else variable
        raise SetupError(f"{name} must be a positive whole number of seconds, got {value!r}")
    return float(value) if value else None


def _torch(root: Path, python: str | None) -> str | None:
    """Return the chosen version of torch. Raises `SetupError` where it is not locked, or an interpreter has its own."""
    torch = os.environ.get("FLUXBENCH_TORCH") or None
    if torch is None:
        return None
    files = (root / "environment" / "locks").glob("torch-*.txt")
    locked = sorted(version for file in files if "+" not in (version := file.stem.removeprefix("torch-")))
    if torch not in locked:
        raise SetupError(f"FLUXBENCH_TORCH must be one of {', '.join(locked)}, which are locked, got {torch!r}")
    if python:
        raise SetupError(
            f"FLUXBENCH_TORCH must be unset with FLUXBENCH_PYTHON, whose torch is measured as it is, got {torch!r}"
        )
    return torch
