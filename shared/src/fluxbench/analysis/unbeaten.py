"""Which kernels nothing of their class beats, and which of them are level: what a verdict names."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from fluxbench.analysis.groups import Group, is_launch_bound
from fluxbench.analysis.ranking import Ordering, ranked
from fluxbench.operations.precision import EXACT
from fluxbench.operations.workload import Workload
from fluxbench.records.schema import Record
from fluxbench.variants import is_another_way
from fluxbench.variants.forms import simplicity

LEVEL_WITHIN = 1.10  # a kernel that may be slower than the first by more is not level with it


def unbeaten(
    group: Group, workload: Workload, precision_class: str, ordering: Ordering, baseline: Record | None = None
) -> list[Record]:
    """Return one record of each kernel that nothing of its class beats at a workload: of its own the baseline.

    The fastest is first, those that are too uncertain for a rank are last.
    """
    places = ranked(group, workload, precision_class)
    first = [place.record for place in places if place.rank == 1]
    first = [record for record in first if record is baseline or not is_launch_bound(record)] or first
    behind = not_first(group, precision_class)
    kernels: dict[str, list[Record]] = {}
    for record in first:
        kernels.setdefault(record.kernel, []).append(record)
    chosen = [
        min(forms, key=lambda record: (record is not baseline, behind[record.variant], simplicity(record.form)))
        for forms in kernels.values()
    ]
    vague = {place.record.variant for place in places if place.uncertain}
    return sorted(chosen, key=lambda record: (record.variant in vague, ordering.log(record), record.variant))


def not_first(group: Group, precision_class: str) -> Mapping[str, int]:
    """Return at how many workloads each variant does not have rank 1 of a class."""
    wins = Counter(
        place.record.variant
        for workload in group.workloads
        for place in ranked(group, workload, precision_class)
        if place.rank == 1
    )
    return {variant: len(group.workloads) - wins[variant] for variant in group.variants}


def level_with_first(
    group: Group, workload: Workload, exact: Sequence[Record], baseline: Record | None, ordering: Ordering
) -> list[Record]:
    """Return those of the unbeaten kernels that are level with the baseline, if it is one of them, else the first.

    Neither of two that are level may be slower than the other by more than `LEVEL_WITHIN`. A kernel that by its own
    time is behind one that is measurably beaten is level with none: it is unbeaten as little is known of it.
    """
    if not exact:
        return []
    first = next((record for record in exact if record is baseline), exact[0])
    beaten = [place.record for place in ranked(group, workload, EXACT) if place.rank > 1 and not place.uncertain]
    best_beaten = min(map(ordering.log, beaten), default=math.inf)

    def is_level(record: Record) -> bool:
        found = ordering.speedup(first, record)
        is_within = found.high < LEVEL_WITHIN and found.low * LEVEL_WITHIN > 1
        return is_within and ordering.log(record) <= best_beaten

    return [record for record in exact if record is first or is_level(record)]


def once(records: Sequence[Record]) -> list[Record]:
    """Return the records without those of another way to load the kernels of one of them."""
    return [record for record in records if original(record, records) is None]


def original(record: Record, others: Sequence[Record]) -> Record | None:
    """Return the one of others whose kernels a record loads in another way; None where there is none."""
    return next((other for other in others if _loads(record, other)), None)


def _loads(one: Record, other: Record) -> bool:
    """Whether one record is of another way to load the other's kernels; not where a profile does not show them."""
    if not is_another_way(one.variant) or is_another_way(other.variant):
        return False
    loaded = attention_kernels(one)
    return bool(loaded) and loaded == attention_kernels(other)


def attention_kernels(record: Record) -> frozenset[str]:
    """Return the names of a record's attention kernels; none where no profile shows them."""
    return frozenset(each.name for each in record.kernels if each.part == "attention")
