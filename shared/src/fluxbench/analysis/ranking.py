"""In what order the variants of a group stand, and which are measurably faster than which.

Variants are ranked at the last workload of a group, where each number is one that was measured and has its own
interval; a mean over the curve would have neither. The sustained regime ranks. Kernels of different precision
classes are ranked apart, since they are not equally correct. Ranks, ties, the frontier and all sentences ask the same
`Ordering`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import variance

from fluxbench.analysis import cells
from fluxbench.analysis.groups import Group, timing_of
from fluxbench.operations import precision
from fluxbench.operations.workload import Workload
from fluxbench.records.schema import Record
from fluxbench.stats import ordering, paired
from fluxbench.stats.intervals import Estimate, Samples, quotients
from fluxbench.stats.ordering import Level
from fluxbench.stats.significance import Effect

CLASSES = tuple(precision.CLASSES)  # in the order of pages
UNCERTAIN_FROM = 1.25  # times the value, to which an interval reaches that says too little for a rank or a range
_OWN = 3.0  # times the variance of times, that of ratios: twice where the reference scatters as they do, independently


@dataclass(frozen=True)
class Ranked:
    """A PASSED record's place. Its rank is one more than the number of variants that are measurably faster.

    So a wide interval can rank before a faster time. One that is too uncertain has no rank to be shown: it counts in no
    other's rank or tie, and its own says only by how many it is beaten.
    """

    rank: int
    tied: bool  # there is another that is neither measurably faster nor slower
    record: Record
    uncertain: bool = False  # `is_uncertain`, and not measurably apart from most that are not

    @property
    def leads(self) -> bool:
        """Whether it has a rank to be shown, and that is 1."""
        return self.rank == 1 and not self.uncertain


class Ordering:
    """Which variants are measurably faster than which at one workload."""

    def __init__(self, records: Sequence[Record]) -> None:
        """Compare PASSED records of one workload."""
        names = [record.variant for record in records]
        levels = _levels(records)
        found = ordering.faster_than(levels)
        self._levels: Mapping[str, Level] = dict(zip(names, levels, strict=True))
        self._faster = {name: {names[place] for place in places} for name, places in zip(names, found, strict=True)}

    def faster(self, one: Record, other: Record) -> bool:
        """Whether one variant is measurably faster than another."""
        return one.variant in self._faster.get(other.variant, ())

    def apart(self, one: Record, other: Record) -> bool:
        """Whether one of two variants is measurably faster."""
        return self.faster(one, other) or self.faster(other, one)

    def speedup(self, one: Record, other: Record) -> Estimate:
        """Return how many times as fast one variant is as another, with the 95% interval of their difference."""
        return ordering.speedup(self._levels[one.variant], self._levels[other.variant])

    def difference(self, one: Record, other: Record) -> Effect:
        """Return the logarithm of one variant's time over another's, with its standard error."""
        return Effect(*ordering.difference(self._levels[one.variant], self._levels[other.variant]))

    def log(self, record: Record) -> float:
        """Return the logarithm of the time, or of the ratio, by which a variant is placed."""
        return self._levels[record.variant].log


@functools.lru_cache(maxsize=256)
def order(group: Group, workload: Workload) -> Ordering:
    """Return the ordering of the variants that have a time at a workload, of all precision classes.

    Those that are too uncertain for a rank are rivals in its tests too: so none is called faster more often than said.
    """
    return Ordering([record for kind in CLASSES for record in _passed(group, workload, kind)])


def _passed(group: Group, workload: Workload, precision_class: str) -> list[Record]:
    found = (group.trusted(variant, workload) for variant in group.records_at.get(workload.name, {}))
    return [record for record in found if record and record.precision_class == precision_class]


def is_uncertain(record: Record) -> bool:
    """Whether a PASSED record is too uncertain for a rank: it would tie with nearly anything.

    Both its intervals are wide, that of its time and that of its ratio to the reference: on a CPU times scatter where
    ratios do not. The reference has no ratio; where rounds beside it rank, it is that to which others are compared.
    """
    timing = timing_of(record)
    has_ratio = record.variant != timing.reference_variant or _rounds(record)
    of_ratio = not has_ratio or is_vague(timing.ratio, timing.ratio_ci95[1])
    return of_ratio and is_vague(timing.median_ms, timing.ci95_ms[1])


def is_vague(value: float, high: float) -> bool:
    """Whether an interval with this upper end reaches so far that its value is hardly known."""
    return high > UNCERTAIN_FROM * value


def ranked(group: Group, workload: Workload, precision_class: str) -> list[Ranked]:
    """Return the variants with a time at a workload, fastest first; last those that are too uncertain for a rank.

    One that is measurably faster or slower than most that are not uncertain has a rank, however wide its intervals are.
    A variant that is distrusted at any workload of the group has no place. A launch-bound one is ranked by the time of
    launching, which a user gets.
    """
    entries = _passed(group, workload, precision_class)
    found = order(group, workload)
    narrow = [record for record in entries if not is_uncertain(record)]
    certain = [
        record
        for record in entries
        if record in narrow or 2 * sum(found.apart(record, other) for other in narrow) > len(narrow)
    ]
    places = []
    for record in entries:
        rank = 1 + sum(found.faster(other, record) for other in certain)
        tied = any(other is not record and not found.apart(other, record) for other in certain)
        places.append(Ranked(rank, tied, record, record not in certain))
    return sorted(
        places,
        key=lambda place: (place.uncertain, place.rank, timing_of(place.record).ratio, place.record.variant),
    )


def _levels(records: Sequence[Record]) -> list[Level]:
    """Return each record's level: from sustained rounds beside the reference where all have these, as on a CPU."""
    pairs = [pair for record in records if (pair := _rounds(record))]
    if len(pairs) == len(records):
        return paired.levels(pairs)
    references = cells.references(records)
    apart = cells.between(references)
    return [
        level if level is ordering.REFERENCE else replace(level, place=record.cell, apart=apart)
        for record, level in zip(records, _by_process(records, references), strict=True)
    ]


