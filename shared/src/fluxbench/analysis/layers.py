"""Whole layers: the three passes of one configuration together, and whether the total is the sum of its parts."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fluxbench.analysis.groups import Group, groups, timing_of
from fluxbench.analysis.ranking import Ordering, order
from fluxbench.operations.precision import EXACT
from fluxbench.operations.workload import Workload
from fluxbench.records.schema import Record
from fluxbench.stats.intervals import Estimate

PASSES = {"layer": "forward", "layer_backward": "backward", "layer_training": "total"}  # words by operation
EAGER = "torch_math"  # unfused attention
FORWARD, BACKWARD, TOTAL = PASSES.values()


@dataclass(frozen=True, eq=False)
class Layer:
    """The groups of one configuration, each of one workload, by pass: forward, backward, total."""

    passes: Mapping[str, Group]

    @property
    def workload(self) -> Workload:
        """A workload of the layer, whose shape is that of all."""
        return next(iter(self.passes.values())).longest

    @property
    def name(self) -> str:
        """The layer's name: that of its groups."""
        return next(iter(self.passes.values())).name

    @property
    def variants(self) -> tuple[str, ...]:
        """Every variant with a record of some pass."""
        return tuple(dict.fromkeys(variant for group in self.passes.values() for variant in group.variants))

    def record(self, variant: str, which: str) -> Record | None:
        """Return a variant's record of a pass that has a time and a rank, if there is one."""
        group = self.passes.get(which)
        return group.trusted(variant, group.longest) if group else None

    def ranked(self, which: str) -> list[Record]:
        """Return the exact records of a pass that have a rank, fastest first."""
        found = (self.record(variant, which) for variant in self.variants)
        passed = [record for record in found if record and record.precision_class == EXACT]
        return sorted(passed, key=self._ordering(which).log) if passed else []

    def unbeaten(self, which: str) -> list[Record]:
        """Return the exact records of a pass that none of them is measurably faster than, fastest first."""
        every = self.ranked(which)
        ordering = self._ordering(which) if every else None
        return [one for one in every if ordering and not any(ordering.faster(other, one) for other in every)]

    def speedup(self, variant: str, over: str, which: str) -> Estimate | None:
        """Return how many times as fast a variant is as another in a pass; None where one has no rank."""
        one, other = self.record(variant, which), self.record(over, which)
        if one is None or other is None or variant == over:
            return None
        return self._ordering(which).speedup(one, other)

    def _ordering(self, which: str) -> Ordering:
        group = self.passes[which]
        return order(group, group.longest)

    def total_over_sum(self, variant: str) -> Estimate | None:
        """Return the time of both passes in one call over the sum of the passes timed alone; None where one lacks.

        The interval takes the three times as independent, and their intervals as those of a normal distribution.
        """
        timed = [self.record(variant, which) for which in (FORWARD, BACKWARD, TOTAL)]
        records = [timing_of(record) for record in timed if record]
        if len(records) < len(PASSES):
            return None
        forward, backward, total = records
        halves = [(one.ci95_ms[1] - one.ci95_ms[0]) / 2 for one in records]
        whole = forward.median_ms + backward.median_ms
        half = math.hypot(math.hypot(halves[0], halves[1]) / whole, halves[2] / total.median_ms)
        ratio = total.median_ms / whole
        return Estimate(ratio, ratio * math.exp(-half), ratio * math.exp(half))


def layers(records: Iterable[Record]) -> list[Layer]:
    """Return the layers among records, in their order; what is no layer is left out."""
    found: dict[str, dict[str, Group]] = {}
    for group in groups(records):
        if which := PASSES.get(group.operation):
            found.setdefault(json.dumps(dict(group.longest.shape), sort_keys=True), {})[which] = group
    in_order = ({which: of[which] for which in PASSES.values() if which in of} for of in found.values())
    return [Layer(passes) for passes in in_order]
