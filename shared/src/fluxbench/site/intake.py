"""Records from people's own machines: a folder of them becomes a target of `reports/`, or a sentence says why not.

Nothing but records and what belongs to them is taken: a page that somebody sends is not, since it could hold anything.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fluxbench.analysis.verification import cell
from fluxbench.analysis.verification.cell import Cell
from fluxbench.analysis.verification.origin import device_of
from fluxbench.analysis.verification.verify import verify
from fluxbench.core.errors import SetupError
from fluxbench.core.files import open_regular, remove
from fluxbench.device.model import Device
from fluxbench.device.targets import target_name
from fluxbench.records import files, fingerprint
from fluxbench.records.fingerprint import CODE
from fluxbench.records.schema import RecordError
from fluxbench.report.problem_words import sentence, whose

_OF_ALL = ("device.json", "rates.json", "ceilings.json")  # the last as schema 1 called it
# Of a build or a target, of a plain `uvnote build`, of a notebook, and records alone.
_LAYOUTS = ("[!.]*/records/", "artifacts/*/", "records/", "")
# As a part of a path; the names of pages end in .html.
_SAFE = re.compile(r"(?!.*\.html$)[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MADE_BY = ("driver", "cuda_driver", "power_limit_w")  # and the hashes of the code: alike in all cells of a page


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The cells below a folder, and a sentence for each reason not to take them."""

    cells: tuple[Cell, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Intake:
    """The result for a folder: a new target, or problems and nothing changed."""

    target: str
    folder: Path | None  # None where there are problems
    records: int
    device: str
    problems: tuple[str, ...]

    def text(self) -> str:
        """Return it in one sentence; the problems are sentences of their own."""
        if self.folder is None:
            return "nothing was taken in"
        return f"taken in as {self.folder}: {self.device}, records: {self.records:,}; `make site` draws them"


def add(path: Path, reports: Path, target: str | None = None) -> Intake:
    """Take the records below a folder in as `reports/<target>/`, whole or not at all.

    The folder is what `make report` leaves (`site`), a target's or a notebook's folder of `reports/`, or one of record
    files. Without a name the target has the device's. Raises `SetupError` where there is nothing to take in, or where
    a target of that name is there already.
    """
    checked = check(path, reports)
    records = [record for one in checked.cells for record in one.records]
    device = device_of(records[0]) if records else Device(kind="", name="an unnamed device")
    name = target or target_name(device)
    check_name(name)
    home = reports / name
    if os.path.lexists(home):
        raise SetupError(f"{home} is there already and is never overwritten; choose another name by --target")
    if not checked.problems:
        _take(checked.cells, home)
    return Intake(
        target=name,
        folder=None if checked.problems else home,
        records=len(records),
        device=device.name,
        problems=checked.problems,
    )


def check(path: Path, reports: Path, replaced: Path | None = None) -> Checked:
    """Return the cells below a folder, and what is wrong with them, also beside those of `reports`.

    `replaced` is a published notebook's folder whose place they are to take. Raises `SetupError` where there are none.
    """
    paths = _files(path)
    if not paths:
        raise SetupError(f"{path} must hold records (*.jsonl), directly or in artifacts/ or records/, got none")
    cells, problems = _read(path, paths)
    found = verify(cells, _published(reports, replaced))
    problems += [*dict.fromkeys(f"{whose(one)}: {sentence(one)}" for one in found), *_lost(path, cells), *_stale(cells)]
    return Checked(cells=tuple(cells), problems=tuple(problems))


def check_name(target: str) -> None:
    """Raise `SetupError` where a target's name is not safe as a folder's."""
    if not _SAFE.fullmatch(target):
        raise SetupError(
            f"a target's name must be at most 64 letters, digits, '.', '_' and '-', and not end in .html, got "
            f"{target[:80]!r}; use another"
        )


def _files(path: Path) -> list[Path]:
    """Return the record files of a folder, in the first of the layouts that holds some."""
    if not path.is_dir():
        raise SetupError(f"records must be given as a folder, got {path}")
    of_layouts = (
        sorted(file for suffix in files.SUFFIXES for file in path.glob(f"{layout}*{suffix}")) for layout in _LAYOUTS
    )
    return next((of_layout for of_layout in of_layouts if of_layout), [])


def _read(path: Path, paths: Sequence[Path]) -> tuple[list[Cell], list[str]]:
    """Return the cells, and a sentence for each file of records that does not hold what it must."""
    cells: list[Cell] = []
    problems: list[str] = []
    homes = _homes(paths[0])
    for file in paths:
        where = file.relative_to(path)
        if any((path / folder).is_symlink() for folder in where.parents[:-1]):
            problems.append(f"{where}: it must be reached without a link")
            continue
        try:
            found = cell.read(file, homes=homes)
        except (RecordError, OSError) as error:
            problems.append(f"{where}: {error.strerror if isinstance(error, OSError) else error}")
            continue
        records = found.records
        if not records:
            problems.append(f"{where}: it holds no record")
        elif len({record.notebook for record in records}) > 1:
            problems.append(f"{where}: its records must be of one notebook")
        elif not _SAFE.fullmatch(records[0].notebook) or not _SAFE.fullmatch(file.name):
            problems.append(f"{where}: the names of notebook and file must be safe as paths")
        else:
            cells.append(found)
    return cells, problems


def _published(reports: Path, replaced: Path | None) -> list[Cell]:
    """Return the cells of all targets but those below one folder, as far as they can be read."""
    found = []
    homes = [home for home in sorted(reports.glob("[!.]*/*/records")) if home.parent != replaced]
    for file in (file for home in homes for file in files.paths(home)):
        with contextlib.suppress(RecordError, OSError):
            found.append(cell.read(file))
    return found


def _homes(file: Path) -> list[Path]:
    """Return where else than beside a file its device's files are: folders of a plain build's other cells."""
    folders = file.parent.parent
    if folders.name != "artifacts":
        return []
    return sorted(
        home
        for home in folders.iterdir()
        if not home.is_symlink() and any(os.path.lexists(home / name) for name in _OF_ALL)
    )


def _places(of: Cell) -> Iterator[tuple[Path, Path]]:
    """Yield a record file and all that is taken with it, each with its place in the new target."""
    folder = Path(of.records[0].notebook) / "records"
    yield from ((taken, folder / taken.name) for taken in (of.path, *of.beside))


def _lost(path: Path, cells: Iterable[Cell]) -> list[str]:
    """Return a sentence for each file that another one would take the place of; equal ones beside records may."""
    first: dict[Path, Path] = {}
    problems = []
    for one in cells:
        for taken, place in _places(one):
            other = first.setdefault(place, taken)
            if other != taken and (taken == one.path or files.read_bytes(other) != files.read_bytes(taken)):
                names = f"{other.relative_to(path)} and {taken.relative_to(path)}"
                problems.append(f"{names}: both would become {place}; they must have different names, or be one file")
    return list(dict.fromkeys(problems))


def _stale(cells: Iterable[Cell]) -> Iterator[str]:
    """Yield a sentence for each cell that another one of its notebook, measured later, shows to be stale."""
    newest: dict[str, Cell] = {}
    oldest_first = sorted(cells, key=lambda one: one.records[0].measured_at)
    for one in oldest_first:
        newest[one.records[0].notebook] = one
    for one in oldest_first:
        last = newest[one.records[0].notebook]
        before, now = ({k: v for k, v in of.records[0].fingerprint.items() if _is_common(k)} for of in (one, last))
        both = [key for key in before if key in now]
        differing = fingerprint.differences({key: before[key] for key in both}, {key: now[key] for key in both})
        if differing:
            words = ", ".join(map(str, differing))
            name = files.cell_of(one.path)
            yield f"{name}: it is stale, as cell {files.cell_of(last.path)} shows: {words}; build the page again first"


def _is_common(key: str) -> bool:
    return key in _MADE_BY or key.startswith(CODE)


def _take(cells: Iterable[Cell], home: Path) -> None:
    """Copy records and what belongs to them into a new target, in one step. Raises `OSError`; nothing is left then."""
    new = home.with_name(f".{home.name}.new")
    remove(new)
    try:
        for one in cells:
            for taken, place in _places(one):
                (new / place).parent.mkdir(parents=True, exist_ok=True)
                with open_regular(taken.parent, taken.name) as source, (new / place).open("wb") as target:
                    shutil.copyfileobj(source, target)
        new.rename(home)
    except OSError:
        remove(new)
        raise
