"""What a notebook's cells gave, run by run: results are added, never changed, and the last good ones stay.

Each run of a cell is a folder `.uvnote/cache/<notebook>.<cell>.<number>/` with its artifacts, what it displays and a
`result.json`, put in place in one step. Numbers rise, so a clock that is set back confuses nothing. A failed run is
kept until the next one.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import msgspec

from fluxbench.core import strict
from fluxbench.core.files import open_regular, remove, write_text
from fluxbench.notebook.document import Document, unsafe_artifact
from fluxbench.records import files
from fluxbench.records.schema import Record, RecordError
from fluxbench.records.status import Status

_RESULT, _DISPLAY = "result.json", "display.html"


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """How a run of a cell went: what `result.json` holds. The first five fields are those that uvnote writes too."""

    success: bool
    stdout: str
    stderr: str
    duration: Annotated[float, msgspec.Meta(ge=0, le=1e9)] | None  # seconds; None of a published cell, or a part of one
    artifacts: dict[str, int]  # name to bytes, in the order of the page
    failure: str | None  # a sentence; None where the run succeeded
    ran_at: str  # UTC, ISO 8601
    depends: dict[str, str | int | float | bool | None]  # see `records.fingerprint`
    inputs: dict[str, int]  # the runs of the needed cells that it was given, by cell
    display: int | None = None  # bytes of display.html; None where there is none
    sha256: str | None = None  # of the artifacts' names and contents; None of a result of an older fluxbench
    contents: dict[str, str] = {}  # the `sha256` of the inputs, by cell


@dataclass(frozen=True)
class Result:
    """One run of one cell, and where it is kept."""

    cell: str
    number: int
    folder: Path
    run: Run

    @cached_property
    def records(self) -> tuple[Record, ...] | None:
        """The records that the cell left; None where a file of them is damaged."""
        try:
            return tuple(
                record
                for name in self.run.artifacts
                if name.endswith(".jsonl")
                for record in files.read(self.folder / name)
            )
        except (OSError, RecordError):
            return None

    @property
    def has_time(self) -> bool:
        """Whether a record that the cell left has a time."""
        return any(record.status is Status.PASSED for record in self.records or ())

    @cached_property
    def display(self) -> str | None:
        """The markup of what the cell shows; None where it left none."""
        if self.run.display is None:
            return None
        return (self.folder / _DISPLAY).read_text(encoding="utf-8", errors="replace")


class Store:
    """The results of one notebook's cells."""

    def __init__(self, document: Document, name: str = "cache") -> None:
        self._root = document.work / name
        self._prefix = f"{document.path.stem}."
        self._read: dict[Path, Result | None] = {}

    def numbers(self, cell_id: str) -> list[int]:
        """Return the numbers of a cell's runs, the last first."""
        prefix = f"{self._prefix}{cell_id}."
        names = [folder.name for folder in self._root.iterdir()] if self._root.is_dir() else []
        ends = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
        return sorted((int(end) for end in ends if re.fullmatch(r"[0-9]{5,9}", end)), reverse=True)

    def get(self, cell_id: str, number: int) -> Result | None:
        """Return one run; None where it is missing or damaged."""
        folder = self._folder(cell_id, number)
        if folder not in self._read:
            run = _read(folder)
            self._read[folder] = Result(cell_id, number, folder, run) if run else None
        return self._read[folder]

    def latest(self, cell_id: str) -> Result | None:
        """Return the last run; None where there is none or it is damaged."""
        numbers = self.numbers(cell_id)
        return self.get(cell_id, numbers[0]) if numbers else None

    def good(self, cell_id: str) -> Iterable[Result]:
        """Yield the runs that succeeded and are whole, the last first."""
        for number in self.numbers(cell_id):
            result = self.get(cell_id, number)
            if result and not result.run.failure:
                yield result

    def last_good(self, cell_id: str) -> Result | None:
        """Return the last run that succeeded and is whole."""
        return next(iter(self.good(cell_id)), None)

    def add(
        self,
        cell_id: str,
        run: Run,
        source: Path,
        artifacts: Iterable[str],
        display: str | None = None,
        good: int | None = None,
    ) -> Result:
        """Keep a run, whole or not at all, and return it.

        `artifacts` are the names of the files to copy from the folder `source`; `run` gets their sizes and that of
        `display`. Earlier good results are kept too, only the last `good` of all where that is given. Raises
        `OSError`; what was there before stays.
        """
        numbers = self.numbers(cell_id)
        number = numbers[0] + 1 if numbers else 1
        folder = self._folder(cell_id, number)
        part = self._root / f".{folder.name}.part"
        try:
            remove(part)
            part.mkdir(parents=True)
            digest = hashlib.sha256()
            for name in artifacts:
                (part / name).parent.mkdir(parents=True, exist_ok=True)
                with open_regular(source, name) as file, (part / name).open("xb") as copy:
                    shutil.copyfileobj(file, copy, 1 << 20)
                with (part / name).open("rb") as copied:
                    digest.update(f"{name}\0{hashlib.file_digest(copied, 'sha256').hexdigest()}\0".encode())
            if display is not None:
                write_text(part / _DISPLAY, display)
            run = msgspec.structs.replace(
                run,
                artifacts={name: (part / name).stat().st_size for name in artifacts},
                display=None if display is None else (part / _DISPLAY).stat().st_size,
                sha256=digest.hexdigest(),
            )
            write_text(part / _RESULT, msgspec.json.format(msgspec.json.encode(run), indent=1).decode() + "\n")
            part.rename(folder)
        except OSError as error:
            with contextlib.suppress(OSError):
                remove(part)
            error.filename = error.filename or str(folder)  # which an error of writing lacks
            raise
        result = self._read[folder] = Result(cell_id, number, folder, run)
        kept = 0 if run.failure else 1
        for older in numbers:
            before = self.get(cell_id, older)
            if before and not before.run.failure:
                kept += 1
            if before and (before.run.failure or kept > (good or kept)):
                shutil.rmtree(before.folder, ignore_errors=True)
        return result

    def remove(self) -> None:
        """Remove all that is kept, of every notebook. Raises `OSError`."""
        remove(self._root)

    def clear_parts(self) -> None:
        """Remove what a killed run left half done."""
        for part in self._root.glob(f".{self._prefix}*.part"):
            with contextlib.suppress(OSError):
                remove(part)

    def _folder(self, cell_id: str, number: int) -> Path:
        return self._root / f"{self._prefix}{cell_id}.{number:05d}"


def _read(folder: Path) -> Run | None:
    """Return the run that a folder holds, where all of it is there and is what `add` writes."""
    try:
        run = strict.read(folder / _RESULT, Run)
        sizes = dict(run.artifacts) if run.display is None else {**run.artifacts, _DISPLAY: run.display}
        is_safe = not any(map(unsafe_artifact, run.artifacts)) and run.success == (run.failure is None)
        return run if is_safe and all(_has_size(folder / name, size) for name, size in sizes.items()) else None
    except (OSError, strict.MalformedError):
        return None


def _has_size(path: Path, size: int) -> bool:
    found = path.lstat()
    return stat.S_ISREG(found.st_mode) and found.st_size == size
