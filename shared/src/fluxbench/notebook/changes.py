"""What a re-run changed: the results before it against those after it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

from fluxbench.analysis.comparison import CellKey, Comparison, Measured, compare
from fluxbench.core.formatting import utc
from fluxbench.notebook.build import Built
from fluxbench.notebook.revisions import of_cell
from fluxbench.notebook.store import Result
from fluxbench.records.schema import Record, RecordError, Sentinel


def of_rerun(built: Built, reports: Path) -> Comparison | None:
    """Compare the measuring cells of a re-run before and after; None where none of them gave anything.

    Before is the last good result here; where there was none, the one that is published for this target.
    """
    measuring = [code.id for code in built.document.cells if built.document.is_measuring(code)]
    ids = [cell_id for cell_id in measuring if cell_id in built.before and _new(built, cell_id)]
    published = reports / built.target.name / built.document.path.stem / "records"
    before = _measured((_folder(built.before[cell_id], published) for cell_id in ids), ids)
    if before.records and not any(built.before[cell_id] for cell_id in ids):
        before = dataclasses.replace(before, name=f"{before.name}, as published")
    after = _measured((_new(built, cell_id) for cell_id in ids), ids)
    return compare(before, after) if after.records else None


def _folder(result: Result | None, published: Path) -> Path:
    return result.folder if result else published


def _new(built: Built, cell_id: str) -> Path | None:
    result = built.cells[cell_id].result
    return result.folder if result and result != built.before[cell_id] else None


def _measured(folders: Iterable[Path | None], ids: list[str]) -> Measured:
    """Read each cell's records and sentinel from its folder; what is missing or damaged is left out.

    It is called by the time at which the last of it was measured.
    """
    found: list[Record] = []
    sentinels: dict[CellKey, Sentinel] = {}
    for cell_id, folder in zip(ids, folders, strict=True):
        if folder is None:
            continue
        try:
            its, beside = of_cell(folder / f"{cell_id}.jsonl")
            found += its
            sentinels |= beside
        except (OSError, RecordError):
            continue
    name = utc(max((record.measured_at for record in found), default="nothing"))
    return Measured(records=tuple(found), sentinels=sentinels, name=name)
