"""Records from people's own machines: a folder of them becomes a target of `reports/`, or a sentence says why not.

Nothing but records and what belongs to them is taken: a page that somebody sends is not, since it could hold anything.
"""

from __future__ import annotations

import gzip
import itertools
import json
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fluxbench.core.errors import SetupError
from fluxbench.device.model import Device
from fluxbench.device.targets import target_name
from fluxbench.records import files
from fluxbench.records.schema import Record, RecordError
from fluxbench.site import refusals
from fluxbench.site.collect import device_of

# Of a cell, and taken with its records; the third as schema 1 called it.
_BESIDE = (".samples.json.gz", ".capabilities.json", ".samples.json", *files.CONTROL_SUFFIXES)
_OF_ALL = ("device.json", "rates.json", "ceilings.json")  # the last as schema 1 called it
_LAYOUTS = ("artifacts/*/", "*/records/", "records/", "")  # of a build, a target, a notebook, and records alone
_MOST_BYTES = 256 << 20  # of a file, decompressed


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
    by_file, problems = _read(path, paths)
    records = [record for of_file in by_file.values() for record in of_file]
    if records:
        problems += [*refusals.of_all(records), *_lost(path, by_file)]
    device = device_of(records[0]) if records else Device(kind="", name="an unnamed device")
    name = target or target_name(device)
    if not refusals.is_safe_name(name):
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


def _read(path: Path, paths: Iterable[Path]) -> tuple[dict[Path, list[Record]], list[str]]:
    """Return the records by their file, and a sentence for each file that does not hold what it must."""
    by_file: dict[Path, list[Record]] = {}
    problems: list[str] = []
    for file in paths:
        where = file.relative_to(path)
        try:
            _content(file)
            records = files.read(file)
        except (RecordError, OSError) as error:
            problems.append(f"{where}: {error}")
            continue
        if not records:
            problems.append(f"{where}: it holds no record")
        elif len({record.notebook for record in records}) > 1:
            problems.append(f"{where}: its records must be of one notebook")
        elif not refusals.is_safe_name(records[0].notebook) or not refusals.is_safe_name(file.name):
            problems.append(f"{where}: the names of notebook and file must be safe as paths")
        else:
            by_file[file] = records
        problems += _damaged(path, file)
    return by_file, problems


def _content(file: Path) -> bytes:
    """Return what a file holds, decompressed. Raises `OSError`, and `RecordError` where that is too much."""
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as opened:
        try:
            content = opened.read(_MOST_BYTES + 1)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise RecordError(f"it cannot be decompressed: {error}") from error
    if len(content) > _MOST_BYTES:
        raise RecordError(f"it must hold at most {_MOST_BYTES >> 20} MiB, got more")
    return content


def _beside(file: Path) -> list[Path]:
    """Return what else of a cell is taken: its samples, the control kernel's times, and what the device is."""
    near = [file.with_name(files.cell_of(file) + end) for end in _BESIDE]
    homes = [file.parent, *(file.parent.parent.glob("*") if file.parent.parent.name == "artifacts" else ())]
    near += [home / name for home in homes for name in _OF_ALL]
    return [beside for beside in near if beside.is_file()]


def _damaged(path: Path, file: Path) -> list[str]:
    problems = []
    for beside in _beside(file):
        where = beside.relative_to(path)
        try:
            if not isinstance(json.loads(_content(beside)), dict):
                raise ValueError("another kind of value")
        except RecordError as error:
            problems.append(f"{where}: {error}")
        except (ValueError, OSError, RecursionError):
            problems.append(f"{where}: it must hold one JSON object")
    try:
        files.read_control(file.parent, files.cell_of(file))
    except (RecordError, OSError) as error:
        problems.append(f"{file.parent.relative_to(path)}: {error}")
    return list(dict.fromkeys(problems))


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
