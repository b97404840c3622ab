"""Files of records: JSON Lines, compressed or not, and the control kernel's times beside them."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from fluxbench.core.files import write_text
from fluxbench.records import schema, schema1
from fluxbench.records.schema import SCHEMA, Positive, Record, RecordError

SUFFIXES = (".jsonl", ".jsonl.gz")
CONTROL_SUFFIXES = (".control.json", ".sentinel.json")  # the second of schema 1


def paths(folder: Path) -> list[Path]:
    """Return the files of records in a folder, by name; none where there is no such folder."""
    return sorted(path for suffix in SUFFIXES for path in folder.glob(f"*{suffix}"))


def cell_of(path: Path) -> str:
    """Return the cell whose records a file holds."""
    return path.name.partition(".")[0]


def parse(line: str | bytes) -> Record:
    """Return the record that a line of JSON holds, of schema 1 or 2. Raises `RecordError` where it does not fit."""
    return schema1.from_json(line) if schema.schema_of(line) == 1 else schema.from_json(line)


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
    """Return what a file holds, decompressed. Raises `OSError`, and `RecordError` where it cannot be decompressed."""
    content = path.read_bytes()
    if path.suffix != ".gz":
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise RecordError(f"{path.name} cannot be decompressed: {error}") from error


def write(path: Path, records: Iterable[Record]) -> None:
    """Write records to a JSON Lines file whole or not at all: a full disk leaves what was there before."""
    write_text(path, "".join(record.to_json() + "\n" for record in records))


class ControlTimes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Burst times of the control kernel that was measured beside a cell's variants: `<cell>.control.json`."""

    schema: int = SCHEMA
    kernel: str  # what it is; only times of the same one can be compared
    samples_ms: dict[str, tuple[tuple[Positive, ...], ...]]  # by variant beside it, a sequence for each process

    def to_json(self) -> str:
        """Return the times as JSON."""
        return msgspec.json.encode(self).decode()


def read_control(folder: Path, cell: str) -> ControlTimes | None:
    """Return the control kernel's times of a cell; None where there are none.

    Schema 1 called the file `<cell>.sentinel.json`. Raises `RecordError` where it is damaged.
    """
    for path in (folder / f"{cell}{suffix}" for suffix in CONTROL_SUFFIXES):
        try:
            found = msgspec.json.decode(path.read_bytes(), type=ControlTimes)
        except FileNotFoundError:
            continue
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            raise RecordError(f"{path.name} must hold the times of the control kernel: {error}") from error
        if found.schema not in (1, SCHEMA):
            raise RecordError(f"{path.name}: its schema must be 1 or {SCHEMA}, got {found.schema}; update fluxbench")
        return found
    return None