def _rounds(record: Record) -> tuple[Samples, Samples] | None:
    """Return sustained samples with the reference's of the same rounds; its own are beside themselves."""
    timing = record.sustained
    if timing is None or timing.statistic == "mean":
        return None
    own = timing.samples_ms
    beside = own if record.variant == timing.reference_variant else timing.reference_ms
    if not beside or any(len(its) not in (0, len(one)) for one, its in zip(own, beside, strict=True)):
        return None
    return own, beside


def _by_process(records: Sequence[Record], references: Sequence[cells.Reference]) -> list[Level]:
    """Return each record's level from values of which a process has one.

    They are the logarithms of its times, or of its ratios to the reference beside it where that is steadier: where the
    ratios scatter less between processes than the times do, or the reference's means differ between cells by more than
    its processes explain. On a device that does not drift the reference would only add its own scatter. So it would
    where ratios scatter far more than times: then the reference is what is unsteady, and not the device.
    """
    alone = all(timing_of(record).processes == 1 for record in records)
    within = [] if alone else [_within(record) for record in records]
    times = [cells.logs_of(record, timing_of(record).samples_ms, alone=alone) for record in records]
    others = [
        (record, own) for record, own in zip(records, times, strict=True)
        if record.variant != timing_of(record).reference_variant
    ]  # fmt: skip
    beside = {
        record.variant: cells.logs_of(record, timing_of(record).reference_ms, alone=alone) for record, _ in others
    }
    if not others or any(len(own) < 2 or len(beside[record.variant]) != len(own) for record, own in others):
        return ordering.levels(times, within)

    def ratio(record: Record, own: Sequence[float]) -> list[float]:
        return [one - other for one, other in zip(own, beside[record.variant], strict=True)]

    scatter = math.fsum(variance(own) for _, own in others)
    of_ratios = math.fsum(variance(ratio(*other)) for other in others)
    if of_ratios < scatter or (of_ratios <= _OWN * scatter and cells.drifted(references)):
        within = [_within(record, over_reference=True) for record, _ in others]
        found = iter(ordering.levels([ratio(*other) for other in others], within))
        return [next(found) if record.variant in beside else ordering.REFERENCE for record in records]
    return ordering.levels(times, within)


def _within(record: Record, *, over_reference: bool = False) -> float:
    """Return the variance that burst samples alone give the logarithm of a process's median, or of its ratio.

    Sustained ones say nothing of that of a mean: within a process the clock swings with the power limit's period.
    """
    timing = timing_of(record)
    if record.sustained:
        return 0.0
    return cells.within(quotients(timing.samples_ms, timing.reference_ms) if over_reference else timing.samples_ms)


def faster_in_burst(one: Record, other: Record) -> bool:
    """Whether the burst interval of one record's ratio lies wholly under the other's; never where one has none."""
    if one.burst is None or other.burst is None or one.burst.reference_variant != other.burst.reference_variant:
        return False
    return one.burst.ratio_ci95[1] < other.burst.ratio_ci95[0]


def ties(group: Group, places: Sequence[Ranked]) -> list[list[str]]:
    """Return the largest sets of neighbours of which none is measurably faster than another, but sets of one."""
    found = order(group, group.longest)
    line = sorted((place.record for place in places), key=found.log)
    sets: list[list[Record]] = []
    for index, first in enumerate(line):
        together = [first]
        for record in line[index + 1 :]:
            if any(found.apart(record, other) for other in together):
                break
            together.append(record)
        if len(together) > 1 and not any(set(map(id, together)) <= set(map(id, earlier)) for earlier in sets):
            sets.append(together)
    return [[place.record.variant for place in places if place.record in together] for together in sets]
