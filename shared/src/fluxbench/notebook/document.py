"""A notebook on disk: its cells as uvnote parses them, and what uvnote's cache holds of each."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uvnote.executor import check_all_cells_staleness
from uvnote.parser import CodeCell, parse_markdown, validate_cells

from fluxbench import cell, records
from fluxbench.records import Record, RecordError
from fluxbench.settings import SetupError


@dataclass(frozen=True, kw_only=True)
class Document:
    """A parsed notebook."""

    path: Path
    cells: tuple[CodeCell, ...]

    @property
    def work(self) -> Path:
        """Where uvnote keeps the notebook's scripts and results."""
        return self.path.parent / ".uvnote"

    def is_measuring(self, code: CodeCell) -> bool:
        """Whether a cell measures: whether it has a `[tool.fluxbench]` table."""
        return cell.tool_table(code.code) is not None

    def descendants(self, ids: set[str]) -> set[str]:
        """Return these cells and every cell that needs one of them, however far down."""
        found = set(ids)
        while more := {code.id for code in self.cells if code.id not in found and found & set(code.needs)}:
            found |= more
        return found

    def results(self) -> dict[str, tuple[Path, dict[str, Any]]]:
        """Return uvnote's cached result of each cell that has one, by cell: its folder and what is in `result.json`."""
        status = check_all_cells_staleness(list(self.cells), self.path.parent)["cell_status"]
        found = {}
        for cell_id, entry in status.items():
            folder = self.work / "cache" / entry["cache_key"]
            try:
                found[cell_id] = folder, json.loads((folder / "result.json").read_text(encoding="utf-8"))
            except (OSError, json.JSONDecodeError):
                continue
        return found


def load(path: Path) -> Document:
    """Parse a notebook. Raises `SetupError` where it is missing, is not one, or has ids that are no file names."""
    try:
        _, cells = parse_markdown(path.read_text(encoding="utf-8"))
        validate_cells(cells)
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"a notebook must be a readable Markdown file, got {path}: {error}") from error
    except ValueError as error:
        raise SetupError(f"{path.name} is not a notebook that uvnote accepts: {error}") from error
    cells = [code for code in cells if not code.commented]  # uvnote shows these and runs them never
    if not cells:
        raise SetupError(f"a notebook must have at least one ```python cell, got none in {path}")
    for code in cells:
        if not re.fullmatch(r"[A-Za-z0-9][\w-]*", code.id):
            raise SetupError(f"a cell's id must be letters, digits, - and _, got {code.id!r} in {path.name}")
    return Document(path=path, cells=tuple(cells))


def records_in(folder: Path) -> list[Record]:
    """Return the records that a cell left in its artifact folder; none where a file is damaged."""
    try:
        return [record for path in sorted(folder.glob("*.jsonl")) for record in records.read(path)]
    except RecordError:
        return []
