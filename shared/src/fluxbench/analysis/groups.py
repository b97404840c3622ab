"""Which records are compared with which: those of one operation and one group of workloads, a curve over x."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fluxbench.operations.workload import Workload
from fluxbench.records.fingerprint import Incomparable, not_comparable
from fluxbench.records.schema import BURST, SUSTAINED, Flag, Record, Timing
from fluxbench.records.status import FlagKind, Status

# What disqualifies a variant at every length: a wrong answer, or a time that cannot be believed.
_NOT_BELIEVED = (FlagKind.FASTER_THAN_ROOFLINE, FlagKind.SKIPS_WORK, FlagKind.WORKS_ASIDE)


@dataclass(frozen=True, eq=False)
class Group:
    """Records whose workloads form a curve."""

    name: str
    workloads: tuple[Workload, ...]  # by x, smallest first
    records: tuple[Record, ...]  # of every status, one per variant and workload

    @property
    def operation(self) -> str:
        """The operation of all its workloads."""
        return self.workloads[0].operation

    @property
    def axis(self) -> str:
        """The unit of x."""
        return self.workloads[0].x_unit

    @cached_property
    def longest(self) -> Workload:
        """The workload at which variants are ranked: the last of the curve where some have a time; else the last."""
        timed = {record.workload.name for record in self.records if has_time(record)}
        return next((one for one in reversed(self.workloads) if one.name in timed), self.workloads[-1])

    @cached_property
    def variants(self) -> tuple[str, ...]:
        """Every variant with a record, in the order of the records."""
        return tuple(dict.fromkeys(record.variant for record in self.records))

    @cached_property
    def records_at(self) -> Mapping[str, Mapping[str, Record]]:
        """The records at each workload, by its name and by variant."""
        by_workload: dict[str, dict[str, Record]] = {workload.name: {} for workload in self.workloads}
        for record in self.records:
            by_workload[record.workload.name].setdefault(record.variant, record)
        return by_workload

    @cached_property
    def distrusted(self) -> frozenset[str]:
        """The variants that have no rank, since one of their records is wrong or cannot be believed."""
        return frozenset(record.variant for record in self.records if is_distrusted(record))

    def find(self, variant: str, workload: Workload) -> Record | None:
        """Return the record of one variant at one workload, if there is one."""
        return self.records_at.get(workload.name, {}).get(variant)

    def trusted(self, variant: str, workload: Workload) -> Record | None:
        """Return the record of one variant at one workload if it has a time and the variant is not distrusted."""
        found = self.find(variant, workload)
        return found if found and has_time(found) and variant not in self.distrusted else None

    def ranked_at(self, workload: Workload) -> list[Record]:
        """Return the records of all variants that have a rank at a workload."""
        return [record for variant in self.variants if (record := self.trusted(variant, workload))]

    def curve(self, variant: str) -> list[Record]:
        """Return a variant's records with a time, smallest x first."""
        records = (self.find(variant, workload) for workload in self.workloads)
        return [record for record in records if record and has_time(record)]


def groups(records: Iterable[Record]) -> list[Group]:
    """Return the groups, in the order of the records; of two records of the same thing the newer one counts."""
    newest: dict[tuple[str, str, str], Record] = {}
    for record in records:
        key = (record.variant, record.workload.operation, record.workload.name)
        if key not in newest or newest[key].measured_at <= record.measured_at:
            newest[key] = record
    members: dict[tuple[str, str], list[Record]] = {}
    for record in newest.values():
        members.setdefault((record.workload.operation, record.workload.group), []).append(record)
    return [_group(name, of_group) for (_, name), of_group in members.items()]


def workloads_of(records: Iterable[Record], operation: str) -> list[tuple[Group, Workload]]:
    """Return the workloads of an operation among records, each with its group, by group, smallest x first."""
    found = [group for group in groups(records) if group.operation == operation]
    return [(group, workload) for group in found for workload in group.workloads]


def _group(name: str, records: Sequence[Record]) -> Group:
    workloads = {record.workload.name: record.workload for record in records}
    ordered = sorted(workloads.values(), key=lambda workload: (workload.x, workload.name))
    return Group(name, tuple(ordered), tuple(records))


