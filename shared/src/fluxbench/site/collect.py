"""`reports/` -> its targets: their records, pages and devices, and a sentence for all that cannot be shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fluxbench.analysis.groups import Group, groups
from fluxbench.device.model import Device
from fluxbench.device.peaks import peak
from fluxbench.records import files
from fluxbench.records.schema import Record, RecordError

_TIMES_MS = (1e-6, 1e9)  # what a call can take at all: a nanosecond to eleven days
_NAMED = 3  # lines of one file whose faults are named before the rest is counted


@dataclass(frozen=True, kw_only=True)
class Notebook:
    """What one notebook left in a target's folder; paths are relative to `reports/`."""

    name: str
    page: str | None
    records: tuple[Record, ...]
    files: tuple[str, ...]  # of records
    tables: tuple[str, ...]  # CSV
    problems: tuple[str, ...]

    @cached_property
    def groups(self) -> list[Group]:
        """The records by what is compared."""
        return groups(self.records)


@dataclass(frozen=True, kw_only=True)
class Target:
    """A folder of `reports/`."""

    name: str
    notebooks: tuple[Notebook, ...]

    @property
    def records(self) -> list[Record]:
        """All records of all notebooks."""
        return [record for notebook in self.notebooks for record in notebook.records]

    @property
    def is_cpu(self) -> bool:
        """Whether none of its records names another kind of device."""
        return all(record.fingerprint.get("device_kind") == "cpu" for record in self.records)

    @property
    def problems(self) -> list[str]:
        """A sentence for each thing that is left out."""
        return [problem for notebook in self.notebooks for problem in notebook.problems]


def collect(reports: Path) -> list[Target]:
    """Return the targets, CPUs last; a folder without pages and records is none."""
    if not reports.is_dir():
        return []
    folders = sorted(path for path in reports.iterdir() if path.is_dir() and not path.name.startswith("."))
    targets = [Target(name=folder.name, notebooks=_notebooks(folder)) for folder in folders]
    return sorted((target for target in targets if target.notebooks), key=lambda target: target.is_cpu)


def _notebooks(home: Path) -> tuple[Notebook, ...]:
    pages = {page.stem: page for page in home.glob("*.html")}
    folders = {path.parent.name for path in home.glob("*/records") if not path.parent.name.startswith(".")}
    notebooks = (_notebook(home, name, pages.get(name)) for name in sorted({*pages, *folders}))
    return tuple(notebook for notebook in notebooks if notebook.page or notebook.files or notebook.problems)


def _notebook(home: Path, name: str, page: Path | None) -> Notebook:
    reports = home.parent
    records: list[Record] = []
    problems: list[str] = []
    paths = files.paths(home / name / "records")
    for path in paths:
        good, bad = _read(path)
        records += good
        problems += [f"{path.relative_to(reports)}: {fault}" for fault in bad]
    return Notebook(
        name=name,
        page=str(page.relative_to(reports)) if page else None,
        records=tuple(records),
        files=tuple(str(path.relative_to(reports)) for path in paths),
        tables=tuple(str(path.relative_to(reports)) for path in sorted((home / name).glob("artifacts/*/*.csv"))),
        problems=tuple(problems),
    )


def _read(path: Path) -> tuple[list[Record], list[str]]:
    """Return the records of a file, line by line, and a sentence for each line that is left out, or for the file."""
    good: list[Record] = []
    bad: list[str] = []
    try:
        lines = files.read_bytes(path).splitlines()
    except OSError as error:
        return [], [f"it cannot be read: {error.strerror}"]
    except RecordError as error:
        return [], [str(error)]
    for number, line in enumerate(lines, start=1):
        try:
            record = files.parse(line)
        except RecordError as error:
            bad.append(f"line {number} is left out: {error}")
            continue
        if wrong := out_of_range(record):
            bad.append(f"line {number} is left out: {wrong}")
        else:
            good.append(record)
    if len(bad) > _NAMED:
        bad[_NAMED - 1 :] = [f"{len(bad) - _NAMED + 1:,} more lines are left out"]
    return good, bad


def out_of_range(record: Record) -> str | None:
    """Say that a time of a record, or an end of its interval, is none that a call can take; None where all are."""
    least, most = _TIMES_MS
    for regime, timing in record.timings.items():
        for ms in (timing.median_ms, *timing.ci95_ms):
            if not least <= ms <= most:
                return f"{regime}: times must lie within {least:g} to {most:g} ms, got {ms:g}"
        for ratio in (timing.ratio, *timing.ratio_ci95):
            if not least / most <= ratio <= most / least:
                return f"{regime}: ratios must be those of times within {least:g} to {most:g} ms, got {ratio:g}"
    return None


def device_of(record: Record) -> Device:
    """Return the device that a record names, without clocks: its data sheet's limits count."""
    named = record.fingerprint
    return Device(kind=str(named.get("device_kind")), name=str(named.get("device")), mig=bool(named.get("mig")))


def peak_tflops(record: Record) -> float | None:
    """Return the data sheet's rate in 16 bits of all devices that share a record's calls, where it is known."""
    rates = peak(device_of(record))
    return rates.bf16_tflops * record.workload.ranks if rates else None


def device_name(records: Iterable[Record]) -> str:
    """Return the name of the device of some records; of several, all of them."""
    names = dict.fromkeys(str(record.fingerprint.get("device") or "an unnamed device") for record in records)
    return " and ".join(names) or "an unnamed device"
