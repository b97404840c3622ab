"""Which kernel to use: the fastest exact ones, their gain over PyTorch's default, and the fastest quantized one."""

from __future__ import annotations

from dataclasses import dataclass

from fluxbench.analysis.groups import Group, is_launch_bound, reference_variant
from fluxbench.analysis.ranking import CLASSES, Ordering, order, ranked
from fluxbench.operations.precision import EXACT, QUANTIZED
from fluxbench.records.schema import Record
from fluxbench.stats.intervals import Estimate
from fluxbench.variants.forms import simplicity

DEFAULT = "torch_native"  # scaled_dot_product_attention by its own choice
LEVEL_WITHIN = 1.10  # a kernel that may be slower than the first by more is undecided and not level with it


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A kernel of the verdict. `speedup` is how many times as fast it is as the baseline; None of the baseline."""

    record: Record
    speedup: Estimate | None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The answer for one group of workloads, at its longest.

    `exact` are the kernels that none of their class beats, each in its simplest such form: first those that the fewest
    beat at other lengths. A launch-bound form is none of them while there is another. `undecided` is rank 1 too, but
    may be slower than the first by more than `LEVEL_WITHIN`.
    """

    group: Group
    baseline: Record | None  # the default, else the reference; None where neither has a rank
    exact: tuple[Contender, ...]
    undecided: tuple[Record, ...]
    beaten_at: int  # of the group's workloads, at how many the first exact kernel is not among the fastest
    quantized: Contender | None
    gain: Estimate | None  # of the quantized kernel over the fastest of the exact ones, where it is measurably faster

    @property
    def shown(self) -> tuple[Contender, ...]:
        """The exact kernels, the baseline and the quantized one, each once."""
        rows = [*self.exact]
        if self.baseline and all(row.record is not self.baseline for row in rows):
            rows.append(Contender(record=self.baseline, speedup=None))
        return (*rows, self.quantized) if self.quantized else tuple(rows)

    @property
    def default_is_level(self) -> bool:
        """Whether no exact kernel is measurably faster than PyTorch's default."""
        return any(one.record.variant == DEFAULT for one in self.exact)


def of(group: Group) -> Verdict:
    """Return the verdict on a group; nothing is exact where no exact kernel has a rank."""
    ordering = order(group, group.longest)
    entries = [place.record for kind in CLASSES for place in ranked(group, group.longest, kind)]
    by_name = {record.variant: record for record in entries}
    baseline = by_name.get(DEFAULT) or by_name.get(reference_variant(group.records) or "")
    exact = _unbeaten(group, EXACT, ordering)
    level = [record for record in exact if _is_level(record, exact[0], ordering)]
    fastest = min(level, key=ordering.log, default=None)
    quantized = _quantized(group, fastest, ordering)
    gain = (
        ordering.speedup(quantized, fastest) if quantized and fastest and ordering.faster(quantized, fastest) else None
    )

    def contender(record: Record) -> Contender:
        speedup = ordering.speedup(record, baseline) if baseline and record is not baseline else None
        return Contender(record=record, speedup=speedup)

    return Verdict(
        group=group,
        baseline=baseline,
        exact=tuple(map(contender, level)),
        undecided=tuple(record for record in exact if record not in level),
        beaten_at=_beaten(group, level[0]) if level else 0,
        quantized=contender(quantized) if quantized else None,
        gain=gain,
    )


def _unbeaten(group: Group, precision_class: str, ordering: Ordering) -> list[Record]:
    """Return one record of each kernel that nothing of its class beats at the longest workload."""
    first = [place.record for place in ranked(group, group.longest, precision_class) if place.rank == 1]
    first = [record for record in first if not is_launch_bound(record)] or first
    beaten = {record.variant: _beaten(group, record) for record in first}
    kernels: dict[str, list[Record]] = {}
    for record in first:
        kernels.setdefault(record.kernel, []).append(record)
    chosen = [
        min(forms, key=lambda record: (beaten[record.variant], simplicity(record.form))) for forms in kernels.values()
    ]
    return sorted(chosen, key=lambda record: (beaten[record.variant], ordering.log(record), record.variant))


def _beaten(group: Group, record: Record) -> int:
    """Return at how many workloads a variant does not have rank 1."""
    return sum(
        all(
            place.rank != 1 or place.record.variant != record.variant
            for place in ranked(group, workload, record.precision_class)
        )
        for workload in group.workloads
    )


def _is_level(record: Record, first: Record, ordering: Ordering) -> bool:
    return record is first or ordering.speedup(first, record).high < LEVEL_WITHIN


def _quantized(group: Group, fastest: Record | None, ordering: Ordering) -> Record | None:
    """Return the fastest quantized kernel; one that is measurably faster than the fastest exact kernel comes first."""
    unbeaten = _unbeaten(group, QUANTIZED, ordering)
    faster = [record for record in unbeaten if fastest and ordering.faster(record, fastest)]
    return next(iter(faster or unbeaten), None)
