"""The timings of a cell's variants, computed again from its series."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median, mode

from fluxbench.analysis.verification.cell import CONTROL, Cell, Sampled, merged
from fluxbench.bench.collected import Trial
from fluxbench.bench.events import Timed
from fluxbench.bench.series import ProcessSeries, against_one, by_operation
from fluxbench.bench.timings import timings_of
from fluxbench.records.schema import BURST, SUSTAINED, Timing

ESTIMATED_FROM = 7  # the method version from which on `bench.timings` computes timings as it does now,
MEANS_FROM = 8  # and intervals of sustained means


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What a timing must be; its intervals where their estimator is not gone."""

    samples_ms: Sequence[Sequence[float]]
    discarded: int
    reference_variant: str
    median_ms: float
    ratio: float
    quotients: Sequence[Sequence[float]]  # by process, samples over the reference's
    timing: Timing | None = None  # all of it, from `ESTIMATED_FROM` on
    intervals: bool = True  # of `timing`; False of sustained means before `MEANS_FROM`


@dataclass(eq=False)
class _Taken:
    """The series of one trial, and the worker that it was taken in."""

    process: int
    variant: str
    place: int  # among the trials of the cell
    worker: int = 0
    reference: str | None = None  # where its series name it
    series: dict[tuple[str, str], Sampled] = field(default_factory=dict)  # by workload and regime

    @property
    def is_reference(self) -> bool:
        """Whether it is a reference's: its burst samples are those beside it, or it has a block alone."""
        return all(one.samples_ms == one.reference_ms for (_, regime), one in self.series.items() if regime == BURST)

    @property
    def is_first(self) -> bool:
        """Whether a worker began with it: a reference has burst samples once."""
        return self.is_reference and any(regime == BURST for _, regime in self.series)


class Rebuilt:
    """The trials of a cell, from the order of its series.

    Where these do not name their worker, one begins with a process or with burst samples of the reference.
    """

    def __init__(self, cell: Cell) -> None:
        self._trials = _trials(cell.samples or ())
        self._of_variant: dict[str, list[_Taken]] = {}
        self._of_worker: dict[tuple[int, str], list[_Taken]] = {}  # and variant
        for trial in self._trials:
            self._of_variant.setdefault(trial.variant, []).append(trial)
            self._of_worker.setdefault((trial.worker, trial.variant), []).append(trial)
        self._by_estimator: dict[tuple[bool, bool], dict[str, dict[str, dict[str, Timing]]]] = {}  # winsorized, apart
        self._operations = {record.workload.name: record.workload.operation for record in cell.records}
        self._references = {
            trial.worker: trial.reference or trial.variant
            for trial in self._trials
            if trial.reference or trial.is_reference
        }

    @property
    def references(self) -> set[str]:
        """The variants that were a reference."""
        return {self._reference(trial) for trial in self._trials} - {""}

    def _reference(self, trial: _Taken) -> str:
        """Return what a trial was timed beside: of series that do not name it, that of their worker."""
        return trial.reference or self._references.get(trial.worker, "")

    def timings(
        self, variant: str, method_version: int, *, winsorized: bool = True, apart: bool = True
    ) -> Mapping[str, Mapping[str, Expected]]:
        """Return the timings of a variant by workload and regime; `winsorized`, `apart`: as its records say."""
        found: dict[str, dict[str, Expected]] = {}
        for part in by_operation({variant: self._cell.get(variant, {})}, self._operations):
            found |= {name: _plain(variant, its) for name, its in part[variant].items() if its}
        if method_version < ESTIMATED_FROM:
            return found
        return {
            workload: {
                regime: dataclasses.replace(
                    found[workload][regime],
                    timing=timing,
                    intervals=regime == BURST or method_version >= MEANS_FROM,
                )
                for regime, timing in by_regime.items()
            }
            for workload, by_regime in self._timings(winsorized, apart).get(variant, {}).items()
        }

    @cached_property
    def _cell(self) -> dict[str, dict[str, list[ProcessSeries]]]:
        """The series by variant and workload, as `bench.series.of_cell` has them."""
        pairs = dict.fromkeys((trial.variant, workload) for trial in self._trials for workload, _ in trial.series)
        found: dict[str, dict[str, list[ProcessSeries]]] = {}
        for variant, workload in pairs:
            found.setdefault(variant, {})[workload] = self._taken(variant, workload)
        return found

    def _timings(self, winsorized: bool, apart: bool) -> dict[str, dict[str, dict[str, Timing]]]:
        """Return the timings of the whole cell, of which the intervals are."""
        of = winsorized, apart
        if of not in self._by_estimator:
            self._by_estimator[of] = timings_of(self._cell, self._operations, winsorized=winsorized, apart=apart)
        return self._by_estimator[of]

    def _taken(self, variant: str, workload: str) -> list[ProcessSeries]:
        """Return what each process took of a variant at a workload, as `bench.series.of` does."""
        of_variant = self._of_variant[variant]
        by_process = {trial.process: trial for trial in of_variant if (workload, BURST) in trial.series}
        return [self._of_process(by_process[process], workload) for process in sorted(by_process)]

    def _of_process(self, trial: _Taken, workload: str) -> ProcessSeries:
        reference = self._reference(trial)
        block = trial.series.get((workload, SUSTAINED))
        paired = block is not None and bool(block.reference_ms)
        beside = [trial] if paired else self._beside(trial, workload)
        own = beside if trial.variant == reference and beside else [trial]
        blocks = [one.series[workload, SUSTAINED] for one in own if (workload, SUSTAINED) in one.series]
        anchors = [one.series[workload, SUSTAINED] for one in beside]
        burst = trial.series[workload, BURST]
        timed = Timed(
            variant=trial.variant,
            reference=reference,
            process=trial.process,
            workloads=(workload,),
            began=0.0,
            took_s=0.0,
            slept_s=0.0,
        )
        return ProcessSeries(
            trial=Trial(timed, trial.worker),
            own=[],
            burst=burst.series(),
            beside_ms=burst.reference_ms,
            sustained=merged(blocks) if blocks else None,
            anchor=merged([one.of_reference() for one in anchors] if paired else anchors) if anchors else None,
            paired=paired,
        )

    def _beside(self, trial: _Taken, workload: str) -> list[_Taken]:
        """Return the reference's trials just before and after one in its worker; of its own, all of them."""
        name = self._reference(trial)
        of_worker = self._of_worker.get((trial.worker, name), ())
        references = [one for one in of_worker if (workload, SUSTAINED) in one.series]
        if trial.variant == name:
            return references
        before = [one for one in references if one.place < trial.place]
        after = [one for one in references if one.place > trial.place]
        return [*before[-1:], *after[:1]]


