"""In what order the variants of a group stand, and which are tied.

Variants are ranked at the last workload of a group, where each number is one that was measured and has its own
interval; a mean over the curve would have neither. The sustained regime ranks. Kernels of different precision
classes are ranked apart, since they are not equally correct.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

from fluxbench.analysis.groups import Group, is_launch_bound, not_launch_bound, timing_of
from fluxbench.operations import precision
from fluxbench.operations.workload import Workload
from fluxbench.records.schema import Record
from fluxbench.records.status import Status

CLASSES = tuple(precision.CLASSES)  # in the order of pages


@dataclass(frozen=True)
class Ranked:
    """A PASSED record's place. Its rank is one more than the number of variants that are measurably faster.

    So two variants whose intervals overlap share a rank, unless a third beats one of them only, and a wide interval can
    rank before a faster median.
    """

    rank: int | None  # None: launch-bound, so the kernel is faster than its time by nobody knows how much
    tied: bool  # its interval overlaps another variant's
    record: Record


def ranked(group: Group, workload: Workload, precision_class: str) -> list[Ranked]:
    """Return the variants that passed at a workload, fastest first.

    A variant that is distrusted at any workload of the group has no place. A launch-bound one has a place without a
    rank, unless all are.
    """
    entries = [
        record
        for record in group.records_at.get(workload.name, {}).values()
        if record.status is Status.PASSED
        and record.variant not in group.distrusted
        and record.precision_class == precision_class
    ]
    known = not_launch_bound(entries)
    launch_bound = [record for record in entries if is_launch_bound(record)] if len(known) < len(entries) else []
    lows = sorted(timing_of(record).ratio_ci95[0] for record in known)
    highs = sorted(timing_of(record).ratio_ci95[1] for record in known)
    places = []
    for record in known:
        low, high = timing_of(record).ratio_ci95
        faster, slower = bisect.bisect_left(highs, low), len(lows) - bisect.bisect_right(lows, high)
        places.append((1 + faster, Ranked(1 + faster, faster + slower < len(known) - 1, record)))
    for record in launch_bound:  # before those that it may be faster than
        behind = [rank for rank, place in places if timing_of(place.record).ratio > timing_of(record).ratio]
        places.append((min(behind, default=len(entries)), Ranked(None, False, record)))
    places.sort(key=lambda place: (place[0], timing_of(place[1].record).ratio, place[1].record.variant))
    return [place for _, place in places]


def overlap(one: Record, other: Record) -> bool:
    """Whether the 95% intervals of two PASSED records' ratios to the reference have a point in common."""
    (low, high), (other_low, other_high) = timing_of(one).ratio_ci95, timing_of(other).ratio_ci95
    return low <= other_high and other_low <= high


def faster_in_burst(one: Record, other: Record) -> bool:
    """Whether the burst interval of one record's ratio lies wholly under the other's; never where one has none."""
    if one.burst is None or other.burst is None or one.burst.reference_variant != other.burst.reference_variant:
        return False
    return one.burst.ratio_ci95[1] < other.burst.ratio_ci95[0]


def ties(places: Sequence[Ranked]) -> list[list[str]]:
    """Return the largest sets of variants whose intervals all overlap one another, sets of one left out."""
    by_low = sorted((place for place in places if place.rank), key=lambda place: timing_of(place.record).ratio_ci95[0])
    sets: list[list[str]] = []
    for index, last in enumerate(by_low):
        together = [place for place in by_low[: index + 1] if overlap(place.record, last.record)]
        first_end = min(timing_of(place.record).ratio_ci95[1] for place in together)
        following = by_low[index + 1 : index + 2]
        # Where the next interval begins before any of these has ended, the next set holds this one.
        grows = any(timing_of(place.record).ratio_ci95[0] <= first_end for place in following)
        if len(together) > 1 and not grows:
            sets.append([place.record.variant for place in places if place in together])
    return sets
