"""What a notebook's cells gave, run by run: results are added, never changed, and the last good one stays.

Each run of a cell is a folder `.uvnote/cache/<notebook>.<cell>.<number>/` with its artifacts and a `result.json`, put
in place in one step. Numbers rise, so a clock that is set back confuses nothing. A run that failed is kept until the
next.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fluxbench.notebook.document import Document
from fluxbench.records import schema as records
from fluxbench.records.schema import Record, RecordError

_RESULT = "result.json"


@dataclass(frozen=True, kw_only=True)
class Result:
    """One run of one cell. `failure` is a sentence, None where it succeeded."""

    cell: str
    number: int
    folder: Path
    stdout: str
    stderr: str
    duration_s: float
    artifacts: Mapping[str, int]  # name to bytes, in the order of the page
    failure: str | None
    ran_at: str  # UTC, ISO 8601
    depends: Mapping[str, Any] = field(default_factory=dict)  # as `fluxbench.fingerprint` has it
    inputs: Mapping[str, int] = field(default_factory=dict)  # the needed cells' runs that it was given, by cell

    @property
    def key(self) -> str:
        """The name of its folder."""
        return self.folder.name

    @cached_property
    def records(self) -> tuple[Record, ...] | None:
        """The records that the cell left; None where a file of them is damaged."""
        try:
            return tuple(
                record
                for name in self.artifacts
                if name.endswith(".jsonl")
                for record in records.read(self.folder / name)
            )
        except (OSError, RecordError):
            return None


class Store:
    """The results of one notebook's cells."""

    def __init__(self, document: Document) -> None:
        self._root = document.work / "cache"
        self._prefix = f"{document.path.stem}."
        self._read: dict[Path, Result | None] = {}

    def numbers(self, cell_id: str) -> list[int]:
        """Return the numbers of a cell's runs, the last first."""
        prefix = f"{self._prefix}{cell_id}."
        names = [folder.name for folder in self._root.iterdir()] if self._root.is_dir() else []
        ends = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
        return sorted((int(end) for end in ends if end.isdigit()), reverse=True)

    def get(self, cell_id: str, number: int) -> Result | None:
        """Return one run; None where it is not there or damaged."""
        folder = self._folder(cell_id, number)
        if folder not in self._read:
            self._read[folder] = _load(folder, cell_id, number)
        return self._read[folder]

    def latest(self, cell_id: str) -> Result | None:
        """Return the last run; None where there is none or it is damaged."""
        numbers = self.numbers(cell_id)
        return self.get(cell_id, numbers[0]) if numbers else None

    def good(self, cell_id: str) -> Iterable[Result]:
        """Yield the runs that succeeded and are whole, the last first."""
        for number in self.numbers(cell_id):
            result = self.get(cell_id, number)
            if result and not result.failure:
                yield result

    def last_good(self, cell_id: str) -> Result | None:
        """Return the last run that succeeded and is whole."""
        return next(iter(self.good(cell_id)), None)

    def add(
        self,
        cell_id: str,
        *,
        artifacts: Mapping[str, Path],
        stdout: str,
        stderr: str,
        duration_s: float,
        failure: str | None,
        ran_at: str,
        depends: Mapping[str, Any],
        inputs: Mapping[str, int],
    ) -> Result:
        """Keep a run, whole or not at all, and return it. Raises `OSError`; what was there before stays."""
        numbers = self.numbers(cell_id)
        number = numbers[0] + 1 if numbers else 1
        folder = self._folder(cell_id, number)
        part = self._root / f".{folder.name}.part"
        try:
            part.mkdir(parents=True)
            for name, source in artifacts.items():
                (part / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, part / name)
            result = Result(
                cell=cell_id,
                number=number,
                folder=folder,
                stdout=stdout,
                stderr=stderr,
                duration_s=duration_s,
                artifacts={name: (part / name).stat().st_size for name in artifacts},
                failure=failure,
                ran_at=ran_at,
                depends=depends,
                inputs=inputs,
            )
            # The first five are what uvnote itself writes.
            fields = {
                "success": failure is None,
                "stdout": stdout,
                "stderr": stderr,
                "duration": duration_s,
                "artifacts": result.artifacts,
                "failure": failure,
                "ran_at": ran_at,
                "depends": dict(depends),
                "inputs": dict(inputs),
            }
            records.write_text(part / _RESULT, json.dumps(fields, indent=1) + "\n")
            part.rename(folder)
        except OSError:
            shutil.rmtree(part, ignore_errors=True)
            raise
        self._read[folder] = result
        for older in numbers:
            before = self.get(cell_id, older)
            if before and before.failure:
                shutil.rmtree(before.folder, ignore_errors=True)
        return result

    def clear_parts(self) -> None:
        """Remove what a killed run left half done."""
        for part in self._root.glob(f".{self._prefix}*.part"):
            shutil.rmtree(part, ignore_errors=True)

    def _folder(self, cell_id: str, number: int) -> Path:
        return self._root / f"{self._prefix}{cell_id}.{number:05d}"


def _load(folder: Path, cell_id: str, number: int) -> Result | None:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        data = json.loads((folder / _RESULT).read_text(encoding="utf-8"))
        artifacts = dict(data["artifacts"])
        if all((folder / name).stat().st_size == size for name, size in artifacts.items()):
            return Result(
                cell=cell_id,
                number=number,
                folder=folder,
                stdout=str(data["stdout"]),
                stderr=str(data["stderr"]),
                duration_s=float(data["duration"]),
                artifacts=artifacts,
                failure=data["failure"],
                ran_at=str(data["ran_at"]),
                depends=dict(data["depends"]),
                inputs=dict(data["inputs"]),
            )
    return None
