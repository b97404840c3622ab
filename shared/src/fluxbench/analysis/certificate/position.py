"""Does the position in an order move a time? From the samples' places in their rounds, and trials in a process."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from fluxbench.analysis.certificate.trials import Place, Trials
from fluxbench.stats.variances import robust_deviation

THIRDS = ("first", "middle", "last")
IN_ROUND, IN_PROCESS = "place of a call in its round", "trial of a variant in its process"


@dataclass(frozen=True, kw_only=True)
class Effect:
    """How far the medians of three thirds of an order lie from the median of all, as shares, for one kernel."""

    kind: str  # `IN_ROUND` or `IN_PROCESS`
    base: str
    thirds: tuple[float | None, ...]  # as in `THIRDS`; None: nothing was timed there
    noise: float  # one standard error of such a median, the largest of the three
    count: int  # samples, or trials

    @property
    def largest(self) -> float:
        """The largest deviation, without its sign."""
        return max(abs(third) for third in self.thirds if third is not None)


def effects(trials: Trials) -> list[Effect]:
    """Return both kinds of effect of each kernel, its forms and workloads pooled.

    In a round: samples over the median of their own trial and workload. In a process: medians of trials over the median
    of all processes at that variant and workload, the mean over workloads, so that a trial is one number.
    """
    by_kind = (
        _effect(kind, base, list(deviations(trials, base)))
        for base in trials.bases
        for kind, deviations in ((IN_ROUND, _in_rounds), (IN_PROCESS, _in_processes))
    )
    return [effect for effect in by_kind if effect]


def largest(of: Sequence[Effect]) -> Effect | None:
    """Return the effect with the largest deviation; None of none."""
    return max(of, key=lambda effect: effect.largest, default=None)


def _places(trials: Trials, base: str) -> Iterator[tuple[int, Place]]:
    """Yield the number of a run and a place, for all of a base whose record passed."""
    for number, run in enumerate(trials.runs):
        passed = {(record.variant, record.workload.name) for record in run.records if record.burst}
        for place in run.places:
            if trials.variants[place.variant].base == base and (place.variant, place.workload) in passed:
                yield number, place


def _in_rounds(trials: Trials, base: str) -> Iterator[tuple[int, float]]:
    """Yield the third of the round and the deviation of each sample."""
    for _, place in _places(trials, base):
        middle = median(place.samples_ms)
        for position, sample in zip(place.places, place.samples_ms, strict=True):
            yield _third(position, place.of), sample / middle - 1


def _in_processes(trials: Trials, base: str) -> Iterator[tuple[int, float]]:
    """Yield the third of the process and the deviation of each trial, the mean over its workloads."""
    medians: dict[tuple[str, str], list[float]] = {}
    by_trial: dict[tuple[int, int, str], list[tuple[int, str, float]]] = {}
    for number, place in _places(trials, base):
        middle = median(place.samples_ms)
        medians.setdefault((place.variant, place.workload), []).append(middle)
        key = number, place.process, place.variant
        by_trial.setdefault(key, []).append((_third(place.trial, place.trials), place.workload, middle))
    overall = {key: median(middles) for key, middles in medians.items()}
    for (_, _, variant), of_trial in by_trial.items():
        yield of_trial[0][0], fmean(middle / overall[variant, workload] - 1 for _, workload, middle in of_trial)


def _third(position: int, of: int) -> int:
    return len(THIRDS) * position // of


def _effect(kind: str, base: str, points: Sequence[tuple[int, float]]) -> Effect | None:
    if not points:
        return None
    overall = median(deviation for _, deviation in points)
    thirds = [[deviation for third, deviation in points if third == which] for which in range(len(THIRDS))]
    return Effect(
        kind=kind,
        base=base,
        thirds=tuple(median(third) - overall if third else None for third in thirds),
        noise=max(_standard_error(third) for third in thirds if third),
        count=len(points),
    )


def _standard_error(values: Sequence[float]) -> float:
    """Return the standard error of a median of nearly normal values: sqrt(pi / 2) times that of the mean.

    By their median absolute deviation, which a few outliers do not change. Of one value it is infinite.
    """
    if len(values) < 2:
        return math.inf
    return math.sqrt(math.pi / 2) * robust_deviation(values) / math.sqrt(len(values))
