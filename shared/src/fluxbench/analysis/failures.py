"""What did not pass and what was flagged, each thing once for all variants and workloads that share it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fluxbench.analysis.groups import Group, capped_regimes, flags_of, timing_of
from fluxbench.core.formatting import reason
from fluxbench.operations.workload import Workload
from fluxbench.records.schema import Flag, Record
from fluxbench.records.status import FlagKind, Status
from fluxbench.variants import REGISTRY

# Their values differ from record to record, so that a range stands for all of them.
_RANGES = (FlagKind.DISCARDED, FlagKind.KEPT_OUT_OF_REGIME, FlagKind.CUPTI_DIFFERS, FlagKind.SLEPT)
_Key = TypeVar("_Key")
_LIBRARIES = {variant.name: frozenset(variant.packages) - {"torch", "triton"} for variant in REGISTRY}  # by kernel
_LATE = "time was up"  # as `bench.processes` says it: that of a cell or of a build


def is_late(record: Record) -> bool:
    """Whether there was no time to measure a record; else a TIMEOUT is one of a kernel that hung."""
    return record.status is Status.TIMEOUT and _LATE in (record.reason or "")


@dataclass(frozen=True)
class Failure:
    """A status and its reason, and all that did not pass because of it."""

    status: Status
    reason: str
    variants: tuple[str, ...]
    workloads: tuple[Workload, ...]


@dataclass(frozen=True)
class Flagged:
    """A flag, and the PASSED records that have it."""

    flag: Flag
    processes: int  # that each of these records was measured in
    variants: tuple[str, ...]
    workloads: tuple[Workload, ...]


@dataclass(frozen=True)
class FlagRange:
    """A kind of flag whose value differs from record to record, and how many PASSED records have it."""

    kind: FlagKind
    regime: str | None
    detail: str | None
    values: tuple[float, float] | None  # smallest and largest; None: unknown
    counts: Mapping[str, int]  # records, by variant


@dataclass(frozen=True)
class NotConverged:
    """The PASSED records that did not reach the precision that is asked for in a regime."""

    regime: str
    variants: tuple[str, ...]
    workloads: tuple[Workload, ...]


def failures(group: Group) -> list[Failure]:
    """Return why records did not pass; variants that share status, reason and workloads are one entry."""
    pairs = [((record.status, reason(record.reason)), record) for record in group.records if record.reason is not None]
    return [Failure(*why, variants, workloads) for why, variants, workloads in _together(group, pairs)]


def flags(group: Group) -> list[Flagged]:
    """Return the flags of a group's PASSED records; variants that share flag and workloads are one entry.

    Flags whose value differs from record to record are left to `flag_ranges`.
    """
    pairs = [
        ((flag, timing_of(record).processes), record)
        for record in passed(group)
        for flag in flags_of(record)
        if flag.kind not in _RANGES
    ]
    return [Flagged(*key, variants, workloads) for key, variants, workloads in _together(group, pairs)]


def flag_ranges(group: Group) -> list[FlagRange]:
    """Return the flags of a group's PASSED records whose value differs from record to record, one entry per kind."""
    same: dict[tuple[FlagKind, str | None, str | None], list[tuple[str, float | None]]] = {}
    for record in passed(group):
        for flag in record.flags:
            if flag.kind in _RANGES:
                same.setdefault((flag.kind, flag.regime, flag.detail), []).append((record.variant, flag.value))
    ranges = []
    for key, pairs in same.items():
        values = [value for _, value in pairs if value is not None]
        ends = (min(values), max(values)) if values else None
        ranges.append(FlagRange(*key, ends, Counter(variant for variant, _ in pairs)))
    return ranges


def not_converged(group: Group) -> list[NotConverged]:
    """Return which PASSED records did not converge; variants that share regime and workloads are one entry."""
    pairs = [(regime, record) for record in passed(group) for regime in capped_regimes(record)]
    return [NotConverged(*entry) for entry in _together(group, pairs)]


def missing_libraries(group: Group) -> list[Record]:
    """Return a record of each library that is UNAVAILABLE and of which no variant has a time in a group."""
    timed = {package for record in passed(group) for package in _LIBRARIES.get(record.kernel, ())}
    missing: dict[frozenset[str], Record] = {}
    for record in group.records:
        library = _LIBRARIES.get(record.kernel, frozenset())
        if record.status is Status.UNAVAILABLE and library - timed:
            missing.setdefault(library, record)
    return list(missing.values())


def passed(group: Group) -> list[Record]:
    """Return a group's PASSED records."""
    return [record for record in group.records if record.status is Status.PASSED]


def _together(
    group: Group, pairs: Iterable[tuple[_Key, Record]]
) -> Sequence[tuple[_Key, tuple[str, ...], tuple[Workload, ...]]]:
    """Return each key once for all variants that have it at the same workloads."""
    where: dict[tuple[_Key, str], list[Workload]] = {}
    for key, record in pairs:
        where.setdefault((key, record.variant), []).append(record.workload)
    merged: dict[tuple[_Key, frozenset[Workload]], list[str]] = {}
    for (key, variant), workloads in where.items():
        merged.setdefault((key, frozenset(workloads)), []).append(variant)
    return [
        (key, tuple(variants), tuple(workload for workload in group.workloads if workload in workloads))
        for (key, workloads), variants in merged.items()
    ]
