"""A line of JSON that anyone may have written -> the record that it holds, of schema 1 or 2; all is bounded."""

from __future__ import annotations

import dataclasses
import functools

import msgspec
from msgspec import Struct

from fluxbench import operations
from fluxbench.core import strict
from fluxbench.operations.workload import Cost, Workload
from fluxbench.records import schema1
from fluxbench.records.schema import LONGEST_NAME, SCHEMA, Record, RecordError

_MOST_BYTES = 16 << 20
_LONGEST = 500  # characters of a value that a sentence shows
_WORKLOAD_FIELDS = {field.name for field in dataclasses.fields(Workload)}
_COST_FIELDS = {field.name for field in dataclasses.fields(Cost)}
_LONGEST_WORKLOAD = 1 << 16  # bytes; that of a record has some 600


class _Head(Struct):
    """What is read of a line before the rest: which schema it is of, and its workload."""

    schema: int = 0
    workload: msgspec.Raw = msgspec.Raw(b"{}")


_HEAD = msgspec.json.Decoder(_Head)
_RECORD = msgspec.json.Decoder(Record)


def parse(line: str | bytes) -> Record:
    """Return the record that a line of JSON holds.

    Raises `RecordError` where the line is not JSON or too long, is of another schema, lacks a field, has one too many
    or one of another type, and where a name is too long, an integer too large, or the cost not that of the shape.
    """
    head = _head(line)
    if head.schema == 1:
        return schema1.from_json(line)
    if head.schema != SCHEMA:
        raise RecordError(f"schema of a record must be {SCHEMA}, got {head.schema}; update fluxbench, or measure again")
    try:
        if len(head.workload) > _LONGEST_WORKLOAD:
            raise RecordError(f"a workload must have at most {_LONGEST_WORKLOAD:,} bytes, got {len(head.workload):,}")
        _check_workload(bytes(head.workload))
        record = _RECORD.decode(line)
        strict.check_bounds(record.fingerprint)
        return record
    except (RecursionError, ValueError) as error:  # msgspec's own are `ValueError`
        raise RecordError(f"a record does not fit schema {SCHEMA}: {str(error)[:_LONGEST]}") from error


def _head(line: str | bytes) -> _Head:
    """Return the head of a line. Raises `RecordError` where it is no JSON object."""
    if len(line) > _MOST_BYTES:
        raise RecordError(f"a record must be at most {_MOST_BYTES >> 20} MiB, got {len(line):,} bytes")
    try:
        return _HEAD.decode(line)
    except (RecursionError, ValueError) as error:
        text = line[:200] if isinstance(line, str) else line[:200].decode(errors="replace")
        raise RecordError(f"a record must be one JSON object a line, got {text[:60]!r}") from error


@functools.lru_cache(maxsize=4096)
def _check_workload(text: bytes) -> None:
    """Raise `ValueError` where a workload in JSON is none; records of many variants have the same.

    It has a field too many, which msgspec does not refuse of a dataclass, a name or a number is out of bounds, or the
    cost is not that of the shape.
    """
    fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    cost_fields = msgspec.json.decode(fields.get("cost", b"{}"), type=dict[str, msgspec.Raw])
    for name, unknown in (
        ("a workload", fields.keys() - _WORKLOAD_FIELDS),
        ("a cost", cost_fields.keys() - _COST_FIELDS),
    ):
        if unknown:
            raise RecordError(f"{name} has no field {', '.join(sorted(unknown))}")
    workload = msgspec.json.decode(text, type=Workload)
    strict.check_bounds(msgspec.to_builtins(workload), longest_text=LONGEST_NAME)
    if workload.operation in operations.NAMES:
        cost = _cost(workload.operation, msgspec.json.encode(workload.shape, order="sorted"))
        if cost != workload.cost:
            raise RecordError(f"cost of workload {workload.name} must be {cost}, got {workload.cost}")


@functools.lru_cache(maxsize=4096)
def _cost(operation: str, shape: bytes) -> Cost:
    """Return the cost of a shape in JSON, which keeps `true` and `1` apart."""
    return operations.find(operation).cost(msgspec.json.decode(shape))
