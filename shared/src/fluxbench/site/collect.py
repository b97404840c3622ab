"""`reports/` -> its targets: their records, pages and devices, and a sentence for all that cannot be shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fluxbench.analysis.ranking import Group, groups
from fluxbench.device.model import Device
from fluxbench.device.peaks import peak
from fluxbench.records import schema as records
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
    folders = sorted(each for each in reports.iterdir() if each.is_dir() and not each.name.startswith("."))
    found = [Target(name=folder.name, notebooks=_notebooks(folder)) for folder in folders]
    return sorted((target for target in found if target.notebooks), key=lambda target: target.is_cpu)


def _notebooks(home: Path) -> tuple[Notebook, ...]:
    pages = {page.stem: page for page in home.glob("*.html")}
    folders = {each.parent.name for each in home.glob("*/records") if not each.parent.name.startswith(".")}
    found = (_notebook(home, name, pages.get(name)) for name in sorted({*pages, *folders}))
    return tuple(notebook for notebook in found if notebook.page or notebook.files or notebook.problems)


def _notebook(home: Path, name: str, page: Path | None) -> Notebook:
    reports = home.parent
    read: list[Record] = []
    problems: list[str] = []
    files = sorted((home / name / "records").glob("*.jsonl"))
    for file in files:
        good, bad = _read(file)
        read += good
        problems += [f"{file.relative_to(reports)}: {fault}" for fault in bad]
    return Notebook(
        name=name,
        page=str(page.relative_to(reports)) if page else None,
        records=tuple(read),
        files=tuple(str(file.relative_to(reports)) for file in files),
        tables=tuple(str(file.relative_to(reports)) for file in sorted((home / name).glob("artifacts/*/*.csv"))),
        problems=tuple(problems),
    )


def _read(file: Path) -> tuple[list[Record], list[str]]:
    """Return the records of a file, line by line, and a sentence for each line that is left out, or for the file."""
    good: list[Record] = []
    bad: list[str] = []
    try:
        with file.open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    record = records.from_json(line)
                except RecordError as error:
                    bad.append(f"line {number} is left out: {error}")
                    continue
                if wrong := out_of_range(record):
                    bad.append(f"line {number} is left out: {wrong}")
                else:
                    good.append(record)
    except OSError as error:
        bad.append(f"it cannot be read: {error.strerror}")
    if len(bad) > _NAMED:
        bad[_NAMED - 1 :] = [f"{len(bad) - _NAMED + 1:,} more lines are left out"]
    return good, bad


def out_of_range(record: Record) -> str | None:
    """Say that a time of a record, or an end of its interval, is none that a call can take; None where all are."""
    least, most = _TIMES_MS
    for timing in filter(None, (record.timing, record.burst)):
        for ms in (timing.median_ms, *timing.ci95_ms):
            if not least <= ms <= most:
                return f"{timing.regime}: times must lie within {least:g} to {most:g} ms, got {ms:g}"
        for ratio in (timing.ratio, *timing.ratio_ci95):
            if not least / most <= ratio <= most / least:
                return f"{timing.regime}: ratios must be those of times within {least:g} to {most:g} ms, got {ratio:g}"
    return None


def peak_tflops(record: Record) -> float | None:
    """Return the data sheet's rate in 16 bits of the device that a record names, where it is known."""
    found = record.fingerprint
    rates = peak(Device(kind=str(found.get("device_kind")), name=str(found.get("device")), mig=bool(found.get("mig"))))
    return rates.bf16_tflops if rates else None


def device_name(found: Iterable[Record]) -> str:
    """Return what the device of some records calls itself; of several, all of them."""
    names = dict.fromkeys(str(record.fingerprint.get("device") or "an unnamed device") for record in found)
    return " and ".join(names) or "an unnamed device"
