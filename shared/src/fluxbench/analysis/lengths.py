"""How time and memory grow with the length, and from which length on one kernel beats another."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from fluxbench.analysis.groups import Group, is_launch_bound, timing_of
from fluxbench.analysis.ranking import order
from fluxbench.operations.workload import Workload
from fluxbench.records.schema import Record
from fluxbench.stats import power
from fluxbench.stats.intervals import Estimate

WINDOW = 16  # an exponent is of lengths from this part of the longest on: short calls take as long as their launch
_NORMAL = 1.96  # standard errors in half a 95% interval


@dataclass(frozen=True, kw_only=True)
class Exponent:
    """The power of the length with which something grows, and the lengths that it is of."""

    power: Estimate
    lengths: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Crossover:
    """One variant is faster from a length on, another is at some shorter ones.

    `above` is the shortest length from which on the one is faster at all that both have. Of the shorter lengths the
    other is measurably faster at `faster_at` and slower at `slower_at`; at the rest of `lengths` neither is. `length`
    is between `above` and the longest of `faster_at`: where the line between the logarithms of what one takes over the
    other, as the ranking compares them, reaches 0.
    """

    shorter: Record  # of the variant that is faster at some shorter lengths
    longer: Record  # of the one that is faster from `above` on
    above: int
    faster_at: tuple[int, ...]
    slower_at: tuple[int, ...]
    lengths: tuple[int, ...]  # of both
    length: float

    @property
    def below(self) -> int:
        """The longest length at which `shorter` is faster."""
        return self.faster_at[-1]

    @property
    def neither_at(self) -> tuple[int, ...]:
        """The lengths at which neither is measurably faster."""
        known = {*self.faster_at, *self.slower_at}
        return tuple(x for x in self.lengths if x < self.above and x not in known)


def of_time(group: Group, variant: str) -> Exponent | None:
    """Return how a variant's time grows; None where too few of its lengths passed."""
    curve = [record for record in group.curve(variant) if not is_launch_bound(record)]
    return _exponent(curve, lambda record: timing_of(record).median_ms, _variance)


def of_memory(group: Group, variant: str) -> Exponent | None:
    """Return how the memory of a variant's call grows, inputs included; None where it is not known."""
    curve = [record for record in group.curve(variant) if record.memory]
    return _exponent(curve, lambda record: float(record.memory.total_bytes) if record.memory else 0.0)


def _exponent(
    curve: Sequence[Record], value: Callable[[Record], float], variance: Callable[[Record], float] | None = None
) -> Exponent | None:
    of = [record for record in curve if WINDOW * record.workload.x >= curve[-1].workload.x]
    if len(of) < power.LEAST:
        return None
    lengths = tuple(record.workload.x for record in of)
    variances = [variance(record) for record in of] if variance else []
    return Exponent(power=power.exponent(lengths, [value(record) for record in of], variances), lengths=lengths)


def _variance(record: Record) -> float:
    """Return the variance of the logarithm of a time, from its interval."""
    low, high = timing_of(record).ci95_ms
    return (math.log(high / low) / 2 / _NORMAL) ** 2


def crossovers(group: Group) -> list[Crossover]:
    """Return the crossovers of all pairs of variants of one precision class, the shortest length first."""
    found = [cross for pair in combinations(group.variants, 2) if (cross := _crossover(group, *pair))]
    return sorted(found, key=lambda cross: cross.length)


def _crossover(group: Group, one: str, other: str) -> Crossover | None:
    """Return from which length on one of two variants is the faster; None where no length says so for both."""
    both = list(_both(group, one, other))
    if not both or both[0][1].precision_class != both[0][2].precision_class:
        return None
    winners = [_faster(group, *at) for at in both]
    last = winners[-1]
    if last is None:
        return None
    above = next(index for index in range(len(both)) if all(winner == last for winner in winners[index:]))
    faster = [index for index in range(above) if winners[index] not in (None, last)]
    if not faster:
        return None
    _, record, rival = both[-1]
    shorter, longer = (rival, record) if record.variant == last else (record, rival)
    lengths = tuple(workload.x for workload, _, _ in both)
    return Crossover(
        shorter=shorter,
        longer=longer,
        above=lengths[above],
        faster_at=tuple(lengths[index] for index in faster),
        slower_at=tuple(x for x, winner in zip(lengths[:above], winners, strict=False) if winner == last),
        lengths=lengths,
        length=_zero(*((lengths[index], _log_ratio(group, *both[index])) for index in (faster[-1], above))),
    )


def _both(group: Group, one: str, other: str) -> Iterator[tuple[Workload, Record, Record]]:
    for workload in group.workloads:
        record, rival = group.trusted(one, workload), group.trusted(other, workload)
        if record and rival:
            yield workload, record, rival


def _faster(group: Group, workload: Workload, one: Record, other: Record) -> str | None:
    """Return which variant is measurably faster, as in a ranking, or None."""
    ordering = order(group, workload)
    return next((a.variant for a, b in ((one, other), (other, one)) if ordering.faster(a, b)), None)


def _log_ratio(group: Group, workload: Workload, one: Record, other: Record) -> float:
    found = order(group, workload)
    return found.log(one) - found.log(other)


def _zero(first: tuple[int, float], last: tuple[int, float]) -> float:
    """Return where a line through two points, straight over log(x), is zero; their signs differ."""
    (x, y), (to_x, to_y) = first, last
    return math.exp(math.log(x) + (0 - y) / (to_y - y) * math.log(to_x / x))
