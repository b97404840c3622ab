"""Which kernel to use: the fastest exact ones, their gain over PyTorch's default, and the fastest quantized one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fluxbench.analysis.groups import Group, incomparable, reference_variant, timing_of
from fluxbench.analysis.ranking import CLASSES, Ordering, order, ranked
from fluxbench.analysis.unbeaten import level_with_first, not_first, once, unbeaten
from fluxbench.operations.precision import EXACT, QUANTIZED, ROUNDED, TF32
from fluxbench.operations.workload import Workload
from fluxbench.records.fingerprint import Incomparable
from fluxbench.records.schema import Record
from fluxbench.records.status import Status
from fluxbench.stats.intervals import Estimate
from fluxbench.variants import is_another_way
from fluxbench.variants.forms import is_compiled

DEFAULT = "torch_native"  # scaled_dot_product_attention by its own choice
# Operations whose pages show each ratio to the reference; tables of layers and models compare times as ranks do.
_PAIRED = ("attention", "attention_backward", "attention_training")
_GATHERING = "gathering"  # the part of a decoding call that copies pages into a contiguous cache
_IN_FORM = ("model_step",)  # compiling is most of what a form gains there, so speeds are over the default in the same


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A kernel of the verdict. `speedup` is how many times as fast it is as the baseline; None of the baseline."""

    record: Record
    speedup: Estimate | None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The answer for one workload of a group.

    `exact` are the kernels that none of their class beats, fastest first, each in its simplest such form. A
    launch-bound form is none of them while there is another, nor one that is not level with the first
    (`level_with_first`): those are `unsure`, where the 95% interval of their speed over the first reaches 1. The
    baseline always is, since nothing is measurably faster then. `choice` is one of `named`: the default, which needs no
    change, else of those that are measurably faster than the baseline, if any are, the one that is among the fastest at
    the most workloads. It is beaten at `beaten_at` of the group's workloads, measurably slower than the baseline at
    `slower_at`, and has no rank where `absent` counts: by the status of its record, None where it has none. There is no
    choice where one exact kernel alone was tried, or where the verdict is undecided. At `level_at` workloads nothing
    exact is measurably faster than the baseline. `rounding` is the fastest kernel that rounds more than an exact one
    and is not quantized, where it is measurably faster than the fastest exact kernel, or where the baseline is the only
    exact one. There is none of them where records must not be ranked together.
    """

    group: Group
    workload: Workload
    baseline: Record | None = None  # see `baseline_of`
    exact: tuple[Contender, ...] = ()
    unsure: tuple[Record, ...] = ()
    tried: int = 0  # exact variants with a record of any status at the workload, each kernel's ways to load it once
    timed: tuple[Record, ...] = ()  # those of them that have a rank
    # One is named, is not measurably faster than the baseline, and others are unsure; or the baseline is too uncertain.
    is_undecided: bool = False
    choice: Record | None = None
    beaten_at: int = 0
    slower_at: int = 0
    absent: Mapping[Status | None, int] = field(default_factory=dict)
    level_at: int = 0
    unmeasured: tuple[str, ...] = ()  # exact kernels that have rank 1 at another workload and no record at this one
    rounding: Contender | None = None
    quantized: Contender | None = None
    is_faster: bool = False  # the quantized kernel, measurably, than the fastest exact one
    incomparable: Incomparable | None = None  # why there is no verdict: two of the records must not be ranked together

    @property
    def shown(self) -> tuple[Contender, ...]:
        """The named kernels, the baseline, the one that rounds more and the quantized one, each once."""
        rows = [*self.named]
        if self.baseline and all(row.record is not self.baseline for row in rows):
            rows.append(Contender(record=self.baseline, speedup=None))
        return (*rows, *filter(None, (self.rounding, self.quantized)))

    @property
    def named(self) -> tuple[Contender, ...]:
        """The exact kernels, each once: none that is another way to load one of the others."""
        named = once([one.record for one in self.exact])
        return tuple(one for one in self.exact if one.record in named)

    @property
    def named_unsure(self) -> tuple[Record, ...]:
        """The unsure kernels, each once, without those that are named as exact."""
        named = once([*(one.record for one in self.exact), *self.unsure])
        return tuple(record for record in self.unsure if record in named)

    @property
    def candidates(self) -> tuple[Record, ...]:
        """The kernels that may be the fastest where the verdict is undecided: the named ones, and the unsure ones."""
        return (*(one.record for one in self.named), *self.named_unsure)

    @property
    def beaten_once(self) -> tuple[Workload, list[Record]] | None:
        """The workload at which the choice is beaten, where there is one, and the kernels that nothing beats there."""
        if self.choice is None or self.beaten_at != 1:
            return None
        name, beaten = self.choice.variant, []
        for one in self.group.workloads:
            places = ranked(self.group, one, EXACT)
            if any(place.record.variant == name and place.rank > 1 for place in places):
                beaten.append((one, once(unbeaten(self.group, one, EXACT, order(self.group, one)))))
        return beaten[0] if len(beaten) == 1 else None

    @property
    def is_compared(self) -> bool:
        """Whether a kernel is compared with the baseline; not where the verdict is undecided, as bars look decided."""
        return self.baseline is not None and len(self.shown) > 1 and not self.is_undecided

    @property
    def default_is_level(self) -> bool:
        """Whether no exact kernel is measurably faster than PyTorch's default."""
        return any(_is_default(one.record, self.baseline) for one in self.exact)


