"""A published cell as another machine sends it, its records changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from published import REPORTS

from fluxbench.records import files
from fluxbench.records.schema import Record
from fluxbench.site.intake import Intake, add

PUBLISHED = REPORTS / "h200" / "flux" / "records"


def folder(tmp_path: Path, *changes: Callable[[Record], Record], where: str = "sent") -> Path:
    """Return a folder with a published cell, its first records changed."""
    home = tmp_path / where
    home.mkdir(parents=True)
    for path in PUBLISHED.glob("triton.*"):
        shutil.copyfile(path, home / path.name)
    records = files.read(home / "triton.jsonl")
    found = [change(record) for change, record in zip(changes, records, strict=False)]
    files.write(home / "triton.jsonl", [*found, *records[len(found) :]])
    return home


def reports(tmp_path: Path) -> Path:
    """Return a folder of targets, empty."""
    home = tmp_path / "reports"
    home.mkdir(exist_ok=True)
    return home


def taken(tmp_path: Path, *changes: Callable[[Record], Record]) -> Intake:
    """Return what comes of adding a published cell with these changes."""
    return add(folder(tmp_path, *changes), reports(tmp_path))
