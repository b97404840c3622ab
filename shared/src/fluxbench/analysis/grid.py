"""A grid of shapes: at each the speedup over eager attention, and which implementation is fastest, by how much."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from fluxbench.analysis.groups import Group, groups, is_replayed, launched_ms, timing_of
from fluxbench.analysis.launching import held_up_ms
from fluxbench.analysis.ranking import Ordering, is_vague, order
from fluxbench.analysis.unbeaten import LEVEL_WITHIN
from fluxbench.operations.precision import QUANTIZED
from fluxbench.operations.workload import Workload
from fluxbench.records.schema import BURST, SHORT_MS, Record
from fluxbench.stats.intervals import Estimate

EAGER = "torch_eager"
_ASTRAY = math.log(1.1)  # the same kernel's rows differ by 1% between the cells of a page
_SLOWER = 2.0  # what has no rank and takes longer by this cannot win: one by one calls take up to 1.7 times as long
PASSES = {"attention": "forward", "attention_training": "forward + backward"}  # words by operation


@dataclass(frozen=True, eq=False)
class Point:
    """One shape of a grid, in one pass and dtype."""

    group: Group
    workload: Workload

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Batch, seq_len, head_dim and heads."""
        batch, seq_len, head_dim, heads = (
            self.workload.shape[name] for name in ("batch", "seq_len_k", "head_dim_qk", "heads")
        )
        return int(batch), int(seq_len), int(head_dim), int(heads)

    @cached_property
    def _ordering(self) -> Ordering:
        return order(self.group, self.workload)

    @cached_property
    def _timed(self) -> list[Record]:
        return [record for record in self.group.ranked_at(self.workload) if record.precision_class != QUANTIZED]

    @property
    def _in_burst(self) -> list[Record]:
        """What has burst times alone, as a grid has: sustained ones are never of rows."""
        return [record for record in self._timed if not record.sustained]

    @cached_property
    def single(self) -> tuple[Record, ...]:
        """The records of short calls that were timed singly, where others were in rows: up to 1.7 times too long."""
        short = [record for record in self._in_burst if timing_of(record).median_ms < SHORT_MS]
        in_rows = any(is_replayed(record, BURST) for record in self._in_burst)
        return tuple(record for record in short if in_rows and not is_replayed(record, BURST))

    @cached_property
    def astray(self) -> tuple[Record, ...]:
        """The records beside a reference that took another time than beside most others: ratios to it are false."""
        beside: dict[str, dict[str, float]] = {}
        for record in self._in_burst:
            timing = timing_of(record)
            beside.setdefault(timing.reference_variant, {})[record.variant] = timing.median_ms / timing.ratio
        lost = {
            variant
            for its in beside.values()
            for variant, ms in its.items()
            if abs(math.log(ms / median(its.values()))) > _ASTRAY
        }
        return tuple(record for record in self._in_burst if record.variant in lost and record not in self.single)

    @cached_property
    def records(self) -> Mapping[str, Record]:
        """The records that have a time and a rank, by variant, fastest first: none quantized, `single` or `astray`."""
        lost = {record.variant for record in (*self.single, *self.astray)}
        timed = [record for record in self._timed if record.variant not in lost]
        return {record.variant: record for record in sorted(timed, key=self._ordering.log)} if timed else {}

    def record(self, variant: str) -> Record | None:
        """Return a variant's record of any status, if there is one."""
        return self.group.find(variant, self.workload)

    def speedup(self, variant: str, over: str = EAGER) -> Estimate | None:
        """Return how many times as fast a variant is as another; None where one has no time or rank."""
        one, other = self.records.get(variant), self.records.get(over)
        return self._ordering.speedup(one, other) if one and other and one is not other else None

    def known(self, variant: str, over: str = EAGER) -> Estimate | None:
        """Return the `speedup`; None where its interval reaches over 1.25 times its value, as of a few late calls."""
        found = self.speedup(variant, over)
        return found if found and not is_vague(found.value, found.high) else None

    def _beats(self, one: Record, other: Record) -> bool:
        """Whether one is measurably faster, and the 95% interval of its margin lies above 1."""
        return self._ordering.faster(one, other) and self._ordering.speedup(one, other).low > 1

    @cached_property
    def unbeaten(self) -> tuple[Record, ...]:
        """The records that none is measurably faster than, with a margin whose 95% interval lies above 1."""
        every = list(self.records.values())
        return tuple(one for one in every if not any(self._beats(other, one) for other in every))

    @cached_property
    def level(self) -> tuple[Record, ...]:
        """The fastest record, and the unbeaten ones that are level with it by the rule of a page's verdict."""
        return tuple(
            one
            for one in self.unbeaten
            if one is self.unbeaten[0] or self._ordering.speedup(self.unbeaten[0], one).high < LEVEL_WITHIN
        )

    @property
    def unsure(self) -> tuple[Record, ...]:
        """The unbeaten records that are too uncertain to be called level."""
        return tuple(one for one in self.unbeaten if all(one is not other for other in self.level))

    @cached_property
    def unranked(self) -> tuple[Record, ...]:
        """The records that passed and have no rank, but may be the fastest: `single` or `astray` ones."""
        fastest = next(iter(self.records.values()), None)
        most = _SLOWER * timing_of(fastest).median_ms if fastest else math.inf
        return tuple(record for record in (*self.single, *self.astray) if timing_of(record).median_ms <= most)

    @property
    def winner(self) -> Record | None:
        """The fastest record, where it is measurably faster than all others.

        None where no other has a time, or one without a rank may be faster.
        """
        is_sure = len(self.unbeaten) == 1 and len(self.records) > 1 and not self.unranked
        return self.unbeaten[0] if is_sure else None

    @property
    def margin(self) -> Estimate | None:
        """How many times as fast the winner is as the second; None where there is no winner."""
        if not self.winner:
            return None
        first, second = list(self.records.values())[:2]
        return self._ordering.speedup(first, second)

    @cached_property
    def called(self) -> Mapping[str, float]:
        """The times of calls as the host launches them, in ms, by variant, shortest first.

        These are means of processes and have no interval. `single` records have none.
        """
        single = {record.variant for record in self.single}
        times = {record.variant: called_ms(record) for record in self._timed if record.variant not in single}
        return dict(sorted(times.items(), key=lambda item: item[1]))


