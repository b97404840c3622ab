"""What a cell left: its result is good only if each declared output is there, whole, and what it must be."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from uvnote.parser import CodeCell

from fluxbench.core.files import open_regular
from fluxbench.environments import cell
from fluxbench.notebook.document import LONGEST_NAME, unsafe_artifact
from fluxbench.records import files
from fluxbench.records.schema import RecordError
from fluxbench.records.status import FlagKind

WITHOUT_RECORDS = ("rates.json", "trials.json")  # what measuring cells without records leave


class OutputError(Exception):
    """An output is not as it must be; the message is one sentence."""


def of_cell(code: CodeCell, folder: Path, absent: Collection[str]) -> list[str]:
    """Return the names of the files that a cell left: its declared outputs, or all that are not hidden without any.

    `absent` are the declared outputs that it says it has nothing for. Raises `OutputError` where another one is not a
    regular file inside the folder, where a name cannot be one of an artifact, where a file cannot be read, and where
    what a measuring cell left is damaged or holds no measurement.
    """
    try:
        names = _declared(code, folder, absent) if code.outputs else list(_not_hidden(folder))
    except OSError as error:
        raise OutputError(f"what it left cannot be read: {error}") from error
    if reason := next((reason for name in names if (reason := unsafe_artifact(name))), None):
        raise OutputError(reason)
    if cell.is_measuring(code.code):
        _check_measured(code.id, folder, names)
    return names


def _declared(code: CodeCell, folder: Path, absent: Collection[str]) -> list[str]:
    names = []
    for name in dict.fromkeys(code.outputs):
        try:
            open_regular(folder, name).close()
        except FileNotFoundError as error:
            if name not in absent:
                raise OutputError(f"it ended without its declared output {name!r}") from error
        except OSError as error:
            raise OutputError(
                f"its declared output {name!r} must be a regular file in its folder, got {error.strerror}"
            ) from error
        else:
            names.append(name)
    return names


def _not_hidden(folder: Path) -> Iterator[str]:
    """Yield the names of the regular files in and below a folder, by name. Raises `OutputError` for a too deep one."""
    ahead = [""]
    while ahead:
        below = ahead.pop()
        if len(os.fsencode(below)) > LONGEST_NAME:
            raise OutputError(f"an artifact's name must be at most {LONGEST_NAME} bytes long, got {below[:40]!r}...")
        with os.scandir(folder / below) as entries:
            visible = sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda each: each.name)
        yield from (f"{below}{entry.name}" for entry in visible if entry.is_file(follow_symlinks=False))
        ahead += (f"{below}{entry.name}/" for entry in reversed(visible) if entry.is_dir(follow_symlinks=False))


def _check_measured(cell_id: str, folder: Path, names: Collection[str]) -> None:
    """Raise `OutputError` unless a measuring cell left measurements, all of them whole."""
    measurements = 0
    for name in names:
        try:
            if name.endswith(files.SUFFIXES):
                records = files.read(folder / name)
                if any(record.flagged(FlagKind.EARLY) for record in records):
                    raise OutputError(f"its output {name!r} must be of a measurement that ended, got early records")
                measurements += len(records)
            elif name.endswith(files.CONTROL_SUFFIXES):
                files.read_control(folder, files.cell_of(Path(name)))
            elif name in WITHOUT_RECORDS:
                measurements += len(files.read_json(folder / name, dict[str, Any], "measurements"))
        except (OSError, RecordError) as error:
            raise OutputError(f"its output {name!r} is damaged: {error}") from error
    if not measurements:
        raise OutputError(f"it ended without a measurement; a measuring cell must leave records, {cell_id}.jsonl")
