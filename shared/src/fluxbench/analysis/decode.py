"""Decoding: how much of the device's own copy rate a kernel reaches, and what pages cost it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fluxbench.analysis.groups import Group, timing_of, workloads_of
from fluxbench.analysis.ranking import Ranked, ranked
from fluxbench.operations.precision import EXACT
from fluxbench.operations.workload import Workload
from fluxbench.records.schema import Record
from fluxbench.stats.intervals import Estimate

ATTENTION, MODEL = "decode", "decode_model"


@dataclass(frozen=True, eq=False)
class Cache:
    """The workloads of one batch and one number of cached tokens: contiguous (page size 0) and in pages."""

    batch: int
    tokens: int
    at: Mapping[int, tuple[Group, Workload]]  # by page size

    @property
    def variants(self) -> tuple[str, ...]:
        """Every variant with a record of it."""
        return tuple(dict.fromkeys(variant for group, _ in self.at.values() for variant in group.variants))

    def find(self, variant: str, page_size: int = 0) -> Record | None:
        """Return a variant's record of any status."""
        group, workload = self.at.get(page_size, (None, None))
        return group.find(variant, workload) if group and workload else None

    def trusted(self, variant: str, page_size: int = 0) -> Record | None:
        """Return a variant's record with a time that can be believed."""
        group, workload = self.at.get(page_size, (None, None))
        return group.trusted(variant, workload) if group and workload else None

    def ranked(self, page_size: int = 0) -> list[Record]:
        """Return the records with a time that can be believed, fastest first."""
        found = [record for variant in self.variants if (record := self.trusted(variant, page_size))]
        return sorted(found, key=lambda record: (timing_of(record).median_ms, record.variant))

    @property
    def fastest(self) -> Ranked | None:
        """Of the exact kernels that nothing beats on a contiguous cache the one of the shortest time, if any."""
        group, workload = self.at[0]
        first = [place for place in ranked(group, workload, EXACT) if place.leads]
        return min(first, key=lambda place: timing_of(place.record).median_ms, default=None)


def caches(records: Iterable[Record], operation: str = ATTENTION) -> list[Cache]:
    """Return the caches of an operation, by batch and by tokens."""
    found: dict[tuple[int, int], dict[int, tuple[Group, Workload]]] = {}
    for group, workload in workloads_of(records, operation):
        shape = workload.shape
        place = int(shape.get("batch", 1)), int(shape.get("seq_len_k", shape.get("cached", 0)))
        found.setdefault(place, {})[int(shape.get("page_size", 0))] = group, workload
    return [Cache(batch, tokens, found[batch, tokens]) for batch, tokens in sorted(found)]


def bandwidth(record: Record) -> Estimate:
    """Return a PASSED record's bandwidth in GB/s, of the fewest bytes of its workload."""
    return _per_ms(record, record.workload.cost.min_bytes / 1e6)


def tokens_per_second(record: Record) -> Estimate:
    """Return how many tokens a step of a PASSED record's batch gives in a second."""
    return _per_ms(record, 1e3 * int(record.workload.shape.get("batch", 1)))


def share_of_copy(record: Record, rates: Mapping[str, Any]) -> Estimate | None:
    """Return a PASSED record's bandwidth over the device's own copy rate; None where that was not measured.

    The interval has that of the time and, where it is known, the range of the copy rate over its processes.
    """
    copy = rates.get("copy_gb_s")
    if not copy:
        return None
    own, low, high = bandwidth(record), rates.get("copy_gb_s_low", copy), rates.get("copy_gb_s_high", copy)
    return Estimate(own.value / copy, own.low / high, own.high / low)


def over(one: Record, other: Record) -> Estimate:
    """Return the time of a PASSED record over that of another, at another workload.

    The interval takes the two as independent, and their intervals as those of a normal distribution.
    """
    timings = timing_of(one), timing_of(other)
    ratio = timings[0].median_ms / timings[1].median_ms
    half = math.hypot(*((each.ci95_ms[1] - each.ci95_ms[0]) / 2 / each.median_ms for each in timings))
    return Estimate(ratio, ratio * math.exp(-half), ratio * math.exp(half))


def _per_ms(record: Record, amount: float) -> Estimate:
    timing = timing_of(record)
    low, high = timing.ci95_ms
    return Estimate(amount / timing.median_ms, amount / high, amount / low if low > 0 else math.inf)
