"""What a measuring cell shows of what it measured: times, the device's own rates, or the runs of trials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fluxbench.core import strict
from fluxbench.core.errors import SetupError
from fluxbench.device.model import Device
from fluxbench.environments.cell import Cell
from fluxbench.records import files
from fluxbench.records.schema import Record, RecordError
from fluxbench.records.status import FlagKind
from fluxbench.report import tables, trial_runs
from fluxbench.report.blocks import Block, Fold, Paragraph
from fluxbench.report.results import RATES, RATES_OF_SCHEMA_1, TRIALS, Results
from fluxbench.report.sentences import method

_RATES_BYTES = 1 << 30


def blocks(cell: Cell, device: Device, folder: Path) -> list[Block]:
    """Return what a measuring cell shows that left its files in a folder.

    Raises `SetupError` where they are missing or damaged.
    """
    if cell.measures == "trials":
        return trial_runs.blocks(folder / TRIALS)
    if cell.measures == "rates":
        shown = Results(notebook=cell.notebook, study=cell.study, device=device, records=(), rates=_rates(folder))
        return tables.find("rates").blocks(shown)
    try:
        records = tuple(files.read(folder / f"{cell.id}.jsonl"))
    except (FileNotFoundError, RecordError) as error:
        raise SetupError(f"the records of cell {cell.id!r} must be whole, got {error}; measure them first") from error
    shown = Results(notebook=cell.notebook, study=cell.study, device=device, records=records)
    how = Fold("How this was measured", [Paragraph(text) for text in method(records)])
    return [*_shared_device(records), *tables.find("timing").blocks(shown), how]


def _rates(folder: Path) -> dict[str, Any]:
    path = next((path for name in (RATES, RATES_OF_SCHEMA_1) if (path := folder / name).is_file()), folder / RATES)
    try:
        return strict.read(path, dict[str, Any], _RATES_BYTES)
    except (OSError, strict.MalformedError) as error:
        raise SetupError(f"{path.name} must be whole, got {error}; measure the rates first") from error


def _shared_device(records: tuple[Record, ...]) -> list[Block]:
    flags = (record.flagged(FlagKind.SHARED_DEVICE) for record in records)
    others = dict.fromkeys(flag.detail for flag in flags if flag)
    text = "Another process was using the device: {}. Times may be too long."
    return [Paragraph(text.format(other), kind="note") for other in others]