def of(group: Group, workload: Workload | None = None) -> Verdict:
    """Return the verdict at a workload of a group, by default its longest.

    Nothing is exact where no exact kernel has a rank.
    """
    workload = workload or group.longest
    if why := incomparable(group.ranked_at(workload)):
        return Verdict(group=group, workload=workload, incomparable=why)
    ordering = order(group, workload)
    baseline = baseline_of(group, workload)
    exact = unbeaten(group, workload, EXACT, ordering, baseline)
    is_level_by_ratio = False
    if exact and baseline and baseline not in exact:  # by its times it is beaten; by no ratio that a reader sees?
        is_level_by_ratio = all(speedup(ordering, record, baseline).low <= 1 for record in exact)
        exact += [baseline] * is_level_by_ratio
    level = level_with_first(group, workload, exact, baseline, ordering)
    quantized = _quantized(group, workload, exact[0] if exact else None, ordering)
    is_faster = bool(exact and quantized and ordering.faster(quantized, exact[0]))
    rounding = _rounding(group, workload, exact, baseline, ordering)
    behind = not_first(group, EXACT)
    # A test among many calls no difference of a wide interval; one that lies under 1 is no candidate all the same.
    unsure = tuple(record for record in exact if record not in level and ordering.speedup(record, level[0]).high >= 1)
    tried = [record for record in group.records_at[workload.name].values() if record.precision_class == EXACT]
    is_sure = len(once(level)) > 1 or bool(baseline and level and ordering.faster(level[0], baseline))
    is_open = bool(unsure) and not is_sure and not any(_is_default(record, baseline) for record in level)
    is_vague = baseline is not None and baseline in (*level, *unsure) and _has_no_rank(group, baseline, workload)
    is_undecided = is_open or is_vague
    of_choice = once(level) if len(once(tried)) > 1 and not is_undecided else []

    def rather(record: Record) -> tuple[bool, bool, int, bool]:
        is_gain = baseline is not None and ordering.faster(record, baseline)
        return record.variant != DEFAULT, not is_gain, behind[record.variant], is_another_way(record.variant)

    choice = min(of_choice, key=rather, default=None)
    absent, beaten_at = _absent(group, choice) if choice else {}, 0
    if choice:
        beaten_at = behind[choice.variant] - sum(absent.values()) - (is_level_by_ratio and choice is baseline)

    def contender(record: Record) -> Contender:
        times = speedup(ordering, record, baseline) if baseline and record is not baseline else None
        return Contender(record=record, speedup=times)

    return Verdict(
        group=group,
        workload=workload,
        baseline=baseline,
        exact=tuple(map(contender, level)),
        unsure=unsure,
        tried=len(once(tried)),
        timed=tuple(once([place.record for place in ranked(group, workload, EXACT)])),
        is_undecided=is_undecided,
        choice=choice,
        beaten_at=beaten_at,
        slower_at=_slower(group, choice.variant, baseline.variant) if choice and baseline else 0,
        absent=absent,
        level_at=len(group.workloads) - behind[baseline.variant] + is_level_by_ratio if baseline else 0,
        rounding=contender(rounding) if rounding else None,
        unmeasured=_unmeasured(group, workload),
        quantized=contender(quantized) if quantized else None,
        is_faster=is_faster,
    )


