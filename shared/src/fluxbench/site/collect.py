"""`reports/` -> its targets: their records, pages and devices, and a sentence for all that cannot be shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import msgspec

from fluxbench.analysis.groups import Group, groups
from fluxbench.analysis.verification import cell
from fluxbench.analysis.verification.cell import Cell
from fluxbench.analysis.verification.origin import device_of
from fluxbench.analysis.verification.problem import Problem
from fluxbench.device.peaks import peak
from fluxbench.records import files
from fluxbench.records.line import parse
from fluxbench.records.schema import Record, RecordError
from fluxbench.report.problem_words import sentence

Check = Callable[[Sequence[Cell], Sequence[Cell]], Sequence[Problem]]  # such as `analysis.verification.verify`
_NAMED = 3  # lines of one file whose faults are named before the rest is counted


class _Summary(msgspec.Struct, frozen=True):
    """What of `summary.json` is shown."""

    verdict: Annotated[str, msgspec.Meta(max_length=600)] = ""


@dataclass(frozen=True, kw_only=True)
class Notebook:
    """What one notebook left in a target's folder; paths are relative to `reports/`."""

    name: str
    page: str | None
    cells: tuple[Cell, ...]
    records: tuple[Record, ...]  # of all cells, less those that are left out
    files: tuple[str, ...]  # of records
    tables: tuple[str, ...]  # CSV
    problems: tuple[str, ...]
    verdict: str = ""  # of its own summary, where it has one

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


def collect(reports: Path, check: Check) -> list[Target]:
    """Return the targets, CPUs last; a folder without pages and records is none.

    Records in which `check` finds a problem are left out; beside a target's cells it gets those of all others.
    """
    if not reports.is_dir():
        return []
    folders = sorted(path for path in reports.iterdir() if path.is_dir() and not path.name.startswith("."))
    read = [Target(name=folder.name, notebooks=_notebooks(folder)) for folder in folders]
    targets = [_checked(target, [other for other in read if other is not target], reports, check) for target in read]
    return sorted((target for target in targets if target.notebooks), key=lambda target: target.is_cpu)


def _notebooks(home: Path) -> tuple[Notebook, ...]:
    pages = {page.stem: page for page in home.glob("*.html")}
    folders = {path.parent.name for path in home.glob("*/records") if not path.parent.name.startswith(".")}
    notebooks = (_notebook(home, name, pages.get(name)) for name in sorted({*pages, *folders}))
    return tuple(notebook for notebook in notebooks if notebook.page or notebook.files or notebook.problems)


def _notebook(home: Path, name: str, page: Path | None) -> Notebook:
    reports = home.parent
    cells: list[Cell] = []
    problems: list[str] = []
    paths = files.paths(home / name / "records")
    for path in paths:
        good, bad = _read(path)
        cells.append(cell.read(path, good))
        problems += _first(path, bad, reports)
    return Notebook(
        name=name,
        page=str(page.relative_to(reports)) if page else None,
        cells=tuple(cells),
        records=tuple(record for one in cells for record in one.records),
        files=tuple(str(path.relative_to(reports)) for path in paths),
        tables=tuple(str(path.relative_to(reports)) for path in sorted((home / name).glob("artifacts/*/*.csv"))),
        problems=tuple(problems),
        verdict=_verdict(home / name / "summary.json"),
    )


def _verdict(summary: Path) -> str:
    """Return the verdict in a notebook's summary; empty where it has none that can be read."""
    try:
        return files.read_json(summary, _Summary, "a summary").verdict
    except (OSError, RecordError):
        return ""


def _checked(target: Target, others: Sequence[Target], reports: Path, check: Check) -> Target:
    """Return a target without the records that do not verify, and with a sentence for each of them."""
    known = [one for other in others for notebook in other.notebooks for one in notebook.cells]
    found: dict[Path, list[Problem]] = {}
    for problem in check([one for notebook in target.notebooks for one in notebook.cells], known):
        found.setdefault(problem.path, []).append(problem)
    notebooks = [
        dataclasses.replace(
            notebook,
            records=tuple(record for one in notebook.cells for record in _believed(one, found.get(one.path, ()))),
            problems=(
                *notebook.problems,
                *(words for one in notebook.cells for words in _first(one.path, _left_out(found, one), reports)),
            ),
        )
        for notebook in target.notebooks
    ]
    return dataclasses.replace(target, notebooks=tuple(notebooks))


def _believed(of: Cell, problems: Sequence[Problem]) -> list[Record]:
    """Return the records of a cell that have no problem, none where the cell itself has one."""
    wrong = {(problem.variant, problem.workload) for problem in problems}
    if (None, None) in wrong:
        return []
    return [record for record in of.records if (record.variant, record.workload.name) not in wrong]


def _left_out(found: Mapping[Path, Sequence[Problem]], of: Cell) -> list[str]:
    """Return a sentence for each problem of a cell, those of the whole cell first."""
    problems = sorted(found.get(of.path, ()), key=lambda problem: problem.variant is not None)
    return list(
        dict.fromkeys(
            f"{f'{one.variant} at {one.workload} is' if one.variant else 'all records are'} left out: {sentence(one)}"
            for one in problems
        )
    )


def _first(path: Path, bad: Sequence[str], reports: Path) -> list[str]:
    """Return the first faults of a file with its path, and how many more there are."""
    shown = list(bad)
    if len(shown) > _NAMED:
        shown[_NAMED - 1 :] = [f"{len(shown) - _NAMED + 1:,} more faults"]
    return [f"{path.relative_to(reports)}: {fault}" for fault in shown]


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
            good.append(parse(line))
        except RecordError as error:
            bad.append(f"line {number} is left out: {error}")
    return good, bad


def peak_tflops(record: Record) -> float | None:
    """Return the data sheet's rate in 16 bits of all devices that share a record's calls, where it is known."""
    rates = peak(device_of(record))
    return rates.bf16_tflops * record.workload.ranks if rates else None


def device_name(records: Iterable[Record]) -> str:
    """Return the name of the device of some records; of several, all of them."""
    names = dict.fromkeys(str(record.fingerprint.get("device") or "an unnamed device") for record in records)
    return " and ".join(names) or "an unnamed device"
