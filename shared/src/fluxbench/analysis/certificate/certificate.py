"""The certificate: all its numbers as one value, from the trials, the reruns and the device's own rates."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fluxbench.analysis.certificate import judging, position
from fluxbench.analysis.certificate.judging import PERCENT, Detected, Tally
from fluxbench.analysis.certificate.position import Effect
from fluxbench.analysis.certificate.reruns import Reruns
from fluxbench.analysis.certificate.tables import Independent, independent
from fluxbench.analysis.certificate.trials import Trials
from fluxbench.analysis.comparison.model import Comparison
from fluxbench.records.schema import BURST, SUSTAINED


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What the device was doing during the trials: ranges over the records, None where it does not report it."""

    device: str
    runs: int
    runs_asked: int
    processes: int
    others: tuple[str, ...]  # processes that used the device meanwhile
    sm_clock_mhz: tuple[float, float] | None
    power_w: tuple[float, float] | None
    temperature_c: tuple[float, float] | None
    throttle_reasons: tuple[str, ...]
    regime: str = BURST


@dataclass(frozen=True, kw_only=True)
class UnderLoad:
    """The same questions of sustained times; none where the trials have no such times."""

    independent: Independent
    same: Tally
    pairs_significant: int
    detection: tuple[Detected, ...]  # of `PERCENT`, those that were measured


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """All that the certificate is made of. Rates and differences are shares; None is what could not be measured."""

    trials: Trials | None
    independent: Independent  # A/A: tables that share no run, of this and earlier sessions
    same: Tally  # A/A: each run against each later one
    pairs_of_runs: int
    pairs_significant: int  # of these pairs, those with a false positive
    device_significant: int  # of these pairs, those in which the control kernel's change was significant
    detection: tuple[Detected | None, ...]  # one for each of `PERCENT`
    sustained: UnderLoad | None
    position: tuple[Effect, ...]  # those with a known noise
    reruns: Reruns | None
    event_us: float | None
    missing: Mapping[str, str]  # why there is no number, by its key in `summary.json`

    @property
    def position_effect(self) -> float | None:
        """The largest effect of a position."""
        largest = position.largest(self.position)
        return largest.largest if largest else None

    def rerun_difference(self, regime: str) -> float | None:
        """Return the largest difference of a fast ratio between fresh runs of the notebook."""
        if self.reruns is None or self.reruns.runs < 2:
            return None
        spread = self.reruns.spread(regime, fast=True)
        return spread.max if spread else None

    @cached_property
    def cupti(self) -> list[tuple[str, float]]:
        """Where a record has a CUPTI cross-check, and by which share that differs."""
        own = judging.cupti_differences(self.trials) if self.trials else []
        others = self.reruns.clocks if self.reruns else ()
        return [
            *((f"{record.variant} at {record.workload.name}", share) for record, share in own),
            *((f"{one.variant} at {one.workload}", one.difference) for one in others),
        ]

    @property
    def cupti_difference(self) -> float | None:
        """The largest of these, without its sign."""
        return max((abs(share) for _, share in self.cupti), default=None)

    @cached_property
    def ratio_differences(self) -> list[float]:
        """How far each burst ratio differs between the runs of the trials."""
        return judging.ratio_differences(self.trials) if self.trials else []

    @cached_property
    def conditions(self) -> Conditions | None:
        """What the device was doing during the trials."""
        return _conditions(self.trials) if self.trials else None

    @property
    def measured_at(self) -> str | None:
        """When the newest trial was measured, UTC."""
        return max((record.measured_at for record in self.trials.records), default=None) if self.trials else None


def certify(
    trials: Trials | None, reruns: Reruns | None, rates: Mapping[str, Any], earlier: Sequence[Trials] = ()
) -> Certificate:
    """Return the certificate of what was measured; `rates` are the device's own, or a `reason`.

    `earlier` are trials of earlier sessions, the oldest first: they count in the independent tables alone.
    """
    compared = judging.a_a(trials) if trials else []
    certificate = Certificate(
        trials=trials,
        independent=independent([*earlier, *([trials] if trials else [])]),
        same=judging.tally(row for comparison in compared for row in comparison.rows),
        pairs_of_runs=len(compared),
        pairs_significant=_significant(compared, BURST),
        device_significant=sum(bool(one.device and one.device.significant) for one in compared),
        detection=tuple(judging.detected(trials, percent) if trials else None for percent in PERCENT),
        sustained=_under_load(trials, [*earlier, trials], compared) if trials else None,
        position=tuple(one for one in position.effects(trials) if math.isfinite(one.noise)) if trials else (),
        reruns=reruns,
        event_us=rates.get("event_us"),
        missing={},
    )
    return dataclasses.replace(certificate, missing=_missing(certificate, rates))


def _under_load(trials: Trials, sessions: Sequence[Trials], compared: Sequence[Comparison]) -> UnderLoad | None:
    same = judging.tally((row for one in compared for row in one.rows), regime=SUSTAINED)
    if not same.count:
        return None
    detection = (judging.detected(trials, percent, SUSTAINED) for percent in PERCENT)
    return UnderLoad(
        independent=independent(sessions, SUSTAINED),
        same=same,
        pairs_significant=_significant(compared, SUSTAINED),
        detection=tuple(one for one in detection if one.total.count),
    )


def _significant(compared: Sequence[Comparison], regime: str) -> int:
    """Return how many comparisons have a significant change."""
    changes = ((judging.change_of(row, regime) for row in one.rows) for one in compared)
    return sum(any(change and change.significant for change in of_one) for of_one in changes)


def _missing(certificate: Certificate, rates: Mapping[str, Any]) -> dict[str, str]:
    """Return why there is no number, by key."""
    trials, reruns = certificate.trials, certificate.reruns
    no_trials = (trials.reason if trials else None) or "two runs that passed are needed for a comparison"
    no_reruns = (reruns.why_none if reruns else None) or "there are no results of the Flux notebook"
    no_rates = str(rates.get("reason") or "the cell that measures it gave nothing")
    reasons = {
        "a_a": no_trials if not certificate.same.count else None,
        "detection": no_trials if not certificate.same.count else None,
        "position_effect_max": no_trials if certificate.position_effect is None else None,
        "rerun_ratio_max_difference": no_reruns if certificate.rerun_difference(BURST) is None else None,
        "rerun_ratio_max_difference_sustained": no_reruns if certificate.rerun_difference(SUSTAINED) is None else None,
        "clock_agreement_max_difference": "no record has a CUPTI cross-check" if not certificate.cupti else None,
        "event_overhead_us": no_rates if certificate.event_us is None else None,
    }
    return {key: reason for key, reason in reasons.items() if reason}


def _conditions(trials: Trials) -> Conditions:
    states = [state for record in trials.records if (state := record.telemetry.get(BURST))]
    return Conditions(
        device=trials.device,
        runs=len(trials.runs),
        runs_asked=trials.asked,
        processes=trials.processes,
        others=tuple(sorted({other for run in trials.runs for other in run.others})),
        sm_clock_mhz=_range(state.sm_clock_mhz for state in states),
        power_w=_range(state.power_w for state in states),
        temperature_c=_range(state.temperature_c for state in states),
        throttle_reasons=tuple(sorted({reason for state in states for reason in state.throttle_reasons})),
    )


def _range(values: Iterable[float | None]) -> tuple[float, float] | None:
    known = [value for value in values if value is not None]
    return (min(known), max(known)) if known else None
