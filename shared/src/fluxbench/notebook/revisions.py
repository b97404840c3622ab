"""Published results of now or of a revision: `reports/h200`, `reports/h200@HEAD~3`, `reports/h200@2026-11-21T104512Z`.

A revision is a name in a notebook's `history/`, which stands for what was published until that entry was made, or one
that git knows. It is read without a checkout.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from fluxbench.analysis.comparison.model import CellKey, Measured
from fluxbench.analysis.revision import moment
from fluxbench.analysis.verification import cell
from fluxbench.analysis.verification.cell import Cell
from fluxbench.analysis.verification.problem import Kind, Problem
from fluxbench.analysis.verification.verify import verify
from fluxbench.core.errors import SetupError
from fluxbench.records import files
from fluxbench.records.files import ControlTimes
from fluxbench.records.schema import Record, RecordError
from fluxbench.report.problem_words import sentence, whose

Check = Callable[[Sequence[Cell]], Sequence[Problem]]  # such as `verify`
_BESIDE = (".samples.json.gz", ".capabilities.json", "device.json", *files.CONTROL_SUFFIXES)


def measured(spec: str, root: Path, check: Check = verify) -> Measured:
    """Return the records and control times of `FOLDER` or `FOLDER@REVISION`, a folder relative to `root`.

    The folder is a target's, a notebook's, or one that holds records itself. Raises `SetupError` where it does not
    exist, holds no readable records or records in which `check` finds a problem, or has no such revision. Nothing is
    changed on disk.
    """
    name, separator, revision = spec.partition("@")
    if (root / spec).is_dir():
        name, separator = spec, ""
    folder = root / name
    if not separator:
        if not folder.is_dir():
            what = "which is a file" if folder.exists() else "which is not there"
            raise SetupError(
                f"a report must be the folder of a published page, such as reports/<target>/<notebook>, got {name!r}, "
                f"{what}"
            )
        return _read(spec, _present(folder), check)
    if not revision or revision.startswith("-"):
        raise SetupError(f"the revision after @ must be a name that does not begin with -, got {spec!r}")
    history = _history(folder)
    if revision in history:
        return _read(spec, _as_of(history[revision], revision), check, keeps_samples=False)
    known = f"its history ({', '.join(history)})" if history else "its history, which is empty,"
    with tempfile.TemporaryDirectory(prefix="fluxbench-") as copy:
        _from_git(root, name, revision, Path(copy), f"the revision of {name!r} must be in {known} or known to git")
        return _read(spec, _present(Path(copy)), check)


def read_cells(paths: Iterable[Path], *, name: str = "", skip_damaged: bool = False) -> Measured:
    """Return the records of files, one for each cell, and the control times beside them.

    Raises `OSError` where one is missing, `RecordError` where one is damaged, unless these are skipped.
    """
    records: list[Record] = []
    controls: dict[CellKey, ControlTimes] = {}
    for path in paths:
        try:
            of_cell = files.read(path)
            control = files.read_control(path.parent, files.cell_of(path))
        except (OSError, RecordError):
            if skip_damaged:
                continue
            raise
        records += of_cell
        if control and of_cell:
            controls[of_cell[0].notebook, of_cell[0].cell] = control
    return Measured(name=name, records=tuple(records), controls=controls)


def _read(spec: str, paths: Iterable[Path], check: Check, *, keeps_samples: bool = True) -> Measured:
    try:
        paths = list(paths)
        side = read_cells(paths, name=spec)
        found = check([cell.read(path) for path in paths])
    except RecordError as error:
        raise SetupError(f"the records of {spec!r} cannot be read: {error}") from error
    except OSError as error:
        raise SetupError(
            f"the records of {spec!r} cannot be read: {Path(error.filename or '').name}: {error.strerror}"
        ) from error
    # A history keeps no samples: its records are checked by themselves. Of others it is said.
    problems = [one for one in found if one.kind is not Kind.NO_SAMPLES]
    if keeps_samples and len(problems) < len(found):
        side = dataclasses.replace(side, name=f"{spec} (times not checked: samples are missing)")
    if not side.records:
        raise SetupError(f"a report must hold records, as reports/<target>/<notebook>/records does, got {spec!r}")
    if problems:
        more = f", and {len(problems) - 1:,} more (`fluxbench add` prints all)" if len(problems) > 1 else ""
        words = f"{whose(problems[0])}: {sentence(problems[0])}{more}"
        raise SetupError(f"the records of {spec!r} must follow from their samples: {words}")
    return side


def _present(folder: Path) -> list[Path]:
    """Return the files of records of a folder itself, or of a notebook, or of each notebook of a target."""
    layouts = ([folder], [folder / "records"], sorted(folder.glob("[!.]*/records")))
    return next((paths for homes in layouts if (paths := [path for home in homes for path in files.paths(home)])), [])


def _as_of(entries: Iterable[Path], revision: str) -> Iterator[Path]:
    """Yield what was published when entries of histories were made: what they, or the first after them, replaced."""
    for entry in entries:
        later = [folder for folder in sorted(entry.parent.glob("[!.]*")) if folder.name >= revision]
        of_cells: dict[str, Path] = {}
        for folder in (*later, entry.parents[1] / "records"):
            for path in files.paths(folder):
                of_cells.setdefault(files.cell_of(path), path)
        yield from (path for _, path in sorted(of_cells.items()) if _existed(path, revision))


def _existed(path: Path, revision: str) -> bool:
    """Whether the records of a file are no newer than the entry, whose name begins with the time of its newest."""
    with contextlib.suppress(ValueError):
        made = datetime.strptime(revision[:18], "%Y-%m-%dT%H%M%SZ").replace(tzinfo=UTC)
        times = (moment(record.measured_at) for record in files.read(path))
        return all(time is None or time.replace(microsecond=0) <= made for time in times)
    return True


def _history(folder: Path) -> dict[str, list[Path]]:
    """Return the folders that each name stands for in the histories of a target's notebooks, or of one."""
    notebooks = [folder.parent if folder.name == "records" else folder, *folder.glob("[!.]*")]
    entries: dict[str, list[Path]] = {}
    for entry in (path for home in notebooks for path in sorted(home.glob("history/[!.]*")) if path.is_dir()):
        entries.setdefault(entry.name, []).append(entry)
    return dict(sorted(entries.items()))


