"""What kept records from passing, and what was not as it should be, each thing said once for all that share it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from fluxbench.analysis.ranking import Group, capped
from fluxbench.core.formatting import reason
from fluxbench.operations.workloads import Workload
from fluxbench.records.schema import Record, Status

_Key = TypeVar("_Key")


@dataclass(frozen=True)
class Failure:
    """One reason, and all that it kept from passing."""

    status: Status
    reason: str
    variants: tuple[str, ...]
    workloads: tuple[Workload, ...]


def failures(group: Group) -> list[Failure]:
    """Return why records did not pass; variants that share status, reason and workloads are one entry."""
    found = [
        ((record.status, reason(record.reason)), record)
        for record in group.records
        if record.status is not Status.PASSED
    ]
    return [Failure(*why, variants, workloads) for why, variants, workloads in _together(group, found)]


@dataclass(frozen=True)
class Mark:
    """Something that was not as it should be, and the PASSED records of which it holds."""

    text: str
    variants: tuple[str, ...]
    workloads: tuple[Workload, ...]


def marks(group: Group) -> list[Mark]:
    """Return all marks of a group's PASSED records; variants that share mark and workloads are one entry."""
    found = []
    for record in group.records:
        if record.status is Status.PASSED:
            own = [" ".join(text.split()) for text in record.marks]
            own += [
                f"{regime}: the caps of time and processes came before the precision that is asked for"
                for regime in capped(record)
            ]
            found += [(text, record) for text in dict.fromkeys(own)]
    return [Mark(text, variants, workloads) for text, variants, workloads in _together(group, found)]


def _together(
    group: Group, found: Iterable[tuple[_Key, Record]]
) -> list[tuple[_Key, tuple[str, ...], tuple[Workload, ...]]]:
    """Return what is said of records, each thing once for all variants of which it holds at the same workloads."""
    where: dict[tuple[_Key, str], list[Workload]] = {}
    for key, record in found:
        where.setdefault((key, record.variant), []).append(record.workload)
    merged: dict[tuple[_Key, frozenset[Workload]], list[str]] = {}
    for (key, variant), workloads in where.items():
        merged.setdefault((key, frozenset(workloads)), []).append(variant)
    return [
        (key, tuple(variants), tuple(w for w in group.workloads if w in workloads))
        for (key, workloads), variants in merged.items()
    ]
