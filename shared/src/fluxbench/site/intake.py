"""Records from people's own machines: a folder of them becomes a target of `reports/`, or a sentence says why not.

Nothing but records and what belongs to them is taken: a page that somebody sends is not, since it could hold anything.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fluxbench.analysis.verification import cell
from fluxbench.analysis.verification.cell import Cell
from fluxbench.analysis.verification.origin import device_of
from fluxbench.analysis.verification.verify import verify
from fluxbench.core.errors import SetupError
from fluxbench.device.model import Device
from fluxbench.device.targets import target_name
from fluxbench.records import files
from fluxbench.records.schema import Record, RecordError
from fluxbench.report.problem_words import sentence, whose

# Of a cell, and taken with its records; the third as schema 1 called it.
_BESIDE = (".samples.json.gz", ".capabilities.json", ".samples.json", *files.CONTROL_SUFFIXES)
_OF_ALL = ("device.json", "rates.json", "ceilings.json")  # the last as schema 1 called it
_LAYOUTS = ("artifacts/*/", "*/records/", "records/", "")  # of a build, a target, a notebook, and records alone
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # as a part of a path


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
    paths = _files(path)
    if not paths:
        raise SetupError(f"{path} must hold records, *.jsonl, by itself or in artifacts/ or records/; there are none")
    cells, problems = _read(path, paths)
    by_file = {of_file.path: of_file.records for of_file in cells}
    records = [record for of_file in cells for record in of_file.records]
    found = verify(cells, _published(reports))
    problems += [*dict.fromkeys(f"{whose(one)}: {sentence(one)}" for one in found), *_lost(path, by_file)]
    device = device_of(records[0]) if records else Device(kind="", name="an unnamed device")
    name = target or target_name(device)
    if not _SAFE.fullmatch(name):
        raise SetupError(f"a target's name must be letters, digits, '.', '_' and '-', got {name!r}; use --target")
    home = reports / name
    if home.exists():
        raise SetupError(f"{home} is there already and is never overwritten; choose another name by --target")
    if not problems:
        _take(by_file, home)
    return Intake(
        target=name,
        folder=None if problems else home,
        records=len(records),
        device=device.name,
        problems=tuple(problems),
    )


def _files(path: Path) -> list[Path]:
    """Return the record files of a folder, in the first of the layouts that holds some."""
    if not path.is_dir():
        raise SetupError(f"records must be given as a folder, got {path}")
    of_layouts = (
        sorted(file for suffix in files.SUFFIXES for file in path.glob(f"{layout}*{suffix}")) for layout in _LAYOUTS
    )
    return next((of_layout for of_layout in of_layouts if of_layout), [])


def _read(path: Path, paths: Iterable[Path]) -> tuple[list[Cell], list[str]]:
    """Return the cells, and a sentence for each file of records that does not hold what it must."""
    cells: list[Cell] = []
    problems: list[str] = []
    for file in paths:
        where = file.relative_to(path)
        try:
            cell.content(file)
            found = cell.read(file, homes=_homes(file))
        except (RecordError, OSError) as error:
            problems.append(f"{where}: {error}")
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


def _published(reports: Path) -> list[Cell]:
    """Return the cells of all targets, as far as they can be read."""
    found = []
    for file in (file for home in sorted(reports.glob("[!.]*/*/records")) for file in files.paths(home)):
        with contextlib.suppress(RecordError, OSError):
            found.append(cell.read(file))
    return found


def _homes(file: Path) -> list[Path]:
    """Return where else than beside a file its device's files are: the folders of a build's other cells."""
    return sorted(file.parent.parent.glob("*")) if file.parent.parent.name == "artifacts" else []


def _beside(file: Path) -> list[Path]:
    """Return what else of a cell is taken: its samples, the control kernel's times, and what the device is."""
    near = [file.with_name(files.cell_of(file) + end) for end in _BESIDE]
    near += [home / name for home in (file.parent, *_homes(file)) for name in _OF_ALL]
    return [beside for beside in near if beside.is_file()]


def _places(file: Path, records: Sequence[Record]) -> Iterator[tuple[Path, Path]]:
    """Yield a record file and all that is taken with it, each with its place in the new target."""
    folder = Path(records[0].notebook) / "records"
    yield from ((taken, folder / taken.name) for taken in itertools.chain([file], _beside(file)))


def _lost(path: Path, by_file: Mapping[Path, Sequence[Record]]) -> list[str]:
    """Return a sentence for each file that another one would take the place of; equal ones beside records may."""
    first: dict[Path, Path] = {}
    problems = []
    for file, records in by_file.items():
        for taken, place in _places(file, records):
            other = first.setdefault(place, taken)
            if other != taken and (taken == file or other.read_bytes() != taken.read_bytes()):
                names = f"{other.relative_to(path)} and {taken.relative_to(path)}"
                problems.append(f"{names}: both would become {place}; they must have different names, or be one file")
    return list(dict.fromkeys(problems))


def _take(by_file: Mapping[Path, Sequence[Record]], home: Path) -> None:
    """Copy records and what belongs to them into a new target, in one step. Raises `OSError`; nothing is left then."""
    new = home.with_name(f".{home.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    try:
        for file, records in by_file.items():
            for taken, place in _places(file, records):
                (new / place).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(taken, new / place)
        new.rename(home)
    except OSError:
        shutil.rmtree(new, ignore_errors=True)
        raise
