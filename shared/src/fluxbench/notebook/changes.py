"""What a re-run changed: the results before it against those after it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

from fluxbench.analysis.comparison.compare import compare
from fluxbench.analysis.comparison.model import Comparison, Measured
from fluxbench.core.formatting import utc
from fluxbench.notebook.build import Built
from fluxbench.notebook.revisions import read_cells
from fluxbench.notebook.store import Result, Store
from fluxbench.records import files


def of_rerun(built: Built, reports: Path) -> Comparison | None:
    """Compare the measuring cells of a re-run before and after; None where none of them gave anything.

    Before is the last good result here, of a cell that the time did not suffice for in it the last one with a time;
    where there was none, the one that is published for this target.
    """
    document = built.document
    run = [code.id for code in document.cells if document.is_measuring(code) and code.id in built.before]
    new = {cell_id: folder for cell_id in run if (folder := _new(built, cell_id))}
    store = Store(document)
    old = {cell_id: _timed(result, store).folder for cell_id in new if (result := built.before[cell_id])}
    published = reports / built.target.name / document.path.stem / "records"
    before = _measured(files.of_cell(old.get(cell_id, published), cell_id) for cell_id in new)
    if before.records and not old:
        before = dataclasses.replace(before, name=f"{before.name}, as published")
    after = _measured(files.of_cell(folder, cell_id) for cell_id, folder in new.items())
    return compare(before, after) if after.records else None


def _new(built: Built, cell_id: str) -> Path | None:
    result = built.cells[cell_id].result
    return result.folder if result and result != built.before[cell_id] else None


def _timed(result: Result, store: Store) -> Result:
    """Return a result, or the last one before it that has a time where it has none."""
    earlier = (one for one in store.good(result.cell) if one.number <= result.number)
    return next((one for one in earlier if one.has_time), result)


def _measured(paths: Iterable[Path]) -> Measured:
    """Read each cell's records and control times; those that are missing or damaged are left out.

    The name is the time of the newest record.
    """
    side = read_cells(paths, skip_damaged=True)
    times = [record.measured_at for record in side.records]
    return dataclasses.replace(side, name=utc(max(times, default="nothing")))
