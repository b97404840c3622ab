"""Files of records: JSON Lines, compressed or not, and what lies beside them: JSON, such as the control kernel's times.

Anyone may have written them: no link is followed, no special file opened, and sizes are bounded.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from fluxbench.core import strict
from fluxbench.core.files import read_regular, write_text
from fluxbench.records.line import parse
from fluxbench.records.schema import SCHEMA, Name, Positive, Record, RecordError, Text

T = TypeVar("T")

SUFFIXES = (".jsonl", ".jsonl.gz")
CONTROL_SUFFIXES = (".control.json", ".sentinel.json")  # the second of schema 1
CONTROL_TIMES = "the times of the control kernel"
_MOST_BYTES = 256 << 20  # of a file, decompressed


def paths(folder: Path) -> list[Path]:
    """Return the files of records in a folder, by name; none where there is no such folder."""
    return sorted(path for suffix in SUFFIXES for path in folder.glob(f"*{suffix}"))


def of_cell(folder: Path, cell: str) -> Path:
    """Return the file of a cell's records in a folder, compressed or not; the latter where there is none."""
    return next((path for path in paths(folder) if cell_of(path) == cell), folder / f"{cell}{SUFFIXES[0]}")


def cell_of(path: Path) -> str:
    """Return the cell whose records a file holds."""
    return path.name.partition(".")[0]


def read(path: Path) -> list[Record]:
    """Return the records of one file. Raises `OSError`, and `RecordError` with the file and line of a bad one."""
    records = []
    for number, line in enumerate(read_bytes(path).splitlines(), start=1):
        try:
            records.append(parse(line))
        except RecordError as error:
            raise RecordError(f"{path.name}, line {number}: {error}") from error
    return records


def read_bytes(path: Path) -> bytes:
    """Return what a regular file holds, decompressed.

    Raises `OSError`, and `RecordError` where it is too much or cannot be decompressed.
    """
    content = read_regular(path, _MOST_BYTES)
    if path.suffix != ".gz":
        return content
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as opened:
            content = opened.read(_MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise RecordError(f"{path.name} cannot be decompressed: {error}") from error
    if len(content) > _MOST_BYTES:
        raise RecordError(f"{path.name} must hold at most {_MOST_BYTES >> 20} MiB, got more")
    return content


def read_json(path: Path, type_: type[T], what: str) -> T:
    """Return the JSON that a file holds. Raises `OSError`, and `RecordError` where it is not `what` it must be."""
    try:
        return strict.decode(read_bytes(path), type_)
    except strict.MalformedError as error:
        raise RecordError(f"{path.name} must hold {what}: {error}") from error


def write(path: Path, records: Iterable[Record]) -> None:
    """Write records to a JSON Lines file whole or not at all: a full disk leaves what was there before."""
    write_text(path, "".join(record.to_json() + "\n" for record in records))


class ControlTimes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Burst times of the control kernel that was measured beside a cell's variants: `<cell>.control.json`."""

    schema: int = SCHEMA
    kernel: Text  # what it is; only times of the same one can be compared
    samples_ms: dict[Name, tuple[tuple[Positive, ...], ...]]  # by variant beside it, a sequence for each process

    def __post_init__(self) -> None:
        """Raise `RecordError` where it is of another schema."""
        if self.schema not in (1, SCHEMA):
            raise RecordError(f"its schema must be 1 or {SCHEMA}, got {self.schema}; update fluxbench")

    def to_json(self) -> str:
        """Return the times as JSON."""
        return msgspec.json.encode(self).decode()


def read_control(folder: Path, cell: str) -> ControlTimes | None:
    """Return the control kernel's times of a cell; None where there are none.

    Schema 1 called the file `<cell>.sentinel.json`. Raises `OSError`, and `RecordError` where it is damaged.
    """
    for path in (folder / f"{cell}{suffix}" for suffix in CONTROL_SUFFIXES):
        try:
            return read_json(path, ControlTimes, CONTROL_TIMES)
        except FileNotFoundError:
            continue
    return None
