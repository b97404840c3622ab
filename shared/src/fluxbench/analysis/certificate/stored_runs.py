"""The last runs of a notebook's measuring cells on this model of device: those in its store, and the published one.

A run is compared with others of the same fingerprint alone: the same device, driver, packages, source and code.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fluxbench.analysis.revision import moment
from fluxbench.core import strict
from fluxbench.device.model import Device
from fluxbench.device.targets import target_name
from fluxbench.records import files, fingerprint
from fluxbench.records.files import ControlTimes
from fluxbench.records.schema import Record, RecordError

RUNS = 3
_LOOKED_AT = 10  # results of a cell, of which the last with the fingerprint of the newest are taken
_NO_TIME = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """One good run of a measuring cell."""

    cell: str
    records: tuple[Record, ...]
    control: ControlTimes | None
    span: tuple[datetime, datetime] | None = None  # begin and end of the run, UTC; None where unknown

    @property
    def measured_at(self) -> str:
        """When it was measured, UTC."""
        return self.records[0].measured_at


def stored_runs(root: Path, device: Device, notebook: str) -> dict[str, list[StoredRun]]:
    """Return the last runs of each measuring cell, the newest first, `RUNS` at most. Damaged ones are left out."""
    paths = {cell: list(folders) for cell, folders in _local(root, notebook).items()}
    for cell in _cells(root, notebook):
        paths.setdefault(cell, []).append(root / "reports" / target_name(device) / notebook / "records")
    now = fingerprint.of_device(device)
    runs: dict[str, list[StoredRun]] = {}
    for cell, folders in sorted(paths.items()):
        for folder in folders:
            with contextlib.suppress(OSError, RecordError):
                run = _read(folder, cell)
                if run and not fingerprint.another_device(run.records[0].fingerprint, now):
                    runs.setdefault(cell, []).append(run)
    return {cell: _last_alike(of_cell) for cell, of_cell in runs.items()}


def overlapped(runs: Mapping[str, Sequence[StoredRun]]) -> bool:
    """Whether runs of a cell overlapped in time: then each had a device of its own, of the same model."""
    spans = {cell: sorted(run.span for run in of_cell if run.span) for cell, of_cell in runs.items()}
    return any(earlier[1] > later[0] for of_cell in spans.values() for earlier, later in itertools.pairwise(of_cell))


def _read(folder: Path, cell: str) -> StoredRun | None:
    for path in files.paths(folder):
        if files.cell_of(path) != cell:
            continue
        records = tuple(files.read(path))
        if records and records[0].cell == cell:
            control = files.read_control(folder, cell)
            return StoredRun(cell=cell, records=records, control=control, span=_span(folder / "result.json"))
    return None


def _span(path: Path) -> tuple[datetime, datetime] | None:
    """Return when a run of the store began and ended; None for what is not one."""
    try:
        result = strict.read(path, dict[str, Any])
        began = moment(result["ran_at"])
        return (began, began + timedelta(seconds=float(result["duration"]))) if began else None
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None


def _cells(root: Path, notebook: str) -> list[str]:
    """Return the ids of the notebook's cells as it is now."""
    try:
        text = (root / "notebooks" / f"{notebook}.md").read_text(encoding="utf-8")
    except OSError:
        return []
    return re.findall(r"^```python id=([\w-]+)", text, flags=re.MULTILINE)


def _local(root: Path, notebook: str) -> dict[str, list[Path]]:
    """Return the folders of the last good results of each cell with records in the store, the newest first."""
    numbered: dict[str, list[tuple[int, Path]]] = {}
    for cell in _cells(root, notebook):
        for folder in (root / "notebooks" / ".uvnote" / "cache").glob(f"{notebook}.{cell}.*"):
            number = folder.name.rpartition(".")[2]
            with contextlib.suppress(OSError, ValueError):
                result = strict.read(folder / "result.json", dict[str, Any])
                if number.isdigit() and not result.get("failure"):
                    numbered.setdefault(cell, []).append((int(number), folder))
    return {
        cell: [folder for _, folder in sorted(folders, reverse=True)[:_LOOKED_AT]] for cell, folders in numbered.items()
    }


def _last_alike(runs: Iterable[StoredRun]) -> list[StoredRun]:
    """Return the last runs of one cell that have the fingerprint of the newest, each once."""
    unique = {(run.measured_at, *(r.burst.samples_ms for r in run.records if r.burst)): run for run in runs}
    newest_first = sorted(unique.values(), key=lambda run: moment(run.measured_at) or _NO_TIME, reverse=True)
    alike = [run for run in newest_first if run.records[0].fingerprint == newest_first[0].records[0].fingerprint]
    return alike[:RUNS]