def first_uncompiled(verdict: Verdict) -> Contender | None:
    """Return the fastest exact kernel that is not compiled, where the verdict's is the only one that was.

    How fast it is says little of the kernel then. Its speedup is None where it is not measurably faster.
    """
    compiled = {record.kernel for record in verdict.timed if is_compiled(record.form)}
    others = [record for record in verdict.timed if not is_compiled(record.form)]
    is_alone = len(verdict.exact) == len(compiled) == 1 and is_compiled(verdict.exact[0].record.form)
    if not (is_alone and verdict.baseline and compiled < {record.kernel for record in verdict.timed}):
        return None
    ordering, baseline = order(verdict.group, verdict.workload), verdict.baseline
    first = min(others, key=ordering.log)
    return Contender(
        record=first,
        speedup=speedup(ordering, first, baseline) if ordering.faster(first, baseline) else None,
    )


def speedup(ordering: Ordering, record: Record, baseline: Record) -> Estimate:
    """Return how many times as fast a record is as the baseline of its workload.

    That is the ratio in the same processes, where the record has one to PyTorch's default; else what the ordering
    compares.
    """
    timing = timing_of(record)
    is_beside = baseline.variant == DEFAULT == timing.reference_variant
    if not is_beside or record.workload.operation not in _PAIRED:
        return ordering.speedup(record, baseline)
    low, high = timing.ratio_ci95
    return Estimate(1 / timing.ratio, 1 / high, 1 / low if low else math.inf)


def gathering(record: Record) -> float:
    """Return the share of a call's device time in which it gathers pages of a cache; 0 where no profile shows any."""
    return sum(kernel.share for kernel in record.kernels if kernel.part == _GATHERING)


def _is_default(record: Record, baseline: Record | None) -> bool:
    """Whether a record is PyTorch's default, not compiled, or in the form that speeds are over."""
    return record.variant == DEFAULT or (record is baseline and record.kernel == DEFAULT)


def baseline_of(group: Group, workload: Workload) -> Record | None:
    """Return PyTorch's default at a workload, else the reference; None where neither has a rank.

    Of a model's step the default in the form of the fastest exact kernel, where it has a rank.
    """
    entries = [place.record for kind in CLASSES for place in ranked(group, workload, kind)]
    by_name = {record.variant: record for record in entries}
    if entries and workload.operation in _IN_FORM:
        of_form = {record.form: record for record in entries if record.kernel == DEFAULT}
        if entries[0].form in of_form:
            return of_form[entries[0].form]
    return by_name.get(DEFAULT) or by_name.get(reference_variant(group.records) or "")


def _has_no_rank(group: Group, record: Record, workload: Workload) -> bool:
    """Whether a record with a time is too uncertain for a rank."""
    return any(place.uncertain for place in ranked(group, workload, record.precision_class) if place.record is record)


def _absent(group: Group, choice: Record) -> Mapping[Status | None, int]:
    """Return at how many workloads a record's variant has no rank, by the status that it has there."""
    absent = (one for one in group.workloads if group.trusted(choice.variant, one) is None)
    return Counter(record.status if (record := group.find(choice.variant, one)) else None for one in absent)


def _unmeasured(group: Group, workload: Workload) -> tuple[str, ...]:
    """Return what `Verdict.unmeasured` has."""
    here = {record.kernel for record in group.records_at[workload.name].values()}
    places = [place for one in group.workloads for place in ranked(group, one, EXACT)]
    leading = dict.fromkeys(place.record.kernel for place in places if place.leads)
    return tuple(kernel for kernel in leading if kernel not in here)


def _slower(group: Group, variant: str, baseline: str) -> int:
    """Return at how many workloads a variant is measurably slower than the baseline."""
    both = [(one, group.trusted(variant, one), group.trusted(baseline, one)) for one in group.workloads]
    return sum(order(group, one).faster(than, record) for one, record, than in both if record and than)


def _rounding(
    group: Group, workload: Workload, exact: Sequence[Record], baseline: Record | None, ordering: Ordering
) -> Record | None:
    """Return the kernel of `Verdict.rounding`; None where nothing is exact, or without a baseline."""
    if not exact or not baseline:
        return None
    first = [record for kind in (ROUNDED, TF32) for record in unbeaten(group, workload, kind, ordering)]
    fastest = min(first, key=ordering.log, default=None)
    is_alone = exact[0] is baseline and len(ranked(group, workload, EXACT)) == 1
    return fastest if fastest and (is_alone or ordering.faster(fastest, exact[0])) else None


def _quantized(group: Group, workload: Workload, fastest: Record | None, ordering: Ordering) -> Record | None:
    """Return the fastest quantized kernel; one that is measurably faster than the fastest exact kernel comes first."""
    found = unbeaten(group, workload, QUANTIZED, ordering)
    faster = [record for record in found if fastest and ordering.faster(record, fastest)]
    return next(iter(faster or found), None)