@dataclass(frozen=True, eq=False)
class Grid:
    """The shapes of one pass and dtype, in the order of batch, seq_len, head_dim and heads."""

    which: str  # the pass
    dtype: str
    points: tuple[Point, ...]

    @property
    def name(self) -> str:
        """What the grid is of, in words: "forward, bfloat16"."""
        return f"{self.which}, {self.dtype}"

    @cached_property
    def wins(self) -> Counter[str]:
        """At how many shapes each variant is the winner."""
        return Counter(record.variant for point in self.points if (record := point.winner))

    @property
    def is_replayed(self) -> bool:
        """Whether short calls were replayed as CUDA graphs, so that times as called differ from those that rank."""
        return any(is_replayed(record, BURST) for point in self.points for record in point.records.values())

    @cached_property
    def variants(self) -> tuple[str, ...]:
        """Every variant with a record."""
        return tuple(dict.fromkeys(variant for point in self.points for variant in point.group.variants))


def grids(records: Iterable[Record]) -> list[Grid]:
    """Return the grids among records, in their order: attentions in one pass. What else there is is left out."""
    found: dict[tuple[str, str], list[Point]] = {}
    for group in groups(records):
        if which := PASSES.get(group.operation):
            for workload in group.workloads:
                found.setdefault((which, workload.dtype), []).append(Point(group, workload))
    return [Grid(*key, tuple(sorted(points, key=lambda point: point.sizes))) for key, points in found.items()]


def called_ms(record: Record) -> float:
    """Return the time of a PASSED record's call as the host launches it; of a long call that on the device, in ms."""
    launched = launched_ms(record) if is_replayed(record, BURST) else held_up_ms(record)
    return launched or timing_of(record).median_ms
