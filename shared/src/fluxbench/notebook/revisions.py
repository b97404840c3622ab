"""Published results, of now or of a revision: `reports/h200`, `reports/h200@HEAD~3`, `reports/h200@2026-11-21T104512Z`.

A revision is a name in a notebook's `history/`, which stands for what was published until that entry was made, or one
that git knows. It is read without a checkout.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from fluxbench.analysis.comparison import CellKey, Measured
from fluxbench.core.errors import SetupError
from fluxbench.records import schema as records
from fluxbench.records.schema import Record, RecordError, Sentinel


def measured(spec: str, root: Path) -> Measured:
    """Return the records and sentinels of `FOLDER` or `FOLDER@REVISION`, a folder relative to `root`.

    The folder is a target's, a notebook's, or one that holds `*.jsonl` itself. Raises `SetupError` where it does not
    exist, holds no readable records, or has no such revision. Nothing is changed on disk.
    """
    name, at, revision = spec.partition("@")
    if (root / spec).is_dir():
        name, at = spec, ""
    folder = root / name
    if not at:
        if not folder.is_dir():
            raise SetupError(f"a report must be a folder, got {name!r}, where there is none")
        return _of_paths(spec, _present(folder))
    if not revision or revision.startswith("-"):
        raise SetupError(f"the revision after @ must be a name that does not begin with -, got {spec!r}")
    history = _history(folder)
    if revision in history:
        return _of_paths(spec, _as_of(history[revision], revision))
    known = f"its history ({', '.join(history)})" if history else "its history, which is empty,"
    with tempfile.TemporaryDirectory(prefix="fluxbench-") as copy:
        _from_git(root, name, revision, Path(copy), f"the revision of {name!r} must be in {known} or known to git")
        return _of_paths(spec, _present(Path(copy)))


def _present(folder: Path) -> list[Path]:
    patterns = ("*.jsonl", "records/*.jsonl", "*/records/*.jsonl")
    names = [path.relative_to(folder).as_posix() for pattern in patterns for path in folder.glob(pattern)]
    return [folder / name for name in _of_records(sorted(names))]


def _as_of(entries: Iterable[Path], revision: str) -> list[Path]:
    """Return what was published when an entry of the history was made: what it, or the first after it, replaced."""
    found = []
    for entry in entries:
        later = [folder for folder in sorted(entry.parent.glob("[!.]*")) if folder.name >= revision]
        paths: dict[str, Path] = {}
        for folder in (*later, entry.parents[1] / "records"):
            for path in sorted(folder.glob("*.jsonl")):
                paths.setdefault(path.name, path)
        found += [paths[name] for name in sorted(paths)]
    return found


def _of_paths(spec: str, paths: Iterable[Path]) -> Measured:
    found: list[Record] = []
    sentinels: dict[CellKey, Sentinel] = {}
    try:
        for path in paths:
            its, beside = of_cell(path)
            found += its
            sentinels |= beside
    except (OSError, RecordError) as error:
        raise SetupError(f"the records of {spec!r} cannot be read: {error}") from error
    if not found:
        raise SetupError(f"a report must hold records, as reports/<target>/<notebook>/records does, got {spec!r}")
    return Measured(name=spec, records=tuple(found), sentinels=sentinels)


def of_cell(path: Path) -> tuple[list[Record], dict[CellKey, Sentinel]]:
    """Return the records of a `<cell>.jsonl` and the sentinel beside them, by its cell; none where none was timed.

    Raises `OSError` where there are no records, `RecordError` where either is damaged.
    """
    its = records.read(path)
    sentinel = records.read_sentinel(path.with_name(f"{path.stem}.sentinel.json"))
    return its, {(its[0].notebook, its[0].cell): sentinel} if sentinel and its else {}


def _of_records(names: Iterable[str]) -> list[str]:
    """Return which paths below a folder are its present records: of itself, or of a notebook, or of each notebook.

    History is none of these, nor are a file of samples and a folder that a publish has not finished, whose name begins
    with a dot.
    """
    paths = [PurePosixPath(name) for name in names]
    visible = [path for path in paths if not any(part.startswith(".") for part in path.parts)]
    own = [path for path in visible if len(path.parts) == 1]
    notebook = [path for path in visible if len(path.parts) == 2 and path.parts[0] == "records"]
    target = [path for path in visible if len(path.parts) == 3 and path.parts[1] == "records"]
    return [str(path) for path in own or notebook or target]


def _history(folder: Path) -> dict[str, list[Path]]:
    """Return the folders that each name stands for in the history of a target's notebooks, or of one."""
    notebooks = [folder.parent if folder.name == "records" else folder, *folder.glob("[!.]*")]
    found: dict[str, list[Path]] = {}
    for kept in (path for notebook in notebooks for path in sorted(notebook.glob("history/[!.]*")) if path.is_dir()):
        found.setdefault(kept.name, []).append(kept)
    return dict(sorted(found.items()))


def _from_git(root: Path, name: str, revision: str, copy: Path, rule: str) -> None:
    """Write the present records of a folder at a revision into `copy`. Raises `SetupError`, where it begins by `rule`.

    Git names its objects without touching the work tree or its index.
    """
    start = folder = (root / name).resolve()
    while not start.is_dir():  # it may be one that is gone since
        start = start.parent
    try:
        top = Path(os.fsdecode(_git(start, "rev-parse", "--show-toplevel")).rstrip("\n"))
    except subprocess.CalledProcessError as error:
        said = os.fsdecode(error.stderr).strip().splitlines() or ["no work tree"]
        raise SetupError(f"{rule}, got {revision!r} outside of a git repository (git: {said[0]})") from error
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
    names = listed.split("\0")
    for found in _of_records(path for path in names if path.endswith(".jsonl")):
        sentinel = f"{found.removesuffix('.jsonl')}.sentinel.json"
        for wanted in (found, sentinel) if sentinel in names else (found,):
            path = copy / wanted
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(_git(top, "cat-file", "blob", f"{commit}:{'/'.join((*inside, wanted))}"))


def _git(folder: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", "-C", folder, *arguments], capture_output=True, check=True).stdout