def incomparable(records: Iterable[Record]) -> Incomparable | None:
    """Return why two of the records must not be ranked together, such as two method versions."""
    every = list(records)
    burst = ranking_regime(every) == BURST
    first, *others = [(record.fingerprint, record.method_version) for record in every] or [({}, 0)]
    reasons = (not_comparable(first, other, burst=burst) for other in others)
    return next((why for why in reasons if why and (why.before != why.now)), None)


def timing_of(record: Record) -> Timing:
    """Return the timing that ranks, which every PASSED record has."""
    assert record.timing is not None
    return record.timing


def tflops(record: Record) -> float:
    """Return a PASSED record's throughput in TFLOP/s, of its workload's operations and the time that ranks."""
    return record.workload.cost.flops / timing_of(record).median_ms / 1e9


def gb_s(record: Record) -> float:
    """Return a PASSED record's bandwidth in GB/s, of the fewest bytes of its workload and the time that ranks."""
    return record.workload.cost.min_bytes / timing_of(record).median_ms / 1e6


def throughput(record: Record, unit: str) -> float:
    """Return a PASSED record's rate in a unit that a study gives rates in: "TFLOP/s" or "GB/s"."""
    return gb_s(record) if unit == "GB/s" else tflops(record)


def reference_variant(records: Iterable[Record]) -> str | None:
    """Return the variant that the ratios are against; None where nothing passed."""
    return next((record.timing.reference_variant for record in records if record.timing), None)


def is_distrusted(record: Record) -> bool:
    """Whether a variant gave a wrong answer, or a time that cannot be believed: no record of it is ranked then."""
    return record.status is Status.INCORRECT or record.flagged(*_NOT_BELIEVED) is not None


def has_time(record: Record) -> bool:
    """Whether a record is PASSED and its processes timed the same thing."""
    return record.status is Status.PASSED and not is_partly_replayed(record)


def is_partly_replayed(record: Record) -> bool:
    """Whether some processes of a record replayed calls as CUDA graphs, and others timed calls of the host.

    The two differ by any factor, so that the record's time, of both, is that of neither.
    """
    regime = ranking_regime([record])
    return is_replayed(record, regime) and has_flag(record, FlagKind.NOT_REPLAYED, regime)


def has_flag(record: Record, kind: FlagKind, regime: str) -> bool:
    """Whether a record has a flag of a kind in a regime."""
    return record.flagged(kind, regime=regime) is not None


def flags_of(record: Record) -> list[Flag]:
    """Return the flags of a record that hold.

    Until 2026-11-28 some were flagged as launch-bound whose kernels fill the time, since their calls wait for a copy.
    """
    return [flag for flag in record.flags if not (flag.kind is FlagKind.LAUNCH_BOUND and record.is_filled)]


def is_launch_bound(record: Record) -> bool:
    """Whether the device waited for the host in some process, so that its sustained time is one of launching."""
    return any(flag.kind is FlagKind.LAUNCH_BOUND for flag in flags_of(record))


def is_graph(record: Record) -> bool:
    """Whether CUDA graphs were timed in a regime, whether or not it is known what a launched call takes."""
    return record.flagged(FlagKind.REPLAYED) is not None


def launched_ms(record: Record) -> float | None:
    """Return the time of a call that the host launches, in ms, where CUDA graphs were timed instead."""
    flag = record.flagged(FlagKind.REPLAYED)
    return flag.value if flag else None


def is_replayed(record: Record, regime: str) -> bool:
    """Whether CUDA graphs were timed in a regime."""
    return has_flag(record, FlagKind.REPLAYED, regime)


def not_launch_bound(records: Sequence[Record]) -> Sequence[Record]:
    """Return the records whose sustained time is the device's; all of them where each one's is of launching."""
    return [record for record in records if not is_launch_bound(record)] or records


def capped_regimes(record: Record) -> tuple[str, ...]:
    """Return the regimes in which the caps of time and processes came before the precision that is asked for."""
    timings = ((regime, record.timings.get(regime)) for regime in (SUSTAINED, BURST))
    return tuple(regime for regime, timing in timings if timing and timing.converged is False)


def ranking_regime(records: Iterable[Record]) -> str:
    """Return the regime that ranks: sustained, or burst where none of the records has another time."""
    timed = [record for record in records if record.timing]
    return BURST if timed and not any(record.sustained for record in timed) else SUSTAINED