def _from_git(root: Path, name: str, revision: str, copy: Path, rule: str) -> None:
    """Write the files of a folder at a revision that `_present` reads into `copy`.

    Raises `SetupError`, which begins with `rule`. Git names its objects without touching the work tree or its index.
    """
    start = folder = (root / name).resolve()
    while not start.is_dir():  # the folder may be gone since
        start = start.parent
    try:
        top = Path(os.fsdecode(_git(start, "rev-parse", "--show-toplevel")).rstrip("\n"))
    except subprocess.CalledProcessError as error:
        lines = os.fsdecode(error.stderr).strip().splitlines() or ["no work tree"]
        raise SetupError(f"{rule}, got {revision!r} outside of a git repository (git: {lines[0]})") from error
    except OSError as error:
        raise SetupError(f"{rule}, got {revision!r} and git cannot be run: {error}") from error
    try:
        commit = os.fsdecode(_git(top, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", "--")).split()[0]
    except subprocess.CalledProcessError as error:
        raise SetupError(f"{rule}, got {revision!r}") from error
    inside = folder.relative_to(top).parts
    try:
        listed = os.fsdecode(_git(top, "ls-tree", "-r", "-z", "--name-only", f"{commit}:{'/'.join(inside)}", "--"))
    except subprocess.CalledProcessError as error:
        raise SetupError(f"a report must be a folder, got {name!r}, which is not there at {revision!r}") from error
    for path in filter(_is_present, listed.split("\0")):
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        (copy / path).write_bytes(_git(top, "cat-file", "blob", f"{commit}:{'/'.join((*inside, path))}"))


def _is_present(path: str) -> bool:
    """Whether a path below a folder is one of its present records or control times, and not of its history."""
    folders = PurePosixPath(path).parts[:-1]
    in_place = not folders or (folders[-1] == "records" and len(folders) <= 2)
    return in_place and path.endswith((*files.SUFFIXES, *_BESIDE))


def _git(folder: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", "-C", folder, *arguments], capture_output=True, check=True).stdout