def _trials(series: Sequence[Sampled]) -> list[_Taken]:
    trials: list[_Taken] = []
    ended = True
    for one in series:
        if one.variant in CONTROL or one.workload is None:
            ended = True
            continue
        key = (one.workload, one.regime)
        last = trials[-1] if trials else None
        if ended or last is None or (last.process, last.variant) != (one.process, one.variant) or key in last.series:
            last = _Taken(one.process, one.variant, len(trials), one.worker or 0, one.reference)
            trials.append(last)
        last.series[key] = one
        ended = False
    worker, process = 0, None
    for trial in trials if not all(one.worker for one in trials) else ():
        worker += trial.is_first or trial.process != process
        trial.worker, process = worker, trial.process
    return trials


def _plain(variant: str, taken: Sequence[ProcessSeries]) -> dict[str, Expected]:
    """Return timings by medians, as before `ESTIMATED_FROM`, without intervals."""
    reference = mode(one.trial.timed.reference for one in taken)
    against = against_one(taken)
    found = {
        BURST: _expected(
            variant,
            reference,
            [(one.burst.ranked(), one.burst.counts) for one in taken],
            [
                [a / b for a, b in zip(one.burst.ranked(), one.burst.ranked(one.beside_ms), strict=True)]
                for one in against
            ],
        )
    }
    if all(one.sustained and one.anchor for one in taken):
        loaded = [one.sustained for one in taken if one.sustained]
        middle = median(sample for one in against if one.anchor for sample in one.anchor.ranked())
        found[SUSTAINED] = _expected(
            variant,
            reference,
            [(one.ranked(), one.counts) for one in loaded],
            [[sample / middle for sample in one.sustained.ranked()] for one in against if one.sustained],
        )
    return found


def _expected(
    variant: str,
    reference: str,
    ranked: Sequence[tuple[Sequence[float], Sequence[bool]]],
    quotients: Sequence[Sequence[float]],
) -> Expected:
    samples_ms = [samples for samples, _ in ranked]
    return Expected(
        samples_ms=samples_ms,
        discarded=sum(len(counts) - sum(counts) for _, counts in ranked),
        reference_variant=reference,
        median_ms=median(sample for part in samples_ms for sample in part),
        ratio=1.0 if variant == reference else median(quotient for part in quotients for quotient in part),
        quotients=quotients,
    )
