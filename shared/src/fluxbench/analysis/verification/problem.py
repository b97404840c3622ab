"""What can be wrong with published records: typed; `report.problem_words` makes sentences of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum, auto
from pathlib import Path


class Kind(StrEnum):
    """What does not follow, or cannot be."""

    # of the files of a cell
    DAMAGED = auto()
    NO_SAMPLES = auto()
    TWICE = auto()
    SEVERAL = auto()
    OTHER_DEVICE_FILE = auto()
    DEVICE_FILE = auto()
    RATES = auto()
    CAPABILITY = auto()
    CONTROL = auto()
    CONTROL_CYCLES = auto()
    NO_RECORD = auto()
    # of where a record comes from, and what it is called
    LACKS = auto()
    DATE = auto()
    DRIVER = auto()
    WORKLOAD = auto()
    UNKNOWN_VARIANT = auto()
    NAME = auto()
    CLASS = auto()
    KERNELS = auto()
    OTHER_KERNEL = auto()
    # of its outputs
    BUDGET = auto()
    EXACT_BUDGET = auto()
    OTHER_BUDGET = auto()
    OVER_BUDGET = auto()
    OVER_SHARE = auto()
    ERRORS = auto()
    # of its times
    RANGE = auto()
    ROOFLINE = auto()
    SAMPLES = auto()
    SHORT_SAMPLE = auto()
    COPIED = auto()
    RANKED = auto()
    REFERENCE = auto()
    VALUE = auto()
    WIDTH = auto()
    # of the device meanwhile
    TELEMETRY = auto()
    COST = auto()
    FLAG = auto()
    NO_FLAG = auto()


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong with a record, or with a cell where there is no variant."""

    kind: Kind
    path: Path  # of the cell's records
    variant: str | None = None
    workload: str | None = None
    values: Mapping[str, object] = field(default_factory=dict)  # what the sentence of its kind names


@dataclass(frozen=True)
class Finding:
    """What a check yields: a kind and its values; `verify` adds whose it is."""

    kind: Kind
    values: Mapping[str, object]


Findings = Iterator[Finding]


def finding(kind: Kind, **values: object) -> Finding:
    """Return a finding."""
    return Finding(kind, values)
