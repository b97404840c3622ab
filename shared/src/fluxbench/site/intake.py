"""Records from people's own machines: a folder of them becomes a target of `reports/`, or each reason why not is said.

Nothing but records is taken: a page that somebody sends is not, since it could hold anything.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fluxbench.core.errors import SetupError
from fluxbench.device.detection import target_name
from fluxbench.device.model import Device
from fluxbench.operations.roofline import faster_than_possible
from fluxbench.operations.workloads import BY_NAME
from fluxbench.records import fingerprint
from fluxbench.records import schema as records
from fluxbench.records.schema import Record, RecordError, Status, Timing
from fluxbench.site.collect import out_of_range

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_BESIDE = (".samples.json", ".sentinel.json", ".capabilities.json")  # of a cell, and taken with its records
_OF_ALL = ("device.json", "ceilings.json")
_AHEAD = timedelta(days=1)  # by which another machine's clock may be wrong
_ROUNDING = 1e-3  # share by which a median may lie outside of samples that are kept rounded


@dataclass(frozen=True, kw_only=True)
class Intake:
    """What came of a folder: a new target, or problems and nothing changed."""

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
    files = _files(path)
    if not files:
        raise SetupError(f"{path} must hold records, *.jsonl, by itself or in artifacts/ or records/; there are none")
    read, problems = _read(path, files)
    found = [record for taken in read.values() for record in taken]
    if found:
        problems += _problems(found) + _lost(path, read)
    device = _device(found[0]) if found else Device(kind="", name="an unnamed device")
    name = target or target_name(device)
    if not _SAFE.fullmatch(name):
        raise SetupError(f"a target's name must be letters, digits, '.', '_' and '-', got {name!r}; use --target")
    home = reports / name
    if home.exists():
        raise SetupError(f"{home} is there already and is never overwritten; choose another name by --target")
    if not problems:
        _take(read, home)
    return Intake(
        target=name, folder=None if problems else home, records=len(found), device=device.name, problems=tuple(problems)
    )


def _files(path: Path) -> list[Path]:
    """Return the record files of a folder, in the first of the layouts that holds some."""
    if not path.is_dir():
        raise SetupError(f"records must be given as a folder, got {path}")
    layouts = ("artifacts/*/*.jsonl", "*/records/*.jsonl", "records/*.jsonl", "*.jsonl")
    return next((files for layout in layouts if (files := sorted(path.glob(layout)))), [])


def _read(path: Path, files: Iterable[Path]) -> tuple[dict[Path, list[Record]], list[str]]:
    """Return the records by their file, and a sentence for each file that does not hold what it must."""
    found: dict[Path, list[Record]] = {}
    problems: list[str] = []
    for file in files:
        try:
            taken = records.read(file)
        except (RecordError, OSError) as error:
            problems.append(f"{file.relative_to(path)}: {error}")
            continue
        if not taken:
            problems.append(f"{file.relative_to(path)}: it holds no record")
        elif len({record.notebook for record in taken}) > 1:
            problems.append(f"{file.relative_to(path)}: its records must be of one notebook")
        elif not _SAFE.fullmatch(taken[0].notebook) or not _SAFE.fullmatch(file.stem):
            problems.append(f"{file.relative_to(path)}: the names of notebook and file must be safe as paths")
        else:
            found[file] = taken
        problems += _damaged(path, file)
    return found, problems


def _beside(file: Path) -> list[Path]:
    """Return what else of a cell is taken: its samples, its sentinel, and what the device is."""
    near = [file.with_name(file.stem + end) for end in _BESIDE]
    homes = [file.parent, *(file.parent.parent.glob("*") if file.parent.parent.name == "artifacts" else ())]
    near += [home / name for home in homes for name in _OF_ALL]
    return [each for each in near if each.is_file()]


def _damaged(path: Path, file: Path) -> list[str]:
    problems = []
    for each in _beside(file):
        try:
            if not isinstance(json.loads(each.read_bytes()), dict):
                raise ValueError("another kind of value")
        except (ValueError, OSError, RecursionError):
            problems.append(f"{each.relative_to(path)}: it must hold one JSON object")
    return list(dict.fromkeys(problems))


def _places(file: Path, taken: Sequence[Record]) -> Iterable[tuple[Path, Path]]:
    """Return a record file and all that is taken with it, each with its place in the new target."""
    folder = Path(taken[0].notebook) / "records"
    return [(each, folder / each.name) for each in itertools.chain([file], _beside(file))]


def _lost(path: Path, read: Mapping[Path, Sequence[Record]]) -> list[str]:
    """Return a sentence for each file that another one would take the place of; equal ones beside records may."""
    first: dict[Path, Path] = {}
    problems = []
    for file, taken in read.items():
        for each, place in _places(file, taken):
            other = first.setdefault(place, each)
            if other != each and (each == file or other.read_bytes() != each.read_bytes()):
                names = f"{other.relative_to(path)} and {each.relative_to(path)}"
                problems.append(f"{names}: both would become {place}; they must have different names, or be one file")
    return list(dict.fromkeys(problems))


def _problems(found: Sequence[Record]) -> list[str]:
    """Return a sentence for each thing that is wrong with records that each fit the schema."""
    first = next((record.fingerprint for record in found if record.fingerprint.get("device")), {})
    problems = []
    for record in found:
        who = f"{record.cell}, {record.variant} at {record.workload.name}"
        problems += [f"{who}: {problem}" for problem in _of_one(record)]
        other = fingerprint.another_device(first, record.fingerprint)
        if other and record.fingerprint.get("device"):
            problems.append(f"{who}: all records of a target must be of one device: {other}")
    twice = Counter((record.notebook, record.variant, record.workload.name) for record in found)
    problems += [
        f"{variant} at {workload}: there must be one record of it in {notebook}, got {count}"
        for (notebook, variant, workload), count in twice.items()
        if count > 1
    ]
    return list(dict.fromkeys(problems))


def _of_one(record: Record) -> list[str]:
    problems = [*_provenance(record), *_shape(record)]
    checked = record.correctness
    if record.status is not Status.PASSED or checked is None:
        return problems
    if checked.rel_l2 is None or checked.nan_count or checked.rel_l2 > checked.budget_rel_l2:
        problems.append(f"PASSED must be within its budget of {checked.budget_rel_l2:g}, got {checked.rel_l2}")
    if wrong := out_of_range(record):
        return [*problems, wrong]
    for timing in (record.timing, record.burst):
        if timing is None:
            continue
        if impossible := faster_than_possible(
            timing.median_ms, record.workload, _device(record), checked.precision_class
        ):
            problems.append(f"{timing.regime}: {impossible}")
        if outside := _outside(timing):
            problems.append(f"{timing.regime}: {outside}")
    return problems


def _provenance(record: Record) -> list[str]:
    """Return what a record does not say of how it came about."""
    said, problems = record.fingerprint, []
    missing = [key for key in ("device", "device_kind", "python") if not isinstance(said.get(key), str)]
    missing += ["driver"] * (said.get("device_kind") == "cuda" and not said.get("driver"))
    missing += ["code.<file>"] * (not any(key.startswith("code.") for key in said))
    if missing:
        problems.append(f"its fingerprint must say {', '.join(missing)}")
    if record.status is Status.PASSED and "torch" not in record.versions:
        problems.append("its versions must say torch")
    drivers = [record.versions.get("driver"), said.get("driver")]
    if all(drivers) and drivers[0] != drivers[1]:
        problems.append(f"its driver is {drivers[0]} in versions and {drivers[1]} in fingerprint")
    try:
        when = datetime.fromisoformat(record.measured_at)
        when = when.replace(tzinfo=UTC) if when.tzinfo is None else when
    except ValueError:
        return [*problems, f"measured_at must be a time by ISO 8601, got {record.measured_at[:40]!r}"]
    if when > datetime.now(UTC) + _AHEAD:
        problems.append(f"measured_at must not lie ahead, got {record.measured_at}")
    return problems


def _shape(record: Record) -> list[str]:
    known = BY_NAME.get(record.workload.name)
    if known is None or known == record.workload:
        return []
    return ["its workload must have the shape that fluxbench knows by this name"]


def _outside(timing: Timing) -> str | None:
    low, high = min(timing.samples_ms) * (1 - _ROUNDING), max(timing.samples_ms) * (1 + _ROUNDING)
    if low <= timing.median_ms <= high:
        return None
    return f"median_ms must lie within the samples, got {timing.median_ms:g} of {low:g} to {high:g}"


def _device(record: Record) -> Device:
    """Return the device that a record names, without clocks: the data sheet's limits count."""
    said: Mapping[str, object] = record.fingerprint
    return Device(kind=str(said.get("device_kind")), name=str(said.get("device")), mig=bool(said.get("mig")))


def _take(read: Mapping[Path, Sequence[Record]], home: Path) -> None:
    """Copy records and what belongs to them into a new target, in one step. Raises `OSError`; nothing is left then."""
    new = home.with_name(f".{home.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    try:
        for file, taken in read.items():
            for each, place in _places(file, taken):
                (new / place).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(each, new / place)
        new.rename(home)
    except OSError:
        shutil.rmtree(new, ignore_errors=True)
        raise
